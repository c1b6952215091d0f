"""The folder of a run: its state, how to continue it, and the note of a failure."""

import contextlib
import csv
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dadmm.core import documents, files
from dadmm.core.errors import DadmmError
from dadmm.runs.config import FREE, UNCHANGED, CommandLine, RunConfig
from dadmm.runs.folder import LOCK, RunFolder
from dadmm.runs.stored import StoredRun
from dadmm.solver.checkpoint import complete
from launch.console import UsageError, same_problem

CHANGEABLE = FREE - UNCHANGED  # settings that a resumed run may change
FAILURE = "failure.txt"  # a sentence about a failed run; the next start removes it
FAILED = "failed with code"  # the first words of that sentence
PRINTS = {"-h", "--help", "--version"}  # flags that print, and end the program
ENDED = ("converged", "no_minimum", "max_iter")  # of a run that was not interrupted
LABELS = {"new": "missing", "empty": "unfinished", "no_minimum": "no minimum"}
LABELS["max_iter"] = "not converged"


class State(NamedTuple):
    """The progress of a run: its status, iterations, and summary if it has results.

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
        return self.status in ENDED

    def is_done(self, max_iter: int) -> bool:
        """Return whether a run of at most `max_iter` iterations has nothing to do."""
        return self.complete and (
            self.status != "max_iter" or max_iter <= self.iterations
        )

    @property
    def as_asked(self) -> bool:
        """Whether the run did what it was asked to do, as ``--strict`` wants it."""
        return self.status == "converged" or self.summary.get("status") == "max_iter"

    @property
    def label(self) -> str:
        """The status as tables show it."""
        if self.as_asked:
            return str(self.summary.get("status", self.status))
        return LABELS.get(self.status, self.status)


def read_state(folder: Path) -> State:
    """Return the state of the run in a folder, which may not exist."""
    if is_marked_failed(folder):
        return State("failed", last_checkpoint(folder))
    if files.kind(folder / "summary.json") != "none":
        run = StoredRun.read(folder)
        reason = "converged" if run.summary.get("converged") else run.entry("reason")
        status = reason if reason in ENDED else "interrupted"
        return State(status, run.entry("iterations"), run.summary)
    if iteration := last_checkpoint(folder):
        return State("unfinished", iteration)
    return State("empty" if has_begun(folder) else "new")


def has_begun(folder: Path) -> bool:
    """Return whether a run has begun in a folder."""
    return files.kind(folder / "config.toml") != "none"


def last_checkpoint(folder: Path) -> int:
    """Return the iteration of the newest complete checkpoint, or 0 without one."""
    with contextlib.suppress(DadmmError):  # config.toml cannot be read
        nodes = RunConfig.from_toml(folder / "config.toml").get("nodes")
        return max(complete(folder, nodes or 0), default=0)
    return 0


def read_ranks(folder: Path | None) -> list[dict[str, str]]:
    """Return rank, nodes, host and pid of each rank of a run, or []."""
    with contextlib.suppress(DadmmError):
        text = documents.parse(Path(folder or "", "ranks.csv"), str.splitlines, "CSV")
        rows = list(csv.DictReader(text))
        return rows if folder and all(row.get("host") for row in rows) else []
    return []


def is_marked_failed(folder: Path) -> bool:
    """Return whether failure.txt was written by a launch command."""
    try:
        return files.read(folder / FAILURE, most=len(FAILED)) == FAILED.encode()
    except (OSError, ValueError):  # there is none, or it is not a plain file
        return False


def write_failure(folder: Path, sentence: str) -> None:
    """Write failure.txt, unless there are files of the user."""
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        free = is_marked_failed(folder) or files.kind(folder / FAILURE) == "none"
        others = set(os.listdir(folder)) - {LOCK, FAILURE}
        if free and (has_begun(folder) or not others):
            with files.replacing(folder / FAILURE) as file:
                file.write(f"{sentence}\n".encode())


def read_arguments(arguments: list[str]) -> CommandLine | None:
    """Return the content of arguments of ``dadmm.run``; None if they have an error.

    The ranks report the error.
    """
    with contextlib.suppress(DadmmError):
        return None if PRINTS & set(arguments) else RunConfig.from_argv(arguments)
    return None


def check_same_settings(wanted: RunConfig, folder: Path, ranks: int) -> None:
    """Raise `UsageError` if the run in a folder, if any, has other settings."""
    if not has_begun(folder):
        return
    begun = RunConfig(**RunConfig.from_toml(folder / "config.toml"))
    old = {"nodes": begun.nodes} | begun.deciding()
    new = {"nodes": wanted.nodes or ranks} | wanted.deciding()
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            raise UsageError(
                f"{folder} holds a run with {name} = {old.get(name)!r}, and this one "
                f"has {new.get(name)!r}; choose another --out"
            )


def plan(
    given: CommandLine,
    arguments: list[str],
    folder: Path,
    ranks: int,
    requeued: bool = False,
) -> list[str] | None:
    """Return the arguments that start or resume a run; None if it is done.

    `arguments` are for ``dadmm.run``, `given` is their content, and `folder` is the
    run's. A `requeued` job has applied ``--overwrite`` at an earlier start. Raise
    `UsageError` if the run in the folder has other settings, or is at work.
    """
    wanted = given.config
    if RunFolder.is_live(folder):
        raise UsageError(
            f"another job is running in {folder}; wait for it, or choose another --out"
        )
    if is_marked_failed(folder):
        files.remove(folder / FAILURE)
    done = read_state(folder).is_done(wanted.max_iter)
    if given.resume is not None:
        return None if done else arguments
    if not has_begun(folder) or (wanted.overwrite and not requeued):
        return arguments
    check_same_settings(wanted, folder, ranks)
    if done:
        return None
    if last_checkpoint(folder):
        may_change = {k: v for k, v in wanted.applied().items() if k in CHANGEABLE}
        problem = same_problem(["--problem", wanted.problem])
        return ["--resume", str(folder), *problem, *as_flags(may_change)]
    return [*arguments, "--overwrite"]  # it ended before its first checkpoint


def as_flags(settings: Mapping[str, Any]) -> list[str]:
    """Return settings as flags of ``dadmm.run``."""
    flags = []
    for name, value in settings.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        elif value is not None:
            flags.append(f"--{flag}={value}")
    return flags
