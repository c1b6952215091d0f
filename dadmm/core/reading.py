"""Reading of files that may be damaged, missing, or not regular files."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dadmm.core.errors import ConfigError

MOST_TEXT = 2**24  # bytes of a file of settings or of a summary
LONG_KEY = re.compile(r"(?<![\w.-])(?:[\w-]++[ \t]*+\.[ \t]*+){100}")
KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def check_regular(path: str | Path) -> os.stat_result:
    """Return the status of a path; raise `OSError` unless it is a regular file.

    Opening a named pipe could block, and reading a device could never end.
    """
    try:
        found = os.stat(path)
    except ValueError:
        reason = "its name has a character that no file name can have"
        raise OSError(errno.EINVAL, reason) from None
    kind = stat.S_IFMT(found.st_mode)
    if kind != stat.S_IFREG:
        what = KINDS.get(kind, "something else")
        raise OSError(errno.EINVAL, f"it is {what}, not a file")
    return found


def unreadable(path: str | Path, error: BaseException) -> ConfigError:
    """Return an error which says that a file cannot be read, and why."""
    reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
    return ConfigError(f"cannot read {path}: {reason or type(error).__name__}")


def parse(
    path: str | Path,
    parser: Callable[[str], Any],
    language: str,
    most: int = MOST_TEXT,
) -> Any:
    """Return the parsed contents of a text file of at most ``most`` bytes."""
    try:
        size = check_regular(path).st_size
        if size > most:
            reason = f"it has {size} bytes, and at most {most} are allowed"
            raise OSError(errno.EFBIG, reason)
        return parser(Path(path).read_text("utf-8"))
    except OSError as error:
        raise unreadable(path, error) from None
    except RecursionError:
        reason = "it is nested too deeply"
    except ValueError as error:
        reason = str(error).partition("\n")[0]
    raise ConfigError(f"{path} is not valid {language}: {reason}")


def read_toml(path: str | Path) -> Any:
    """Return the parsed contents of a TOML file."""
    import tomllib  # not needed by most runs

    def loads(text: str) -> Any:
        if LONG_KEY.search(text):  # tomllib takes very long to read it
            raise ValueError("a key has too many parts")
        return tomllib.loads(text)

    return parse(path, loads, "TOML")


def arrays(path: str | Path) -> dict[str, np.ndarray]:
    """Return the arrays of a .npz file."""
    try:
        check_regular(path)
        with np.load(path, allow_pickle=False) as file:
            return {name: np.asarray(file[name]) for name in file.files}
    except Exception as error:  # numpy and zipfile raise many types
        raise unreadable(path, error) from None
