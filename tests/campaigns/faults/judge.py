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
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import dadmm.run
from dadmm import Topology
from dadmm.cli import setup
from dadmm.comm.world import Checks, World
from dadmm.runs.config import RunConfig
from tests.campaigns.faults.cases import Case
from tests.campaigns.faults.jobs import HERE, MPI, Ended, Job, sweep
from tests.campaigns.faults.strikes import Fault, complete, draw_faults, mount
from tests.support.runs import SINCE_RESUME, history_of, summary_of
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


class Verdict(NamedTuple):
    """What came of a case."""

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
        self._open()
        try:
            outcome = self._lose() if self.case.kind == "loss" else self._play()
        except Fall as fall:
            outcome = str(fall.args[0])
            self.story.append(str(fall.args[1]))
        finally:
            self._close()
        return Verdict(outcome, self.struck, self.starts, " | ".join(self.story))

    def _open(self) -> None:
        if self.case.kind == "full_disk":
            mount(self.disk)
        else:
            self.disk.mkdir()

    def _close(self) -> None:
        if self.case.kind == "full_disk":
            subprocess.run(["umount", "-l", str(self.disk)], check=True, timeout=60)

    def _play(self) -> str:
        reference(self.case, self.folder / "whole")
        faults, resume = draw_faults(self.case), False
        while self.starts < STARTS:
            fault = faults.pop(0) if faults else Fault()
            ended, hit = self._start(fault, resume)
            self.struck += hit
            done, resume = self._after(ended, fault, hit, resume)
            if done:
                (self.disk / "filler").unlink(missing_ok=True)
                if differs := differences(self.folder / "whole", self.run):
                    raise Fall(
                        WRONG, f"differs from the uninterrupted run in {differs}"
                    )
                if not self.struck:
                    return MISSED
                return CLEAR if self.refused else SURVIVED
        raise Fall(UNCLEAR, f"no result after {STARTS} starts")

    def _start(self, fault: Fault, resume: bool) -> tuple[Ended, bool]:
        """Start or resume the run; return how it ended, and whether the fault hit."""
        arguments, options = ["--resume", str(self.run)], ()
        if not resume:
            arguments = [*self.case.settings, *self.case.saving, "--overwrite"]
            arguments += ["--nodes", str(self.case.nodes)]
            arguments += ["--out", str(self.run)]
            self.newest = -1
        if self.case.kind == "loss":
            arguments += ["--on-failure", "continue"]
            options = ("--with-ft", "ulfm")
        fault.before(self.run)
        self.starts += 1
        plan = fault.plan
        if self.pace:
            ranks = map(str, range(self.case.ranks))
            plan = {k: {"pace": self.pace} | fault.plan.get(k, {}) for k in ranks}
        main = [str(HERE / "rank.py")] if plan else ["-m", "dadmm.run"]
        ranks = self.case.ranks
        if resume and self.case.nodes > ranks and not fault.plan:
            ranks += self.starts % 2  # it may go on with other ranks
        command = [self.mpi.mpiexec, *options, "-n", str(ranks)]
        command += [sys.executable, *main, *arguments, "--quiet"]
        job = Job(self.mpi, command, self.folder, self.name, plan)
        try:
            hit = fault.strike(job, self.run)
            ended = job.outcome()
        finally:
            sweep(job.mark)
        self.early = not job.heeds
        inside = any("die" in own for own in fault.plan.values())
        if inside or (fault.spare is not None and fault.wait is None):
            hit = hit or ended.code != 0
        said = [f"code {ended.code}", *ended.said]
        how = "resumed" if resume else "started"
        self.story.append(f"{how}, {fault.words}: {'; '.join(said)}")
        self._check(ended, fault)
        return ended, hit

    def _check(self, ended: Ended, fault: Fault) -> None:
        """Raise if an end breaks the rule, whatever the results are."""
        tail = ended.err[-2000:]
        take_rescued(ended)
        if ended.hung or ended.left:
            raise Fall(HANG, f"still running after its time: {tail}")
        # Python's own, of a SIGINT while it imported; those of ranks may be mixed
        known = ended.err.count("KeyboardInterrupt") >= ended.err.count("Traceback")
        interrupted = "SIGINT" in fault.words and known
        if "Traceback" in ended.err and (not interrupted or ", in main\n" in ended.err):
            raise Fall(UNCLEAR, f"a traceback: {tail}")
        errors = [line for line in ended.said if line.startswith("dadmm: error: ")]
        code = 1 if self.case.kind == "loss" and "outside" in str(errors) else 2
        if len(errors) > 1 or (errors and ended.code != code):
            raise Fall(UNCLEAR, f"code {ended.code}: {errors}")

    def _after(
        self, ended: Ended, fault: Fault, hit: bool, resumed: bool
    ) -> tuple[bool, bool]:
        """Judge an end; return whether there is a result, and whether to resume."""
        summary = summary_of(self.run) if (self.run / "summary.json").exists() else None
        if summary is None and ended.code == 0:
            raise Fall(UNCLEAR, "code 0 and no summary")
        over = summary is not None and (
            summary["reason"] in FINAL or summary["iterations"] == self.case.max_iter
        )
        if not over:
            self._nothing_lost(summary)
            if fault.hurt is not None:
                self.story.append(fault.hurt(self.run))
                self.newest = -1  # what is lost from here on was taken by us
        if ended.said:
            self.refused = True
            return self._cure(ended.said[0], fault, over, resumed)
        if ended.code != 0 and not (hit and (fault.lethal or self.early or summary)):
            raise Fall(
                UNCLEAR, f"code {ended.code} without a word: {ended.err[-2000:]}"
            )
        return over, True

    def _nothing_lost(self, summary: dict[str, Any] | None) -> None:
        """Raise if a complete checkpoint has vanished, or a stop has left none."""
        whole = complete(self.run, self.case.nodes)
        newest = max(whole, default=-1)
        if newest < self.newest:
            raise Fall(LOST, f"checkpoint {self.newest} is gone; there are {whole}")
        stopped = summary is not None and summary["reason"] == "signal"
        if stopped and newest != summary["iterations"]:
            raise Fall(LOST, f"stopped at {summary['iterations']}, saved {whole}")
        self.newest = newest

    def _cure(
        self, said: str, fault: Fault, over: bool, resumed: bool
    ) -> tuple[bool, bool]:
        """Do what a user does who is refused: whether all is done, and the way."""
        if resumed and over:
            return True, True
        if fault.spare is not None:
            return over, True  # the last checkpoint may fail, and cost no results
        if not resumed:
            raise Fall(UNCLEAR, f"unexpected: {said}")
        named = re.search(r"\S+/checkpoints/\d+(?=/)", said)
        if self.case.kind == "corrupt" and named is not None:
            shutil.rmtree(named[0])
            self.newest = -1
            return False, True
        whole = complete(self.run, self.case.nodes)
        if whole and self.case.kind != "corrupt":
            raise Fall(LOST, f"refused, with complete checkpoints {whole}: {said}")
        return False, False  # a new run

    def _lose(self) -> str:
        """Let ranks die; survivors go on, each part to the optimum of its own data.

        Nobody can go on if a rank dies before the first iteration or after the last
        one. Then one sentence must say so, and the run must go on from its checkpoint.
        """
        (fault,) = draw_faults(self.case)
        ended, _ = self._start(fault, resume=False)
        self.struck = 1
        if ended.code == 0:
            return self._judge_parts([int(k) for k in fault.plan])
        if not ended.said:
            raise Fall(
                UNCLEAR, f"code {ended.code} without a word: {ended.err[-2000:]}"
            )
        if not (self.run / "summary.json").exists():
            again, _ = self._start(Fault(), resume=True)
            if again.code:
                if complete(self.run, self.case.nodes):
                    raise Fall(LOST, f"refused: {again.said}")
                return CLEAR
        self._judge_parts([])
        return CLEAR

    def _judge_parts(self, dead: list[int]) -> str:
        """Compare the results of each part with the optimum of its data."""
        seen: list[int] = []
        lost: set[int] = set()
        for folder in (self.run, *sorted(self.run.glob("part-*"))):
            if not (folder / "summary.json").exists():
                continue
            summary, nodes = summary_of(folder), nodes_of(folder)
            lost |= set(summary["lost_nodes"])
            seen += nodes
            if not summary["converged"]:
                raise Fall(WRONG, f"nodes {nodes} ended by {summary['reason']}")
            far = distance(self.case, nodes, folder)
            self.story.append(f"nodes {nodes} are {far:.0e} from their optimum")
            if not far < CLOSE:
                raise Fall(WRONG, "which is too far")
        missing = set(range(self.case.nodes)) - set(seen)
        # some died alone, and nobody knows
        if not lost <= missing <= set(dead) or len(set(seen)) < len(seen):
            raise Fall(LOST, f"there are results of nodes {sorted(seen)} only")
        return MISSED if dead and not lost else SURVIVED


def take_rescued(ended: Ended) -> None:
    """Remove results that were rescued; raise if they are not where they should be."""
    for place in re.findall(r"the results are in (/\S+)", "\n".join(ended.said)):
        if not Path(place, "summary.json").exists():
            raise Fall(LOST, f"there are no results in {place}")
        shutil.rmtree(place)


def reference(case: Case, out: Path) -> None:
    """Run a case in this process, with nothing in its way."""
    arguments = [*case.settings, "--nodes", str(case.nodes), "--no-checkpoint"]
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
    for path in sorted(whole.iterdir()):
        name, mine = path.name, again / path.name
        if name == "config.toml":
            continue
        if name.endswith(".csv"):
            with contextlib.suppress(ValueError):
                merge_parts(again, path.stem, path.read_text().partition("\n")[0])
        if not mine.exists():
            found.append(f"{name} (missing)")
        elif name.endswith(".npz"):
            apart = _arrays_apart(mine, path)
            found += [f"{name}:{key}" for key in apart if key not in SINCE_RESUME]
        elif name.endswith(".csv") and history_of(again, name) != history_of(
            whole, name
        ):
            found.append(name)
        elif name == "summary.json":
            found += [f"{name}:{key}" for key in _facts_apart(again, whole)]
    return found


def merge_parts(run: Path, kind: str, header: str) -> None:
    """Write the rows that a run left in parts, for want of room, into one file."""
    files = [path.read_text() for path in (run / "parts").glob(f"{kind}-*.csv")]
    lines = [line.rpartition(",")[0] for text in files for line in text.splitlines()]
    if lines:
        keys, whole = 3 if kind == "edges" else 2, run / f"{kind}.csv"
        key = lambda line: [int(word) for word in line.split(",")[:keys]]  # noqa: E731
        first = min(map(key, lines))[0]
        before = whole.read_text().splitlines()[1:] if whole.exists() else []
        lines += [line for line in before if key(line)[0] < first]
        whole.write_text("\n".join([header, *sorted(lines, key=key), ""]))


def _arrays_apart(mine: Path, theirs: Path) -> list[str]:
    def bits(array: np.ndarray) -> tuple[object, ...]:
        return array.dtype, array.shape, array.tobytes()

    with np.load(mine) as a, np.load(theirs) as b:
        keys = sorted({*a.files, *b.files})
        return [k for k in keys if k not in a or k not in b or bits(a[k]) != bits(b[k])]


def _facts_apart(mine: Path, theirs: Path) -> list[str]:
    a, b = summary_of(mine), summary_of(theirs)
    names = ("iterations", "converged", "messages", "bytes", "n_nodes")
    apart = [name for name in names if a[name] != b[name]]
    # a signal that comes in the last iteration changes nothing but this word
    same = a["reason"] == b["reason"] or (a["reason"], b["reason"]) == LATE
    return apart if same else [*apart, "reason"]


def nodes_of(folder: Path) -> list[int]:
    """Return the nodes in the last rows of a history."""
    rows = np.loadtxt(
        folder / "history.csv", delimiter=",", skiprows=1, usecols=(0, 1), ndmin=2
    ).astype(int)
    return sorted(rows[rows[:, 0] == rows[-1, 0], 1].tolist())


def distance(case: Case, nodes: list[int], folder: Path) -> float:
    """Return how far the worst node is from the optimum of these nodes' data."""
    config = RunConfig.from_argv([*case.settings, "--nodes", str(case.nodes)]).config
    alone = World()
    data = setup.shards(alone, config, Topology.complete(case.nodes), Checks(alone))
    problems = setup.problems(config, data, case.nodes)
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
