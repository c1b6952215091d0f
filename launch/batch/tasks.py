"""The tasks of a sweep: a grid in TOML, and the folder of its runs.

In the folder, ``sweep.json`` has the names of the tasks by number, the number of ranks,
the submitted jobs and the files of the sweep; no other files are replaced.
``settings/NAME.toml`` has the settings of a task, ``NAME/`` is its run, and ``logs/``
has the output of the jobs.
"""

import hashlib
import itertools
import json
import math
import os
import re
import subprocess
import tomllib
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self, TextIO

from launch.base.arguments import DEFAULT_RANKS
from launch.base.messages import UsageError
from launch.base.textfiles import encode, files, read_json, read_toml, to_toml

FLAG = "--sweep"
LISTS = ("tasks", "varied", "jobs", "files")  # of sweep.json
RESERVED = {"settings", "logs"}
MAX_TASKS = 100_000  # of a grid
LONGEST = 200  # characters of a folder's name; file systems allow 255
NAME = re.compile(r"(?!\.)[\w.,=+-]+")  # of a task


class Grid(NamedTuple):
    """The content of a grid file."""

    ranks: int
    tasks: dict[str, dict[str, Any]]  # the settings of each task, by its name
    varied: list[str]  # names of the settings in [grid]


class Sweep:
    """The folder of a sweep. A task keeps its number when the grid grows."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.ranks = folder, DEFAULT_RANKS
        record: dict[str, Any] = {}
        if files.kind(folder / "sweep.json") != "none":
            record = read_json(folder / "sweep.json")
            self.ranks = number_of_ranks(record.get("ranks"))
        lists = [record.get(name) if record else [] for name in LISTS]
        for name, found in zip(LISTS, lists, strict=True):
            strings = isinstance(found, list) and all(isinstance(x, str) for x in found)
            if not strings:
                raise UsageError(
                    f"{folder}/sweep.json is damaged: it has no list of {name}"
                )
        self.names, self.varied, self.jobs, self.files = lists
        for name in self.names:
            if not NAME.fullmatch(name):
                raise UsageError(
                    f"{folder}/sweep.json has a task with the invalid name "
                    f"{name!r}; start the sweep again in another --out"
                )

    @classmethod
    def existing(cls, folder: Path) -> Self:
        """Return the sweep in a folder; raise `UsageError` if there is none."""
        if not (folder / "sweep.json").exists():
            raise UsageError(f"{folder} holds no sweep: it has no sweep.json")
        return cls(folder)

    def check(self, grid: Grid, queued: Container[int]) -> None:
        """Raise `UsageError` if a grid contradicts the sweep or its queued tasks.

        A task reads its settings when it starts, so those of queued tasks are fixed.
        """
        if self.names and self.ranks != grid.ranks:
            raise UsageError(
                f"{self.folder} holds a sweep with ranks = {self.ranks}, and this one "
                f"has {grid.ranks}; choose another --out"
            )
        for file in sorted(files_of(grid)):
            if files.kind(self.folder / file) != "none" and file not in self.files:
                raise UsageError(
                    f"{self.folder / file} was not written by the sweep in this "
                    "folder; move it away, or choose another --out"
                )
        for number, name in enumerate(self.names):
            if number not in queued or name not in grid.tasks:
                continue
            old, new = self.settings(name), tomllib.loads(to_toml(grid.tasks[name]))
            for key in sorted(old.keys() | new.keys()):
                if old.get(key) != new.get(key):
                    raise UsageError(
                        f"{self.folder / name} is in the queue with {key} = "
                        f"{old.get(key)!r}, and this one has {new.get(key)!r}; wait "
                        "for it or cancel it, or choose another --out"
                    )

    def add(self, grid: Grid) -> None:
        """Add the new tasks of a grid, and write the settings of all."""
        self.ranks = grid.ranks
        self.varied = list(dict.fromkeys([*self.varied, *grid.varied]))
        self.names += [name for name in grid.tasks if name not in self.names]
        self.files = sorted({*self.files, *files_of(grid)})
        self.folder.mkdir(parents=True, exist_ok=True)
        self.save()
        for name, settings in grid.tasks.items():
            self.write(f"settings/{name}.toml", to_toml(settings))
        logs = files.within(self.folder / "logs" / "any", self.folder, make=True)
        with writing_to(self.folder), logs:  # Slurm writes there as well
            pass

    def save(self) -> None:
        lists = (self.names, self.varied, self.jobs, self.files)
        record = {"ranks": self.ranks} | dict(zip(LISTS, lists, strict=True))
        self.write("sweep.json", json.dumps(record, indent=1) + "\n")

    def write(self, name: str, text: str) -> None:
        """Write a file atomically, since a task may read it meanwhile."""
        path = self.folder / name
        with writing_to(self.folder), files.replacing(path, self.folder) as file:
            file.write(text.encode())

    def log_file(self, name: str) -> Path:
        """Return the file with the output of a task that ran on this machine."""
        return self.folder / "logs" / f"{name}.out"

    def open_log(self, name: str) -> TextIO:
        """Open the log of a task to append to it."""
        path = self.log_file(name)
        with writing_to(self.folder):
            if files.kind(path) == "none":
                return open(files.create(path, self.folder), "w")
            flags = os.O_WRONLY | os.O_APPEND
            return open(files.open_plain(path, self.folder, flags), "a")

    def queued(self) -> set[int]:
        """Return the numbers of the tasks in Slurm's queue."""
        found: set[int] = set()
        for job in self.jobs:
            command = ["squeue", "-h", "-r", "-j", job, "-o", "%K"]
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, timeout=60
                )
            except FileNotFoundError:
                return set()
            # squeue fails for a job that ended long ago, and prints nothing
            found |= {int(text) for text in done.stdout.split() if text.isdecimal()}
        return found

    def settings_file(self, name: str) -> Path:
        return self.folder / "settings" / f"{name}.toml"

    def settings(self, name: str) -> dict[str, Any]:
        file = self.settings_file(name)
        try:
            return read_toml(file)
        except FileNotFoundError:
            raise UsageError(f"{self.folder} is damaged: it has no {file}") from None

    def arguments(self, name: str) -> list[str]:
        out = str(self.folder / name)
        return ["--config", str(self.settings_file(name)), "--out", out]


def files_of(grid: Grid) -> set[str]:
    """Return the names of the files that a sweep writes for a grid, beside its runs."""
    logs = {f"logs/{name}.out" for name in grid.tasks}
    settings = {f"settings/{name}.toml" for name in grid.tasks}
    return {"sweep.json", "table.csv"} | logs | settings


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"cannot write to {folder}: {error.strerror}; choose another --out"
        ) from None


def arguments_of_task(arguments: list[str], variables: Mapping[str, str]) -> list[str]:
    """Replace ``--sweep DIR`` by the arguments of this task of the job array."""
    if FLAG not in arguments:
        return arguments
    at = arguments.index(FLAG)
    sweep = Sweep.existing(Path(*arguments[at + 1 : at + 2]))
    number = variables.get("SLURM_ARRAY_TASK_ID", "")
    if not number.isdecimal() or int(number) >= len(sweep.names):
        raise UsageError(
            f"{FLAG} needs a job array with tasks 0 to {len(sweep.names) - 1}, as "
            f"./launch/sweep submits it, got task {number!r}"
        )
    name = sweep.names[int(number)]
    return [*arguments[:at], *sweep.arguments(name), *arguments[at + 2 :]]


def read_grid(path: Path, ranks: str = "") -> Grid:
    """Return the grid of a TOML file: ``ranks``, tables ``base`` and ``grid``."""
    try:
        table = read_toml(path)
    except FileNotFoundError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    if unknown := table.keys() - {"ranks", "base", "grid"}:
        raise UsageError(
            f"{path} has {min(unknown)!r}; it may have ranks, [base] and [grid]"
        )
    base, grid = table.get("base", {}), table.get("grid", {})
    for name, found in (("base", base), ("grid", grid)):
        if not isinstance(found, dict):
            raise UsageError(f"{path}: {name} must be a table, got {found!r}")
    if math.prod(len(v) for v in grid.values() if isinstance(v, list)) > MAX_TASKS:
        raise UsageError(f"{path} asks for more than {MAX_TASKS} runs; use fewer")
    for name, values in grid.items():
        if not (isinstance(values, list) and values):
            raise UsageError(
                f"{path}: {name} in [grid] must be a list of values, got {values!r}; "
                "write a value that all runs share in [base]"
            )
    taken = {"out", "nodes", "overwrite"} & (base.keys() | grid.keys())
    if both := base.keys() & grid.keys() | taken:
        raise UsageError(
            f"{path}: {min(both)} must be in only one of [base] and [grid], and out, "
            "overwrite and nodes in neither, since a sweep sets them itself"
        )
    combinations = itertools.product(*grid.values())
    chosen = [dict(zip(grid, values, strict=True)) for values in combinations]
    tasks = {name_of(choice): base | choice for choice in chosen}
    n = number_of_ranks(ranks or table.get("ranks", DEFAULT_RANKS))
    return Grid(n, tasks, list(grid))


def number_of_ranks(value: Any) -> int:
    """Return the number of ranks in a file or a command line."""
    digits = str(value)
    if digits.isascii() and digits.isdecimal() and len(digits) < 10 and int(digits):
        return int(digits)
    raise UsageError(f"ranks must be a positive number of processes, got {value!r}")


def name_of(choice: Mapping[str, Any]) -> str:
    """Return the name of a task, made of its settings and valid for a folder."""
    exact = ",".join(f"{name}={plain(value)}" for name, value in choice.items())
    name = re.sub(r"[^\w.,=+-]", "_", exact)[:LONGEST] or "run"
    if name == exact and name not in RESERVED:
        return name
    return f"{name}-{hashlib.sha256(exact.encode()).hexdigest()[:8]}"


def plain(value: Any) -> str:
    """Return a value as it appears in a name and in a table."""
    if isinstance(value, dict):
        return json.dumps(value)
    return value if isinstance(value, str) else encode(value)
