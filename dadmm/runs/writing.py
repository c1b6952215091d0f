"""Write files of a run; each appears whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dadmm.core import files
from dadmm.core.errors import OutputError


@contextmanager
def writing(what: str | Path, instead: str = "choose another --out") -> Iterator[None]:
    """Raise an OSError of the block as an OutputError; ``instead`` is the advice."""
    if "\0" in str(what):
        raise OutputError("a folder's name has a NUL character; choose another --out")
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"cannot write to {what}: {error.strerror}; {instead}"
        ) from None


def write_text(path: Path, text: str) -> None:
    """Write a text file, in UTF-8."""
    with writing(path.parent), files.replacing(path) as file:
        file.write(text.encode())


def write_arrays(
    path: Path, arrays: Mapping[str, NDArray[Any]], private: bool = False
) -> None:
    """Write a .npz file; if private, only its owner can read it (mode 0600)."""
    mode = 0o600 if private else 0o666  # less the umask
    with writing(path.parent), files.replacing(path, mode=mode) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
