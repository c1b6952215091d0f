"""Run randomised runs under faults, and judge every one of them.

    python -m tests.campaigns.faults --cases 200 --seed 0 --out /tmp/faults
    python -m tests.campaigns.faults --only kill:17 --out /tmp/again

Cases that are already in OUT/results.csv are passed over, so that a campaign that was
ended goes on. Exit code 0: no case broke the rule; 1: some did; 2: bad arguments.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from multiprocessing import Pool
from pathlib import Path
from typing import Any

from tests.campaigns.faults.cases import KINDS, Case, draw, sequence
from tests.campaigns.faults.jobs import BANNERS, MPI, find_mpi, sweep
from tests.campaigns.faults.judge import Play, Verdict
from tests.campaigns.faults.strikes import PRIVATE
from tests.campaigns.faults.table import FAILURES, SKIPPED, append, read, table

NAME = f"faults-{os.getpid()}"  # of all processes that this campaign starts


def arguments_of(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--cases", type=int, default=200, help="how many")
    add("--seed", type=int, default=0, help="of the whole campaign")
    add("--kinds", default=",".join(KINDS), help="which faults, in turn")
    add("--only", help="these cases, as kind:seed, with commas")
    add("--mpi", choices=tuple(BANNERS), default="mpich")
    add("--jobs", type=int, default=1, help="cases at a time")
    add("--out", type=Path, help="folder of results.csv (default: a temporary one)")
    add("--pace", type=float, default=0.0, help="seconds added to each exchange")
    add("--keep", action="store_true", help="keep the folders of all cases")
    chosen = parser.parse_args(argv)
    chosen.kinds = tuple(chosen.kinds.split(","))
    unknown = set(chosen.kinds) - set(KINDS)
    if unknown:
        parser.error(f"unknown kinds {sorted(unknown)}; choose from {', '.join(KINDS)}")
    return chosen


def cases_of(chosen: argparse.Namespace) -> list[Case]:
    if not chosen.only:
        return sequence(chosen.cases, chosen.seed, chosen.kinds)
    names = [name.split(":") for name in chosen.only.split(",")]
    return [draw(kind, int(seed)) for kind, seed in names]


def play(case: Case, mpi: MPI, chosen: argparse.Namespace) -> dict[str, Any]:
    folder = chosen.out / "cases" / case.name.replace(":", "-")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    began = time.monotonic()
    verdict = Play(case, mpi, folder, NAME, chosen.pace).verdict()
    if not chosen.keep and verdict.outcome not in FAILURES:
        shutil.rmtree(folder, ignore_errors=True)
    return row_of(case, mpi.name, verdict, time.monotonic() - began)


def play_one(arguments: tuple[Any, ...]) -> dict[str, Any]:
    """Play one case in a process of the pool."""
    try:
        return play(*arguments)
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def obey_the_pool() -> None:
    """Let the pool, which sends TERM, be the only one to end its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(130))


def row_of(case: Case, mpi: str, verdict: Verdict, seconds: float) -> dict[str, Any]:
    row = verdict._asdict() | {"kind": case.kind, "seed": case.seed, "mpi": mpi}
    row["story"] = " ".join(verdict.story.split())
    saving = " ".join(case.saving)
    run = f"{case.words}, {case.max_iter} iterations at most, {saving}"
    return row | {"ranks": case.ranks, "seconds": f"{seconds:.1f}", "run": run}


def play_all(
    cases: Sequence[Case], chosen: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Play cases, several at a time if asked; yield their rows as they come."""
    found = {name: find_mpi(name) for name in {chosen.mpi, "openmpi"}}
    due = []
    for case in cases:
        name = "openmpi" if case.kind == "loss" else chosen.mpi  # which needs ULFM
        reason = "no mount namespace of our own: unshare --mount is not allowed"
        if found[name] is None:
            reason = (
                f"no {name} in DADMM_MPIEXEC, beside {sys.executable}, in "
                f"DADMM_{name.upper()} or in .venv-{name}"
            )
        elif case.kind != "full_disk" or os.environ.get(PRIVATE):
            due.append((case, found[name], chosen))
            continue
        yield row_of(case, name, Verdict(SKIPPED, 0, 0, reason), 0.0)
    if chosen.jobs == 1:
        for arguments in due:
            yield play(*arguments)
        return
    with Pool(chosen.jobs, obey_the_pool) as pool:
        yield from pool.imap_unordered(play_one, due)


def told(row: dict[str, Any], chosen: argparse.Namespace) -> str:
    """Return a line on a case, and what repeats it if it broke the rule."""
    line = f"{row['kind']}:{row['seed']} {row['outcome']} ({row['seconds']} s)"
    if row["outcome"] in (*FAILURES, SKIPPED):
        line += f": {row['story']}"
    if row["outcome"] in FAILURES:
        line += (
            f"\n    again: python -m tests.campaigns.faults --mpi {chosen.mpi} "
            f"--only {row['kind']}:{row['seed']} --keep --out /tmp/again"
        )
    return line


def main(argv: Sequence[str] | None = None) -> int:
    chosen = arguments_of(argv)
    chosen.out = Path(chosen.out or tempfile.mkdtemp(prefix="dadmm-faults-")).resolve()
    chosen.out.mkdir(parents=True, exist_ok=True)
    results = chosen.out / "results.csv"
    known = {(row["kind"], row["seed"]) for row in read(results)}
    due = [c for c in cases_of(chosen) if (c.kind, str(c.seed)) not in known]
    broken = 0
    try:
        for k, row in enumerate(play_all(due, chosen), start=1):
            append(results, row)
            broken += row["outcome"] in FAILURES
            print(f"{k}/{len(due)} {told(row, chosen)}", flush=True)
    except KeyboardInterrupt:
        print("ended; the same command goes on", file=sys.stderr)
        return 130
    finally:
        sweep(NAME)
    print(f"\n{table(read(results))}\nall cases: {results}")
    return 1 if broken else 0


def in_private() -> None:
    """Go on in a mount namespace of our own, if that is allowed."""
    if os.environ.get(PRIVATE) is not None or shutil.which("unshare") is None:
        return
    command = ["unshare", "--mount", "--propagation", "private"]
    command += [] if os.geteuid() == 0 else ["--map-root-user"]
    probe = "mount -t tmpfs -o size=1m faults /mnt && umount /mnt"
    tried = subprocess.run(
        [*command, "sh", "-c", probe], capture_output=True, timeout=60, check=False
    )
    os.environ[PRIVATE] = "" if tried.returncode else "1"
    if tried.returncode == 0:
        again = [sys.executable, "-m", "tests.campaigns.faults", *sys.argv[1:]]
        os.execvp(command[0], [*command, *again])


if __name__ == "__main__":
    in_private()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    sys.exit(main())
