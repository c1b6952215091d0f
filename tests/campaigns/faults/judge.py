"""The rule: a correct result, or a clear error and a usable checkpoint.

A case is played to its end: whatever stops the run, it is resumed, or what its error
message asks for is done, until there is a result. That result must be the one of an
uninterrupted run in one process, bit for bit. A job that launch/local watches must
name the rank with the fault.
"""

import contextlib
import io
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import dadmm.run
from benchmarks.emulation.network import AGENT, EmulatedNetwork
from dadmm import Topology
from dadmm.cli import setup
from dadmm.comm.world import Checks, World
from dadmm.runs.config import RunConfig
from tests.campaigns.faults.cases import WATCHED, Case
from tests.campaigns.faults.jobs import GRACE, MPI, Ended, Job, sweep
from tests.campaigns.faults.strikes import Fault, complete, draw_faults, later, mount
from tests.support.emulation import reached_by
from tests.support.processes import PROGRAMS
from tests.support.runs import SINCE_RESUME, arrays_of, history_of, summary_of
from tests.support.solving import solve

SURVIVED, CLEAR, UNCLEAR = "survived", "clear error", "unclear error"
HANG, WRONG, LOST = "hang", "wrong result", "data lost"
FAILURES = (UNCLEAR, HANG, WRONG, LOST)
OUTCOMES = (SURVIVED, CLEAR, *FAILURES)
MISSED = "missed"  # the fault found nobody; such a case counts for nothing
SKIPPED = "skipped"  # it cannot be tried here
STARTS = 12  # of one case at most
CLOSE = 1e-4  # relative distance from the optimum, for a tolerance of 1e-7
STALL = 14  # seconds after which launch/local names a hanging rank, in place of 60
STOPPED = 12  # --stall-seconds
RANK = str(Path(__file__).with_name("rank.py"))


class Verdict(NamedTuple):
    """What came of a case."""

    outcome: str
    struck: int = 0  # faults that hit
    starts: int = 0
    story: str = ""  # what happened, start by start


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
        self.pace, self.watched = pace, case.kind in WATCHED
        self.disk, self.run = folder / "disk", folder / "disk" / "run"
        self.network: EmulatedNetwork | None = None
        self.story: list[str] = []
        self.struck = self.starts = 0
        self.refused = False
        self.early = False  # a signal came before the ranks listened
        self.newest = -1  # complete checkpoint that was seen
        self.hurt: Fault | None = None  # whose damage to files is not undone

    def verdict(self) -> Verdict:
        try:
            with self.prepared():
                outcome = self._lose() if self.case.kind == "loss" else self._play()
        except Fall as fall:
            outcome = str(fall.args[0])
            self.story.append(str(fall.args[1]))
        return Verdict(outcome, self.struck, self.starts, " | ".join(self.story))

    @contextlib.contextmanager
    def prepared(self) -> Iterator[None]:
        """Make the disk and the hosts of the case, until the end of a block."""
        kind = self.case.kind
        self.disk.mkdir()
        try:
            if kind in ("full_disk", "readonly"):
                mount(self.disk)
            if kind in ("cut", "lag"):
                delay = float(self.case.rng(2).uniform(2e-4, 5e-3))
                self.network = EmulatedNetwork(2, delay=delay * (kind == "lag"))
            yield
        finally:
            if self.network is not None:
                self.network.close()
            self._unmount(left=0)

    def _unmount(self, left: int) -> None:
        """Take away what is mounted on the disk, but for the disk itself."""
        text = Path("/proc/self/mounts").read_text()
        for _ in range(text.count(f" {self.disk} ") - left):
            command = ["umount", "-l", str(self.disk)]
            subprocess.run(command, timeout=60, check=False)

    def on_host(self, host: int, command: str) -> None:
        """Run a shell command on an emulated host."""
        if command and self.network is not None:
            words = self.network.command(host, ["sh", "-c", command])
            subprocess.run(words, capture_output=True, timeout=60, check=False)

    def join_hosts(self) -> None:
        """Undo what cut the second host off."""
        self.on_host(1, "ip link set eth0 up; ip route replace 10.77.0.0/16 dev eth0")
        self.on_host(0, "ip route del blackhole 10.77.0.2/32")

    def arguments(self, resume: bool = False) -> list[str]:
        """Return the arguments of the run, or those that resume it."""
        more = ["--on-failure", "continue"] if self.case.kind == "loss" else []
        if resume:
            return ["--resume", str(self.run), *more]
        own = [*self.case.settings, *self.case.saving, "--overwrite", *more]
        return [*own, "--nodes", str(self.case.nodes), "--out", str(self.run)]

    def start(
        self, arguments: list[str], plan: dict[str, Any], ranks: int = 0, **more: str
    ) -> Job:
        """Start a job of the case, with more variables."""
        n, options = ranks or self.case.ranks, []
        if self.pace:
            everyone = map(str, range(n))
            plan = {k: {"pace": self.pace} | plan.get(k, {}) for k in everyone}
        if not self.watched:
            if self.case.kind == "loss":
                options = ["--with-ft", "ulfm"]
            main = [RANK] if plan else ["-m", "dadmm.run"]
            command = [self.mpi.mpiexec, *options, "-n", str(n), sys.executable, *main]
        else:
            more |= {"DADMM_LOCAL_STALL": str(STALL), "DADMM_LOCAL_RANK": RANK}
            options = ["-n", str(n)]
            if self.network is not None:
                hosts = self.folder / "hosts.txt"
                hosts.write_text(f"host0:{n - n // 2}\nhost1:{n // 2}\n")
                options, more = ["--hostfile", str(hosts)], more | reached_by(AGENT)
            command = [sys.executable, str(PROGRAMS / "local.py"), self.mpi.mpiexec]
            command += [*options, "--stall-seconds", str(STOPPED)]
        command += [*arguments, "--quiet"]
        if self.network is not None:
            command = self.network.command(0, command)
        return Job(self.mpi, command, self.folder, self.name, plan, more)

    def refuses(self, ended: Ended) -> bool:
        """Judge the end of a second job in the folder; return whether it is refused."""
        self.story.append(f"the second: code {ended.code}; {'; '.join(ended.said)}")
        errors = [line for line in ended.said if "error: " in line]
        if ended.code and (ended.hung or ended.code != 2 or len(errors) != 1):
            raise Fall(UNCLEAR, f"the second job: {ended}")
        return ended.code != 0  # else it came after the end of the first

    def _play(self) -> str:
        reference(self.case, self.folder / "whole")
        faults, done, resume = draw_faults(self.case), False, False
        while not done:
            if self.starts == STARTS:
                raise Fall(UNCLEAR, f"no result after {STARTS} starts")
            fault = faults.pop(0) if faults else Fault()
            ended, hit = self._attempt(fault, resume)
            self.struck += hit
            done, resume = self._judge(ended, fault, hit, resume)
        if apart := differences(self.folder / "whole", self.run):
            raise Fall(WRONG, f"differs from the uninterrupted run in {apart}")
        if not self.struck:
            return MISSED
        return CLEAR if self.refused else SURVIVED

    def _attempt(self, fault: Fault, resume: bool) -> tuple[Ended, bool]:
        """Start or resume the run; return how it ended, and whether the fault hit."""
        self.starts += 1
        self.newest, self.early = self.newest if resume else -1, False
        ranks = self.case.ranks
        if resume and self.case.nodes > ranks and not fault.plan:
            ranks += self.starts % 2  # it may go on with other ranks
        job = self.start(self.arguments(resume), fault.plan, ranks)
        try:
            hit = fault.during is not None and fault.during(self, job)
            named = False
            if fault.hangs:
                who = rf"rank {fault.victim} \(process .*\) is (in|busy)"
                named = job.comes_to(lambda: re.search(who, job.err()) is not None)
                for _ in range(2):
                    job.signal(signal.SIGTERM)
                    job.comes_to(later(1))
            ended = job.outcome(grace=1 if fault.cuts else GRACE)
        finally:
            sweep(job.mark)
            self.join_hosts()
            self._unmount(left=1)
            (self.disk / "filler").unlink(missing_ok=True)
        said = "; ".join([f"code {ended.code}", *ended.said])
        how = "resumed" if resume else "started"
        self.story.append(f"{how}, {fault.words}: {said}")
        if fault.hangs and not named and ended.code:
            raise Fall(UNCLEAR, f"a rank that hangs was not named: {ended.err[-2000:]}")
        return ended, hit or bool(ended.code and fault.words != Fault.words)

    def _judge(
        self, ended: Ended, fault: Fault, hit: bool, resumed: bool
    ) -> tuple[bool, bool]:
        """Judge an end; return whether there is a result, and whether to resume."""
        errors = self._check_words(ended, fault)
        summary = summary_of(self.run) if (self.run / "summary.json").exists() else None
        if summary is None and ended.code == 0:
            raise Fall(UNCLEAR, "code 0 and no summary")
        over = summary is not None and summary["iterations"] == self.case.max_iter
        if ended.code and self.watched and not over:
            self._check_culprit(ended, fault)
        expected = hit and (fault.lethal or self.early or summary)
        if ended.code and not ended.said and (self.watched or not expected):
            raise Fall(
                UNCLEAR, f"code {ended.code} without a word: {ended.err[-2000:]}"
            )
        self.refused = self.refused or bool(errors)
        if over:
            return True, True
        self._nothing_lost(summary)
        if fault.hurt is not None:
            self.story.append(fault.hurt(self))
            self.hurt, self.newest = fault, -1  # what is lost was taken by us
        no_room = self.case.kind == "full_disk" and fault.during is not None
        if errors and not no_room:
            if resumed:
                return False, self._cure(errors[0])
            if not self.watched:
                raise Fall(UNCLEAR, f"unexpected: {errors[0]}")
        return False, not self.watched or bool(complete(self.run, self.case.nodes))

    def _check_words(self, ended: Ended, fault: Fault) -> list[str]:
        """Return the errors of an end; raise if it breaks the rule in any case."""
        tail = ended.err[-2000:]
        for place in re.findall(r"the results are in (/\S+)", "\n".join(ended.said)):
            if not Path(place, "summary.json").exists():
                raise Fall(LOST, f"there are no results in {place}")
            shutil.rmtree(place)  # results that were rescued
        if ended.hung or (ended.left and not fault.cuts):  # which nobody can end
            raise Fall(HANG, f"still running after its time: {tail}")
        # Python's own, of a SIGINT while it imported; those of ranks may be mixed
        own = ended.err.count("KeyboardInterrupt") >= ended.err.count("Traceback")
        own = own and "SIGINT" in fault.words and ", in main\n" not in ended.err
        own = own or "injected" in ended.err or "MemoryError" in ended.err
        if "Traceback" in ended.err and not own:
            raise Fall(UNCLEAR, f"a traceback: {tail}")
        errors = [line for line in ended.said if line.startswith("dadmm: error: ")]
        code = 1 if self.case.kind == "loss" and "outside" in str(errors) else 2
        if len(errors) > 1 or (errors and ended.code != code):
            raise Fall(UNCLEAR, f"code {ended.code}: {errors}")
        return errors

    def _check_culprit(self, ended: Ended, fault: Fault) -> None:
        """Raise if a watched job does not say what happened, and to whom."""
        text = "\n".join(ended.said)
        if self.network is not None and "host1 was lost" in text:
            return
        who = "" if fault.victim is None else rf"(rank|node) {fault.victim}\b"
        for pattern in (who, fault.says):
            if not re.search(pattern, text):
                raise Fall(UNCLEAR, f"{pattern} is not named: {ended.err[-2500:]}")

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

    def _cure(self, said: str) -> bool:
        """Do what a user does who cannot resume; return whether to try again."""
        whole, of_rows = complete(self.run, self.case.nodes), "row" in said
        if self.case.kind == "corrupt":
            named = re.search(r"\S+/checkpoints/\d+(?=/)", said)
            if named is not None:
                shutil.rmtree(named[0])
                self.newest = -1
            return named is not None
        if self.hurt is not None:
            for file, data in self.hurt.kept.items():
                file.write_bytes(data)
            self.hurt = None
        elif whole and not of_rows:
            raise Fall(LOST, f"refused, with complete checkpoints {whole}: {said}")
        return bool(whole) and not of_rows

    def _lose(self) -> str:
        """Let ranks die; survivors go on, each part to the optimum of its own data.

        Nobody can go on if a rank dies before the first iteration or after the last
        one. Then one sentence must say so, and the run must go on from its checkpoint.
        """
        (fault,) = draw_faults(self.case)
        ended, _ = self._attempt(fault, resume=False)
        self._check_words(ended, fault)
        self.struck = 1
        if ended.code == 0:
            return self._judge_parts([int(k) for k in fault.plan])
        if not ended.said:
            raise Fall(UNCLEAR, f"code {ended.code}, no word: {ended.err[-2000:]}")
        if not (self.run / "summary.json").exists():
            again, _ = self._attempt(Fault(), resume=True)
            self._check_words(again, Fault())
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
            rows = np.array(history_of(folder)[1:])
            nodes = sorted(rows[rows[:, 0] == rows[-1, 0], 1].astype(int).tolist())
            summary = summary_of(folder)
            lost |= set(summary["lost_nodes"])
            seen += nodes
            far = distance(self.case, nodes, folder)
            self.story.append(f"nodes {nodes} are {far:.0e} from their optimum")
            if not (summary["converged"] and far < CLOSE):
                raise Fall(WRONG, f"too far, ended by {summary['reason']}")
        missing = set(range(self.case.nodes)) - set(seen)
        # some died alone, and nobody knows
        if not lost <= missing <= set(dead) or len(set(seen)) < len(seen):
            raise Fall(LOST, f"there are results of nodes {sorted(seen)} only")
        return MISSED if dead and not lost else SURVIVED


def reference(case: Case, out: Path) -> None:
    """Run a case in this process, with nothing in its way."""
    arguments = [*case.settings, "--nodes", str(case.nodes), "--no-checkpoint"]
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        code = dadmm.run.main([*arguments, "--quiet", "--out", str(out)])
    if code != 0:
        raise RuntimeError(f"{case} cannot be run at all: {said.getvalue()}")
    if summary_of(out)["reason"] == "signal":
        raise KeyboardInterrupt  # which the run took for its own


def differences(whole: Path, again: Path) -> list[str]:
    """Return in what the results of two runs differ, times aside."""
    found = []
    for path in sorted(whole.iterdir()):
        name, mine = path.name, again / path.name
        if name.endswith(".csv"):
            with contextlib.suppress(ValueError):
                merge_parts(again, path.stem, path.read_text().partition("\n")[0])
        if name != "config.toml" and not mine.exists():
            found.append(f"{name} (missing)")
        elif name.endswith(".npz"):
            with np.load(mine) as a, np.load(path) as b:
                keys = {*a.files, *b.files} - {*SINCE_RESUME}
                same = {
                    k for k in keys if k in a and k in b and bits(a[k]) == bits(b[k])
                }
            found += [f"{name}:{key}" for key in sorted(keys - same)]
        elif name.endswith(".csv") and history_of(again, name) != history_of(
            whole, name
        ):
            found.append(name)
        elif name == "summary.json":
            a, b = summary_of(again), summary_of(whole)
            if (a["reason"], b["reason"]) == ("signal", "max_iter"):
                a["reason"] = "max_iter"  # a signal came in the last iteration
            keys = ("iterations", "converged", "messages", "bytes", "n_nodes", "reason")
            found += [f"{name}:{key}" for key in keys if a[key] != b[key]]
    return found


def bits(array: np.ndarray) -> tuple[object, ...]:
    return array.dtype, array.shape, array.tobytes()


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


def distance(case: Case, nodes: list[int], folder: Path) -> float:
    """Return how far the worst node is from the optimum of these nodes' data."""
    config = RunConfig.from_argv([*case.settings, "--nodes", str(case.nodes)]).config
    alone = World()
    data = setup.shards(alone, config, Topology.complete(case.nodes), Checks(alone))
    problems = setup.problems(config, data, case.nodes)
    best = solve(
        [problems[i] for i in nodes], Topology.complete(len(nodes)), tolerance=1e-9,
        absolute_tolerance=1e-12, max_iter=20_000, record=False,
    )  # fmt: skip
    goal = best.theta.mean(axis=0)
    views, found = best.layout.views(best.theta)._asdict(), arrays_of(folder)
    theta = np.hstack([found[name].reshape(len(nodes), -1) for name in views])
    return float(np.linalg.norm(theta - goal, axis=1).max() / np.linalg.norm(goal))
