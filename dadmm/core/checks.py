"""Checks of the type and range of settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import numpy as np

from dadmm.core.errors import ConfigError, DadmmError

MOST = 10**9  # of iterations and sizes, which fit into message headers and arrays
MOST_SEED = 2**63 - 1


def check_integer(
    name: str,
    value: object,
    least: int = 0,
    most: int = MOST,
    error: type[DadmmError] = ConfigError,
) -> None:
    """Raise unless a setting is an integer from ``least`` to ``most``."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise error(f"{name} must be an integer, got {shown(value)}")
    if not least <= int(value) <= most:
        low = int(value) < least and most >= MOST
        rule = f"at least {least}" if low else f"from {least} to {most}"
        raise error(f"{name} must be {rule}, got {shown(value)}")


def check_number(
    name: str, value: object, holds: Callable[[float], bool], rule: str
) -> None:
    """Raise unless a setting is a number for which ``holds``, false for NaN, is true.

    ``rule`` is the condition in words, for the error.
    """
    if not isinstance(value, Integral | float | np.floating) or isinstance(value, bool):
        raise ConfigError(f"{name} must be a number, got {shown(value)}")
    number = as_float(value)
    if math.isinf(number) and isinstance(value, Integral):
        raise ConfigError(
            f"{name} must be a number of at most 1e308, got {shown(value)}"
        )
    if not holds(number):
        raise ConfigError(f"{name} must be {rule}, got {shown(value)}")


def check_choice(name: str, value: object, allowed: Sequence[str]) -> None:
    """Raise unless a setting is one of the allowed names."""
    if not isinstance(value, str) or value not in allowed:
        raise ConfigError(
            f"unknown {name} {shown(value)}; choose one of {', '.join(allowed)}"
        )


def check_flag(name: str, value: object) -> None:
    """Raise unless a setting is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise ConfigError(f"{name} must be True or False, got {shown(value)}")


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
