"""The rule: a correct result, or a clear error and a usable checkpoint.

A case is played to its end: whatever stops the run, it is resumed, or what its error
message asks for is done, until there is a result. That result must be the one of an
uninterrupted run in one process, bit for bit.
"""

import contextlib
import io
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import numpy as np

import dadmm.run
from dadmm import Topology
from dadmm.cli import setup
from dadmm.comm.world import Checks, World
from dadmm.runs.config import RunConfig
from tests.campaigns.faults.cases import Case
from tests.campaigns.faults.jobs import MPI, Ended, Job
from tests.campaigns.faults.strikes import Fault, complete, draw_faults, mount
from tests.support.solving import solve

SURVIVED, CLEAR, UNCLEAR = "survived", "clear error", "unclear error"
HANG, WRONG, LOST = "hang", "wrong result", "data lost"
FAILURES = (UNCLEAR, HANG, WRONG, LOST)
OUTCOMES = (SURVIVED, CLEAR, *FAILURES)
MISSED = "missed"  # the fault found nobody; such a case counts for nothing
SKIPPED = "skipped"  # it cannot be tried here
FINAL = ("converged", "max_iter")  # why a run ends that has nothing left to do
LATE = ("signal", "max_iter")
STARTS = 12  # of one case at most
CLOSE = 1e-4  # relative distance from the optimum, for a tolerance of 1e-7

# What dadmm may say when it does not go on, and what a user then does
ANEW = (
    r"there is no checkpoint in .*, so there is nothing to resume; start a new run",
    r"no checkpoint in .* is complete: that of iteration \d+ lacks the file of node",
    r"cannot read .*config\.toml: No such file or directory",
)
REMOVE = r"the checkpoint (?P<file>\S+) is (damaged or cut short|of another \w+)"
ROWS = r"some rows of .* up to iteration \d+ are missing; restore its files, or"
DISK = r"No space left on device"
OVER = (
    r"the run in .* has ended \(.*\) after \d+ iterations; there is nothing to resume"
)


class Verdict(NamedTuple):
    outcome: str
    struck: int  # faults that hit
    starts: int
    story: str  # what happened, start by start


class Fall(Exception):
    """A breach of the rule: its outcome, and what was seen."""


class Play:
    """One case in its own folder, from its first start to its verdict.

    The campaign finds its processes by ``name``. Each exchange takes ``pace`` seconds
    more: on a fast machine a run is else over before a signal from outside comes.
    """

    def __init__(
        self, case: Case, mpi: MPI, folder: Path, name: str, pace: float = 0.0
    ) -> None:
        self.case, self.mpi, self.folder, self.name = case, mpi, folder, name
        self.pace = pace
        self.disk = folder / "disk"
        self.run = self.disk / "run"
        self.story: list[str] = []
        self.struck = self.starts = 0
        self.refused = False
        self.early = False  # a signal came before the ranks listened
        self.newest = -1  # complete checkpoint that was seen

    def verdict(self) -> Verdict:
        if self.case.kind == "full_disk":
            mount(self.disk)
        else:
            self.disk.mkdir()
        try:
            outcome = self._play()
        except Fall as fall:
            outcome = str(fall.args[0])
            self.story.append(str(fall.args[1]))
        finally:
            if self.case.kind == "full_disk":
                subprocess.run(["umount", "-l", str(self.disk)], check=True, timeout=60)
        return Verdict(outcome, self.struck, self.starts, " | ".join(self.story))

    def _play(self) -> str:
        if self.case.kind == "loss":
            return self._play_loss()
        reference(self.case, self.folder / "whole")
        faults, resume = draw_faults(self.case), False
        while self.starts < STARTS:
            fault = faults.pop(0) if faults else Fault("no fault")
            ended, hit = self._start(fault, resume)
            self.struck += hit
            done, resume = self._after(ended, fault, hit, resume)
            if done:
                if differs := differences(self.folder / "whole", self.run):
                    raise Fall(
                        WRONG, f"differs from the uninterrupted run in {differs}"
                    )
                if not self.struck:
                    return MISSED
                return CLEAR if self.refused else SURVIVED
        raise Fall(UNCLEAR, f"no result after {STARTS} starts")

    def _start(self, fault: Fault, resume: bool) -> tuple[Ended, bool]:
        if resume:
            arguments = ["--resume", str(self.run), "--quiet"]
        else:
            arguments = [*self.case.settings, *self.case.saving, "--quiet"]
            arguments += ["--out", str(self.run), "--overwrite"]
            self.newest = -1
        if fault.before is not None:
            fault.before(self.run)
        self.starts += 1
        plan = fault.plan
        if self.pace:
            ranks = map(str, range(self.case.ranks))
            plan = {k: {"pace": self.pace} | fault.plan.get(k, {}) for k in ranks}
        job = Job(self.mpi, self.case.ranks, arguments, self.folder, self.name, plan)
        try:
            hit = fault.strike is not None and fault.strike(job, self.run)
            ended = job.end()
        finally:
            job.sweep()
        self.early = not job.heeds
        inside = any("die" in own for own in fault.plan.values())
        if (inside or fault.strike is None) and fault.words != "no fault":
            hit = hit or ended.code != 0
        how = "resumed" if resume else "started"
        told = f"{how}, {fault.words}: code {ended.code}"
        self.story.append(f"{told}, {'; '.join(ended.said)}" if ended.said else told)
        return ended, hit

    def _after(
        self, ended: Ended, fault: Fault, hit: bool, resumed: bool
    ) -> tuple[bool, bool]:
        """Judge an end; return whether there is a result, and whether to resume."""
        tail = ended.err[-2000:]
        if ended.hung:
            raise Fall(HANG, f"still running after its time: {tail}")
        if ended.left:
            raise Fall(HANG, f"{ended.left} processes outlived mpiexec: {tail}")
        if "Traceback" in ended.err and not self._interrupted(ended, fault):
            raise Fall(UNCLEAR, f"a traceback: {tail}")
        summary = self._summary()
        if summary is None and ended.code == 0:
            raise Fall(UNCLEAR, f"code 0 and no summary: {tail}")
        if len(ended.said) > 1:
            raise Fall(UNCLEAR, f"more than one sentence: {ended.said}")
        over = summary is not None and (
            summary["reason"] in FINAL or summary["iterations"] == self.case.max_iter
        )
        if not over:
            self._nothing_lost(summary)
            if fault.hurt is not None:
                self.story.append(fault.hurt(self.run))
                self.newest = -1  # what is lost from here on was taken by us
        if ended.said:
            if ended.code != 2:
                raise Fall(UNCLEAR, f"code {ended.code} with a sentence: {ended.said}")
            return self._refused(ended.said[0], fault, over, resumed)
        if ended.code != 0 and not (hit and (fault.lethal or self.early or summary)):
            raise Fall(UNCLEAR, f"code {ended.code} without a word: {tail}")
        return over, True

    def _interrupted(self, ended: Ended, fault: Fault) -> bool:
        """Whether all tracebacks are Python's own, of a SIGINT while it imported."""
        # those of several ranks may be mixed, line by line
        known = ended.err.count("KeyboardInterrupt") >= ended.err.count("Traceback")
        return "SIGINT" in fault.words and known and ", in main\n" not in ended.err

    def _summary(self) -> dict | None:
        file = self.run / "summary.json"
        return json.loads(file.read_text()) if file.exists() else None

    def _nothing_lost(self, summary: dict | None) -> None:
        """Raise if a complete checkpoint has vanished, or a stop has left none."""
        whole = complete(self.run, self.case.ranks)
        newest = max(whole, default=-1)
        if newest < self.newest:
            raise Fall(LOST, f"checkpoint {self.newest} is gone; there are {whole}")
        stopped = summary is not None and summary["reason"] == "signal"
        if stopped and newest != summary["iterations"]:
            raise Fall(LOST, f"stopped at {summary['iterations']}, saved {whole}")
        self.newest = newest

    def _refused(
        self, said: str, fault: Fault, over: bool, resumed: bool
    ) -> tuple[bool, bool]:
        """Do what the sentence asks for; return whether all is done, and the way."""
        self.refused = True
        whole = complete(self.run, self.case.ranks)
        if re.search(OVER, said) and over and resumed:
            return True, True
        if re.search(DISK, said) and fault.hurt is not None:
            return over, True  # the last checkpoint may fail, and cost no results
        damaged = re.search(REMOVE, said)
        if damaged is not None and self.case.kind == "corrupt" and resumed:
            shutil.rmtree(Path(damaged["file"]).parent)
            self.newest = -1
            return False, True
        if re.search(ROWS, said) and self.case.kind == "corrupt" and resumed:
            return False, False
        if any(re.search(words, said) for words in ANEW) and resumed:
            if whole:
                raise Fall(LOST, f"refused, with complete checkpoints {whole}: {said}")
            return False, False
        raise Fall(UNCLEAR, f"unexpected: {said}")

    def _play_loss(self) -> str:
        (fault,) = draw_faults(self.case)
        self.starts = self.struck = 1
        outcome, told = judge_loss(self.case, self.mpi, self.run, self.name, fault)
        self.story += [fault.words, told]
        return outcome


def reference(case: Case, out: Path) -> None:
    """Run a case in this process, with nothing in its way."""
    arguments = [*case.settings, "--nodes", str(case.ranks), "--no-checkpoint"]
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        code = dadmm.run.main([*arguments, "--quiet", "--out", str(out)])
    if code != 0:
        raise RuntimeError(f"{case.name} cannot be run at all: {said.getvalue()}")
    if json.loads((out / "summary.json").read_text())["reason"] == "signal":
        raise KeyboardInterrupt  # which the run took for its own


def differences(whole: Path, again: Path) -> list[str]:
    """Return in what the results of two runs differ, times aside."""
    found = []
    names = {path.name for path in whole.iterdir()} - {"config.toml"}
    for name in sorted(names):
        mine, theirs = again / name, whole / name
        if not mine.exists():
            found.append(f"{name} (missing)")
        elif name.endswith(".npz"):
            found += [f"{name}:{key}" for key in _arrays_apart(mine, theirs)]
        elif name.endswith(".csv") and _without_times(mine) != _without_times(theirs):
            found.append(name)
        elif name == "summary.json":
            found += [f"{name}:{key}" for key in _facts_apart(mine, theirs)]
    return found


def bits(a: np.ndarray) -> tuple[object, ...]:
    return a.dtype, a.shape, a.tobytes()


def _arrays_apart(mine: Path, theirs: Path) -> list[str]:
    with np.load(mine) as a, np.load(theirs) as b:
        keys = sorted({*a.files, *b.files})
        return [k for k in keys if k not in a or k not in b or bits(a[k]) != bits(b[k])]


def _facts_apart(mine: Path, theirs: Path) -> list[str]:
    a, b = (json.loads(path.read_text()) for path in (mine, theirs))
    names = ("iterations", "converged", "messages", "bytes", "n_nodes")
    apart = [name for name in names if a[name] != b[name]]
    # a signal that comes in the last iteration changes nothing but this word
    same = a["reason"] == b["reason"] or (a["reason"], b["reason"]) == LATE
    return apart if same else [*apart, "reason"]


def _without_times(path: Path) -> list[list[str]]:
    lines = [line.split(",") for line in path.read_text().splitlines()]
    kept = [k for k, name in enumerate(lines[0]) if not name.endswith("_seconds")]
    return [[line[k] for k in kept] for line in lines]


def judge_loss(
    case: Case, mpi: MPI, run: Path, name: str, fault: Fault
) -> tuple[str, str]:
    """Run a case that loses ranks; return its outcome and what was seen.

    Nobody can go on if a rank dies before the first iteration or after the last one.
    Then one sentence must say so, and the run must go on from its checkpoint.
    """
    begin = [*case.settings, *case.saving, "--out", str(run)]
    ended = _start(case, mpi, run, name, begin, fault)
    broken = _broken(ended)
    if broken is not None:
        return broken
    dead = sorted(int(k) for k in fault.plan)
    told = f"code {ended.code}, {'; '.join(ended.said)}"
    if ended.code == 0:
        return _judge_parts(case, dead, run, told)
    if not (run / "summary.json").exists():
        again = _start(case, mpi, run, name, ["--resume", str(run)], Fault("no fault"))
        told += f" | resumed: code {again.code}, {'; '.join(again.said)}"
        if again.code == 2 and len(again.said) == 1 and not complete(run, case.ranks):
            return CLEAR, told
        broken = _broken(again) or (None if again.code == 0 else (UNCLEAR, told))
        if broken is not None:
            return broken
    outcome, told = _judge_parts(case, [], run, told)
    return (CLEAR if outcome == SURVIVED else outcome), told


def _start(
    case: Case, mpi: MPI, run: Path, name: str, arguments: list[str], fault: Fault
) -> Ended:
    options = ("--with-ft", "ulfm")
    arguments = [*arguments, "--quiet", "--on-failure", "continue"]
    job = Job(mpi, case.ranks, arguments, run.parent, name, fault.plan, options)
    return job.end()


def _broken(ended: Ended) -> tuple[str, str] | None:
    """Return how an end breaks the rule, whatever the results are."""
    tail = ended.err[-2000:]
    if ended.hung or ended.left:
        return HANG, f"still running after its time: {tail}"
    if "Traceback" in ended.err:
        return UNCLEAR, f"a traceback: {tail}"
    errors = [line for line in ended.said if line.startswith("dadmm: error: ")]
    if len(errors) != (ended.code != 0):
        return UNCLEAR, f"code {ended.code}: {tail}"
    return None


def _judge_parts(case: Case, dead: list[int], run: Path, told: str) -> tuple[str, str]:
    """Compare the results of each part with the optimum of its data."""
    folders = [run, *sorted(run.glob("part-*"))]
    folders = [folder for folder in folders if (folder / "summary.json").exists()]
    seen: list[int] = []
    lost: set[int] = set()
    for folder in folders:
        summary = json.loads((folder / "summary.json").read_text())
        lost |= set(summary["lost_nodes"])
        nodes = nodes_of(folder)
        seen += nodes
        if not summary["converged"]:
            return WRONG, f"{told}; nodes {nodes} ended by {summary['reason']}"
        far = distance(case, nodes, folder)
        told += f"; nodes {nodes} are {far:.0e} from the optimum of their data"
        if not far < CLOSE:
            return WRONG, told
    missing = set(range(case.ranks)) - set(seen)  # some died alone, and nobody knows
    if not lost <= missing <= set(dead) or len(set(seen)) < len(seen):
        return LOST, f"{told}; there are results of nodes {sorted(seen)} only"
    if dead and not lost:
        return MISSED, told
    return SURVIVED, told


def nodes_of(folder: Path) -> list[int]:
    """Return the nodes in the last rows of a history."""
    rows = np.loadtxt(
        folder / "history.csv", delimiter=",", skiprows=1, usecols=(0, 1), ndmin=2
    ).astype(int)
    return sorted(rows[rows[:, 0] == rows[-1, 0], 1].tolist())


def distance(case: Case, nodes: list[int], folder: Path) -> float:
    """Return how far the worst node is from the optimum of these nodes' data."""
    config = RunConfig.from_argv([*case.settings, "--nodes", str(case.ranks)]).config
    alone = World()
    data = setup.shards(alone, config, Topology.complete(case.ranks), Checks(alone))
    problems = setup.problems(config, data, case.ranks)
    left = [problems[i] for i in nodes]
    best = solve(
        left, Topology.complete(len(left)), tolerance=1e-9, absolute_tolerance=1e-12,
        max_iter=20_000, record=False,
    )  # fmt: skip
    parts = best.layout.views(best.theta)._asdict()
    goal = {name: part.mean(axis=0) for name, part in parts.items()}
    with np.load(folder / "result.npz") as file:
        off = [(file[k] - v).reshape(len(nodes), -1) for k, v in goal.items()]
    length = np.linalg.norm(np.concatenate([v.ravel() for v in goal.values()]))
    return float(np.linalg.norm(np.hstack(off), axis=1).max() / length)
