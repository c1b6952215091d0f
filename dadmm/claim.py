"""One run at a time in a folder."""

from __future__ import annotations

import fcntl
import os
import weakref
from pathlib import Path

from dadmm.errors import OutputError


class Claim:
    """A folder of which this process says: mine, while I live.

    It is a lock of the system's, which vanishes with the process however that ends. On
    a file system that knows no locks of folders (some of those between hosts) there is
    none.

    Parameters
    ----------
    folder : Path
        Made if it is not there.

    Raises
    ------
    OutputError
        If another run has it.
    OSError
        If it cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
        self.give_up = weakref.finalize(self, os.close, handle)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OutputError(
                f"another run is at work in {folder.parent}; wait for its end, or end "
                "it (ranks.csv there names its processes)"
            ) from None
        except OSError:  # no locks here
            pass
