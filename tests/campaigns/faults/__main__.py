"""Run real runs under faults, or commands on bad inputs, and judge every one of them.

    python -m tests.campaigns.faults --cases 200 --seed 0 --out /tmp/faults
    python -m tests.campaigns.faults --only kill:17 --keep --out /tmp/again
    python -m tests.campaigns.faults --inputs --cases 3000 --jobs 2
    python -m tests.campaigns.faults --table /tmp/faults/results.csv

Cases that are already in OUT/results.csv are passed over, so that a campaign that was
ended goes on. Exit code 0: no case broke the rule; 1: some did; 2: bad arguments.
"""

import argparse
import csv
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tests.campaigns.faults import cases, fuzz, judge
from tests.campaigns.faults.inputs import KINDS as INPUTS
from tests.campaigns.faults.jobs import BANNERS, find_mpi, sweep
from tests.campaigns.faults.strikes import PRIVATE

NAME = f"faults-{os.getpid()}"  # of all processes that this campaign starts
COLUMNS = (
    "kind", "seed", "mpi", "ranks", "outcome", "struck", "starts", "seconds", "run",
    "story",
)  # fmt: skip
FAILURES = (*judge.FAILURES, *fuzz.FAILURES)

Row = dict[str, Any]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--inputs", action="store_true", help="bad inputs, not faults")
    add("--cases", type=int, default=200, help="how many, of all kinds in turn")
    add("--seed", type=int, default=0, help="of the whole campaign")
    add("--kinds", help="which faults or inputs, in turn")
    add("--only", help="these cases, as kind:seed, with commas")
    add("--mpi", choices=tuple(BANNERS), default="mpich")
    add("--jobs", type=int, default=1, help="cases at a time")
    add("--out", type=Path, help="folder of results.csv (default: a temporary one)")
    add("--pace", type=float, default=0.0, help="seconds added to each exchange")
    add("--per-rank", type=int, default=1, help="nodes of each rank")
    add("--keep", action="store_true", help="keep the folders of all cases")
    add("--table", type=Path, help="print the table of this results.csv, and end")
    chosen = parser.parse_args()
    known = [*(INPUTS if chosen.inputs else cases.KINDS)]
    kinds = chosen.kinds.split(",") if chosen.kinds else known
    first, each = chosen.seed * 100_000, 1
    if chosen.inputs:
        first, each = chosen.seed, len(kinds)
    names = [
        f"{kinds[k % len(kinds)]}:{first + k // each}" for k in range(chosen.cases)
    ]
    names = chosen.only.split(",") if chosen.only else names
    chosen.pairs = [tuple(name.split(":")) for name in names]
    if unknown := {kind for kind, _ in chosen.pairs} - {*INPUTS, *cases.KINDS}:
        parser.error(f"unknown kinds {sorted(unknown)}; choose from {', '.join(known)}")
    return chosen


def play(work: tuple[str, int, argparse.Namespace]) -> Row:
    """Play a case; return its row."""
    kind, seed, chosen = work
    began, folder = time.monotonic(), chosen.out / "cases" / f"{kind}-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if kind in INPUTS:
        row = fuzz.play(kind, seed, folder, chosen.out / "templates")
    else:
        row = play_fault(cases.draw(kind, seed, chosen.per_rank), folder, chosen)
    if not chosen.keep and row["outcome"] not in FAILURES:
        shutil.rmtree(folder, ignore_errors=True)
    seconds = f"{time.monotonic() - began:.1f}"
    story = " ".join(row["story"].split())
    return row | {"kind": kind, "seed": seed, "seconds": seconds, "story": story}


def play_fault(case: cases.Case, folder: Path, chosen: argparse.Namespace) -> Row:
    name = "openmpi" if case.kind == "loss" else chosen.mpi  # which needs ULFM
    mpi, why = find_mpi(name), ""
    if mpi is None:
        place = f"DADMM_MPIEXEC, beside {sys.executable}, in DADMM_{name.upper()}"
        why = f"no {name} in {place} or in .venv-{name}"
    elif case.kind in ("full_disk", "readonly") and not os.environ.get(PRIVATE):
        why = "no mount namespace of our own: unshare --mount is not allowed"
    verdict = judge.Verdict(judge.SKIPPED, story=why)
    if mpi is not None and not why:
        verdict = judge.Play(case, mpi, folder, NAME, chosen.pace).verdict()
    most, saving = f"{case.max_iter} iterations at most", " ".join(case.saving)
    run = f"{case.nodes} nodes, {case.words}, {most}, {saving}"
    return verdict._asdict() | {"mpi": name, "ranks": case.ranks, "run": run}


def obey_the_pool() -> None:
    """Let the pool, which sends TERM, be the only one to end its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(130))


def play_all(
    due: list[tuple[str, int, argparse.Namespace]], jobs: int
) -> Iterator[Row]:
    """Play cases, several at a time if asked; yield their rows as they come."""
    if jobs == 1:
        yield from map(play, due)
        return
    with get_context("fork").Pool(jobs, obey_the_pool) as pool:
        yield from pool.imap_unordered(play, due)
        pool.close()  # a worker that is terminated may keep the lock of the queue
        pool.join()


def read(path: Path) -> list[Row]:
    """Return the rows of a results file; none if there is no such file."""
    if not path.exists():
        return []
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def append(path: Path, row: Row) -> None:
    fresh = not path.exists()
    with open(path, "a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if fresh:
            writer.writeheader()
        writer.writerow(row)


def table(rows: list[Row]) -> str:
    """Return the table of a campaign in Markdown, one line per MPI and kind."""
    counts: dict[tuple[str, ...], Counter[str]] = {}
    for row in rows:
        counts.setdefault((row["mpi"], row["kind"]), Counter())[row["outcome"]] += 1
    total: Counter[str] = sum(counts.values(), Counter())
    of_inputs = any(kind in INPUTS for _, kind in counts)
    shown = fuzz.OUTCOMES if of_inputs else judge.OUTCOMES
    lines = [
        ("MPI", "case", "tried", *shown),
        ("---", "---", *["---:"] * (1 + len(shown))),
    ]
    for (mpi, kind), found in [*counts.items(), (("", "all"), total)]:
        numbers = [found[outcome] for outcome in shown]
        cells = map(str, [sum(numbers), *numbers])
        lines.append((mpi, kind.replace("_", " "), *cells))
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    idle = [f"{n} {word}" for word, n in total.items() if word not in shown]
    return f"{text}\n\nNot counted: {', '.join(idle)}." if idle else text


def main() -> int:
    chosen = parse_arguments()
    if chosen.table:
        print(table(read(chosen.table)))
        return 0
    chosen.out = Path(chosen.out or tempfile.mkdtemp(prefix="dadmm-faults-")).resolve()
    chosen.out.mkdir(parents=True, exist_ok=True)
    results = chosen.out / "results.csv"
    known = {(row["kind"], row["seed"]) for row in read(results)}
    due = [(kind, int(seed), chosen) for kind, seed in chosen.pairs
           if (kind, seed) not in known]  # fmt: skip
    if any(kind in INPUTS for kind, _, _ in due):
        fuzz.prepare(chosen.out)
    broken = 0
    try:
        for k, row in enumerate(play_all(due, chosen.jobs), start=1):
            append(results, row)
            name, bad = f"{row['kind']}:{row['seed']}", row["outcome"] in FAILURES
            broken += bad
            line = f"{k}/{len(due)} {name} {row['outcome']} ({row['seconds']} s)"
            if bad or row["outcome"] == judge.SKIPPED:
                line += f": {row['run']}: {row['story']}"
            if bad:
                line += f"\n    again: --mpi {chosen.mpi} --only {name} --keep"
            if bad or row["kind"] not in INPUTS:
                print(line, flush=True)
    except KeyboardInterrupt:
        print("ended; the same command goes on", file=sys.stderr)
        return 130
    finally:
        sweep(NAME)
    print(f"\n{table(read(results))}\n\nall cases: {results}")
    return 1 if broken else 0


def go_private() -> None:
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
    if "--inputs" not in sys.argv:
        go_private()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    sys.exit(main())
