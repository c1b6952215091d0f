"""What befalls a run: drawn from the case's seed, done to its real processes.

A fault is either inside (a plan that ``rank.py`` follows to the call) or outside (a
signal sent when the run has come so far). What its files suffer is done between two
starts.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.campaigns.faults.cases import Case, pick
from tests.campaigns.faults.jobs import Job, catches, send

PRIVATE = "DADMM_FAULTS_PRIVATE"  # set in a mount namespace of our own
ROOM = 64 << 20  # bytes of a disk with room


class Fault(NamedTuple):
    """What happens during one start of a run, and before the next."""

    words: str
    plan: dict[str, Any] = {}  # noqa: RUF012 (see rank.py; never changed)
    strike: Callable[[Job, Path], bool] | None = None  # tells whether it hit
    lethal: bool = False  # the run may end with no word of its own
    before: Callable[[Path], Any] | None = None  # what is done ahead of the start
    hurt: Callable[[Path], str] | None = None  # what its files suffer afterwards


def checkpoints(run: Path) -> list[int]:
    """Return the iterations of which there is some file."""
    found = (run / "checkpoints").glob("[0-9]*")
    return sorted(int(path.name) for path in found)


def complete(run: Path, ranks: int) -> list[int]:
    """Return the iterations of which there are all files."""
    folder = run / "checkpoints"
    files = {t: (folder / f"{t:08d}").glob("node-*.npz") for t in checkpoints(run)}
    return [t for t, found in files.items() if len(list(found)) == ranks]


def draw_faults(case: Case) -> list[Fault]:
    rng = case.rng(1)
    once = {"slow_disk": _slow_disk, "delay": _delay, "corrupt": _corruption}
    once["loss"] = _loss
    if case.kind in once:
        return [once[case.kind](case, rng)]
    faults = {"kill": _kill, "signal": _signal, "freeze": _freeze}
    faults["full_disk"] = _full_disk
    most = 4 if case.kind in ("kill", "signal") else 3
    return [faults[case.kind](case, rng) for _ in range(int(rng.integers(1, most)))]


def moment(case: Case, rng: np.random.Generator) -> tuple[str, Callable[..., bool]]:
    """Return a moment in words, and a function that waits for it.

    One in five is a time after the start, perhaps before the first iteration; the rest
    are a little later than some checkpoint.
    """
    if rng.random() < 0.2:
        seconds = float(rng.uniform(0.0, 3.0))

        def by_clock(job: Job, run: Path) -> bool:
            return job.wait_until(lambda: time.monotonic() - job.began > seconds)

        return f"after {seconds:.2f} s", by_clock
    t, delay = int(rng.integers(0.8 * case.max_iter)), float(rng.uniform(0.0, 0.1))

    def by_iteration(job: Job, run: Path) -> bool:
        before = max(checkpoints(run), default=-1)  # of an earlier start
        least = max(t, before + 1)
        reached = job.wait_until(lambda: max(checkpoints(run), default=-1) >= least)
        return reached and job.wait_until(_later(delay))

    return f"{delay:.3f} s after a checkpoint from {t} on", by_iteration


def _later(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def _kill(case: Case, rng: np.random.Generator) -> Fault:
    return (_kill_inside if rng.random() < 0.6 else _kill_outside)(case, rng)


def _kill_outside(case: Case, rng: np.random.Generator) -> Fault:
    when, wait = moment(case, rng)
    victims = rng.permutation(case.ranks)[: 1 + int(rng.random() < 0.2)].tolist()
    strike = _to_ranks(wait, victims, signal.SIGKILL)
    return Fault(f"KILL of ranks {victims} {when}", strike=strike, lethal=True)


def _kill_inside(case: Case, rng: np.random.Generator) -> Fault:
    """At an exchange, in a checkpoint, or while the folder is opened or finished."""
    counted = "--checkpoint-every" in case.saving
    saves = max(1, case.max_iter // case.every // 2) if counted else 1
    at, of, most, root = pick(rng, (
        ("swap", "", case.max_iter, False), ("swap", "", case.max_iter, False),
        ("replace", "node-", saves, False), ("fsync", "", saves, False),
        ("unlink", "node-", saves, False),
        ("replace", "config.toml", 1, True), ("unlink", "summary.json", 1, True),
    ))  # fmt: skip
    if rng.random() < 0.3:
        return _kill_in_results(case, rng)
    victim = 0 if root else int(rng.integers(case.ranks))
    count, after = int(rng.integers(1, most + 1)), bool(rng.random() < 0.5)
    die = {"at": at, "of": of, "count": count, "after": after}
    words = f"rank {victim} dies {'after' if after else 'at'} {at} {of} no. {count}"
    return Fault(words, {str(victim): {"die": die}}, lethal=True)


def _kill_in_results(case: Case, rng: np.random.Generator) -> Fault:
    at, of, most = pick(rng, (
        ("replace", "history.csv", 1), ("replace", "result.npz", 1),
        ("replace", "model.json", 1), ("replace", "summary.json", 1),
        ("unlink", "history-", case.ranks),
    ))  # fmt: skip
    die = {"at": at, "of": of, "count": int(rng.integers(1, most + 1))}
    words = f"rank 0 dies at {at} {of} no. {die['count']}"
    return Fault(words, {"0": {"die": die}}, lethal=True)


def _to_ranks(wait: Any, victims: list[int], number: int) -> Any:
    def strike(job: Job, run: Path) -> bool:
        if not wait(job, run):
            return False
        found = [pid for k, pid in job.ranks().items() if k in victims]
        job.heeds = all(catches(pid) for pid in found)
        return any([send(pid, number) for pid in found])

    return strike


def _signal(case: Case, rng: np.random.Generator) -> Fault:
    when, wait = moment(case, rng)
    name = pick(rng, ("SIGTERM", "SIGUSR1", "SIGINT"))
    if rng.random() < 0.5:
        victims = rng.permutation(case.ranks)[: int(rng.integers(1, 3))].tolist()
        strike = _to_ranks(wait, victims, getattr(signal, name))
        words = f"{name} to ranks {victims} {when}"
        if rng.random() < 0.3:  # and then a kill, while the results are written
            other = _kill_in_results(case, rng)
            return Fault(f"{words}, {other.words}", other.plan, strike, lethal=True)
        return Fault(words, strike=strike)
    name = "SIGKILL" if rng.random() < 0.25 else name

    def to_mpiexec(job: Job, run: Path) -> bool:
        return wait(job, run) and send(job.process.pid, getattr(signal, name))

    # what mpiexec makes of it is its own: some end the ranks, some tell them
    return Fault(f"{name} to mpiexec {when}", strike=to_mpiexec, lethal=True)


def _freeze(case: Case, rng: np.random.Generator) -> Fault:
    when, wait = moment(case, rng)
    victims = rng.permutation(case.ranks)[: int(rng.integers(1, case.ranks))].tolist()
    pause, killed = float(rng.uniform(0.1, 2.0)), bool(rng.random() < 0.4)

    def strike(job: Job, run: Path) -> bool:
        if not _to_ranks(wait, victims, signal.SIGSTOP)(job, run):
            return False
        job.wait_until(_later(pause))
        found = job.ranks()
        for k in victims:
            if k in found:
                send(found[k], signal.SIGKILL if killed else signal.SIGCONT)
        return True

    then = "KILL" if killed else "CONT"
    words = f"STOP of ranks {victims} {when}, {then} after {pause:.2f} s"
    return Fault(words, strike=strike, lethal=killed)


def _full_disk(case: Case, rng: np.random.Generator) -> Fault:
    """A disk that is too small from the start, or filled at some moment."""
    if rng.random() < 0.5:
        # in rows, checkpoints or results: a run takes about this much, its merge again
        most = case.ranks * (case.max_iter * 180 + 30_000) * 2
        spare = int(rng.uniform(0.0, most))
        words = f"only {spare >> 10} KiB left from the start"
        before = lambda run: fill(run.parent, spare)  # noqa: E731
        return Fault(words, before=before, hurt=_make_room)
    when, wait = moment(case, rng)

    def strike(job: Job, run: Path) -> bool:
        return wait(job, run) and fill(run.parent, 0) >= 0

    return Fault(f"disk filled {when}", strike=strike, hurt=_make_room)


def mount(disk: Path) -> None:
    """Mount a small disk of its own; only in a private namespace."""
    assert os.environ.get(PRIVATE), "mounts are made in a namespace of our own only"
    disk.mkdir()
    options = f"size={ROOM},nr_inodes=100k"
    command = ["mount", "-t", "tmpfs", "-o", options, "faults", str(disk)]
    subprocess.run(command, check=True, timeout=60)


def fill(disk: Path, spare: int) -> int:
    """Fill a disk up to some spare bytes; return how many it took."""
    written = 0
    with open(disk / "filler", "ab", buffering=0) as file:
        try:
            while True:
                usage = shutil.disk_usage(disk)
                if usage.free <= spare:
                    return written
                written += file.write(bytes(max(1, min(1 << 20, usage.free - spare))))
        except OSError:
            return written


def _make_room(run: Path) -> str:
    (run.parent / "filler").unlink(missing_ok=True)
    return "there is room again"


def _slow_disk(case: Case, rng: np.random.Generator) -> Fault:
    """Slow fsync and rename on some ranks, by themselves or with a kill or a signal."""
    slow = rng.permutation(case.ranks)[: int(rng.integers(1, case.ranks + 1))].tolist()
    plan = {str(k): {"disk": float(rng.uniform(0.005, 0.1))} for k in slow}
    words = f"slow disk of ranks {slow}"
    if rng.random() < 0.3:
        return Fault(words, plan, lambda job, run: True)
    other = _kill_outside(case, rng) if rng.random() < 0.6 else _signal(case, rng)
    return other._replace(words=f"{words}, {other.words}", plan=plan)


def _delay(case: Case, rng: np.random.Generator) -> Fault:
    """Late or slow ranks, by themselves or with a kill or a signal."""
    plan = {
        str(k): {
            "late": float(rng.uniform(0.0, 3.0)) if rng.random() < 0.6 else 0.0,
            "pace": float(rng.uniform(0.0, 0.01)) if rng.random() < 0.4 else 0.0,
        }
        for k in range(case.ranks)
    }
    late = ", ".join(f"{k} by {p['late']:.1f} s" for k, p in plan.items() if p["late"])
    slow = ", ".join(k for k, p in plan.items() if p["pace"])
    words = f"late: {late or 'none'}; slow: {slow or 'none'}"
    if rng.random() < 0.6:
        return Fault(words, plan, lambda job, run: True)
    other = _kill_outside(case, rng) if rng.random() < 0.5 else _signal(case, rng)
    return other._replace(words=f"{words}; {other.words}", plan=plan)


def _corruption(case: Case, rng: np.random.Generator) -> Fault:
    """Damage to checkpoints between a kill and the next start."""
    t = int(rng.integers(2 * case.every + 1, case.max_iter + 1))
    victim = int(rng.integers(case.ranks))
    plan = {str(victim): {"die": {"at": "swap", "count": t}}}
    seed = int(rng.integers(2**31))

    def hurt(run: Path) -> str:
        return damage(run, np.random.default_rng(seed), case.ranks)

    return Fault(f"rank {victim} dies at swap {t}", plan, lethal=True, hurt=hurt)


def damage(run: Path, rng: np.random.Generator, ranks: int) -> str:
    """Do one to three kinds of damage to checkpoints, mostly to the newest; tell."""
    told = []
    for _ in range(int(rng.integers(1, 4))):
        files = sorted((run / "checkpoints").glob("*/node-*.npz"))
        if not files:
            break
        whole = complete(run, ranks)
        newest = [f for f in files if whole and int(f.parent.name) == whole[-1]]
        file = pick(rng, newest if newest and rng.random() < 0.7 else files)
        how = pick(rng, ("flip", "cut", "remove", "swap", "copy_older", "empty"))
        told.append(f"{how} {file.parent.name}/{file.name}")
        _damage(how, file, files, rng)
    if rng.random() < 0.1:
        for part in sorted((run / "parts").glob("history-*.csv"))[:1]:
            part.unlink()
            told.append(f"remove {part.name}")
    return ", ".join(told) or "nothing to damage"


def _damage(how: str, file: Path, files: list[Path], rng: np.random.Generator) -> None:
    """Damage the file of a node, perhaps with that of another node or iteration."""
    data = bytearray(file.read_bytes())
    if how == "remove":
        file.unlink()
        return
    if how == "flip" and data:
        for _ in range(int(rng.integers(1, 4))):
            data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
    elif how == "cut":
        del data[int(rng.integers(len(data) + 1)) :]
    elif how == "swap":
        other = pick(rng, [f for f in files if f.parent == file.parent])
        theirs = other.read_bytes()
        other.write_bytes(data)
        data[:] = theirs
    elif how == "copy_older":
        data[:] = pick(rng, [f for f in files if f.name == file.name]).read_bytes()
    elif how == "empty":
        data.clear()
    file.write_bytes(data)


def _loss(case: Case, rng: np.random.Generator) -> Fault:
    """One or two ranks die at an exchange, or one before or after all of them."""
    if rng.random() < 0.25:
        return _loss_outside(case, rng)
    n = 1 + int(rng.random() < 0.5)
    victims = rng.permutation(case.ranks)[:n].tolist()
    when = [int(rng.integers(2, 40)) for _ in victims]  # the first is the opening
    if n == 2 and rng.random() < 0.3:
        when[1] = when[0]
    after = [bool(rng.random() < 0.5) for _ in victims]
    plan = {
        str(k): {"die": {"at": "swap", "count": t, "after": late}}
        for k, t, late in zip(victims, when, after, strict=True)
    }
    told = [f"rank {k} dies at swap {t}" for k, t in zip(victims, when, strict=True)]
    return Fault(", ".join(told), plan, lethal=True)


def _loss_outside(case: Case, rng: np.random.Generator) -> Fault:
    """A rank dies in the opening exchange, or while the folder is made or finished."""
    if rng.random() < 0.4:
        return _kill_in_results(case, rng)
    at, of = pick(rng, (("swap", ""), ("replace", "config.toml")))
    victim = int(rng.integers(case.ranks)) if at == "swap" else 0
    die = {"at": at, "of": of}
    return Fault(f"rank {victim} dies at {at} {of}", {str(victim): {"die": die}})
