"""The folder of a run, without dadmm: its state, its lock, and how to continue it."""

import contextlib
import csv
import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from launch.base.arguments import problem_flags
from launch.base.environment import PROJECT
from launch.base.messages import SetupError, UsageError
from launch.base.textfiles import files, read_json, read_toml

JOB = ".job"  # the lock file of batch jobs and sweeps
EMPTY = re.compile(b"")  # its content
LOCK = ".lock"  # that of dadmm.run
FAILURE = "failure.txt"  # a sentence about a failed run; the next start removes it
FAILED = "failed with code"  # the first words of that sentence
# statuses of a run that was not interrupted
COMPLETE = ("converged", "max_iter", "no_minimum")
LABELS = {
    "new": "missing", "empty": "unfinished", "max_iter": "not converged",
    "no_minimum": "no minimum",
}  # fmt: skip
# the entries of summary.json that are used: the default and the type of each
SUMMARY: dict[str, tuple[Any, type]] = {
    "reason": (None, str),
    "iterations": (None, int),
    "seconds": ({}, dict),
    "metrics": ({}, dict),
}
SEPARATE = {"nodes", "out", "overwrite", "resume"}  # not compared with config.toml


class State(NamedTuple):
    """The progress of a run: its status, iterations, and summary.json if complete.

    The status is "new" (no run in the folder), "empty" (no checkpoint yet),
    "unfinished", "failed", "interrupted", "converged", "max_iter" or "no_minimum".
    "converged" is any status of the result but "not converged" and "max_iter".
    """

    status: str
    iterations: int = 0  # of the summary, or of the last checkpoint
    summary: dict[str, Any] = {}  # noqa: RUF012 (never changed)

    @property
    def complete(self) -> bool:
        """Whether the run was not interrupted."""
        return self.status in COMPLETE

    def is_done(self, max_iter: int) -> bool:
        """Return whether a run of at most `max_iter` iterations has nothing to do."""
        at_end = self.status == "max_iter" and max_iter <= self.iterations
        return self.status in ("converged", "no_minimum") or at_end

    @property
    def as_asked(self) -> bool:
        """Whether the run did what it was asked to do, as ``--strict`` wants it."""
        return self.status == "converged" or self.summary.get("status") == "max_iter"

    def label(self, queued: bool = False) -> str:
        """Return the status as tables show it."""
        if queued and not self.complete:
            return "in queue"
        if self.as_asked:
            return str(self.summary.get("status", self.status))
        return LABELS.get(self.status, self.status)


def read_state(folder: Path) -> State:
    """Return the state of the run in a folder, which may not exist."""
    if is_marked_failed(folder):
        return State("failed", last_checkpoint(folder))
    with contextlib.suppress(FileNotFoundError):
        summary = read_json(folder / "summary.json")
        for name, (default, kind) in SUMMARY.items():
            if type(summary.get(name, default)) is not kind:
                raise UsageError(
                    f"{folder / 'summary.json'} is damaged: {name} is missing or is "
                    f"not of type {kind.__name__}"
                )
        reason = "converged" if summary.get("converged") else summary["reason"]
        status = reason if reason in COMPLETE else "interrupted"
        return State(status, summary["iterations"], summary)
    if iteration := last_checkpoint(folder):
        return State("unfinished", iteration)
    return State("empty" if (folder / "config.toml").exists() else "new")


def is_marked_failed(folder: Path) -> bool:
    """Return whether failure.txt was written by a launch command."""
    try:
        start = files.read(folder / FAILURE, most=len(FAILED))
    except OSError:  # there is none, or it is not a plain file
        return False
    return bool(start == FAILED.encode())


def remove_failure(folder: Path) -> None:
    """Remove failure.txt if a launch command has written it."""
    if is_marked_failed(folder):
        files.remove(folder / FAILURE)


def write_failure(folder: Path, sentence: str) -> None:
    """Write failure.txt, unless there is such a file of the user."""
    with contextlib.suppress(OSError):
        if is_marked_failed(folder) or files.kind(folder / FAILURE) == "none":
            with files.replacing(folder / FAILURE) as file:
                file.write(f"{sentence}\n".encode())


def last_checkpoint(folder: Path) -> int:
    """Return the iteration of the newest complete checkpoint, or 0 without one."""
    nodes = read_config(folder).get("nodes")
    complete = [
        int(path.name)
        for path in (folder / "checkpoints").glob("[0-9]*")
        if len(list(path.glob("node-*.npz"))) == nodes
    ]
    return max(complete, default=0)


def read_config(folder: Path) -> dict[str, Any]:
    """Return the settings of the run in a folder, or {} without a run."""
    try:
        return read_toml(folder / "config.toml")
    except FileNotFoundError:
        return {}


def read_ranks(folder: Path) -> list[dict[str, str]]:
    """Return rank, node, host and pid of each rank of a run, or []."""
    try:
        with open(folder / "ranks.csv", newline="") as file:
            return list(csv.DictReader(file))
    except OSError:
        return []


@contextlib.contextmanager
def job_lock(folder: Path) -> Iterator[None]:
    """Create a folder and lock it against other jobs.

    The system releases the lock when the process ends. The file is open for writing
    because NFS locks no other files between hosts. A file system without locks gives
    no protection.
    """
    file = folder / JOB
    try:
        folder.mkdir(parents=True, exist_ok=True)
        while True:
            handle = files.open_lock(file, EMPTY)
            with contextlib.suppress(FileNotFoundError):
                files.lock(handle)
                if os.fstat(handle).st_ino == file.stat().st_ino:
                    break
            os.close(handle)  # of a job that has just ended and removed the file
    except BlockingIOError:
        os.close(handle)
        raise UsageError(
            f"another job is running in {folder}; wait for it, or choose another --out"
        ) from None
    except OSError as error:
        raise UsageError(
            f"cannot use {folder} ({error.strerror}); choose another --out"
        ) from None
    try:
        yield
    finally:
        files.remove(file)
        os.close(handle)


@dataclass(frozen=True)
class RunSettings:
    """The checked settings of a command line of ``dadmm.run`` that apply to its run."""

    values: dict[str, Any]
    resumable: frozenset[str]  # names that may change when a run is resumed

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


def read_settings(
    python: str, command_lines: list[list[str]], ranks: int
) -> list[RunSettings]:
    """Return the settings of command lines of ``dadmm.run``, as `python` reads them."""
    program = Path(__file__).with_name("print_settings.py")
    done = subprocess.run(
        [python, "-P", str(program), str(ranks)],
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

    `arguments` are those of ``dadmm.run``, `wanted` their settings, and `folder` that
    of ``--out``. A `requeued` job has applied ``--overwrite`` at an earlier start.
    Raise `UsageError` if the run in the folder has other settings.
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
    names = wanted.resumable - SEPARATE
    for name, value in wanted.values.items():
        flag = name.replace("_", "-")
        if name in names and isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        elif name in names and value is not None:
            flags += [f"--{flag}", str(value)]
    return flags
