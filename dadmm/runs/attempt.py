"""How far the run in a folder is, and the arguments that start or resume it."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from dadmm.core import files
from dadmm.core.documents import Table, read_toml
from dadmm.core.errors import ConfigError, DadmmError
from dadmm.runs.config import FLAGS, FREE, CommandLine, RunConfig, typed, words_of
from dadmm.runs.folder import FAILURE, LOCK, RunFolder
from dadmm.runs.stored import StoredRun, read_config
from dadmm.solver.checkpoint import complete

FAILED = "failed with code"  # the first words of `FAILURE`
ENDED = {  # the status of a run that was not interrupted, and how tables show it
    "converged": "converged", "no_minimum": "no minimum", "max_iter": "not converged",
}  # fmt: skip


class Progress(NamedTuple):
    """How far a run is; "converged" is any result that is not "not converged".

    The status is one of `ENDED`, "missing", "unfinished", "interrupted" or "failed".
    """

    status: str
    iterations: int = 0  # of the summary, or of the last checkpoint
    summary: Table = {}  # noqa: RUF012 (never changed)

    @property
    def complete(self) -> bool:
        """Whether the run has ended, and was not interrupted."""
        return self.status in ENDED

    def is_done(self, max_iter: int) -> bool:
        """Return whether a run of at most `max_iter` iterations has nothing to do."""
        more = self.status == "max_iter" and max_iter > self.iterations
        return self.complete and not more

    @property
    def as_asked(self) -> bool:
        """Whether the run did what it was asked to do, as ``--strict`` wants it."""
        return self.status == "converged" or self.summary.get("status") == "max_iter"

    @property
    def label(self) -> str:
        """The status as tables show it."""
        label = ENDED.get(self.status, self.status)
        return str(self.summary.get("status", label)) if self.as_asked else label


def read_progress(folder: Path) -> Progress:
    """Return how far the run in a folder is; there may be none."""
    if has_failed(folder):
        return Progress("failed", last_checkpoint(folder))
    if files.exists(folder / "summary.json"):
        run = StoredRun.read(folder)
        reason = "converged" if run.summary.get("converged") else run.entry("reason")
        status = reason if reason in ENDED else "interrupted"
        return Progress(status, run.entry("iterations"), run.summary)
    if files.exists(folder / "config.toml"):
        return Progress("unfinished", last_checkpoint(folder))
    return Progress("missing")


def last_checkpoint(folder: Path) -> int:
    """Return the iteration of the newest complete checkpoint, or 0 without one."""
    with suppress(DadmmError):  # config.toml cannot be read
        file = folder / "config.toml"
        nodes = typed(read_toml(file), file).get("nodes")
        return max(complete(folder, nodes or 0), default=0)
    return 0


def has_failed(folder: Path) -> bool:
    """Return whether `write_failure` has written into a folder."""
    try:
        return files.read(folder / FAILURE, most=len(FAILED)) == FAILED.encode()
    except (OSError, ValueError):  # there is none, or it is not a plain file
        return False


def write_failure(folder: Path, code: int, more: str) -> str:
    """Note a failure, unless the folder has files of the user; return the sentence."""
    sentence = f"{FAILED} {code}; {more}"
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        free = has_failed(folder) or not files.exists(folder / FAILURE)
        others = set(os.listdir(folder)) - {LOCK, FAILURE}
        if free and (files.exists(folder / "config.toml") or not others):
            with files.replacing(folder / FAILURE) as file:
                file.write(f"{sentence}\n".encode())
    return sentence


def check_same_settings(wanted: RunConfig, folder: Path, ranks: int) -> None:
    """Raise if the run in a folder, if any, has other settings."""
    if files.exists(folder / "config.toml"):
        own = replace(wanted, nodes=wanted.nodes or ranks)
        own.check_same(read_config(folder), folder, "choose another --out")


def plan_attempt(
    given: CommandLine,
    arguments: list[str],  # of ``dadmm run``, whose content is `given`
    folder: Path,  # of the run
    ranks: int,
    requeued: bool = False,  # whether ``--overwrite`` was applied at an earlier start
) -> list[str] | None:
    """Return the arguments that start or resume a run; None if it is done."""
    wanted = given.config
    if RunFolder.is_live(folder):
        raise ConfigError(
            f"another job is running in {folder}; wait for it, or choose another --out"
        )
    if has_failed(folder):
        files.remove(folder / FAILURE)
    done = read_progress(folder).is_done(wanted.max_iter)
    if given.resume is not None:
        return None if done else arguments
    if not files.exists(folder / "config.toml") or (wanted.overwrite and not requeued):
        return arguments
    check_same_settings(wanted, folder, ranks)
    if done:
        return None
    if not last_checkpoint(folder):
        return [*arguments, "--overwrite"]
    again = ["--resume", str(folder), *["--trust"] * ("--trust" in arguments)]
    for name in ("problem", "scheme"):
        if ":" in (place := getattr(wanted, name)):
            again += [FLAGS[name], place]
    for name, value in wanted.applied().items():
        if name in FREE:
            again.append("=".join(words_of(name, value)))
    return again
