"""What a run's folder tells from outside: whether it is done, and how to go on.

Needs no numpy, since it also serves on login nodes.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from launch.base.environment import PROJECT, SetupError, UsageError

JOB = ".job"  # by which jobs keep each other out of a folder
LOCK = ".lock"  # by which dadmm.run does
FAILURE = "failure.txt"  # a sentence about a run that failed; the next start removes it
SETTLED = ("converged", "max_iter")  # the ways of a run to end by its own rules
# what --resume takes beside the folder, or what does not change a run's numbers
FREE = {
    "max_iter": int,
    "max_seconds": float,
    "checkpoint_seconds": float,
    "checkpoint_every": int,
    "checkpoint": bool,
    "quiet": bool,
    "strict": bool,
    "wait": str,
    "placement": str,
    "on_failure": str,
}
WORDS = {"new": "missing", "empty": "unfinished", "max_iter": "not converged"}
ELSEWHERE = {"nodes", "out", "overwrite", "resume"}  # not written, or compared apart


class State(NamedTuple):
    """How far the run in a folder has come."""

    word: str  # new, empty, unfinished, failed, stopped, or one of SETTLED
    iterations: int = 0  # of the summary or of the last checkpoint
    summary: dict[str, Any] = {}  # noqa: RUF012 (never changed)

    @property
    def settled(self) -> bool:
        """Whether the run ended by its own rules."""
        return self.word in SETTLED

    def done(self, max_iter: int) -> bool:
        """Whether a run with so many iterations at most would not go any further."""
        at_end = self.word == "max_iter" and max_iter <= self.iterations
        return self.word == "converged" or at_end


def look(folder: Path) -> State:
    """Return the state of the run in a folder that may not exist."""
    if (folder / FAILURE).exists():
        return State("failed", last_checkpoint(folder))
    try:
        summary = json.loads((folder / "summary.json").read_text())
        reason = summary["reason"]
        word = reason if reason in SETTLED else "stopped"
        return State(word, summary["iterations"], summary)
    except FileNotFoundError:
        pass
    except (OSError, ValueError, KeyError) as error:
        raise SetupError(f"cannot read {folder / 'summary.json'}: {error}") from None
    if last_checkpoint(folder):
        return State("unfinished", last_checkpoint(folder))
    return State("empty" if (folder / "config.toml").exists() else "new")


def status(state: State, waiting: bool = False) -> str:
    """Return a state as the table says it."""
    if waiting and not state.settled:
        return "in queue"
    return WORDS.get(state.word, state.word)


def last_checkpoint(folder: Path) -> int:
    """Return the iteration of the newest complete checkpoint, or 0 without one."""
    nodes = present(folder).get("nodes")
    whole = [
        int(path.name)
        for path in (folder / "checkpoints").glob("[0-9]*")
        if len(list(path.glob("node-*.npz"))) == nodes
    ]
    return max(whole, default=0)


def present(folder: Path) -> dict[str, Any]:
    """Return the settings of the run in a folder; none if there is no run."""
    try:
        return tomllib.loads((folder / "config.toml").read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {folder / 'config.toml'}: {error}") from None


def plan(
    python: str, argv: list[str], folder: Path, ranks: int, again: bool = False
) -> list[str] | None:
    """Return what `decide` does, of a command line that is checked before."""
    (asked,) = settings(python, [argv])
    return decide(asked, argv, folder, ranks, again)


def decide(
    asked: dict[str, Any],
    argv: list[str],
    folder: Path,
    ranks: int,
    again: bool = False,
) -> list[str] | None:
    """Return the arguments that start a run or go on with it; None if it is done.

    Parameters
    ----------
    asked : dict
        The settings of these arguments.
    argv : list of str
        Arguments of ``dadmm.run``, ``--out`` included.
    folder : Path
        That of ``--out``.
    ranks : int
    again : bool
        Whether an ``--overwrite`` was done before, so that there is something to keep.

    Raises
    ------
    UsageError
        If the settings are not those of the run in the folder.
    """
    state = look(folder)
    if not (folder / "config.toml").exists() or (asked["overwrite"] and not again):
        return argv
    check_same(asked, folder, ranks)
    if state.done(asked["max_iter"]):
        return None
    if last_checkpoint(folder):
        return ["--resume", str(folder), *free_flags(asked)]
    # a run that was ended before its first checkpoint starts again
    return [*argv, "--overwrite"]


def settings(python: str, lines: list[list[str]]) -> list[dict[str, Any]]:
    """Return the checked settings of several command lines of ``dadmm.run``."""
    done = subprocess.run(
        [python, "-P", str(Path(__file__).with_name("settings.py"))],
        input=json.dumps(lines),
        env={**os.environ, "PYTHONPATH": project_first()},
        capture_output=True,
        text=True,
        timeout=300,
        start_new_session=True,  # a terminal's Ctrl-C is for us, who end it if need be
    )
    if done.returncode == 2:
        raise UsageError(done.stderr.strip())
    if done.returncode:
        raise SetupError(f"{python} cannot load dadmm; ./launch/setup", done.stderr)
    return json.loads(done.stdout)


def project_first() -> str:
    """Return a PYTHONPATH on which this project's dadmm comes before all others."""
    return os.pathsep.join(filter(None, [str(PROJECT), os.environ.get("PYTHONPATH")]))


def check_same(asked: dict[str, Any], folder: Path, ranks: int) -> None:
    """Raise if the run in a folder is not the one that is asked for."""
    begun = present(folder)
    if begun.get("nodes") != ranks:
        raise UsageError(
            f"{folder} holds a run of {begun.get('nodes')} ranks, and this one has "
            f"{ranks}; ask for as many, or choose another --out"
        )
    for name in sorted((asked.keys() | begun.keys()) - FREE.keys() - ELSEWHERE):
        if asked.get(name) != begun.get(name):
            raise UsageError(
                f"{folder} holds a run with {name} = {begun.get(name)!r}, and this one "
                f"has {asked.get(name)!r}; choose another --out"
            )


def free_flags(asked: dict[str, Any]) -> list[str]:
    """Return the flags of the settings that a resumed run may be given anew."""
    words = []
    for name, kind in FREE.items():
        flag, value = "--" + name.replace("_", "-"), asked.get(name)
        if kind is bool and value is not None:
            words.append(flag if value else flag.replace("--", "--no-", 1))
        elif value is not None:
            words += [flag, str(value)]
    return words


@contextlib.contextmanager
def only_job(folder: Path) -> Iterator[None]:
    """Make the folder, and keep other jobs out of it for a while.

    The lock vanishes with this process. It is on a file that is open for writing:
    between hosts NFS grants nothing else. Where the file system knows no locks, there
    is none.
    """
    file = folder / JOB
    try:
        folder.mkdir(parents=True, exist_ok=True)
        while True:
            handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
            with contextlib.suppress(FileNotFoundError):
                if locked(handle) and os.fstat(handle).st_ino == file.stat().st_ino:
                    break
            os.close(handle)  # of a job that has just ended, and removed it
    except BlockingIOError:
        os.close(handle)
        raise UsageError(f"another job is at work in {folder}; wait for it") from None
    except OSError as error:
        raise UsageError(
            f"cannot use {folder} ({error.strerror}); choose another --out"
        ) from None
    try:
        yield
    finally:
        file.unlink(missing_ok=True)
        os.close(handle)


def locked(handle: int) -> bool:
    """Lock a file, if its system has locks; raise if somebody else has."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        pass
    return True
