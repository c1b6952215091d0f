"""What befalls a run: drawn from the case's seed, done to its real processes.

A fault is inside (a plan that ``rank.py`` follows to the call) or outside (signals, a
full disk, a host that is cut off), or both. What its files suffer is done between two
starts.
"""

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.campaigns.faults.cases import Case, pick
from tests.campaigns.faults.jobs import Job, catches, send

if TYPE_CHECKING:
    from tests.campaigns.faults.judge import Play

PRIVATE = "DADMM_FAULTS_PRIVATE"  # set in a mount namespace of our own
ROOM = 64 << 20  # bytes of a disk with room
Rng = np.random.Generator
During = Callable[["Play", Job], bool]
# the calls at which a rank may die, by the phase of a run
DEATHS = {
    "iterations": (("swap", ""),),
    "checkpoints": (("replace", "node-"), ("fsync", ""), ("unlink", "node-")),
    "opening": (("replace", "config.toml"), ("unlink", "summary.json")),
    "results": (
        ("replace", "history.csv"), ("replace", "result.npz"), ("unlink", "history-"),
        ("replace", "model.json"), ("replace", "summary.json"),
    ),
}  # fmt: skip
# functions that a user's problem, data or disk can make fail, by phase
POINTS = {
    "set-up": ("dadmm.cli.setup:shards", "dadmm.cli.setup:problems",
               "dadmm.cli.job:Job.open_folder"),
    "loop": ("dadmm.admm.local:Local.solve", "dadmm.admm.local:Local.evaluate"),
    "review": ("dadmm.admm.loop:Run.verdict",),
    "save": ("dadmm.solver.checkpoint:Checkpoints._save",),
    "end": ("dadmm.cli.results:describe", "dadmm.cli.job:Job.write_results",
            "dadmm.cli.results:gather_motion"),
}  # fmt: skip
NUMBERS = "dadmm.admm.local:as_numbers"  # of the user's problem
CUTS = {  # what is done on the second host, and on the first one
    "partition": ("ip link set eth0 down", ""),
    "loss of all it sends": ("ip route replace blackhole 10.77.0.0/16", ""),
    "loss of all it receives": ("", "ip route replace blackhole 10.77.0.2/32"),
}


@dataclass
class Fault:
    """What happens in one start of a run, and before the next."""

    words: str = "no fault"
    plan: dict[str, Any] = field(default_factory=dict)  # by rank; see rank.py
    during: During | None = None  # returns whether it hit
    hurt: Callable[["Play"], str] | None = None  # what its files suffer afterwards
    kept: dict[Path, bytes] = field(default_factory=dict)  # of files, for the user
    victim: int | None = None  # the rank that a watched job must name
    says: str = ""  # a pattern that a watched job must print
    lethal: bool = False  # the run may end with no word of its own
    hangs: bool = False  # the job goes on until two signals end it
    cuts: bool = False  # the second host cannot be reached until the end


def draw_faults(case: Case) -> list[Fault]:
    """Return the faults of a case, one for each of its first starts."""
    rng = case.rng(1)
    most = {"kill": 3, "signal": 3, "freeze": 2, "full_disk": 2}.get(case.kind, 1)
    return [DRAWN[case.kind](case, rng) for _ in range(int(rng.integers(1, most + 1)))]


def checkpoints(run: Path) -> list[int]:
    """Return the iterations of which there is some file."""
    return sorted(int(path.name) for path in (run / "checkpoints").glob("[0-9]*"))


def complete(run: Path, nodes: int) -> list[int]:
    """Return the iterations of which there are all files."""
    folder = run / "checkpoints"
    files = {t: (folder / f"{t:08d}").glob("node-*.npz") for t in checkpoints(run)}
    return [t for t, found in files.items() if len(list(found)) == nodes]


def later(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def moment(case: Case, rng: Rng) -> tuple[str, During]:
    """Return a moment in words, and a function that waits for it.

    One in five is a time after the start, perhaps before the first iteration; the rest
    are a little later than some checkpoint.
    """
    seconds, delay = float(rng.uniform(0.0, 3.0)), float(rng.uniform(0.0, 0.1))
    t = int(rng.integers(0.8 * case.max_iter))
    if rng.random() < 0.2:
        return f"after {seconds:.2f} s", lambda play, job: job.comes_to(later(seconds))

    def by_iteration(play: "Play", job: Job) -> bool:
        before = max(checkpoints(play.run), default=-1)  # of an earlier start
        least = max(t, before + 1)
        reached = job.comes_to(lambda: max(checkpoints(play.run), default=-1) >= least)
        return reached and job.comes_to(later(delay))

    return f"{delay:.3f} s after a checkpoint from {t} on", by_iteration


def signals(
    wait: During, victims: list[int] | None, *numbers: int, pause: float = 0.0
) -> During:
    """Return what sends signals, with pauses, to ranks or to mpiexec."""

    def during(play: "Play", job: Job) -> bool:
        hit = False
        for k, number in enumerate(numbers if wait(play, job) else ()):
            if k:
                job.comes_to(later(pause))
            found = [job.process.pid]
            if victims is not None:
                found = [pid for rank, pid in job.ranks().items() if rank in victims]
                play.early = play.early or not all(map(catches, found))
            hit = any([send(pid, number) for pid in found]) or hit
        return hit

    return during


def some_ranks(case: Case, rng: Rng, most: int) -> list[int]:
    return rng.permutation(case.ranks)[: int(rng.integers(1, most + 1))].tolist()


def die(case: Case, rng: Rng, phases: tuple[str, ...], least: int = 1) -> Fault:
    """Let a rank kill itself at some call of a phase."""
    phase = pick(rng, phases)
    at, of = pick(rng, DEATHS[phase])
    most = {
        "iterations": 40 if case.kind == "loss" else case.max_iter,
        "checkpoints": max(1, case.max_iter // case.every // 2),
    }.get(phase, 1)
    anybody = phase in ("iterations", "checkpoints")  # else rank 0 does it
    victim = int(rng.integers(case.ranks)) if anybody else 0
    count, after = int(rng.integers(least, max(least, most) + 1)), rng.random() < 0.5
    plan = {"at": at, "of": of, "count": count, "after": bool(after)}
    words = f"rank {victim} dies {'after' if after else 'at'} {at} {of} no. {count}"
    return Fault(words, {str(victim): {"act": plan}}, victim=victim, lethal=True)


def kill(case: Case, rng: Rng) -> Fault:
    """Kill ranks from outside, or one from inside in any phase."""
    if rng.random() < 0.6:
        return die(case, rng, ("iterations", *DEATHS))
    (when, wait), victims = moment(case, rng), some_ranks(case, rng, 2)
    during = signals(wait, victims, signal.SIGKILL)
    return Fault(f"KILL of ranks {victims} {when}", during=during, lethal=True)


def interrupt(case: Case, rng: Rng) -> Fault:
    """Send a signal to ranks or mpiexec, which may be followed by a death."""
    when, wait = moment(case, rng)
    number = pick(rng, (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT))
    if rng.random() < 0.5:  # what mpiexec makes of it is its own
        number = signal.SIGKILL if rng.random() < 0.25 else number
        words, during = f"{number.name} to mpiexec {when}", signals(wait, None, number)
        return Fault(words, during=during, lethal=True)
    victims = some_ranks(case, rng, 2)
    words = f"{number.name} to ranks {victims} {when}"
    fault = Fault(words, during=signals(wait, victims, number))
    if rng.random() < 0.3:  # and then a kill, while the results are written
        other = die(case, rng, ("results",))
        fault.words, fault.plan = f"{words}, {other.words}", other.plan
        fault.lethal = True
    return fault


def freeze(case: Case, rng: Rng) -> Fault:
    """Stop ranks, and later let them go on or kill them."""
    when, wait = moment(case, rng)
    victims, pause = some_ranks(case, rng, case.ranks - 1), float(rng.uniform(0.1, 2.0))
    then = signal.SIGKILL if rng.random() < 0.4 else signal.SIGCONT
    words = f"STOP of ranks {victims} {when}, {then.name} after {pause:.2f} s"
    during = signals(wait, victims, signal.SIGSTOP, then, pause=pause)
    return Fault(words, during=during, lethal=then == signal.SIGKILL)


def full_disk(case: Case, rng: Rng) -> Fault:
    """Fill the disk at some moment, or at once up to what a run may need."""
    if rng.random() < 0.5:
        # in rows, checkpoints or results: a run takes about this much, its merge again
        spare = int(rng.uniform(0.0, case.nodes * (case.max_iter * 180 + 30_000) * 2))
        words = f"only {spare >> 10} KiB left from the start"
        return Fault(words, during=lambda play, job: fill(play.disk, spare))
    when, wait = moment(case, rng)
    return Fault(
        f"disk filled {when}",
        during=lambda play, job: wait(play, job) and not fill(play.disk, 0),
    )


def fill(disk: Path, spare: int) -> bool:
    """Fill a disk up to some spare bytes; return False: it is not yet known to hit."""
    with open(disk / "filler", "ab", buffering=0) as file:
        try:
            while (free := shutil.disk_usage(disk).free) > spare:
                file.write(bytes(min(1 << 20, free - spare)))
        except OSError:
            pass
    return False


def mount(disk: Path, *options: str) -> None:
    """Mount a disk in a private namespace: a small one, or itself with options."""
    assert os.environ.get(PRIVATE), "mounts are made in a namespace of our own only"
    small = ("-t", "tmpfs", "-o", f"size={ROOM},nr_inodes=100k", "faults")
    command = ["mount", *(options or small), *[str(disk)] * (1 + bool(options))]
    subprocess.run(command, check=True, timeout=60)


def slow(case: Case, rng: Rng) -> Fault:
    """Slow disks, or late and slow ranks, by themselves or with a kill or a signal."""
    plan: dict[str, Any] = {}
    for k in some_ranks(case, rng, case.ranks):
        plan[str(k)] = {"late": rng.uniform(0.0, 3.0), "pace": rng.uniform(0.0, 0.01)}
        if case.kind == "slow_disk":
            plan[str(k)] = {"disk": rng.uniform(0.005, 0.1)}
    told = [
        f"rank {k}: {name} {x:.3f} s" for k, own in plan.items()
        for name, x in own.items()
    ]  # fmt: skip
    words = "; ".join(told)
    if rng.random() < 0.5:
        return Fault(words, plan, lambda play, job: True)
    (when, wait), victims = moment(case, rng), some_ranks(case, rng, 2)
    number = pick(rng, (signal.SIGKILL, signal.SIGTERM, signal.SIGUSR1))
    words += f"; {number.name} to ranks {victims} {when}"
    during, lethal = signals(wait, victims, number), number == signal.SIGKILL
    return Fault(words, plan, during, lethal=lethal)


def corrupt(case: Case, rng: Rng) -> Fault:
    """Damage to checkpoints between a kill and the next start."""
    fault = die(case, rng, ("iterations",), 2 * case.every + 1)
    own = np.random.default_rng(int(rng.integers(2**31)))
    fault.hurt = lambda play: damage(play.run, own, case.nodes)
    return fault


def damage(run: Path, rng: Rng, nodes: int) -> str:
    """Do one to three kinds of damage to checkpoints, mostly to the newest; tell."""
    told = []
    for _ in range(int(rng.integers(1, 4))):
        files = sorted((run / "checkpoints").glob("*/node-*.npz"))
        if not files:
            break
        newest = [f for f in files if [int(f.parent.name)] == complete(run, nodes)[-1:]]
        file = pick(rng, newest if newest and rng.random() < 0.7 else files)
        other, data = pick(rng, files), bytearray(file.read_bytes())
        match how := pick(rng, ("flip", "cut", "remove", "swap", "copy")):
            case "flip" if data:
                data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
            case "cut":
                del data[int(rng.integers(len(data) + 1)) :]
            case "swap" | "copy":  # with another node or iteration
                theirs = other.read_bytes()
                if how == "swap":
                    other.write_bytes(data)
                data[:] = theirs
        file.write_bytes(data)
        if how == "remove":
            file.unlink()
        told.append(f"{how} {file.parent.name}/{file.name}")
    for part in sorted((run / "parts").glob("history-*.csv"))[: rng.random() < 0.1]:
        part.unlink()
        told.append(f"remove {part.name}")
    return ", ".join(told) or "nothing to damage"


def loss(case: Case, rng: Rng) -> Fault:
    """One or two ranks die at an exchange, or one while files are written."""
    if rng.random() < 0.25:
        return die(case, rng, ("opening", "results"))
    faults = [die(case, rng, ("iterations",)) for _ in range(int(rng.integers(1, 3)))]
    words = ", ".join(fault.words for fault in faults)
    return Fault(words, faults[0].plan | faults[-1].plan, lethal=True)


def act(case: Case, rng: Rng, *acts: str) -> Fault:
    """Let a function of some phase do something else on one rank."""
    phase, what = pick(rng, POINTS), pick(rng, acts)
    at, count, victim = pick(rng, POINTS[phase]), 1, int(rng.integers(case.ranks))
    if what == "nan":
        phase, at = "loop", NUMBERS
    if phase in ("loop", "review"):
        count = int(rng.integers(1, case.max_iter))
    elif phase == "save" and "--checkpoint-every" in case.saving:
        count = int(rng.integers(1, max(2, case.max_iter // case.every)))
    plan = {str(victim): {"act": {"at": at, "what": what, "count": count}}}
    words = f"{what} on rank {victim} in {phase}: {at.rpartition(':')[2]} no. {count}"
    return Fault(words, plan, victim=victim, hangs=what in ("hang", "spin"))


def error(case: Case, rng: Rng) -> Fault:
    kinds = ("Exception", "SystemExit", "KeyboardInterrupt", "memory", "nan", "exit")
    return act(case, rng, *kinds)


def stand(case: Case, rng: Rng) -> Fault:
    return act(case, rng, "hang", "spin", "stop", "stop")


def cut(case: Case, rng: Rng) -> Fault:
    """Cut the second host off, for good or for a while."""
    how, (when, wait) = pick(rng, CUTS), moment(case, rng)
    seconds = float(rng.uniform(0.5, 5.0)) if rng.random() < 0.6 else 0.0

    def during(play: "Play", job: Job) -> bool:
        if not wait(play, job):
            return False
        for host, command in zip((1, 0), CUTS[how], strict=True):
            play.on_host(host, command)
        if seconds:
            job.comes_to(later(seconds))
            play.join_hosts()
        return True

    lasts = f"for {seconds:.1f} s" if seconds else "for good"
    says = rf"host1|rank {case.ranks - 1} has not reported"
    words = f"{how} of host1 {when}, {lasts}"
    return Fault(words, during=during, says=says, cuts=not seconds)


def lag(case: Case, rng: Rng) -> Fault:
    """Hosts with a delay between them, where a rank may die or stop."""
    if rng.random() < 0.4:
        return Fault("a delay between hosts", during=lambda play, job: True)
    found = act(case, rng, "kill", "stop", "Exception")
    found.words = f"a delay between hosts, {found.words}"
    return found


def readonly(case: Case, rng: Rng) -> Fault:
    """Make the disk read-only at some moment; it can be written after the end."""
    when, wait = moment(case, rng)

    def during(play: "Play", job: Job) -> bool:
        if not wait(play, job):
            return False
        for options in (["--bind"], ["-o", "remount,bind,ro"]):
            mount(play.disk, *options)
        return True

    return Fault(f"disk read-only {when}", during=during)


def unlike(case: Case, rng: Rng) -> Fault:
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
        return Fault(f"{what} on rank {victim}", plan, says="rank")
    name, value = pick(rng, (("data_seed", "31"), ("eta0", "3.5"), ("dimension", "4"),
                             ("n_samples", "400"), ("scheme", '"none"')))  # fmt: skip
    found = die(case, rng, ("iterations",), case.every + 2)

    def hurt(play: "Play") -> str:
        file = play.run / "config.toml"
        found.kept = {file: file.read_bytes()}
        text, n = re.subn(rf"(?m)^{name} = .*$", f"{name} = {value}", file.read_text())
        file.write_text(text if n else f"{name} = {value}\n{text}")
        return f"{name} = {value} in config.toml"

    found.hurt = hurt
    return found


def twice(case: Case, rng: Rng) -> Fault:
    """Start a second job in the folder while the first one is at work."""
    how = pick(rng, ("as the first", "--overwrite", "--resume"))

    def during(play: "Play", job: Job) -> bool:
        begun = play.run / "parts"
        if not job.comes_to(lambda: begun.exists() and bool(list(begun.iterdir()))):
            return False
        before = play.arguments(resume=how == "--resume")
        if how == "as the first":
            before.remove("--overwrite")
        return play.refuses(play.start(before, {}).outcome())

    slow = {str(k): {"pace": 8 / case.max_iter} for k in range(case.ranks)}
    return Fault(f"a second job, {how}", slow, during)


def foreign(case: Case, rng: Rng) -> Fault:
    """Put files of another run, or damaged rows, into the folder of a run."""
    found = die(case, rng, ("iterations",), case.every + 2)
    what = pick(rng, ("one file", "all files", "rows"))
    own = np.random.default_rng(int(rng.integers(2**31)))

    def hurt(play: "Play") -> str:
        if what == "rows":
            return damage_rows(play.run, own)
        whole = complete(play.run, case.nodes)
        if not whole:
            return "nothing to replace"
        words = play.arguments()
        words[words.index("--out") + 1] = str(play.folder / "other")
        play.start(words, found.plan).outcome()
        there = f"checkpoints/{whole[-1]:08d}"
        files = sorted((play.folder / "other" / there).glob("node-*"))
        files = files if what == "all files" else files[-1:]
        found.kept = {f: f.read_bytes() for f in (play.run / there).iterdir()}
        for file in files:
            shutil.copy(file, play.run / there)
        return f"{len(files)} files of another run in {there}"

    found.hurt = hurt
    return found


def damage_rows(run: Path, rng: Rng) -> str:
    """Change a byte of the rows of some rank."""
    files = [file for file in sorted((run / "parts").glob("*")) if file.stat().st_size]
    if not files:
        return "no rows to damage"
    file = pick(rng, files)
    data = bytearray(file.read_bytes())
    place = int(rng.integers(len(data)))
    data[place] = pick(rng, [k for k in b"0123456789" if k != data[place]])
    file.write_bytes(data)
    return f"byte {place} of {file.name} is {chr(data[place])}"


DRAWN: dict[str, Callable[[Case, Rng], Fault]] = {
    "kill": kill, "signal": interrupt, "freeze": freeze, "full_disk": full_disk,
    "slow_disk": slow, "delay": slow, "corrupt": corrupt, "loss": loss, "error": error,
    "stand": stand, "cut": cut, "lag": lag, "readonly": readonly, "unlike": unlike,
    "twice": twice, "foreign": foreign,
}  # fmt: skip
