"""Decide whether to start a new run or to resume the one in a folder."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launch.base.arguments import problem_flags
from launch.base.environment import PROJECT
from launch.base.messages import SetupError, UsageError
from launch.base.run_folder import last_checkpoint, read_config, read_state

SEPARATE = {"nodes", "out", "overwrite", "resume"}  # not compared with config.toml


@dataclass(frozen=True)
class RunSettings:
    """The checked settings of a command line of ``dadmm.run`` that apply to its run."""

    values: dict[str, Any]
    resumable: frozenset[str]  # names that may change when a run is resumed

    def __getitem__(self, name: str) -> Any:
        """Return one setting."""
        return self.values[name]


def read_settings(python: str, command_lines: list[list[str]]) -> list[RunSettings]:
    """Return the settings of command lines of ``dadmm.run``, as `python` reads them."""
    done = subprocess.run(
        [python, "-P", str(Path(__file__).with_name("print_settings.py"))],
        input=json.dumps(command_lines),
        env={**os.environ, "PYTHONPATH": python_path()},
        capture_output=True,
        text=True,
        timeout=300,
        start_new_session=True,  # Ctrl-C in a terminal goes to this process only
    )
    if done.returncode == 2:
        raise UsageError(done.stderr.strip())
    if done.returncode:
        raise SetupError(
            f"{python} cannot import dadmm; run ./launch/setup", done.stderr
        )
    answer = json.loads(done.stdout)
    resumable = frozenset(answer["resumable"])
    return [RunSettings(values, resumable) for values in answer["settings"]]


def python_path() -> str:
    """Return a PYTHONPATH on which the dadmm of this project comes first."""
    return os.pathsep.join(filter(None, [str(PROJECT), os.environ.get("PYTHONPATH")]))


def plan(
    wanted: RunSettings,
    arguments: list[str],
    folder: Path,
    ranks: int,
    requeued: bool = False,
) -> list[str] | None:
    """Return the arguments that start or resume a run; None if it is done.

    Parameters
    ----------
    wanted : RunSettings
        The settings of the arguments.
    arguments : list of str
        Arguments of ``dadmm.run``, ``--out`` included.
    folder : Path
        The folder of ``--out``.
    ranks : int
    requeued : bool
        Whether an earlier start of the same job has applied ``--overwrite`` already.

    Raises
    ------
    UsageError
        If the run in the folder has other settings.
    """
    state = read_state(folder)
    begun = (folder / "config.toml").exists()
    if not begun or (wanted["overwrite"] and not requeued):
        return arguments
    check_same_settings(wanted, folder, ranks)
    if state.is_done(wanted["max_iter"]):
        return None
    if last_checkpoint(folder):
        problem = problem_flags(wanted["problem"])
        return ["--resume", str(folder), *problem, *resume_flags(wanted)]
    return [*arguments, "--overwrite"]  # it ended before its first checkpoint


def check_same_settings(wanted: RunSettings, folder: Path, ranks: int) -> None:
    """Raise `UsageError` if the run in a folder has other settings."""
    begun = read_config(folder)
    if begun.get("nodes") != ranks:
        raise UsageError(
            f"{folder} holds a run of {begun.get('nodes')} ranks, and this one has "
            f"{ranks}; ask for as many, or choose another --out"
        )
    names = (wanted.values.keys() | begun.keys()) - wanted.resumable - SEPARATE
    for name in sorted(names):
        old, new = begun.get(name), wanted.values.get(name)
        if old != new:
            raise UsageError(
                f"{folder} holds a run with {name} = {old!r}, and this one has "
                f"{new!r}; choose another --out"
            )


def resume_flags(wanted: RunSettings) -> list[str]:
    """Return the flags of the settings that a resumed run may change."""
    flags = []
    for name, value in wanted.values.items():
        if name not in wanted.resumable - SEPARATE or value is None:
            continue
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            flags += [f"--{flag}", str(value)]
    return flags
