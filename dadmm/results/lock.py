"""One run at a time in a folder."""

from __future__ import annotations

import fcntl
import os
import re
import weakref
from pathlib import Path

from dadmm.core import files
from dadmm.core.errors import OutputError

LOCK = ".lock"
WORDS = re.compile(rb"(process [0-9]+ on [^\s]*)?")  # all that a lock may hold


class RunLock:
    """The word of a process that a run is at work in a folder, while it lives.

    It is a lock of the system's on a hidden file, which vanishes with the process
    however that ends. Rank 0 begins, and all ranks of the run join: some may outlive
    others. On a file system without locks there is none.

    Parameters
    ----------
    folder : Path
        Of the run.
    first : bool
        Whether nobody else may be at work there yet.

    Raises
    ------
    OutputError
        If another run is at work there, or the file is somebody else's.
    OSError
        If the file cannot be made.
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
        except OSError:  # no locks here
            pass


def _open(path: Path) -> int:
    """Return the handle of the lock's file, which is made if it is not there.

    It is open for writing: between hosts NFS grants locks on nothing else.
    """
    try:
        return files.create(path)
    except FileExistsError:
        handle = files.open_plain(path, flags=os.O_RDWR)
    own = WORDS.fullmatch(os.pread(handle, 400, 0)) is not None
    if not own or os.fstat(handle).st_nlink != 1:  # has another name elsewhere
        os.close(handle)
        raise OutputError(
            f"{path} is not a lock of dadmm; move it away, or choose another folder"
        )
    return handle
