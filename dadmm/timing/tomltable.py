"""Tables of a TOML file as frozen dataclasses, with units."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from dadmm.core.checks import as_float
from dadmm.core.errors import ConfigError

SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
RATES = {
    f"{prefix}{unit}/s": scale * size
    for prefix, scale in {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}.items()
    for unit, size in {"bit": 0.125, "B": 1.0}.items()
}
UNITS = {"latency": SECONDS, "bandwidth": RATES, "egress": RATES}  # by field
PLAIN = {"float": "a number", "int": "an integer", "bool": "true or false"}


def build(kind: Any, given: Any, where: str) -> Any:
    """Return a dataclass from a table, after checking the types of its values."""
    types = {item.name: str(item.type) for item in fields(kind)}
    found = {}
    for name, value in table(given, where).items():
        if name not in types:
            allowed = ", ".join(types)
            raise ConfigError(f"{where} has no {name!r}; it may have {allowed}")
        label = f"{where}: {name}"
        if name in UNITS:
            found[name] = quantity(value, UNITS[name], label)
        else:
            found[name] = _typed(value, types[name], label)
    return kind(**found)


def quantity(value: Any, units: Mapping[str, float], name: str) -> float:
    """Return a number, or a string such as '10 Mbit/s', in the basic unit."""
    if type(value) in (int, float):
        return as_float(value)
    match = re.fullmatch(r"\s*([0-9.eE+-]+)\s*([A-Za-z/]+)\s*", str(value))
    try:
        return float(match[1]) * units[match[2]]  # type: ignore[index]
    except (TypeError, ValueError, KeyError):
        raise ConfigError(
            f"{name} must be a number or a string with one of the units "
            f"{', '.join(units)}, got {value!r}"
        ) from None


def _typed(value: Any, kind: str, name: str) -> Any:
    """Return a value with the type of a field; lists of integers become tuples."""
    if type(value) is list and all(type(k) is int for k in value):
        value = tuple(value)
    if kind == "float" and type(value) is int:
        value = as_float(value)
    wanted = {"float": float, "int": int, "bool": bool, "tuple[int, ...]": tuple}
    if kind in wanted and type(value) is not wanted[kind]:
        words = PLAIN.get(kind, "a list of integers")
        raise ConfigError(f"{name} must be {words}, got {value!r}")
    return value


def table(value: Any, where: str) -> dict[str, Any]:
    """Return a table, or raise."""
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where} must be a table, got {value!r}")
    return dict(value)
