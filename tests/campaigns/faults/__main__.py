"""Run many cases and judge every one: faults, bad inputs, or statements of runs.

    python -m tests.campaigns.faults --cases 200 --seed 0 --out /tmp/faults
    python -m tests.campaigns.faults --only kill:17 --keep --out /tmp/again
    python -m tests.campaigns.faults --inputs --cases 3000 --jobs 2
    python -m tests.campaigns.faults --statements --cases 4000 --jobs 2

Cases that are already in OUT/results.csv are passed over, so that a campaign that was
ended goes on; ``--cases 0`` only prints the table of a folder. Exit code 0: no case
broke the rule; 1: some did; 2: bad arguments.
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
import traceback
from collections import Counter
from multiprocessing import get_context
from pathlib import Path

from tests.campaigns import statements
from tests.campaigns.faults import cases, fuzz, judge
from tests.campaigns.faults.jobs import BANNERS, MOUNTS, PRIVATE, Play, find_mpi, sweep
from tests.support.runs import rows_of

NAME = f"faults-{os.getpid()}"  # of all processes that this campaign starts
COLUMNS = (
    "kind", "seed", "mpi", "ranks", "outcome", "struck", "starts", "seconds", "run",
    "story",
)  # fmt: skip
KINDS = {judge: cases.KINDS, fuzz: fuzz.KINDS, statements: statements.KINDS}
SKIPPED = "skipped"  # it cannot be tried here
NO_VERDICT = "no verdict"  # the campaign failed, not the run
FAILURES = {NO_VERDICT, *(name for each in KINDS for name in each.FAILURES)}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    for name, family in (("inputs", fuzz), ("statements", statements)):
        add(f"--{name}", dest="family", action="store_const", const=family)
    add("--cases", type=int, default=200, help="how many, of all kinds in turn")
    add("--seed", type=int, default=0, help="of the whole campaign")
    add("--only", help="these cases, as kind:seed, with commas")
    add("--mpi", choices=tuple(BANNERS), default="mpich")
    add("--jobs", type=int, default=1, help="cases at a time")
    add("--out", type=Path, help="folder of results.csv (default: a temporary one)")
    add("--pace", type=float, default=0.0, help="seconds added to each exchange")
    add("--per-rank", type=int, default=1, help="nodes of each rank")
    add("--keep", action="store_true", help="keep the folders of all cases")
    parser.set_defaults(family=judge)
    chosen = parser.parse_args()
    kinds, faults = [*KINDS[chosen.family]], chosen.family is judge
    chosen.pairs = [name.split(":") for name in (chosen.only or "").split(",") if name]
    for k in range(0 if chosen.only else chosen.cases):
        own = chosen.seed * 100_000 + k if faults else chosen.seed + k // len(kinds)
        chosen.pairs.append([kinds[k % len(kinds)], str(own)])
    if unknown := {kind for kind, _ in chosen.pairs}.difference(*KINDS.values()):
        parser.error(f"unknown kinds {sorted(unknown)}; choose from {', '.join(kinds)}")
    return chosen


def play(work: tuple[str, int, argparse.Namespace]) -> dict:
    """Play a case; return its row."""
    kind, seed, chosen = work
    began, folder = time.monotonic(), chosen.out / "cases" / f"{kind}-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if kind in fuzz.KINDS:
        row = fuzz.play(kind, seed, folder, chosen.out / "templates")
    elif kind in statements.KINDS:
        row = statements.play(kind, seed)
    else:
        row = play_fault(cases.draw(kind, seed, chosen.per_rank), folder, chosen)
    if not chosen.keep and row["outcome"] not in FAILURES:
        shutil.rmtree(folder, ignore_errors=True)
    seconds = f"{time.monotonic() - began:.1f}"
    story = " ".join(row["story"].split())
    return row | {"kind": kind, "seed": seed, "seconds": seconds, "story": story}


def play_fault(case: cases.Case, folder: Path, chosen: argparse.Namespace) -> dict:
    name = "openmpi" if case.kind == "loss" else chosen.mpi  # which needs ULFM
    mpi, why = find_mpi(name), ""
    if mpi is None:
        place = f"DADMM_MPIEXEC, beside {sys.executable}, in DADMM_{name.upper()}"
        why = f"no {name} in {place} or in .venv-{name}"
    elif case.kind in MOUNTS and not os.environ.get(PRIVATE):
        why = "no mount namespace of our own: unshare --mount is not allowed"
    row = {"outcome": SKIPPED, "story": why}
    if not why:
        try:
            row = judge.Judge(Play(case, mpi, folder, NAME, chosen.pace)).verdict()
        except Exception:  # in the campaign itself, which it would end
            row = {"outcome": NO_VERDICT, "story": traceback.format_exc()}
    run = f"{case.nodes} nodes, {case.settings} {case.saving}"
    return row | {"mpi": name, "ranks": case.ranks, "run": run}


def obey_the_pool() -> None:
    """Let the pool, which sends TERM, be the only one to end its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(130))


def report(row: dict, chosen: argparse.Namespace) -> str:
    """Return what is printed of a case; of faults always, of others if it is bad."""
    line = f"{row['kind']}:{row['seed']} {row['outcome']} ({row['seconds']} s)"
    if row["outcome"] in FAILURES:
        again = f"again: --mpi {chosen.mpi} --only {row['kind']}:{row['seed']} --keep"
        return f"{line}: {row['run']}: {row['story']}\n    {again}"
    if row["outcome"] == SKIPPED or chosen.only:
        return f"{line}: {row['story']}"
    return line if row["kind"] in cases.KINDS else ""


def table(rows: list[dict]) -> str:
    """Return the table of a campaign in Markdown, one line per MPI and kind."""
    counts: dict[tuple[str, ...], Counter[str]] = {}
    for row in rows:
        counts.setdefault((row["mpi"], row["kind"]), Counter())[row["outcome"]] += 1
    total: Counter[str] = sum(counts.values(), Counter())
    seen = {kind for _, kind in counts}
    family = next((f for f, kinds in KINDS.items() if seen & {*kinds}), judge)
    shown = family.OUTCOMES
    right = ["---:"] * (1 + len(shown))
    first = "status" if family is statements else "MPI"
    lines = [(first, "case", "tried", *shown), ("---", "---", *right)]
    for (mpi, kind), found in [*counts.items(), (("", "all"), total)]:
        numbers = [found[outcome] for outcome in shown]
        cells = map(str, [sum(numbers), *numbers])
        lines.append((mpi, kind.replace("_", " "), *cells))
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    idle = [f"{n} {word}" for word, n in total.items() if word not in shown]
    return f"{text}\n\nNot counted: {', '.join(idle)}." if idle else text


def main() -> int:
    chosen = parse_arguments()
    chosen.out = Path(chosen.out or tempfile.mkdtemp(prefix="dadmm-faults-")).resolve()
    chosen.out.mkdir(parents=True, exist_ok=True)
    results, broken = chosen.out / "results.csv", 0
    results.touch()
    known = {(row["kind"], row["seed"]) for row in rows_of(results)}
    pairs = [pair for pair in chosen.pairs if tuple(pair) not in known]
    chosen.family = None  # a module cannot be sent to the workers
    due = [(kind, int(seed), chosen) for kind, seed in pairs]
    if any(kind in fuzz.KINDS for kind, _ in pairs):
        fuzz.prepare(chosen.out)
    try:
        with (
            get_context("fork").Pool(chosen.jobs, obey_the_pool) as pool,
            open(results, "a", newline="", buffering=1) as file,
        ):
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            if file.tell() == 0:
                writer.writeheader()
            for k, row in enumerate(pool.imap_unordered(play, due), start=1):
                writer.writerow(row)
                broken += row["outcome"] in FAILURES
                if text := report(row, chosen):
                    print(f"{k}/{len(due)} {text}", flush=True)
            pool.close()  # a worker that is terminated may keep the lock of the queue
            pool.join()
    except KeyboardInterrupt:
        print("ended; the same command goes on", file=sys.stderr)
        return 130
    finally:
        sweep(NAME)
    print(f"\n{table(rows_of(results))}\n\nall cases: {results}")
    return int(broken > 0)


def go_private() -> None:
    """Go on in a mount namespace of our own, if that is allowed."""
    if os.environ.get(PRIVATE) is not None or shutil.which("unshare") is None:
        return
    command = ["unshare", "--mount", "--propagation", "private"]
    command += [] if os.geteuid() == 0 else ["--map-root-user"]
    probe = ["sh", "-c", "mount -t tmpfs -o size=1m faults /mnt && umount /mnt"]
    options = {"capture_output": True, "timeout": 60, "check": False}
    allowed = subprocess.run([*command, *probe], **options).returncode == 0
    os.environ[PRIVATE] = "1" if allowed else ""
    if allowed:
        again = [sys.executable, "-m", "tests.campaigns.faults", *sys.argv[1:]]
        os.execvp(command[0], [*command, *again])


if __name__ == "__main__":
    if not {"--inputs", "--statements"} & {*sys.argv}:
        go_private()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    sys.exit(main())
