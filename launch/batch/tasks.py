"""The tasks of a sweep: a grid in TOML, and the folder in which its runs are.

``sweep.json`` has the names of the tasks by number, their ranks, the jobs that were
submitted, and the files of the sweep itself: it replaces no others.
``settings/NAME.toml`` is what a task asks for; ``NAME/`` is its run, and ``logs/`` has
what the jobs said.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import re
import tomllib
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from launch.base.plainfiles import files
from launch.base.reading import read_json, read_toml
from launch.mpi.commands import RANKS, UsageError

FLAG = "--sweep"
RESERVED = {"settings", "logs"}
MOST_TASKS = 100_000  # of a grid
LONGEST = 200  # characters of a folder's name; file systems take 255
NAME = re.compile(r"(?!\.)[\w.,=+-]+")  # of a task


class Grid(NamedTuple):
    """What a grid's file asks for."""

    ranks: int
    tasks: dict[str, dict[str, Any]]  # all settings of each task, by its name
    varied: list[str]  # the settings that differ


class Sweep:
    """The folder of a sweep; a task keeps its number when the grid grows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ranks = RANKS
        self.names: list[str] = []
        self.varied: list[str] = []
        self.jobs: list[str] = []
        self.files: set[str] = set()
        if files.kind(folder / "sweep.json") != "none":
            record = read_json(folder / "sweep.json")
            self.ranks = number_of_ranks(record.get("ranks"))
            self.names = _texts(record, "tasks", folder)
            self.varied = _texts(record, "varied", folder)
            self.jobs = _texts(record, "jobs", folder)
            self.files = set(_texts(record, "files", folder))
            for name in self.names:
                if not NAME.fullmatch(name):
                    raise UsageError(
                        f"{folder}/sweep.json has the task {name!r}, which is not the "
                        "name of a folder of a sweep; start anew in another --out"
                    )

    @classmethod
    def present(cls, folder: Path) -> Sweep:
        """Return the sweep of a folder that must hold one."""
        if not (folder / "sweep.json").exists():
            raise UsageError(f"{folder} holds no sweep; it has no sweep.json")
        return cls(folder)

    def check(self, grid: Grid, waiting: Container[int]) -> None:
        """Raise if a grid does not go with the sweep and its tasks in the queue.

        A task reads its settings when it starts, so they must stay as they are.
        """
        if self.names and self.ranks != grid.ranks:
            raise UsageError(
                f"{self.folder} holds a sweep with ranks = {self.ranks}, and this one "
                f"has {grid.ranks}; choose another --out"
            )
        for file in sorted(own_files(grid)):
            if files.kind(self.folder / file) != "none" and file not in self.files:
                raise UsageError(
                    f"{self.folder / file} is not of a sweep that is in this folder; "
                    "move it away, or choose another --out"
                )
        for number, name in enumerate(self.names):
            if number not in waiting or name not in grid.tasks:
                continue
            old, new = self.settings(name), tomllib.loads(toml(grid.tasks[name]))
            for key in sorted(old.keys() | new.keys()):
                if old.get(key) != new.get(key):
                    raise UsageError(
                        f"{self.folder / name} is in the queue with {key} = "
                        f"{old.get(key)!r}, and this one has {new.get(key)!r}; wait "
                        "for it or cancel it, or choose another --out"
                    )

    def adopt(self, grid: Grid) -> None:
        """Add the tasks of a grid that are new; those of before stay."""
        self.ranks = grid.ranks
        self.varied = list(dict.fromkeys([*self.varied, *grid.varied]))
        self.names += [name for name in grid.tasks if name not in self.names]
        self.files |= own_files(grid)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.save()
        for name, settings in grid.tasks.items():
            self.write(f"settings/{name}.toml", toml(settings))
        logs = files.within(self.folder / "logs" / "any", self.folder, make=True)
        with usable(self.folder), logs:  # Slurm writes there, too
            pass

    def save(self) -> None:
        """Write the record."""
        record = {
            "ranks": self.ranks,
            "varied": self.varied,
            "jobs": self.jobs,
            "tasks": self.names,
            "files": sorted(self.files),
        }
        self.write("sweep.json", json.dumps(record, indent=1) + "\n")

    def write(self, name: str, text: str) -> None:
        """Write a file whole or not at all: a task may be reading it."""
        path = self.folder / name
        with usable(self.folder), files.replacing(path, self.folder) as file:
            file.write(text.encode())

    def log(self, name: str) -> TextIO:
        """Return the file for what a task says on this machine, open at its end."""
        path = self.folder / "logs" / f"{name}.out"
        with usable(self.folder):
            if files.kind(path) == "none":
                return open(files.create(path, self.folder), "w")
            flags = os.O_WRONLY | os.O_APPEND
            return open(files.open_plain(path, self.folder, flags), "a")

    def settings_file(self, name: str) -> Path:
        """Return the file with a task's settings."""
        return self.folder / "settings" / f"{name}.toml"

    def settings(self, name: str) -> dict[str, Any]:
        """Return what a task asks for."""
        file = self.settings_file(name)
        try:
            return read_toml(file)
        except FileNotFoundError:
            raise UsageError(f"{self.folder} is damaged: it has no {file}") from None

    def arguments(self, name: str) -> list[str]:
        """Return the arguments of ``dadmm.run`` for a task."""
        out = str(self.folder / name)
        return ["--config", str(self.settings_file(name)), "--out", out]


def _texts(record: dict[str, Any], name: str, folder: Path) -> list[str]:
    """Return a list of a sweep's record."""
    found = record.get(name)
    if not (isinstance(found, list) and all(isinstance(word, str) for word in found)):
        raise UsageError(f"{folder}/sweep.json is damaged: it has no list of {name}")
    return found


def own_files(grid: Grid) -> set[str]:
    """Return the names of the files that a sweep itself writes for a grid."""
    logs = {f"logs/{name}.out" for name in grid.tasks}
    settings = {f"settings/{name}.toml" for name in grid.tasks}
    return {"sweep.json", "table.csv"} | logs | settings


@contextmanager
def usable(folder: Path) -> Iterator[None]:
    """Turn the operating system's refusals into one sentence."""
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"cannot write to {folder}: {error.strerror}; choose another --out"
        ) from None


def arguments_of_task(arguments: list[str], variables: Mapping[str, str]) -> list[str]:
    """Return the arguments of a task of a job array; others stay as they are."""
    if FLAG not in arguments:
        return arguments
    at = arguments.index(FLAG)
    sweep = Sweep.present(Path(*arguments[at + 1 : at + 2]))
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
    if math.prod(len(v) for v in grid.values() if isinstance(v, list)) > MOST_TASKS:
        raise UsageError(f"{path} asks for more than {MOST_TASKS} runs; use fewer")
    for name, values in grid.items():
        if not (isinstance(values, list) and values):
            raise UsageError(
                f"{path}: {name} in [grid] must be a list of values, got {values!r}; "
                "what all runs share belongs into [base]"
            )
    taken = {"out", "nodes", "overwrite"} & (base.keys() | grid.keys())
    if both := base.keys() & grid.keys() | taken:
        raise UsageError(
            f"{path}: {min(both)} must be in one of [base] and [grid] only, and out, "
            "overwrite and nodes in neither: a sweep has its own folders and ranks"
        )
    combinations = itertools.product(*grid.values())
    chosen = [dict(zip(grid, values, strict=True)) for values in combinations]
    tasks = {name_of(choice): base | choice for choice in chosen}
    return Grid(number_of_ranks(ranks or table.get("ranks", RANKS)), tasks, list(grid))


def number_of_ranks(value: Any) -> int:
    """Return a number of ranks, as a file or a command line gives it."""
    digits = str(value)
    if digits.isascii() and digits.isdecimal() and len(digits) < 10 and int(digits):
        return int(digits)
    raise UsageError(f"ranks must be a positive number of processes, got {value!r}")


def name_of(choice: Mapping[str, Any]) -> str:
    """Return the name of a task, which tells its settings and is a folder's name."""
    exact = ",".join(f"{name}={plain(value)}" for name, value in choice.items())
    name = re.sub(r"[^\w.,=+-]", "_", exact)[:LONGEST] or "run"
    if name == exact and name not in RESERVED:
        return name
    return f"{name}-{hashlib.sha256(exact.encode()).hexdigest()[:8]}"


def plain(value: Any) -> str:
    """Return a value as it appears in a name and in a table."""
    return value if isinstance(value, str) else json.dumps(value)


def toml(settings: Mapping[str, Any]) -> str:
    """Return settings as TOML; a table becomes the JSON text that it stands for."""
    lines = []
    for name, value in settings.items():
        text = json.dumps(value) if isinstance(value, dict) else value
        lines.append(f"{name} = {json.dumps(text)}\n")
    return "".join(lines)
