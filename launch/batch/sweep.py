"""The command sweep: run a grid of settings, in Slurm or on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from launch.base.arguments import positive_number, take_option
from launch.base.environment import PROJECT, ensure
from launch.base.messages import (
    SetupError,
    UsageError,
    exit_on_signal,
    print_message,
    report_error,
)
from launch.base.run_folder import job_lock, read_state
from launch.base.run_plan import RunSettings, check_same_settings, read_settings
from launch.batch.batch_job import check_exists, existing_runtime
from launch.batch.local_pool import LocalPool
from launch.batch.table import collect
from launch.batch.tasks import FLAG, Grid, Sweep, number_of_ranks, read_grid
from launch.mpi.runtime import Runtime

AT_MOST = 4  # running jobs of an array, by default
USAGE = f"""\
usage: ./launch/sweep GRID.toml --out DIR [options] [-- options of sbatch]
       ./launch/sweep collect DIR

Run every combination of the lists in GRID.toml, each in its own folder in DIR.
The same command again runs what is not finished yet. `collect` writes DIR/table.csv.

  --out DIR      folder of the sweep
  --at-most N    runs at a time (default {AT_MOST}; with --local, one per core)
  -n RANKS       ranks of each run (default: ranks in GRID.toml, or 20)
  --mpi NAME     as in ./launch/local
  --local        run on this machine, each run in one process, with equal results
  --trust        let GRID.toml name a problem of your own as package.module:Class
  --dry-run      list the runs and their status

GRID.toml:  ranks = 20
            [base]
            max_iter = 2000
            [grid]
            scheme = ["auto", "vp"]
            topology = ["ring", "complete"]
            seed = [0, 1, 2]
"""


class Options(NamedTuple):
    """The options of a command line."""

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
    out, ours = take_option(ours, ("--out",), "")
    at_most, ours = take_option(ours, ("--at-most",), "")
    ranks, ours = take_option(ours, ("-n", "-np"), "")
    mpi, ours = take_option(ours, ("--mpi",), "")
    trust = ("--trust",) if "--trust" in ours else ()
    files = [word for word in ours if word not in ("--local", "--dry-run", "--trust")]
    if len(files) != 1 or files[0].startswith("-") or not out:
        raise UsageError(
            "./launch/sweep needs a GRID.toml and --out DIR, and --help shows all "
            f"options; got {' '.join(arguments) or 'nothing'}"
        )
    local = "--local" in ours
    default = os.cpu_count() or 1 if local else AT_MOST
    if ranks:
        number_of_ranks(ranks)
    return Options(
        read_grid(Path(files[0]), ranks),
        Sweep(Path(out)),
        positive_number("--at-most", at_most) if at_most else default,
        mpi,
        local,
        "--dry-run" in ours,
        trust,
        sbatch,
    )


def run(arguments: list[str]) -> int:
    """Run the tasks of a grid that are not finished."""
    options = read(arguments)
    sweep, tasks = options.sweep, options.grid.tasks
    if options.dry_run:
        for name in tasks:
            print(f"{read_state(sweep.folder / name).status:<12}{name}")
        return 0
    # batch jobs may be running from the environment, so it is not changed for them
    make = ensure if options.local else check_exists
    runtime = existing_runtime(options.mpi, make)
    # check everything before anything is written
    left = unfinished(sweep, runtime, options)
    queued = sweep.queued()
    sweep.check(options.grid, queued)
    with job_lock(sweep.folder):
        before = sweep.names[:], sweep.varied[:]
        sweep.add(options.grid)
        if not left:
            print_message(f"all {len(tasks)} runs are finished")
            return collect(sweep)
        if options.local:
            pool = LocalPool(sweep, runtime, options.trust)
            codes = pool.run(left, options.at_most)
            return collect(sweep) or int(any(codes))
        try:
            return submit(sweep, left, queued, options)
        except UsageError:  # Slurm accepted no task, so remove the new ones
            sweep.names, sweep.varied = before
            sweep.save()
            raise


def unfinished(sweep: Sweep, runtime: Runtime, options: Options) -> list[str]:
    """Return the tasks to run, after a check of the settings of all tasks."""
    left, grid = [], options.grid
    settings = checked(runtime, grid, options.trust)
    for name, wanted in zip(grid.tasks, settings, strict=True):
        folder = sweep.folder / name
        if (folder / "config.toml").exists():
            check_same_settings(wanted, folder, grid.ranks)
        if not read_state(folder).is_done(wanted["max_iter"]):
            left.append(name)
    return left


def checked(
    runtime: Runtime, grid: Grid, trust: Sequence[str] = ()
) -> list[RunSettings]:
    """Return the settings of all tasks as ``dadmm.run`` reads them."""
    with tempfile.TemporaryDirectory() as folder:
        draft = Sweep(Path(folder))
        draft.add(grid)
        command_lines = [[*draft.arguments(name), *trust] for name in grid.tasks]
        try:
            return read_settings(runtime.python, command_lines)
        except UsageError as error:  # leave out the path of the temporary folder
            sentence = str(error).replace(f"{folder}/settings/", "")
            raise UsageError(sentence) from None


def submit(sweep: Sweep, left: list[str], queued: set[int], options: Options) -> int:
    """Submit the tasks that are not queued yet, as a job array."""
    numbers = [sweep.names.index(name) for name in left]
    numbers = sorted(set(numbers) - queued)
    if not numbers:
        print_message(f"all {len(left)} runs that are left are in the queue")
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
        raise UsageError("there is no sbatch on this host; use --local") from None
    if done.returncode:
        raise UsageError(f"Slurm did not accept the array: {done.stderr.strip()}")
    job = done.stdout.strip().partition(";")[0]
    sweep.jobs.append(job)
    sweep.save()
    print_message(
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


def main(arguments: list[str]) -> int:
    """Run the command that the arguments ask for."""
    if not arguments or {"-h", "--help"} & set(arguments):
        print(USAGE, end="")
        return 0 if arguments else 2
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, exit_on_signal)
    try:
        if arguments[0] == "collect":
            if len(arguments) != 2:
                raise UsageError("./launch/sweep collect needs the folder of one sweep")
            return collect(Sweep.existing(Path(arguments[1])))
        return run(arguments)
    except SetupError as error:
        return report_error(error)
