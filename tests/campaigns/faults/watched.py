"""Faults of jobs that launch/local watches, on one host or on two emulated ones.

The same rule as in ``judge.py``; besides, the rank with the fault must be named.
"""

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.emulation.network import AGENT, EmulatedNetwork
from tests.campaigns.faults import jobs
from tests.campaigns.faults.cases import Case, pick
from tests.campaigns.faults.jobs import HERE, Ended, Job
from tests.campaigns.faults.judge import (
    CLEAR,
    HANG,
    LOST,
    MISSED,
    STARTS,
    SURVIVED,
    UNCLEAR,
    WRONG,
    Fall,
    Play,
    differences,
    reference,
    take_rescued,
)
from tests.campaigns.faults.strikes import Rng, complete, later, moment, mount
from tests.support.emulation import reached_by
from tests.support.runs import summary_of

STALL = 14  # seconds after which a hanging rank is named, in place of 60
STOPPED = 12  # --stall-seconds
# functions that a user's problem, data or disk can make fail, by phase
POINTS = {
    "set-up": ("dadmm.cli.setup:shards", "dadmm.cli.setup:problems",
               "dadmm.cli.job:Job.open_folder"),
    "loop": ("dadmm.admm.local:Local.solve", "dadmm.admm.local:Local.evaluate"),
    "review": ("dadmm.admm.loop:Run.verdict",),
    "save": ("dadmm.solver.checkpoint:Checkpoints._save",),
    "end": ("dadmm.cli.models:describe", "dadmm.cli.job:Job.write_results",
            "dadmm.cli.results:gather_motion"),
}  # fmt: skip
ERRORS = ("Exception", "SystemExit", "KeyboardInterrupt", "memory", "nan", "exit")
STANDS = ("hang", "spin", "stop", "stop")
CUTS = {  # what is done on the second host, and on the first one
    "partition": ("ip link set eth0 down", ""),
    "loss of all it sends": ("ip route replace blackhole 10.77.0.0/16", ""),
    "loss of all it receives": ("", "ip route replace blackhole 10.77.0.2/32"),
}
HEALED = "ip link set eth0 up; ip route replace 10.77.0.0/16 dev eth0"


@dataclass
class Trouble:
    """What happens in one start of a job, and before the next."""

    words: str = "no fault"
    plan: dict[str, Any] = field(default_factory=dict)  # see rank.py
    victim: int | None = None  # the rank that must be named if the job fails
    during: Callable[["Watched", Job], bool] | None = None  # returns whether it hit
    hangs: bool = False  # the job goes on until two signals end it
    cuts: bool = False  # the second host cannot be reached until the end
    says: str = ""  # a pattern that the message must have, if the job fails
    hurt: Callable[["Watched"], str] | None = None  # what its files suffer afterwards
    heal: Callable[["Watched"], None] | None = None  # undoes it, after a refusal


def draw_troubles(case: Case) -> list[Trouble]:
    return [DRAWN[case.kind](case, case.rng(1))]


def act(case: Case, rng: Rng, acts: tuple[str, ...], phases: Any = POINTS) -> Trouble:
    """Let a function of a phase do something else on one rank."""
    phase, what = pick(rng, phases), pick(rng, acts)
    at, count, victim = pick(rng, POINTS[phase]), 1, int(rng.integers(case.ranks))
    if what == "nan":
        phase, at = "loop", "dadmm.admm.local:as_numbers"
    if phase in ("loop", "review"):
        count = int(rng.integers(1, case.max_iter))
    elif phase == "save" and "--checkpoint-every" in case.saving:
        count = int(rng.integers(1, max(2, case.max_iter // case.every)))
    plan = {str(victim): {"act": {"at": at, "what": what, "count": count}}}
    words = f"{what} on rank {victim} in {phase}: {at.rpartition(':')[2]} no. {count}"
    return Trouble(words, plan, victim, hangs=what in ("hang", "spin"))


def error(case: Case, rng: Rng) -> Trouble:
    return act(case, rng, ERRORS)


def stand(case: Case, rng: Rng) -> Trouble:
    return act(case, rng, STANDS)


def cut(case: Case, rng: Rng) -> Trouble:
    """Cut the second host off, for good or for a while."""
    how, (when, wait) = pick(rng, CUTS), moment(case, rng)
    there, here = CUTS[how]
    seconds = float(rng.uniform(0.5, 5.0)) if rng.random() < 0.6 else 0.0

    def during(play: "Watched", job: Job) -> bool:
        if not wait(job, play.run):
            return False
        play.on_host(1, there)
        play.on_host(0, here)
        if seconds:
            job.comes_to(later(seconds))
            play.join_hosts()
        return True

    lasts = f"for {seconds:.1f} s" if seconds else "for good"
    found = Trouble(f"{how} of host1 {when}, {lasts}", during=during)
    found.says = rf"host1|rank {case.ranks - 1} has not reported"
    found.cuts = not seconds
    return found


def lag(case: Case, rng: Rng) -> Trouble:
    """Hosts with a delay between them, where a rank may die or stop."""
    if rng.random() < 0.4:
        return Trouble("a delay between hosts", during=lambda play, job: True)
    found = act(case, rng, ("kill", "stop", "Exception"))
    found.words = f"a delay between hosts, {found.words}"
    return found


def readonly(case: Case, rng: Rng) -> Trouble:
    """Make the disk read-only at some moment; it can be written after the end."""
    when, wait = moment(case, rng)

    def during(play: "Watched", job: Job) -> bool:
        if not wait(job, play.run):
            return False
        for options in (["--bind"], ["-o", "remount,bind,ro"]):
            words = ["mount", *options, str(play.disk), str(play.disk)]
            subprocess.run(words, check=True, timeout=60)
        return True

    def writable(play: "Watched") -> str:
        subprocess.run(["umount", "-l", str(play.disk)], timeout=60, check=False)
        return "it can be written again"

    return Trouble(f"disk read-only {when}", during=during, hurt=writable)


def unlike(case: Case, rng: Rng) -> Trouble:
    """Other settings, data or versions on one rank, or when the run is resumed."""
    victim = int(rng.integers(case.ranks))
    one = {
        "another dadmm": {"versions": {"dadmm": "0.0.1"}},
        "another numpy": {"versions": {"numpy": "0.0.1"}},
        "other data": {"words": ["--data-seed", "31"]},
        "another graph": {"words": ["--topology", "chain,star"]},
        "another tolerance": {"words": ["--tolerance", "0.5"]},
    }
    if rng.random() < 0.5:
        what = pick(rng, one)
        plan = {str(victim): one[what]}
        return Trouble(f"{what} on rank {victim}", plan, says="rank")
    name, value = pick(rng, (("data_seed", "31"), ("eta0", "3.5"), ("dimension", "4"),
                             ("n_samples", "400"), ("scheme", '"none"')))  # fmt: skip
    found = death(case, rng)

    def hurt(play: "Watched") -> str:
        file = play.run / "config.toml"
        play.kept = {file: file.read_bytes()}
        text, n = re.subn(rf"(?m)^{name} = .*$", f"{name} = {value}", file.read_text())
        file.write_text(text if n else f"{name} = {value}\n{text}")
        return f"{name} = {value} in config.toml"

    found.hurt, found.heal = hurt, put_back
    return found


def death(case: Case, rng: Rng) -> Trouble:
    """Kill a rank when there is a checkpoint."""
    victim, count = int(rng.integers(case.ranks)), case.every + 2
    count = int(rng.integers(count, max(count + 1, case.max_iter)))
    plan = {str(victim): {"die": {"at": "swap", "count": count}}}
    return Trouble(f"rank {victim} dies at swap no. {count}", plan, victim)


def put_back(play: "Watched") -> None:
    for file, data in play.kept.items():
        file.write_bytes(data)


def twice(case: Case, rng: Rng) -> Trouble:
    """Start a second job in the folder while the first one is at work."""
    how = pick(rng, ("as the first", "--overwrite", "--resume"))

    def during(play: "Watched", job: Job) -> bool:
        begun = play.run / "parts"
        if not job.comes_to(lambda: begun.exists() and bool(list(begun.iterdir()))):
            return False
        before = play.arguments(resume=how == "--resume")
        if how == "as the first":
            before.remove("--overwrite")
        other = play.start(before, {})
        ended = other.outcome()
        play.story.append(f"the second: code {ended.code}; {'; '.join(ended.said)}")
        errors = [line for line in ended.said if "error: " in line]
        if ended.code == 0:
            return False  # it came after the end of the first; bits are compared below
        if ended.hung or ended.code != 2 or len(errors) != 1:
            raise Fall(UNCLEAR, f"the second job: {ended}")
        return True

    slow = {str(k): {"pace": 8 / case.max_iter} for k in range(case.ranks)}
    return Trouble(f"a second job, {how}", slow, during=during)


def foreign(case: Case, rng: Rng) -> Trouble:
    """Put files of another run, or damaged rows, into the folder of a run."""
    found, what = death(case, rng), pick(rng, ("one file", "all files", "rows"))
    seed = int(rng.integers(2**31))

    def hurt(play: "Watched") -> str:
        if what == "rows":
            return damage_rows(play.run, np.random.default_rng(seed))
        whole = complete(play.run, case.nodes)
        if not whole:
            return "nothing to replace"
        words = play.arguments()
        words[words.index("--out") + 1] = str(play.folder / "other")
        play.start(words, found.plan).outcome()
        there = f"checkpoints/{whole[-1]:08d}"
        files = sorted((play.folder / "other" / there).glob("node-*"))
        files = files if what == "all files" else files[-1:]
        play.kept = {f: f.read_bytes() for f in (play.run / there).iterdir()}
        for file in files:
            shutil.copy(file, play.run / there)
        return f"{len(files)} files of another run in {there}"

    found.hurt, found.heal = hurt, put_back
    return found


def damage_rows(run: Path, rng: Rng) -> str:
    """Change a byte of the rows of some rank."""
    files = [file for file in sorted((run / "parts").iterdir()) if file.stat().st_size]
    if not files:
        return "no rows to damage"
    file = pick(rng, files)
    data = bytearray(file.read_bytes())
    place = int(rng.integers(len(data)))
    digit = int(rng.integers(10)) + ord("0")
    data[place] = digit if data[place] != digit else ord("7") + (digit == ord("7"))
    file.write_bytes(data)
    return f"byte {place} of {file.name} is {chr(data[place])}"


DRAWN = {
    "error": error, "stand": stand, "cut": cut, "lag": lag, "readonly": readonly,
    "unlike": unlike, "twice": twice, "foreign": foreign,
}  # fmt: skip


class Watched(Play):
    """A case whose jobs are started by ``start.py``, from its first to its verdict."""

    network: EmulatedNetwork | None = None
    kept: dict[Path, bytes] = {}  # noqa: RUF012 (replaced, never changed)

    def _open(self) -> None:
        if self.case.kind == "readonly":
            mount(self.disk)
        else:
            super()._open()
        if self.case.kind in ("cut", "lag"):
            delay = float(self.case.rng(2).uniform(2e-4, 5e-3))
            delay = delay if self.case.kind == "lag" else 0.0
            self.network = EmulatedNetwork(2, delay=delay)

    def _close(self) -> None:
        if self.network is not None:
            self.network.close()
        if self.case.kind == "readonly":
            for _ in range(3):  # the disk, and what made it read-only
                words = ["umount", "-l", str(self.disk)]
                subprocess.run(words, capture_output=True, timeout=60, check=False)

    def on_host(self, host: int, command: str) -> None:
        """Run a shell command on an emulated host."""
        if command and self.network is not None:
            words = self.network.command(host, ["sh", "-c", command])
            subprocess.run(words, capture_output=True, timeout=60, check=False)

    def join_hosts(self) -> None:
        """Undo what cut the second host off."""
        self.on_host(1, HEALED)
        self.on_host(0, "ip route del blackhole 10.77.0.2/32")

    def arguments(self, resume: bool = False) -> list[str]:
        """Return the arguments of the run, or those that resume it."""
        if resume:
            return ["--resume", str(self.run)]
        own = [*self.case.settings, *self.case.saving, "--overwrite"]
        return [*own, "--nodes", str(self.case.nodes), "--out", str(self.run)]

    def start(
        self, arguments: list[str], plan: dict[str, Any], struck: Path | None = None
    ) -> Job:
        """Start a job of the case; the file ``struck`` gets the time of its fault."""
        ranks, words = self.case.ranks, ["-n", str(self.case.ranks)]
        more = {"DADMM_FAULTS_STALL": str(STALL)}
        more |= {"DADMM_FAULTS_STRUCK": str(struck)} if struck else {}
        if self.network is not None:
            hosts = self.folder / "hosts.txt"
            hosts.write_text(f"host0:{ranks - ranks // 2}\nhost1:{ranks // 2}\n")
            words, more = ["--hostfile", str(hosts)], more | reached_by(AGENT)
        words += ["--stall-seconds", str(STOPPED), *arguments, "--quiet"]
        program = [sys.executable, str(HERE / "start.py"), self.mpi.mpiexec, *words]
        if self.network is not None:
            program = self.network.command(0, program)
        return Job(self.mpi, program, self.folder, self.name, plan, more)

    def _play(self) -> str:
        reference(self.case, self.folder / "whole")
        troubles, resume, hit = draw_troubles(self.case), False, False
        while self.starts < STARTS:
            trouble = troubles.pop(0) if troubles else Trouble()
            ended, struck = self._attempt(trouble, resume)
            self.struck += struck
            hit = hit or struck
            done, resume = self._judge(ended, trouble, resume)
            if done:
                if apart := differences(self.folder / "whole", self.run):
                    raise Fall(WRONG, f"differs from the uninterrupted run in {apart}")
                if not hit:
                    return MISSED
                return CLEAR if self.refused else SURVIVED
        raise Fall(UNCLEAR, f"no result after {STARTS} starts")

    def _attempt(self, trouble: Trouble, resume: bool) -> tuple[Ended, bool]:
        self.starts += 1
        job = self.start(self.arguments(resume), trouble.plan)
        try:
            hit = False if trouble.during is None else trouble.during(self, job)
            named = False
            if trouble.hangs:
                who = rf"rank {trouble.victim} \(process .*\) is (in|busy)"
                named = job.comes_to(lambda: re.search(who, job.err()) is not None)
                for _ in range(2):
                    job.signal(signal.SIGTERM)
                    job.comes_to(later(1))
            ended = job.outcome(grace=1 if trouble.cuts else jobs.GRACE)
        finally:
            jobs.sweep(job.mark)
            self.join_hosts()
        how = "resumed" if resume else "started"
        said = [f"code {ended.code}", *ended.said]
        self.story.append(f"{how}, {trouble.words}: {'; '.join(said)}")
        if trouble.hangs and not named and ended.code:
            raise Fall(UNCLEAR, f"a rank that hangs was not named: {ended.err[-2000:]}")
        return ended, hit or bool(trouble.plan and (ended.code or not trouble.victim))

    def _judge(
        self, ended: Ended, trouble: Trouble, resumed: bool
    ) -> tuple[bool, bool]:
        """Judge an end; return whether there is a result, and whether to resume."""
        tail = ended.err[-2500:]
        take_rescued(ended)
        if ended.hung or (ended.left and not trouble.cuts):  # which nobody can end
            raise Fall(HANG, f"still running after its time: {tail}")
        if (
            "Traceback" in ended.err
            and "injected" not in ended.err
            and ("MemoryError" not in ended.err)
        ):
            raise Fall(UNCLEAR, f"a traceback: {tail}")
        errors = [line for line in ended.said if line.startswith("dadmm: error: ")]
        if len(errors) > 1 or (errors and ended.code != 2):
            raise Fall(UNCLEAR, f"code {ended.code}: {errors}")
        has_summary = (self.run / "summary.json").exists()
        summary = summary_of(self.run) if has_summary else None
        if summary is None and ended.code == 0:
            raise Fall(UNCLEAR, "code 0 and no summary")
        over = summary is not None and summary["iterations"] == self.case.max_iter
        if ended.code:
            self._check_words(ended, trouble, over)
            self.refused = self.refused or bool(errors)
        if not over:
            self._nothing_lost(summary)
        if trouble.hurt is not None:
            self.story.append(trouble.hurt(self))
            self.newest = -1
            self.heal = trouble.heal
        if errors and resumed and not over:
            return self._go_on(errors[0])
        return over, over or bool(complete(self.run, self.case.nodes))

    heal: Callable[["Watched"], None] | None = None

    def _check_words(self, ended: Ended, trouble: Trouble, over: bool) -> None:
        """Raise if a job that failed does not say what happened, and to whom."""
        text, tail = "\n".join(ended.said), ended.err[-2500:]
        if not ended.said:
            raise Fall(UNCLEAR, f"code {ended.code} without a word: {tail}")
        if over or (self.network is not None and "host1 was lost" in text):
            return
        who = rf"(rank|node) {trouble.victim}\b"
        if trouble.victim is not None and not re.search(who, text):
            raise Fall(UNCLEAR, f"rank {trouble.victim} is not named: {tail}")
        if not re.search(trouble.says, text):
            raise Fall(UNCLEAR, f"{trouble.says} is not named: {tail}")

    def _go_on(self, said: str) -> tuple[bool, bool]:
        """Do what a user does who cannot resume."""
        whole = complete(self.run, self.case.nodes)
        if self.heal is not None:
            self.heal(self)
            self.heal, self.kept = None, {}
            return False, bool(whole) and "row" not in said
        if whole and "row" not in said:
            raise Fall(LOST, f"refused, with complete checkpoints {whole}: {said}")
        return False, False
