"""The command sweep: run a grid of settings, in Slurm or on this machine."""

import csv
import io
import os
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from launch.base import run_folder
from launch.base.arguments import positive_number, take_option
from launch.base.environment import PROJECT, ensure
from launch.base.messages import UsageError, print_message, run_command
from launch.batch.batch_job import check_exists, existing_runtime
from launch.batch.tasks import FLAG, Grid, Sweep, number_of_ranks, plain, read_grid
from launch.mpi.diagnosis import NOT_CONVERGED
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
            scheme = ["snap", "vp"]
            topology = ["ring", "complete"]
            seed = [0, 1, 2]
"""


class Options(NamedTuple):
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
    flags = {"--local", "--dry-run", "--trust"} & set(ours)
    files = [word for word in ours if word not in flags]
    if len(files) != 1 or files[0].startswith("-") or not out:
        raise UsageError(
            "./launch/sweep needs a GRID.toml and --out DIR, and --help shows all "
            f"options; got {' '.join(arguments) or 'nothing'}"
        )
    local, dry_run = "--local" in flags, "--dry-run" in flags
    trust = ("--trust",) if "--trust" in flags else ()
    most = os.cpu_count() or 1 if local else AT_MOST
    if ranks:
        number_of_ranks(ranks)
    grid, sweep = read_grid(Path(files[0]), ranks), Sweep(Path(out))
    most = positive_number("--at-most", at_most) if at_most else most
    return Options(grid, sweep, most, mpi, local, dry_run, trust, sbatch)


def run(arguments: list[str]) -> int:
    """Run the tasks of a grid that are not finished."""
    options = read(arguments)
    sweep, tasks = options.sweep, options.grid.tasks
    if options.dry_run:
        for name in tasks:
            print(f"{run_folder.read_state(sweep.folder / name).status:<12}{name}")
        return 0
    # batch jobs may be running from the environment, so it is not changed for them
    make = ensure if options.local else check_exists
    runtime = existing_runtime(options.mpi, make)
    # check everything before anything is written
    left = unfinished(sweep, runtime, options)
    queued = sweep.queued()
    sweep.check(options.grid, queued)
    with run_folder.job_lock(sweep.folder):
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
            run_folder.check_same_settings(wanted, folder, grid.ranks)
        if not run_folder.read_state(folder).is_done(wanted["max_iter"]):
            left.append(name)
    return left


def checked(
    runtime: Runtime, grid: Grid, trust: Sequence[str] = ()
) -> list[run_folder.RunSettings]:
    """Return the settings of all tasks as ``dadmm.run`` reads them."""
    with tempfile.TemporaryDirectory() as folder:
        draft = Sweep(Path(folder))
        draft.add(grid)
        command_lines = [[*draft.arguments(name), *trust] for name in grid.tasks]
        try:
            return run_folder.read_settings(runtime.python, command_lines, grid.ranks)
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


class LocalPool:
    """Run each task of a sweep in one process on this machine, a few at a time.

    The first signal stops them, the second kills them. `trust` is ``--trust``, or
    nothing.
    """

    def __init__(
        self, sweep: Sweep, runtime: Runtime, trust: Sequence[str] = ()
    ) -> None:
        self._sweep, self._runtime, self._trust = sweep, runtime, trust
        self._running: set[subprocess.Popen[bytes]] = set()
        self._signals = 0
        self._ended, self._start = count(1), time.monotonic()
        self._n_tasks = 1

    def run(self, names: list[str], at_most: int) -> list[int]:
        """Run tasks, `at_most` at a time; return their exit codes."""
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, self.stop)
        self._n_tasks = len(names)
        with ThreadPoolExecutor(at_most) as pool:
            return list(pool.map(self.run_task, names))

    def run_task(self, name: str) -> int:
        if self._signals:
            return 128 + signal.SIGINT
        sweep, folder = self._sweep, self._sweep.folder / name
        with run_folder.job_lock(folder), sweep.open_log(name) as log:
            run_folder.remove_failure(folder)
            arguments = self._plan(name)
            if arguments is None:  # it had results before it was marked as failed
                return 0
            if self._signals:
                return 128 + signal.SIGINT
            process = subprocess.Popen(
                self._runtime.run_command(arguments),
                env=self._runtime.variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            self._running.add(process)
            self._pass_signal(process)  # one that came before the process was added
            code = process.wait()
            self._running.discard(process)
            by_signal = self._signals and code < 0  # a signal of ours ended it
            if code not in (0, NOT_CONVERGED) and not by_signal:
                sentence = f"{run_folder.FAILED} {code}; see {sweep.log_file(name)}"
                run_folder.write_failure(folder, sentence)
        self._report(name, run_folder.read_state(folder).label())
        return code

    def _report(self, name: str, label: str) -> None:
        """Print that a task has ended, how many have, and the time that is left."""
        done, of = next(self._ended), self._n_tasks
        minutes = (time.monotonic() - self._start) / 60
        left = f", about {minutes * (of - done) / done:.1f} left" if of > done else ""
        print_message(f"{name}: {label} ({done} of {of} in {minutes:.1f} min{left})")

    def _plan(self, name: str) -> list[str] | None:
        sweep, trust = self._sweep, self._trust
        arguments = [*sweep.arguments(name), *trust]
        (wanted,) = run_folder.read_settings(
            self._runtime.python, [arguments], sweep.ranks
        )
        planned = run_folder.plan(wanted, arguments, sweep.folder / name, sweep.ranks)
        if planned is not None and "--resume" not in planned:
            planned = [*planned, "--nodes", str(sweep.ranks)]
        return planned

    def stop(self, signum: int, frame: Any) -> None:
        """Stop all runs at the first signal, kill them at the second."""
        self._signals += 1
        for process in list(self._running):
            self._pass_signal(process)

    def _pass_signal(self, process: subprocess.Popen[bytes]) -> None:
        """Send a process the signal that the signals so far ask for."""
        if self._signals:
            first = self._signals == 1
            process.send_signal(signal.SIGUSR1 if first else signal.SIGKILL)


def collect(sweep: Sweep) -> int:
    """Write a table with a row per task, and print those that are not finished."""
    queued = sweep.queued()
    rows, states = [], [run_folder.read_state(sweep.folder / n) for n in sweep.names]
    for number, (name, state) in enumerate(zip(sweep.names, states, strict=True)):
        settings = sweep.settings(name)
        row = {key: plain(settings[key]) for key in sweep.varied if key in settings}
        row["status"] = state.label(number in queued)
        row |= columns_of(state.summary) | {"folder": str(sweep.folder / name)}
        rows.append(row)
    columns = list(dict.fromkeys(key for row in rows for key in row))
    columns.sort(key=lambda key: key == "folder")  # the longest one comes last
    table = io.StringIO()
    writer = csv.DictWriter(table, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    sweep.write("table.csv", table.getvalue())
    for row, state in zip(rows, states, strict=True):
        if not state.complete:
            print(f"{row['status']:<12}{row['folder']}")
    totals = Counter(row["status"] for row in rows)
    counts = ", ".join(f"{count} {status}" for status, count in totals.items())
    print_message(f"{len(rows)} runs: {counts}; table in {sweep.folder / 'table.csv'}")
    return 0


def columns_of(summary: dict[str, Any]) -> dict[str, Any]:
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
    return run_command(collect_folder if arguments[0] == "collect" else run, arguments)


def collect_folder(arguments: list[str]) -> int:
    if len(arguments) != 2:
        raise UsageError("./launch/sweep collect needs the folder of one sweep")
    return collect(Sweep.existing(Path(arguments[1])))
