"""The lock on a run's folder: one run at a time."""

from __future__ import annotations

import fcntl
import os
import re
import weakref
from pathlib import Path

from dadmm.core import files
from dadmm.core.errors import OutputError

LOCK = ".lock"
CONTENT = re.compile(rb"(process [0-9]+ on [^\s]*)?")


class RunLock:
    """An advisory lock on a run directory, released when the process exits.

    Rank 0 takes it first, alone. Then all ranks share it, since any of them may be the
    last to exit. A file system without locks is not locked.

    Raises OutputError if another run has the lock, or the file is not a lock of dadmm.
    """

    def __init__(self, folder: Path, first: bool) -> None:
        handle = _open(folder / LOCK)
        self.release = weakref.finalize(self, os.close, handle)
        try:
            if first:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.truncate(handle, 0)
                os.write(handle, f"process {os.getpid()} on {os.uname()[1]}".encode())
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            who = os.read(handle, 200).decode(errors="replace")
            raise OutputError(
                f"another run is at work in {folder} ({who or 'it has just begun'}); "
                "wait for its end, or end it"
            ) from None
        except OSError:  # the file system has no locks
            pass


def is_held(folder: Path) -> bool | None:
    """Return whether a run is at work in a folder; None if that is not known."""
    try:
        handle = files.open_plain(folder / LOCK, flags=os.O_RDWR)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # the file system has no locks
        return None
    finally:
        os.close(handle)
    return False


def _open(path: Path) -> int:
    """Return the handle of the lock file, which is created if it does not exist.

    It is open for writing: NFS grants locks between hosts on no other files.
    """
    try:
        return files.create(path)
    except FileExistsError:
        plain = files.kind(path) == "file"
    if plain:
        handle = files.open_plain(path, flags=os.O_RDWR)
        own = CONTENT.fullmatch(os.pread(handle, 400, 0)) is not None
        if own and os.fstat(handle).st_nlink == 1:  # not a hard link
            return handle
        os.close(handle)
    raise OutputError(f"{path} is not a lock of dadmm; move it away")
