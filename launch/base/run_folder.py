"""Read the folder of a run without dadmm: its state, settings and ranks; lock it."""

from __future__ import annotations

import contextlib
import csv
import fcntl
import json
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from launch.base.messages import SetupError, UsageError

JOB = ".job"  # the lock file of batch jobs and sweeps
LOCK = ".lock"  # that of dadmm.run
FAILURE = "failure.txt"  # a sentence about a failed run; the next start removes it
COMPLETE = ("converged", "max_iter")  # statuses of a run that was not interrupted
LABELS = {"new": "missing", "empty": "unfinished", "max_iter": "not converged"}


class State(NamedTuple):
    """The progress of the run in a folder.

    Attributes
    ----------
    status : str
        "new" (no run in the folder), "empty" (no checkpoint yet), "unfinished",
        "failed", "stopped", "converged" or "max_iter".
    iterations : int
        Of the summary, or of the last checkpoint.
    summary : dict
    """

    status: str
    iterations: int = 0
    summary: dict[str, Any] = {}  # noqa: RUF012 (never changed)

    @property
    def complete(self) -> bool:
        """Whether the run converged or reached its last iteration."""
        return self.status in COMPLETE

    def is_done(self, max_iter: int) -> bool:
        """Return whether a run of at most `max_iter` iterations has nothing to do."""
        at_end = self.status == "max_iter" and max_iter <= self.iterations
        return self.status == "converged" or at_end

    def label(self, queued: bool = False) -> str:
        """Return the status as tables show it."""
        if queued and not self.complete:
            return "in queue"
        return LABELS.get(self.status, self.status)


def read_state(folder: Path) -> State:
    """Return the state of the run in a folder, which may not exist."""
    if (folder / FAILURE).exists():
        return State("failed", last_checkpoint(folder))
    try:
        summary = json.loads((folder / "summary.json").read_text())
        reason = summary["reason"]
        status = reason if reason in COMPLETE else "stopped"
        return State(status, summary["iterations"], summary)
    except FileNotFoundError:
        pass
    except (OSError, ValueError, KeyError) as error:
        raise SetupError(f"cannot read {folder / 'summary.json'}: {error}") from None
    if iteration := last_checkpoint(folder):
        return State("unfinished", iteration)
    return State("empty" if (folder / "config.toml").exists() else "new")


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
        return tomllib.loads((folder / "config.toml").read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {folder / 'config.toml'}: {error}") from None


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
            handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
            with contextlib.suppress(FileNotFoundError):
                lock_file(handle)
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
        file.unlink(missing_ok=True)
        os.close(handle)


def lock_file(handle: int) -> None:
    """Lock a file; raise BlockingIOError if another process holds the lock."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # a file system without locks
        pass
