"""The tasks of a sweep: a grid in TOML, and the folder in which its runs are.

``sweep.json`` has the names of the tasks by number, their ranks and the jobs that were
submitted; ``settings/NAME.toml`` what a task asks for; ``NAME/`` is its run, and
``logs/`` has what the jobs said.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import tomllib
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from launch.mpi.commands import RANKS, UsageError

FLAG = "--sweep"
RESERVED = {"settings", "logs"}
LONGEST = 200  # characters of a folder's name; file systems take 255


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
        if (folder / "sweep.json").exists():
            try:
                record = json.loads((folder / "sweep.json").read_text())
                self.ranks, self.names = record["ranks"], record["tasks"]
                self.varied, self.jobs = record["varied"], record["jobs"]
            except (OSError, ValueError, KeyError) as error:
                raise UsageError(f"cannot read {folder}/sweep.json: {error}") from None

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
        (self.folder / "settings").mkdir(parents=True, exist_ok=True)
        (self.folder / "logs").mkdir(exist_ok=True)
        for name, settings in grid.tasks.items():
            write(self.settings_file(name), toml(settings))
        self.save()

    def save(self) -> None:
        """Write the record."""
        record = {
            "ranks": self.ranks,
            "varied": self.varied,
            "jobs": self.jobs,
            "tasks": self.names,
        }
        write(self.folder / "sweep.json", json.dumps(record, indent=1) + "\n")

    def settings_file(self, name: str) -> Path:
        """Return the file with a task's settings."""
        return self.folder / "settings" / f"{name}.toml"

    def settings(self, name: str) -> dict[str, Any]:
        """Return what a task asks for."""
        return tomllib.loads(self.settings_file(name).read_text())

    def arguments(self, name: str) -> list[str]:
        """Return the arguments of ``dadmm.run`` for a task."""
        out = str(self.folder / name)
        return ["--config", str(self.settings_file(name)), "--out", out]


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all: a task may be reading it."""
    draft = path.with_name(f".draft.{os.getpid()}")
    draft.write_text(text)
    draft.replace(path)


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
        table = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from None
    if unknown := table.keys() - {"ranks", "base", "grid"}:
        raise UsageError(
            f"{path} has {min(unknown)!r}; it may have ranks, [base] and [grid]"
        )
    base, grid = table.get("base", {}), table.get("grid", {})
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
    if str(value).isdecimal() and int(value) > 0:
        return int(value)
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
