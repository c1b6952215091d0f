"""The runs of a campaign, and what befalls them: a kind and a seed decide both.

A fault is inside (a plan that ``faulty_rank.py`` follows to the call) or outside
(signals, a full disk, a host that is cut off), or both. What its files suffer is done
between two starts. ``KINDS`` has a function for each kind of fault, which ``README.md``
describes; tables are in ``faults.toml``.
"""

import re
import shutil
import signal
import tomllib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from dadmm.solver.checkpoint import complete, kept
from tests.campaigns.draw import Draw
from tests.campaigns.faults.jobs import Job, Play, send

TABLE = tomllib.loads(Path(__file__).with_name("faults.toml").read_text())
DEATHS, POINTS, CUTS = (TABLE[name] for name in ("deaths", "points", "cuts"))
TERM, USR1, INT, KILL = signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGKILL
NUMBERS = "dadmm.admm.local:as_numbers"  # of the user's problem
ERRORS = ("Exception", "SystemExit", "KeyboardInterrupt", "memory", "nan", "exit")
STANDS = ("hang", "spin", "SIGSTOP", "SIGSTOP")
STARTS = {"kill": 3, "signal": 3, "freeze": 2, "full_disk": 2}  # with faults, at most


class Case(NamedTuple):
    """A run, and the kind of fault that befalls it."""

    kind: str
    seed: int
    ranks: int
    nodes: int
    max_iter: int
    every: int  # iterations between checkpoints, or about as many by the clock
    settings: str  # that decide the result
    saving: str = ""  # that do not

    @property
    def watched(self) -> bool:
        """Whether launch/local starts the job."""
        return self.kind in [*KINDS][8:]

    def draw(self, purpose: int) -> Draw:
        """Return choices of their own for each purpose."""
        return Draw(self.seed, [*KINDS].index(self.kind), purpose)


def draw(kind: str, seed: int, per_rank: int = 1) -> Case:
    """Return a case, with several nodes per rank if asked.

    Survivors of a loss can bring their run to the optimum of their own data.
    """
    case = Case(kind, seed, 0, 0, 0, 0, "")
    by = case.draw(0)
    if kind == "loss":
        ranks = nodes = by.integer(4, 6)
        rows, dimension, max_iter, tolerance = 30 * ranks, 4, 3000, 1e-7
        problem = f"{by.pick(('ridge', 'huber', 'logistic'))} --alpha {ranks}"
        graph, scheme = by.pick(TABLE["graphs"]), by.pick(("snap", "fixed", "nap"))
        more = ""
    else:
        ranks = by.integer(3, 4 if case.watched else 5)
        nodes = ranks * per_rank
        rows, dimension, max_iter, tolerance = 12 * nodes, 5, by.integer(60, 299), 0.0
        names = ("problems", "graphs", "schemes")
        problem, graph, scheme = (by.pick(TABLE[name]) for name in names)
        extras = TABLE["extras"][: 4 if graph == "ring,star" else 5]  # it has turns
        extras = [extra for extra in extras if by.chance(0.2)]
        more = " ".join([by.pick(TABLE["sending"]), *extras])
    every = by.integer(3, 99 if kind == "loss" else max_iter // 4 - 1)
    saving = f"--checkpoint-every {every} --checkpoint-seconds 0"
    if kind != "loss" and by.chance(0.25):
        saving = f"--checkpoint-seconds {by.uniform(0.02, 0.2):.3f}"
    settings = (
        f"--problem {problem} --topology {graph} --scheme {scheme} {more} "
        f"--n-samples {rows} --dimension {dimension} --data-seed {seed} "
        f"--max-iter {max_iter} --tolerance {tolerance}"
    )
    return Case(kind, seed, ranks, nodes, max_iter, every, settings, saving)


@dataclass
class Fault:
    """What happens in one start of a run, and before the next."""

    words: str = ""
    plan: dict[str, Any] = field(default_factory=dict)  # by rank; see faulty_rank.py
    during: Callable[[Play, Job], bool] | None = None  # returns whether it hit
    moment: "Moment | None" = None  # of ``during``
    hurt: Callable[[Play], str] | None = None  # what its files suffer afterwards
    kept: dict[Path, bytes] = field(default_factory=dict)  # of files, for the user
    says: str = ""  # a pattern that a watched job must print
    lethal: bool = False  # the run may end with no word of its own
    hangs: str = ""  # a pattern of who hangs; then two signals end the job
    cuts: bool = False  # the second host cannot be reached until the end

    def strike(self, play: Play, job: Job) -> bool:
        """Do what is done from outside, in time; return whether it hit."""
        if self.during is None or (self.moment and not self.moment.comes(play, job)):
            return False
        return self.during(play, job)


@dataclass
class Moment:
    """A time after the start, or a little later than a checkpoint from ``t`` on."""

    t: int | None
    seconds: float

    def comes(self, play: Play, job: Job) -> bool:
        if self.t is not None:
            least = max([self.t, *(t + 1 for t in kept(play.run))])
            if not job.comes_to(lambda: kept(play.run)[-1:] >= [least]):
                return False
        return job.goes_on_for(self.seconds)


def draw_faults(case: Case) -> list[Fault]:
    """Return the faults of a case, one for each of its first starts."""
    by = case.draw(1)
    n = by.integer(1, STARTS.get(case.kind, 1))
    return [KINDS[case.kind](by, case) for _ in range(n)]


def draw_moment(by: Draw, case: Case) -> Moment:
    """Return a time in one of five cases; it may come before the first iteration."""
    if by.chance(0.2):
        return Moment(None, by.uniform(0.0, 3.0))
    return Moment(by.integer(0, int(0.8 * case.max_iter) - 1), by.uniform(0.0, 0.1))


def some_ranks(by: Draw, case: Case, most: int) -> list[int]:
    return by.rng.permutation(case.ranks)[: by.integer(1, most)].tolist()


def catches_term(pid: int) -> bool:
    """Return whether a process catches TERM, as a rank does once it has begun."""
    with suppress(OSError):
        status = Path(f"/proc/{pid}/status").read_text()
        caught = int(status.partition("SigCgt:")[2].split()[0], 16)
        return bool(caught >> TERM - 1 & 1)
    return False


def signals(by, case, victims: list[int] | None, *numbers: int, pause=0.0) -> Fault:
    """Send signals with pauses to ranks or, without victims, to mpiexec."""

    def during(play: Play, job: Job) -> bool:
        hit = False
        for k, number in enumerate(numbers):
            if k:
                job.goes_on_for(pause)
            found = [job.process.pid]
            if victims is not None:
                found = [pid for rank, pid in job.ranks().items() if rank in victims]
                play.early = play.early or not all(map(catches_term, found))
            hit = any([send(pid, number) for pid in found]) or hit
        return hit

    names = ", ".join(signal.Signals(number).name for number in numbers)
    words = f"{names} to {'mpiexec' if victims is None else victims}, pause {pause:.2f}"
    lethal = victims is None or KILL in numbers
    return Fault(words, {}, during, draw_moment(by, case), lethal=lethal)


def inside(victim: int, lethal: bool = False, **plan: Any) -> Fault:
    """Return a fault of one rank, which must be named."""
    words, says = f"rank {victim}: {plan}", rf"(rank|node) {victim}\b"
    return Fault(words, {str(victim): plan}, says=says, lethal=lethal)


def die(by: Draw, case: Case, *phases: str, least: int = 1) -> Fault:
    """Let a rank kill itself at some call of a phase."""
    phase = by.pick(phases)
    at, of = by.pick(DEATHS[phase]).split(" ")
    most, victim = 1, 0
    if phase in ("iterations", "checkpoints"):  # else rank 0 does it
        victim = by.integer(0, case.ranks - 1)
        most = case.max_iter // (2 * case.every)
    if phase == "iterations":
        most = 40 if case.kind == "loss" else case.max_iter
    count, after = by.integer(least, max(least, most)), by.chance(0.5)
    call = {"what": "SIGKILL", "at": at, "of": of, "count": count, "after": after}
    return inside(victim, act=call, lethal=True)


def act(by: Draw, case: Case, acts: tuple[str, ...]) -> Fault:
    """Let a function of some phase do something else on one rank."""
    phase, what, victim = by.pick(POINTS), by.pick(acts), by.integer(0, case.ranks - 1)
    if what == "nan":
        phase = "loop"
    at, count = NUMBERS if what == "nan" else by.pick(POINTS[phase]), 1
    if phase in ("loop", "review"):
        count = by.integer(1, case.max_iter - 1)
    elif phase == "save" and "--checkpoint-every" in case.saving:
        count = by.integer(1, max(1, case.max_iter // case.every - 1))
    fault = inside(victim, act={"what": what, "at": at, "count": count})
    if what in ("hang", "spin"):
        fault.hangs = rf"rank {victim} \(process .*\) is (in|busy)"
    return fault


def kill(by: Draw, case: Case) -> Fault:
    if by.chance(0.6):
        return die(by, case, "iterations", *DEATHS)
    return signals(by, case, some_ranks(by, case, 2), KILL)


def interrupt(by: Draw, case: Case) -> Fault:
    number = by.pick((TERM, USR1, INT))
    if by.chance(0.5):  # what mpiexec makes of it is its own
        return signals(by, case, None, KILL if by.chance(0.25) else number)
    fault = signals(by, case, some_ranks(by, case, 2), number)
    if by.chance(0.3):
        death = die(by, case, "results")
        fault.words, fault.plan = f"{fault.words}, {death.words}", death.plan
        fault.lethal = True
    return fault


def freeze(by: Draw, case: Case) -> Fault:
    victims = some_ranks(by, case, case.ranks - 1)
    numbers = signal.SIGSTOP, KILL if by.chance(0.4) else signal.SIGCONT
    return signals(by, case, victims, *numbers, pause=by.uniform(0.1, 2.0))


def full_disk(by: Draw, case: Case) -> Fault:
    spare, moment = 0, draw_moment(by, case)
    if by.chance(0.5):
        # in rows, checkpoints or results: a run takes about this much, its merge again
        most = case.nodes * (case.max_iter * 180 + 30_000) * 2
        spare, moment = int(by.uniform(0, most)), None
    words = f"only {spare >> 10} KiB left"
    return Fault(words, {}, lambda play, job: play.fill(spare), moment)


def slow(by: Draw, case: Case) -> Fault:
    plan: dict[str, Any] = {}
    for k in some_ranks(by, case, case.ranks):
        plan[str(k)] = {"late": by.uniform(0.0, 3.0), "pace": by.uniform(0.0, 0.01)}
        if case.kind == "slow_disk":
            plan[str(k)] = {"disk": by.uniform(0.005, 0.1)}
    if by.chance(0.5):
        return Fault(f"slow: {plan}", plan, lambda play, job: True)
    number = by.pick((KILL, TERM, USR1))
    fault = signals(by, case, some_ranks(by, case, 2), number)
    return replace(fault, words=f"slow: {plan}; {fault.words}", plan=plan)


def corrupt(by: Draw, case: Case) -> Fault:
    def hurt(play: Play) -> str:
        told = [damage(by, play.run, case.nodes) for _ in range(by.integer(1, 3))]
        for part in sorted(play.run.glob("parts/history-*.csv"))[: by.chance(0.1)]:
            part.unlink()
            told.append(f"remove {part.name}")
        return ", ".join(told)

    return replace(die(by, case, "iterations", least=2 * case.every + 1), hurt=hurt)


def damage(by: Draw, run: Path, nodes: int) -> str:
    """Damage a file of a checkpoint, mostly of the newest; tell how."""
    files = sorted((run / "checkpoints").glob("*/node-*.npz"))
    if not files:
        return "nothing to damage"
    newest = [f for f in files if [int(f.parent.name)] == complete(run, nodes)[-1:]]
    file = by.pick(newest if newest and by.chance(0.7) else files)
    other, data = by.pick(files), bytearray(file.read_bytes())
    how = by.pick(("flip", "cut", "remove", "swap", "copy"))
    if how == "flip" and data:
        data[by.integer(0, len(data) - 1)] ^= 1 << by.integer(0, 7)
    elif how == "cut":
        del data[by.integer(0, len(data)) :]
    elif how in ("swap", "copy"):  # with another node or iteration
        theirs = other.read_bytes()
        other.write_bytes(data if how == "swap" else theirs)
        data[:] = theirs
    file.write_bytes(data)
    if how == "remove":
        file.unlink()
    return f"{how} {file.parent.name}/{file.name}"


def loss(by: Draw, case: Case) -> Fault:
    if by.chance(0.25):
        return die(by, case, "opening", "results")
    fault = die(by, case, "iterations")
    if by.chance(0.5):
        other = die(by, case, "iterations")
        words = f"{fault.words}, {other.words}"
        fault = replace(fault, words=words, plan=fault.plan | other.plan)
    return fault


def cut(by: Draw, case: Case) -> Fault:
    how, seconds = by.pick(CUTS), by.uniform(0.5, 5.0) if by.chance(0.6) else 0.0

    def during(play: Play, job: Job) -> bool:
        play.on_host(*CUTS[how])
        if seconds:
            job.goes_on_for(seconds)
            play.join_hosts()
        return True

    words = f"{how} of host1 " + (f"for {seconds:.1f} s" if seconds else "for good")
    says = rf"host1|rank {case.ranks - 1} has not reported"
    moment = draw_moment(by, case)
    return Fault(words, {}, during, moment, says=says, cuts=not seconds)


def lag(by: Draw, case: Case) -> Fault:
    if by.chance(0.4):
        return Fault("a delay between hosts", {}, lambda play, job: True)
    fault = act(by, case, ("SIGKILL", "SIGSTOP", "Exception"))
    return replace(fault, says=f"{fault.says}|host1 was lost")


def readonly(by: Draw, case: Case) -> Fault:
    moment = draw_moment(by, case)
    return Fault("read-only disk", {}, lambda play, job: play.protect(), moment)


def unlike(by: Draw, case: Case) -> Fault:
    if by.chance(0.5):
        fault = inside(by.integer(0, case.ranks - 1), **by.pick(TABLE["one_rank"]))
        return replace(fault, says="rank")
    line = by.pick(TABLE["resumed"])
    fault = die(by, case, "iterations", least=case.every + 2)

    def hurt(play: Play) -> str:
        file = play.run / "config.toml"
        fault.kept = {file: file.read_bytes()}
        name, text = line.partition(" ")[0], file.read_text()
        file.write_text(f"{line}\n" + re.sub(rf"(?m)^{name} = .*\n", "", text))
        return f"{line} in config.toml"

    fault.hurt = hurt
    return fault


def twice(by: Draw, case: Case) -> Fault:
    how = by.pick(("as the first", "--overwrite", "--resume"))

    def during(play: Play, job: Job) -> bool:
        if not job.comes_to(lambda: [*play.run.glob("parts/*")]):
            return False
        words = play.arguments(resume=how == "--resume")
        if how == "as the first":
            words.remove("--overwrite")
        play.second = play.start(words, {}).outcome()
        return play.second.code != 0  # else it came after the end of the first

    plan = {str(k): {"pace": 8 / case.max_iter} for k in range(case.ranks)}
    return Fault(f"a second job, {how}", plan, during)


def foreign(by: Draw, case: Case) -> Fault:
    fault = die(by, case, "iterations", least=case.every + 2)
    what = by.pick(("one file", "all files", "rows"))

    def hurt(play: Play) -> str:
        whole = complete(play.run, case.nodes)
        if what == "rows" or not whole:
            return damage_rows(by, play.run)
        words, other = play.arguments(), play.folder / "other"
        words[words.index("--out") + 1] = str(other)
        play.start(words, fault.plan).outcome()
        there = f"checkpoints/{whole[-1]:08d}"
        files = sorted((other / there).glob("node-*"))
        files = files if what == "all files" else files[-1:]
        fault.kept = {f: f.read_bytes() for f in (play.run / there).iterdir()}
        for file in files:
            shutil.copy(file, play.run / there)
        return f"{len(files)} files of another run in {there}"

    fault.hurt = hurt
    return fault


def damage_rows(by: Draw, run: Path) -> str:
    files = [file for file in sorted(run.glob("parts/*")) if file.stat().st_size]
    if not files:
        return "no rows to damage"
    file = by.pick(files)
    data = bytearray(file.read_bytes())
    place = by.integer(0, len(data) - 1)
    data[place] = by.pick({*b"0123456789"} - {data[place]})
    file.write_bytes(data)
    return f"byte {place} of {file.name} is {chr(data[place])}"


KINDS: dict[str, Callable[[Draw, Case], Fault]] = {  # their places are in the seeds
    "kill": kill, "signal": interrupt, "freeze": freeze, "full_disk": full_disk,
    "slow_disk": slow, "corrupt": corrupt, "delay": slow, "loss": loss,
    # jobs that launch/local starts:
    "error": partial(act, acts=ERRORS), "stand": partial(act, acts=STANDS), "cut": cut,
    "lag": lag, "readonly": readonly, "unlike": unlike, "twice": twice,
    "foreign": foreign,
}  # fmt: skip
