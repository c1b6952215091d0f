"""One run at a time in a folder."""

from __future__ import annotations

import fcntl
import os
import weakref
from pathlib import Path

from dadmm.core.errors import OutputError

LOCK = ".lock"


class Claim:
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
        If another run is at work there.
    OSError
        If the file cannot be made.
    """

    def __init__(self, folder: Path, first: bool) -> None:
        # Open for writing: between hosts NFS grants nothing else.
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self.give_up = weakref.finalize(self, os.close, handle)
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
