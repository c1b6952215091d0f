"""Values in the words of errors."""

from __future__ import annotations

import math
from typing import Any


def as_float(value: Any) -> float:
    """Return a number as a float, infinite if it is an integer too large for one."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def printable(text: str, most: int | None = None) -> str:
    """Return a text in which characters that control a terminal are escaped.

    It is cut to ``most`` characters.
    """
    text = "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in text
    )
    return text if most is None or len(text) <= most else f"{text[:most]}..."


def shown(value: object, most: int = 60) -> str:
    """Return the repr of a value, cut to ``most`` characters, for an error."""
    try:
        text = " ".join(repr(value).split("\n"))  # of arrays
    except ValueError:  # Python does not print integers of very many digits
        return "a number of very many digits"
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"
