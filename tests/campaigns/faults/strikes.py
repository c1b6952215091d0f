"""What befalls a run: drawn from the case's seed, done to its real processes.

A fault is inside (a plan that ``rank.py`` follows to the call) or outside (signals, or
a full disk, when the run has come so far), or both. What its files suffer is done
between two starts.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.campaigns.faults.cases import Case, pick
from tests.campaigns.faults.jobs import Job, catches, send

PRIVATE = "DADMM_FAULTS_PRIVATE"  # set in a mount namespace of our own
ROOM = 64 << 20  # bytes of a disk with room
Rng = np.random.Generator
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


@dataclass
class Fault:
    """What happens during one start of a run, and before the next."""

    words: str = "no fault"
    plan: dict[str, Any] = field(default_factory=dict)  # see rank.py
    wait: Callable[[Job, Path], bool] | None = None  # for its moment; None: at once
    victims: list[int] | None = None  # ranks; None: mpiexec
    signals: tuple[int, ...] = ()  # sent in turn
    pause: float = 0.0  # seconds between two of them
    spare: int | None = None  # bytes that are left on the disk
    hurt: Callable[[Path], str] | None = None  # what its files suffer afterwards
    lethal: bool = False  # the run may end with no word of its own

    def before(self, run: Path) -> None:
        """Do what comes ahead of the start."""
        if self.spare is not None and self.wait is None:
            fill(run.parent, self.spare)

    def strike(self, job: Job, run: Path) -> bool:
        """Do what comes during the run; return whether it hit."""
        if self.wait is None:  # slow disks and ranks hit, deaths are seen by the code
            return any("die" not in own for own in self.plan.values())
        if not self.wait(job, run):
            return False
        if self.spare is not None:
            fill(run.parent, self.spare)
            return True
        hit = False
        for k, number in enumerate(self.signals):
            if k:
                job.comes_to(later(self.pause))
            found = [job.process.pid]
            if self.victims is not None:
                found = [pid for k, pid in job.ranks().items() if k in self.victims]
                job.heeds = job.heeds and all(catches(pid) for pid in found)
            hit = any([send(pid, number) for pid in found]) or hit
        return hit


def draw_faults(case: Case) -> list[Fault]:
    """Return the faults of a case, one for each of its first starts."""
    rng = case.rng(1)
    make, most = {
        "kill": (kill, 3), "signal": (interrupt, 3), "freeze": (freeze, 2),
        "full_disk": (full_disk, 2), "slow_disk": (slow, 1), "delay": (slow, 1),
        "corrupt": (corrupt, 1), "loss": (loss, 1),
    }[case.kind]  # fmt: skip
    return [make(case, rng) for _ in range(int(rng.integers(1, most + 1)))]


def checkpoints(run: Path) -> list[int]:
    """Return the iterations of which there is some file."""
    found = (run / "checkpoints").glob("[0-9]*")
    return sorted(int(path.name) for path in found)


def complete(run: Path, ranks: int) -> list[int]:
    """Return the iterations of which there are all files."""
    folder = run / "checkpoints"
    files = {t: (folder / f"{t:08d}").glob("node-*.npz") for t in checkpoints(run)}
    return [t for t, found in files.items() if len(list(found)) == ranks]


def later(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def moment(case: Case, rng: Rng) -> tuple[str, Callable[[Job, Path], bool]]:
    """Return a moment in words, and a function that waits for it.

    One in five is a time after the start, perhaps before the first iteration; the rest
    are a little later than some checkpoint.
    """
    seconds, delay = float(rng.uniform(0.0, 3.0)), float(rng.uniform(0.0, 0.1))
    t = int(rng.integers(0.8 * case.max_iter))
    if rng.random() < 0.2:
        return f"after {seconds:.2f} s", lambda job, run: job.comes_to(later(seconds))

    def by_iteration(job: Job, run: Path) -> bool:
        before = max(checkpoints(run), default=-1)  # of an earlier start
        least = max(t, before + 1)
        reached = job.comes_to(lambda: max(checkpoints(run), default=-1) >= least)
        return reached and job.comes_to(later(delay))

    return f"{delay:.3f} s after a checkpoint from {t} on", by_iteration


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
    count, after = int(rng.integers(least, most + 1)), bool(rng.random() < 0.5)
    plan = {"at": at, "of": of, "count": count, "after": after}
    words = f"rank {victim} dies {'after' if after else 'at'} {at} {of} no. {count}"
    return Fault(words, {str(victim): {"die": plan}}, lethal=True)


def kill(case: Case, rng: Rng) -> Fault:
    """Kill ranks from outside, or one from inside in any phase."""
    if rng.random() < 0.6:
        return die(case, rng, ("iterations", *DEATHS))
    (when, wait), victims = moment(case, rng), some_ranks(case, rng, 2)
    words, number = f"KILL of ranks {victims} {when}", signal.SIGKILL
    return Fault(words, {}, wait, victims, (number,), lethal=True)


def interrupt(case: Case, rng: Rng) -> Fault:
    """Send a signal to ranks or mpiexec, which may be followed by a death."""
    when, wait = moment(case, rng)
    number = pick(rng, (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT))
    if rng.random() < 0.5:  # what mpiexec makes of it is its own
        number = signal.SIGKILL if rng.random() < 0.25 else number
        words = f"{number.name} to mpiexec {when}"
        return Fault(words, {}, wait, None, (number,), lethal=True)
    victims = some_ranks(case, rng, 2)
    fault = Fault(f"{number.name} to ranks {victims} {when}", {}, wait, victims)
    fault.signals = (number,)
    if rng.random() < 0.3:  # and then a kill, while the results are written
        other = die(case, rng, ("results",))
        words = f"{fault.words}, {other.words}"
        return replace(fault, words=words, plan=other.plan, lethal=True)
    return fault


def freeze(case: Case, rng: Rng) -> Fault:
    """Stop ranks, and later let them go on or kill them."""
    when, wait = moment(case, rng)
    victims, pause = some_ranks(case, rng, case.ranks - 1), float(rng.uniform(0.1, 2.0))
    then = signal.SIGKILL if rng.random() < 0.4 else signal.SIGCONT
    words = f"STOP of ranks {victims} {when}, {then.name} after {pause:.2f} s"
    numbers, lethal = (signal.SIGSTOP, then), then == signal.SIGKILL
    return Fault(words, {}, wait, victims, numbers, pause, lethal=lethal)


def full_disk(case: Case, rng: Rng) -> Fault:
    """A disk that is too small from the start, or filled at some moment."""
    if rng.random() < 0.5:
        # in rows, checkpoints or results: a run takes about this much, its merge again
        spare = int(rng.uniform(0.0, case.nodes * (case.max_iter * 180 + 30_000) * 2))
        words = f"only {spare >> 10} KiB left from the start"
        return Fault(words, spare=spare, hurt=make_room)
    when, wait = moment(case, rng)
    return Fault(f"disk filled {when}", {}, wait, spare=0, hurt=make_room)


def mount(disk: Path) -> None:
    """Mount a small disk of its own; only in a private namespace."""
    assert os.environ.get(PRIVATE), "mounts are made in a namespace of our own only"
    disk.mkdir()
    options = f"size={ROOM},nr_inodes=100k"
    command = ["mount", "-t", "tmpfs", "-o", options, "faults", str(disk)]
    subprocess.run(command, check=True, timeout=60)


def fill(disk: Path, spare: int) -> None:
    """Fill a disk up to some spare bytes."""
    with open(disk / "filler", "ab", buffering=0) as file:
        try:
            while (free := shutil.disk_usage(disk).free) > spare:
                file.write(bytes(min(1 << 20, free - spare)))
        except OSError:
            return


def make_room(run: Path) -> str:
    (run.parent / "filler").unlink(missing_ok=True)
    return "there is room again"


def slow(case: Case, rng: Rng) -> Fault:
    """Slow disks, or late and slow ranks, by themselves or with a kill or a signal."""
    plan: dict[str, Any] = {}
    for k in some_ranks(case, rng, case.ranks):
        plan[str(k)] = {"late": rng.uniform(0.0, 3.0), "pace": rng.uniform(0.0, 0.01)}
        if case.kind == "slow_disk":
            plan[str(k)] = {"disk": rng.uniform(0.005, 0.1)}
    words = "; ".join(
        f"rank {k}: {name} {seconds:.3f} s"
        for k, own in plan.items()
        for name, seconds in own.items()
    )
    if rng.random() < 0.5:
        return Fault(words, plan)
    (when, wait), victims = moment(case, rng), some_ranks(case, rng, 2)
    number = pick(rng, (signal.SIGKILL, signal.SIGTERM, signal.SIGUSR1))
    words, lethal = f"{words}; {number.name} to ranks {victims} {when}", number == 9
    return Fault(words, plan, wait, victims, (number,), lethal=lethal)


def corrupt(case: Case, rng: Rng) -> Fault:
    """Damage to checkpoints between a kill and the next start."""
    fault = die(case, rng, ("iterations",), 2 * case.every + 1)
    seed = int(rng.integers(2**31))
    fault.hurt = lambda run: damage(run, np.random.default_rng(seed), case.nodes)
    return fault


def damage(run: Path, rng: Rng, ranks: int) -> str:
    """Do one to three kinds of damage to checkpoints, mostly to the newest; tell."""
    told = []
    for _ in range(int(rng.integers(1, 4))):
        files = sorted((run / "checkpoints").glob("*/node-*.npz"))
        if not files:
            break
        whole = complete(run, ranks)
        newest = [f for f in files if whole and int(f.parent.name) == whole[-1]]
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
