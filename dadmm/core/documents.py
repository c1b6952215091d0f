"""Reading of files that may be damaged, and writing of files that appear as a whole."""

from __future__ import annotations

import csv
import errno
import io
import json
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from dadmm.core import files
from dadmm.core.errors import ConfigError, DadmmError, OutputError, shown
from dadmm.core.layout import Array

T = TypeVar("T")
Table = dict[str, Any]  # settings, or the content of a TOML or JSON file

MOST_TEXT, MOST_TOML = 2**24, 2**20  # characters, of a summary and of settings
PART = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')"""  # of a key of TOML
# tomllib takes very long to read a key of very many parts
LONG_KEY = re.compile(rf"(?<![\w.-])(?:{PART}[ \t]*+\.[ \t]*+){{20}}")


@contextmanager
def reading(
    path: str | Path,
    error: type[DadmmError] = ConfigError,
    advice: str = "check the path",
    what: str = "",  # that it should be, by default a file of its suffix
) -> Iterator[None]:
    """Raise what a reader of a file raises as one sentence, which names the file.

    A pipe or a device is refused before the reader opens it.
    """
    try:
        kind = files.kind(path, follow=True)
        if kind not in ("file", "none"):
            raise OSError(errno.EINVAL, f"it is a {kind}, not a file")
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an error follows, or nothing is wrong
            yield
    except error as known:
        raise error(f"{path}: {known}") from None
    except Exception as other:  # parsers raise many types on a broken file
        reason = str(other).partition("\n")[0].partition(";")[0].rstrip(".")
        said = f"{path} is not {what or f'a valid {Path(path).suffix} file'}: {reason}"
        if isinstance(other, OSError) and other.errno is not None:
            said = f"cannot read {path}: {other.strerror}; {advice}"
        elif isinstance(other, MemoryError):
            said = f"there is not enough memory to read {path} ({reason})"
        raise error(said) from None


def parse(
    path: str | Path, parser: Callable[[str], T], language: str, most: int = MOST_TEXT
) -> T:
    """Return what a parser makes of a text file of at most ``most`` characters."""
    with reading(path, what=f"valid {language}"), open(path, encoding="utf-8") as file:
        text = file.read(most + 1)
        if len(text) > most:
            raise OSError(errno.EFBIG, f"it has more than {most} characters")
        return parser(text)


def read_toml(path: str | Path) -> Table:
    import tomllib  # not needed by most runs

    def loads(text: str) -> Table:
        if LONG_KEY.search(text):
            raise ValueError("a key has too many parts")
        return tomllib.loads(text)

    return parse(path, loads, "TOML", MOST_TOML)


def to_toml(value: object) -> str:
    """Return a table as TOML, or a bool, int, float, str, or list or tuple of these."""
    if isinstance(value, dict):
        return "".join(f"{name} = {to_toml(own)}\n" for name, own in value.items())
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(to_toml, value))}]"
    if not isinstance(value, str):
        return repr(value)  # Python writes inf and nan as TOML does
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        raise ConfigError(
            f"{shown(value)} is not valid Unicode, which a TOML file needs; rename it"
        )
    # TOML has the escapes of JSON, and one more
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


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
    with writing(path.parent), files.replacing(path) as file:
        file.write(text.encode())


def write_csv(path: Path, rows: Sequence[Table], last: str = "") -> None:
    """Write rows, which may lack entries; the column ``last`` is the last one."""
    names = dict.fromkeys(name for row in rows for name in row)
    columns = sorted(names, key=lambda name: name == last)
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())


def write_arrays(
    path: Path, arrays: Mapping[str, Array], private: bool = False
) -> None:
    """Write a .npz file; if private, only its owner can read it (mode 0600)."""
    mode = 0o600 if private else 0o666  # less the umask
    with writing(path.parent), files.replacing(path, mode=mode) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
