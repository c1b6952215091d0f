"""Write settings as TOML, which the standard library can only read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from launch.base.messages import UsageError


def dumps(settings: Mapping[str, Any]) -> str:
    """Return settings as TOML.

    Parameters
    ----------
    settings : mapping of str to str, bool, int, float, list or dict
        A dict becomes its JSON text, which ``dadmm.run`` reads in the same way.
    """
    lines = []
    for name, value in settings.items():
        bare = re.fullmatch(r"[A-Za-z0-9_-]+", name)
        lines.append(f"{name if bare else quote(name)} = {encode(value)}\n")
    return "".join(lines)


def encode(value: Any) -> str:
    """Return one value as TOML; raise `UsageError` for other types, as dates."""
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
