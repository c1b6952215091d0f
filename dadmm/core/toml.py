"""Values as TOML text."""

from __future__ import annotations

import json
from typing import Any

from dadmm.core.checks import shown
from dadmm.core.errors import ConfigError


def toml_value(value: Any) -> str:
    """Return a bool, int, float, str, or a list or tuple of these as TOML.

    Infinity is ``inf``. A string that is not valid Unicode, such as a file name with
    undecodable bytes, is an error, because TOML cannot hold it.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(toml_value, value))}]"
    if not isinstance(value, str):
        return repr(value)  # Python writes inf and nan as TOML does
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        raise ConfigError(
            f"{shown(value)} is not valid Unicode, which a TOML file needs; rename it"
        )
    # the escapes of TOML are those of JSON, and one more
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
