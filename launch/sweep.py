"""Sweeps: run a grid of settings, in Slurm or on this machine, and collect a table.

In the folder of a sweep, ``sweep.json`` has the settings of all tasks, the number of
ranks and the submitted jobs, ``NAME/`` is the run of a task, and ``logs/`` has the
output of the runs. A task keeps its number when the grid grows.
"""

import csv
import hashlib
import io
import itertools
import json
import math
import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from dadmm.core import documents, files, schema
from dadmm.core.documents import toml_value, writing
from dadmm.runs.config import CommandLine, RunConfig
from dadmm.runs.flags import typed
from dadmm.runs.folder import LOCK, RunFolder
from launch import runs
from launch.console import UsageError, print_message, take_option, whole_number
from launch.diagnosis import NOT_CONVERGED
from launch.environment import PROJECT
from launch.mpi import DEFAULT_RANKS, Runtime

FLAG, FILE, TABLE, LOGS = "--sweep", "sweep.json", "table.csv", "logs"
AT_MOST = 4  # running jobs of an array, by default
MAX_TASKS = 100_000  # of a grid
LONGEST = 200  # characters of a folder's name; file systems allow 255
NAME = re.compile(r"(?!\.|logs$)[\w.,=+-]+")  # of a task
SET_BY_SWEEP = {"out", "nodes", "overwrite"}
COUNT, LIST = schema.integer(1), schema.list_of(schema.TEXT, "a list of texts")
KINDS = {"ranks": COUNT, "varied": LIST, "jobs": LIST, "tasks": schema.OBJECT}
GRID = {"ranks": COUNT, "base": schema.OBJECT, "grid": schema.OBJECT}
DEFAULTS = {"ranks": DEFAULT_RANKS, "base": {}, "grid": {}}


@dataclass
class Sweep:
    """A sweep, as a grid asks for it or as its folder has it."""

    folder: Path
    ranks: int
    varied: list[str]  # names of the settings in [grid]
    jobs: list[str]  # of Slurm
    tasks: dict[str, dict[str, Any]]  # the settings of each task, by its name

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Return the sweep in a folder; raise `UsageError` if there is none."""
        file = folder / FILE
        if files.kind(file) == "none":
            raise UsageError(f"{folder} holds no sweep: it has no {FILE}")
        record = documents.parse(file, json.loads, "JSON")
        schema.OBJECT.check(f"{file} is damaged: it", record)
        for name, kind in KINDS.items():
            kind.check(f"{file} is damaged: {name}", record.get(name))
        for name, settings in record["tasks"].items():
            if not NAME.fullmatch(name) or not isinstance(settings, dict):
                raise UsageError(f"{file} is damaged: {name!r} in tasks is not a task")
        return cls(folder, *(record[name] for name in KINDS))

    def save(self) -> None:
        """Write sweep.json."""
        record = {name: asdict(self)[name] for name in KINDS}
        self.write(FILE, json.dumps(record, indent=1) + "\n")

    def write(self, name: str, text: str) -> None:
        """Write a file atomically, since a task may read it meanwhile."""
        with writing(self.folder), files.replacing(self.folder / name) as file:
            file.write(text.encode())

    def check(self, grid: Self, queued: Container[int]) -> None:
        """Raise `UsageError` if a grid contradicts the sweep or its queued tasks.

        A task reads its settings when it starts: queued tasks cannot change theirs.
        """
        if self.tasks and self.ranks != grid.ranks:
            raise UsageError(
                f"{self.folder} holds a sweep with ranks = {self.ranks}, and this one "
                f"has {grid.ranks}; choose another --out"
            )
        for number, (name, old) in enumerate(self.tasks.items()):
            if number in queued and grid.tasks.get(name, old) != old:
                raise UsageError(
                    f"{self.folder / name} is in the queue with other settings; wait "
                    "for it or cancel it, or choose another --out"
                )

    def queued(self) -> set[int]:
        """Return the numbers of the tasks in Slurm's queue."""
        found = ""
        for job in self.jobs:
            command = ["squeue", "-h", "-r", "-j", job, "-o", "%K"]
            try:
                # it fails for a job that ended long ago, and prints nothing
                done = subprocess.run(command, capture_output=True, timeout=60)
            except FileNotFoundError:
                return set()
            found += done.stdout.decode()
        return {int(text) for text in found.split() if text.isdecimal()}

    def arguments(self, name: str) -> list[str]:
        """Return the arguments of ``dadmm.run`` for a task."""
        return [*runs.as_flags(self.tasks[name]), "--out", str(self.folder / name)]

    def config(self, name: str) -> RunConfig:
        """Return the checked settings of a task."""
        config = RunConfig(**self.tasks[name])
        config.settle(self.ranks)
        return config

    def is_left(self, name: str) -> bool:
        """Return whether a task is unfinished; raise if its run has other settings."""
        folder, wanted = self.folder / name, self.config(name)
        runs.check_same_settings(wanted, folder, self.ranks)
        return not runs.read_state(folder).is_done(wanted.max_iter)


def arguments_of_task(arguments: list[str], variables: Mapping[str, str]) -> list[str]:
    """Replace ``--sweep DIR`` by the arguments of this task of the job array."""
    if FLAG not in arguments:
        return arguments
    at = arguments.index(FLAG)
    sweep = Sweep.read(Path(*arguments[at + 1 : at + 2]))
    number = variables.get("SLURM_ARRAY_TASK_ID", "")
    if not number.isdecimal() or int(number) >= len(sweep.tasks):
        raise UsageError(
            f"{FLAG} needs a job array with tasks 0 to {len(sweep.tasks) - 1}, as "
            f"./launch/sweep submits it, got task {number!r}"
        )
    name = list(sweep.tasks)[int(number)]
    check_trust(sweep, name, sweep.folder / FILE, "--trust" in arguments)
    return [*arguments[:at], *sweep.arguments(name), *arguments[at + 2 :]]


def check_trust(sweep: Sweep, name: str, file: object, trust: bool) -> None:
    """Raise `UsageError` if a file that is not trusted names code to run."""
    problem = sweep.tasks[name].get("problem", "")
    if ":" in problem and not trust:
        raise UsageError(
            f"{file} names the problem {problem!r}, and a file may not name code to "
            "run; if you trust it, add --trust"
        )


def read_grid(file: str, folder: str, ranks: str = "", trust: bool = False) -> Sweep:
    """Return the sweep of a TOML file: ``ranks``, tables ``base`` and ``grid``."""
    table = DEFAULTS | documents.read_toml(file)
    if unknown := table.keys() - GRID:
        raise UsageError(f"{file} has {min(unknown)!r}; it may have {', '.join(GRID)}")
    for name, kind in GRID.items():
        kind.check(f"{file}: {name}", table[name])
    base, grid = table["base"], table["grid"]
    for name, values in grid.items():
        if not (isinstance(values, list) and values):
            raise UsageError(
                f"{file}: {name} in [grid] must be a list of values, got {values!r}; "
                "write a value that all runs share in [base]"
            )
    if math.prod(map(len, grid.values())) > MAX_TASKS:
        raise UsageError(f"{file} asks for more than {MAX_TASKS} runs; use fewer")
    if both := base.keys() & grid.keys() | SET_BY_SWEEP & (base.keys() | grid.keys()):
        raise UsageError(
            f"{file}: {min(both)} must be in only one of [base] and [grid], and out, "
            "overwrite and nodes in neither, since a sweep sets them itself"
        )
    tasks = {}
    for values in itertools.product(*grid.values()):
        chosen = dict(zip(grid, values, strict=True))
        settings = {k: typed(k, x, file) for k, x in (base | chosen).items()}
        tasks[name_of(chosen)] = settings
    n = whole_number("-n", ranks, 1) if ranks else table["ranks"]
    sweep = Sweep(Path(folder), n, list(grid), [], tasks)
    for name in tasks:
        check_trust(sweep, name, file, trust)
        sweep.config(name)
    return sweep


def name_of(choice: Mapping[str, Any]) -> str:
    """Return the name of a task, made of its settings and valid for a folder."""
    exact = ",".join(f"{name}={plain(value)}" for name, value in choice.items())
    name = re.sub(r"[^\w.,=+-]", "_", exact)[:LONGEST] or "run"
    if name == exact:
        return name
    return f"{name}-{hashlib.sha256(exact.encode()).hexdigest()[:8]}"


def plain(value: Any) -> str:
    """Return a value as it appears in a name and in a table."""
    if isinstance(value, dict):
        return json.dumps(value, default=str)
    return value if isinstance(value, str) else toml_value(value)


def run(arguments: list[str], runtime: Runtime) -> int:
    """Run the tasks of a grid that are not finished."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    ours, sbatch = arguments[:end], arguments[end + 1 :]
    out, ours = take_option(ours, ("--out",), "")
    at_most, ours = take_option(ours, ("--at-most",), "")
    ranks, ours = take_option(ours, ("-n", "-np"), "")
    mpi, ours = take_option(ours, ("--mpi",), "")
    flags = {"--local", "--dry-run", "--trust"} & set(ours)
    named = [word for word in ours if word not in flags]
    if len(named) != 1 or named[0].startswith("-") or not out:
        raise UsageError(
            "./launch/sweep needs a GRID.toml and --out DIR, and --help shows all "
            f"options; got {' '.join(arguments)}"
        )
    grid = read_grid(named[0], out, ranks, "--trust" in flags)
    folder = grid.folder
    if "--dry-run" in flags:
        for name in grid.tasks:
            print(f"{runs.read_state(folder / name).status:<12}{name}")
        return 0
    usual = os.cpu_count() if "--local" in flags else AT_MOST
    most = whole_number("--at-most", at_most or str(usual), 1)
    # check everything before anything is written
    before = Sweep(folder, grid.ranks, [], [], {})
    if files.kind(folder / FILE) != "none":
        before = Sweep.read(folder)
    elif folder.is_dir() and set(os.listdir(folder)) - {LOCK}:
        raise UsageError(f"{out} is not empty, and has no sweep; choose another --out")
    queued = before.queued()
    before.check(grid, queued)
    varied = list(dict.fromkeys([*before.varied, *grid.varied]))
    sweep = Sweep(folder, grid.ranks, varied, before.jobs, before.tasks | grid.tasks)
    left = [name for name in grid.tasks if sweep.is_left(name)]
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = RunFolder(folder)
        lock.lock(first=True)
        (folder / LOGS).mkdir(exist_ok=True)
    sweep.save()
    if not left:
        print_message(f"all {len(grid.tasks)} runs are finished")
        return collect(sweep)
    if "--local" in flags:
        codes = LocalPool(sweep, runtime).run(left, most)
        return collect(sweep) or int(any(codes))
    passed = [*(["--mpi", mpi] if mpi else []), *flags & {"--trust"}]
    try:
        numbers = {list(sweep.tasks).index(name) for name in left} - queued
        submit(sweep, sorted(numbers), most, sbatch, passed)
    except UsageError:  # Slurm accepted no task, so the new ones are removed
        before.save()
        raise
    return 0


def submit(
    sweep: Sweep, numbers: list[int], most: int, sbatch: list[str], passed: list[str]
) -> None:
    """Submit the tasks of these numbers as a job array."""
    if not numbers:
        print_message("all runs that are left are in the queue")
        return
    command = [
        "sbatch", "--parsable", "-n", str(sweep.ranks), "--job-name", "dadmm-sweep",
        f"--array={ranges(numbers)}%{most}",
        "--output", str(sweep.folder / LOGS / "%A_%a.out"), *sbatch,
        str(PROJECT / "launch" / "slurm.sbatch"), FLAG, str(sweep.folder), *passed,
    ]  # fmt: skip
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
        f"job {job}: {len(numbers)} of {len(sweep.tasks)} runs, {most} at a time; then "
        f"./launch/sweep collect {sweep.folder}"
    )


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

    The first signal stops them, the second kills them.
    """

    def __init__(self, sweep: Sweep, runtime: Runtime) -> None:
        self._sweep, self._runtime = sweep, runtime
        self._running: set[subprocess.Popen[bytes]] = set()
        self._signals = 0
        self._ended, self._start = itertools.count(1), time.monotonic()

    def run(self, names: list[str], at_most: int) -> list[int]:
        """Run tasks, `at_most` at a time; return their exit codes."""
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, self.stop)
        self._of = len(names)
        with ThreadPoolExecutor(at_most) as pool:
            return list(pool.map(self.run_task, names))

    def run_task(self, name: str) -> int:
        """Run a task to its end; return its exit code."""
        sweep, folder = self._sweep, self._sweep.folder / name
        given = CommandLine(sweep.config(name), False, None)
        arguments = runs.plan(given, sweep.arguments(name), folder, sweep.ranks)
        if arguments is None:  # it had results before it was marked as failed
            return 0
        if self._signals:
            return 128 + signal.SIGINT
        if "--resume" not in arguments:
            arguments = [*arguments, "--nodes", str(sweep.ranks)]
        output = sweep.folder / LOGS / f"{name}.out"
        with open(output, "ab") as log:
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
            runs.write_failure(folder, f"{runs.FAILED} {code}; see {output}")
        done, minutes = next(self._ended), (time.monotonic() - self._start) / 60
        rest = minutes * (self._of - done) / done
        when = f"{minutes:.1f} min" + (f", about {rest:.1f} left" if rest else "")
        label = runs.read_state(folder).label
        print_message(f"{name}: {label} ({done} of {self._of} in {when})")
        return code

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
    queued, rows = sweep.queued(), []
    for number, (name, settings) in enumerate(sweep.tasks.items()):
        folder = sweep.folder / name
        state = runs.read_state(folder)
        row = {key: plain(settings[key]) for key in sweep.varied if key in settings}
        waits = number in queued and not state.complete
        row["status"] = "in queue" if waits else state.label
        rows.append(row | columns_of(state.summary) | {"folder": str(folder)})
        if not state.complete:
            print(f"{row['status']:<12}{folder}")
    columns = list(dict.fromkeys(key for row in rows for key in row))
    columns.sort(key=lambda key: key == "folder")  # the longest one comes last
    table = io.StringIO()
    writer = csv.DictWriter(table, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    sweep.write(TABLE, table.getvalue())
    totals = Counter(row["status"] for row in rows)
    counts = ", ".join(f"{count} {status}" for status, count in totals.items())
    print_message(f"{len(rows)} runs: {counts}; table in {sweep.folder / TABLE}")
    return 0


def columns_of(summary: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of a run's results, of numbers and words only."""
    keys = ("converged", "reason", "iterations", "n_nodes", "messages", "bytes")
    found = {key: summary[key] for key in keys if key in summary}
    seconds = summary.get("seconds", {})
    found |= {f"seconds_{name}": value for name, value in seconds.items()}
    found |= summary.get("metrics", {})
    return {k: v for k, v in found.items() if not isinstance(v, dict | list)}
