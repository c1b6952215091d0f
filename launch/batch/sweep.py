"""Run a grid of settings, as a Slurm job array or on this machine, and tabulate it."""

from __future__ import annotations

import csv
import io
import os
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from launch.base.environment import PROJECT, SetupError, ensure, say, tell
from launch.base.run_folder import check_same, look, only_job, settings, status
from launch.batch.batch_job import check_made, installed
from launch.batch.local_pool import Here
from launch.batch.tasks import FLAG, Grid, Sweep, number_of_ranks, plain, read_grid
from launch.mpi.commands import Launcher, UsageError, leave, take

AT_MOST = 4  # running jobs of an array, unless told otherwise
USAGE = f"""\
usage: ./launch/sweep GRID.toml --out DIR [options] [-- options of sbatch]
       ./launch/sweep collect DIR

Run every combination of the lists in GRID.toml, each in a folder of its own in DIR.
The same command again runs what is not finished yet. `collect` makes DIR/table.csv.

  --out DIR      folder of the sweep
  --at-most N    runs at a time (default {AT_MOST}; with --local, one per core)
  -n RANKS       ranks of each run (default: ranks in GRID.toml, or 20)
  --mpi NAME     as in ./launch/local
  --local        run on this machine, each run in one process: the same numbers
  --trust        let GRID.toml name a problem of your own as package.module:Class
  --dry-run      show what would be run

GRID.toml:  ranks = 20
            [base]
            max_iter = 2000
            [grid]
            scheme = ["auto", "vp"]
            topology = ["ring", "complete"]
            seed = [0, 1, 2]
"""


class Options(NamedTuple):
    """What the command line asks for."""

    grid: Grid
    sweep: Sweep
    at_most: int
    mpi: str
    local: bool
    dry_run: bool
    trust: tuple[str, ...]
    sbatch: list[str]


def read(arguments: list[str]) -> Options:
    """Return the options of a command line that runs a grid."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    ours, sbatch = arguments[:end], arguments[end + 1 :]
    out, ours = take(ours, ("--out",), "")
    at_most, ours = take(ours, ("--at-most",), "")
    ranks, ours = take(ours, ("-n", "-np"), "")
    mpi, ours = take(ours, ("--mpi",), "")
    trust = ("--trust",) if "--trust" in ours else ()
    files = [word for word in ours if word not in ("--local", "--dry-run", "--trust")]
    if len(files) != 1 or files[0].startswith("-") or not out:
        raise UsageError(
            "./launch/sweep needs a GRID.toml and --out DIR, and --help shows all "
            f"options; got {' '.join(arguments) or 'nothing'}"
        )
    local = "--local" in ours
    usual = os.cpu_count() or 1 if local else AT_MOST
    if at_most and not (at_most.isdecimal() and int(at_most) > 0):
        raise UsageError(f"--at-most must be a positive number, got {at_most!r}")
    if ranks:
        number_of_ranks(ranks)
    return Options(
        read_grid(Path(files[0]), ranks),
        Sweep(Path(out)),
        int(at_most or usual),
        mpi,
        local,
        "--dry-run" in ours,
        trust,
        sbatch,
    )


def run(arguments: list[str]) -> int:
    """Run what is not finished of a grid."""
    options = read(arguments)
    sweep, tasks = options.sweep, options.grid.tasks
    if options.dry_run:
        print("\n".join(f"{look(sweep.folder / n).word:<12}{n}" for n in tasks))
        return 0
    # that of batch jobs is as ./launch/setup made it: some may be running from it
    launcher = installed(options.mpi, make=ensure if options.local else check_made)
    # a sweep that is refused stays as it was: everything is checked, then written
    left = unfinished(sweep, launcher, options)
    waiting = queued(sweep)
    sweep.check(options.grid, waiting)
    with only_job(sweep.folder):  # with --local, tasks wait in that process
        before = sweep.names[:], sweep.varied[:]
        sweep.adopt(options.grid)
        if not left:
            say(f"all {len(tasks)} runs are finished")
            return collect(sweep)
        if options.local:
            return run_here(sweep, launcher, left, options)
        try:
            return submit(sweep, left, waiting, options)
        except UsageError:  # Slurm took nothing, so nobody shall miss the new tasks
            sweep.names, sweep.varied = before
            sweep.save()
            raise


def unfinished(sweep: Sweep, launcher: Launcher, options: Options) -> list[str]:
    """Return the tasks to be run, after a check of all their settings."""
    left, grid = [], options.grid
    asked = checked(launcher, grid, options.trust)
    for name, wanted in zip(grid.tasks, asked, strict=True):
        folder = sweep.folder / name
        if (folder / "config.toml").exists():
            check_same(wanted, folder, grid.ranks)
        if not look(folder).done(wanted["max_iter"]):
            left.append(name)
    return left


def checked(
    launcher: Launcher, grid: Grid, trust: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    """Return the settings of all tasks as ``dadmm.run`` reads them, or raise."""
    with tempfile.TemporaryDirectory() as folder:
        draft = Sweep(Path(folder))
        draft.adopt(grid)
        lines = [[*draft.arguments(name), *trust] for name in grid.tasks]
        try:
            return settings(launcher.python, lines)
        except UsageError as error:  # names a file that is about to vanish
            sentence = str(error).replace(f"{folder}/settings/", "")
            raise UsageError(sentence) from None


def submit(sweep: Sweep, left: list[str], waiting: set[int], options: Options) -> int:
    """Submit tasks as a job array, less those that are in the queue already."""
    numbers = [sweep.names.index(name) for name in left]
    numbers = sorted(set(numbers) - waiting)
    if not numbers:
        say(f"all {len(left)} runs that are left are in the queue")
        return 0
    command = [
        "sbatch", "--parsable", "-n", str(sweep.ranks), "--job-name", "dadmm-sweep",
        f"--array={ranges(numbers)}%{options.at_most}",
        "--output", str(sweep.folder / "logs" / "%A_%a.out"), *options.sbatch,
        str(PROJECT / "launch" / "slurm.sbatch"), FLAG, str(sweep.folder),
    ]  # fmt: skip
    if options.mpi:
        command += ["--mpi", options.mpi]
    command += options.trust
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    except FileNotFoundError:
        raise UsageError("there is no sbatch here; run with --local instead") from None
    if done.returncode:
        raise UsageError(f"Slurm did not take the array: {done.stderr.strip()}")
    job = done.stdout.strip().partition(";")[0]
    sweep.jobs.append(job)
    sweep.save()
    say(
        f"job {job}: {len(numbers)} of {len(options.grid.tasks)} runs, "
        f"{options.at_most} at a time; then ./launch/sweep collect {sweep.folder}"
    )
    return 0


def ranges(numbers: Iterable[int]) -> str:
    """Return sorted numbers as sbatch reads them: 0-2,5."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)


def queued(sweep: Sweep) -> set[int]:
    """Return the numbers of the tasks that Slurm still has in its queue."""
    found: set[int] = set()
    for job in sweep.jobs:
        command = ["squeue", "-h", "-r", "-j", job, "-o", "%K"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        except FileNotFoundError:
            return set()
        # a job that Slurm has forgotten is an error to it, and over
        found |= {int(word) for word in done.stdout.split() if word.isdecimal()}
    return found


def run_here(
    sweep: Sweep, launcher: Launcher, left: list[str], options: Options
) -> int:
    """Run tasks on this machine; return zero if all went well."""
    codes = Here(sweep, launcher, options.trust).run(left, options.at_most)
    return collect(sweep) or int(any(codes))


def collect(sweep: Sweep) -> int:
    """Write a table with a row per task, and say which are not finished."""
    waiting = queued(sweep)
    rows = []
    for number, name in enumerate(sweep.names):
        state = look(sweep.folder / name)
        known = sweep.settings(name)
        row = {key: plain(known[key]) for key in sweep.varied if key in known}
        row["status"] = status(state, number in waiting)
        rows.append({**row, **flat(state.summary), "folder": str(sweep.folder / name)})
    columns = list(dict.fromkeys(key for row in rows for key in row))
    columns.sort(key=lambda key: key == "folder")  # the longest one comes last
    table = io.StringIO()
    writer = csv.DictWriter(table, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    sweep.write("table.csv", table.getvalue())
    for row in rows:
        if row["status"] not in ("converged", "not converged"):
            print(f"{row['status']:<12}{row['folder']}")
    totals = Counter(row["status"] for row in rows)
    told = ", ".join(f"{count} {word}" for word, count in totals.items())
    say(f"{len(rows)} runs: {told}; table in {sweep.folder / 'table.csv'}")
    return 0


def flat(summary: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers of a summary as columns."""
    keys = ("converged", "reason", "iterations", "n_nodes", "messages", "bytes")
    found = {key: summary[key] for key in keys if key in summary}
    seconds = summary.get("seconds", {}).items()
    found |= {f"seconds_{name}": value for name, value in seconds}
    return found | summary.get("metrics", {})


def main(arguments: list[str]) -> int:
    """Run the command that the arguments ask for."""
    if not arguments or {"-h", "--help"} & set(arguments):
        print(USAGE, end="")
        return 0 if arguments else 2
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, leave)
    try:
        if arguments[0] == "collect":
            if len(arguments) != 2:
                raise UsageError("./launch/sweep collect needs one folder of a sweep")
            return collect(Sweep.present(Path(arguments[1])))
        return run(arguments)
    except SetupError as error:
        return tell(error)

