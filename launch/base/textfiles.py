"""Read small text files of the user, and write settings as TOML.

`files` is `dadmm.core.files`, loaded by its path because dadmm imports numpy.
"""

import importlib.util
import json
import re
import stat
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from launch.base.environment import PROJECT
from launch.base.messages import UsageError

MAX_BYTES = 2**24

_spec = importlib.util.spec_from_file_location(
    "plain_files_of_dadmm", PROJECT / "dadmm" / "core" / "files.py"
)
assert _spec is not None
assert _spec.loader is not None
files = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(files)


def read_text(path: Path) -> str:
    """Return the text of a file, which may not be one; `UsageError` says why.

    A file that does not exist raises FileNotFoundError.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # reading a pipe would wait
            raise UsageError(f"cannot read {path}: it is not a file")
        if status.st_size > MAX_BYTES:
            raise UsageError(f"cannot read {path}: it has more than {MAX_BYTES} bytes")
        return path.read_text("utf-8")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:  # not UTF-8, or an invalid file name
        raise UsageError(f"cannot read {path}: {error}") from None


def read_json(path: Path) -> dict[str, Any]:
    return _parse(path, json.loads, "JSON")


def read_toml(path: Path) -> dict[str, Any]:
    return _parse(path, tomllib.loads, "TOML")


def _parse(path: Path, parse: Callable[[str], Any], language: str) -> dict[str, Any]:
    text = read_text(path)
    try:
        table = parse(text)
    except (ValueError, RecursionError) as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(f"{path} is not valid {language}: {reason}") from None
    if not isinstance(table, dict):
        raise UsageError(f"{path} is damaged: it must be a JSON object")
    return table


def to_toml(settings: Mapping[str, Any]) -> str:
    """Return settings as TOML, which the standard library can only read."""
    lines = []
    for name, value in settings.items():
        bare = re.fullmatch(r"[A-Za-z0-9_-]+", name)
        lines.append(f"{name if bare else quote(name)} = {encode(value)}\n")
    return "".join(lines)


def encode(value: Any) -> str:
    """Return one value as TOML; raise `UsageError` for other types, as dates.

    A table becomes its JSON text, which ``dadmm.run`` reads in the same way.
    """
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)  # inf and nan are valid in TOML
    if isinstance(value, list):
        return f"[{', '.join(map(encode, value))}]"
    if isinstance(value, dict):
        return quote(json.dumps(value))
    raise UsageError(
        "a setting must be a text, a number, true, false, a list or a table, "
        f"got {value}"
    )


def quote(text: str) -> str:
    """Return a TOML string.

    JSON's escapes of control characters are valid in TOML. Its surrogate pairs are
    not, so other characters stay unescaped, except DEL, which TOML requires escaped.
    """
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
