"""Checks of what a model file holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dadmm.core import schema
from dadmm.core.errors import ConfigError, shown
from dadmm.core.schema import as_float
from dadmm.data.encoding import Encoding
from dadmm.models.predictions import KINDS
from dadmm.problems import builder

STATUSES = ("certified", "stationary", "stopped", "max_iter", "not converged")
Shape = tuple[int, ...]


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and bool(np.isfinite(as_float(value)))


def _are_plain(settings: dict[str, Any]) -> bool:
    plain = schema.any_of(schema.NULL, schema.FLAG, schema.TEXT)
    return all(plain.holds(x) or _is_number(x) for x in settings.values())


PLAIN = "an object of numbers, texts, true, false and null"
FIELDS: dict[str, schema.Kind] = {  # of a model file
    "format": schema.TEXT,
    "version": schema.integer(),
    "dadmm": schema.TEXT,
    "problem": schema.choice(KINDS),
    "settings": schema.Kind((*schema.OBJECT.rules, (PLAIN, _are_plain))),
    "status": schema.choice(STATUSES),
    "why": schema.TEXT,
    "iterations": schema.COUNT,
    "tolerance": schema.any_of(schema.FINITE, schema.NULL),
    "n_rows": schema.any_of(schema.COUNT, schema.NULL),
    "feature_names": schema.list_of(schema.TEXT, "a list of texts"),
    **dict.fromkeys(("parameters", "table_parameters", "encoding"), schema.OBJECT),
}


def check_format(content: Any, format_: str, version: int) -> None:
    """Raise unless a file is of this format, and has its fields, of the right types."""
    if not isinstance(content, dict) or content.get("format") != format_:
        raise ConfigError(f'it has no field "format": "{format_}"')
    found = content.get("version")
    if type(found) is not int or found != version:
        raise ConfigError(
            f"it has version {shown(found)} of the format, and this version of dadmm "
            f"reads version {version}"
        )
    schema.check_entries(content, FIELDS)


def numbers(problem: str, encoding: Encoding, given: Mapping[str, Any]) -> Any:
    """Return the parameters of a file as arrays, by name."""
    found = {name: _array(name, part) for name, part in given.items()}
    check_shapes(problem, encoding, found)
    return found


def check_shapes(
    problem: str, encoding: Encoding, parameters: Mapping[str, np.ndarray]
) -> None:
    """Raise unless the parameters are those of the problem with these columns."""
    names, d = {*parameters}, len(encoding.feature_names)
    is_subspace = KINDS[problem] == "subspace"
    allowed = [{"W", "mu", "a"}] if is_subspace else [{"coef"}, {"coef", "intercept"}]
    if names not in allowed:
        raise ConfigError(
            f"the parameters of {problem} must be "
            f"{' or '.join(' and '.join(sorted(one)) for one in allowed)}, got "
            f"{shown(sorted(names))}"
        )
    lead: Shape = ()
    if KINDS[problem] == "classification":
        count = len(encoding.classes or ())
        binary = builder.n_classes(problem) == 2
        if count < 2 or (binary and count > 2):
            two = "two" if binary else "at least two"
            raise ConfigError(f"{problem} needs {two} classes, got {count}")
        lead = () if binary else (count,)
    wanted: dict[str, Shape] = {"coef": (*lead, d), "intercept": lead}
    if is_subspace:
        M = parameters["W"].shape[1] if parameters["W"].ndim == 2 else 0
        wanted = {"W": (d, max(M, 1)), "mu": (d,), "a": ()}
    for name, part in parameters.items():
        if part.shape != wanted[name]:
            raise ConfigError(
                f"{name} must have shape {wanted[name]} for {d} encoded columns, got "
                f"{part.shape}"
            )
    if is_subspace and not parameters["a"] > 0.0:
        raise ConfigError(f"a must be positive, got {parameters['a']}")


def arrays_like(
    wanted: Mapping[str, np.ndarray], given: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """Return arrays by name; raise unless names and shapes are those of ``wanted``."""
    found = {name: _array(name, part) for name, part in given.items()}
    shapes = {name: part.shape for name, part in found.items()}
    if shapes != {name: np.shape(part) for name, part in wanted.items()}:
        raise ConfigError("table_parameters have other names or shapes than parameters")
    return found


def _array(name: str, value: Any) -> np.ndarray:
    """Return nested lists of finite numbers as an array; raise if they are not."""
    flat, shape = [value], []
    while flat and isinstance(flat[0], list):
        shape.append(len(flat[0]))
        if any(not isinstance(item, list) or len(item) != shape[-1] for item in flat):
            raise ConfigError(f"{name} must be lists of equal lengths")
        flat = [number for item in flat for number in item]
        if len(shape) > 2:
            raise ConfigError(f"{name} must have at most two axes")
    for number in flat:
        if not _is_number(number):
            raise ConfigError(f"{name} must hold finite numbers, got {shown(number)}")
    return np.array(flat, dtype=np.float64).reshape(shape)
