"""What a value may be: the one checker of settings, options, tables and JSON files."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import field, fields
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from dadmm.core.errors import ConfigError, DadmmError, closest, shown

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MOST = 10**9  # of iterations and sizes, which fit into message headers and arrays
LARGEST = sys.float_info.max
Test = Callable[[Any], bool]


class Kind(NamedTuple):
    """Rules that a value must meet, each in words and as a test; the type is first."""

    rules: tuple[tuple[str, Test], ...]

    def check(
        self, name: str, value: object, error: type[DadmmError] = ConfigError
    ) -> None:
        for rule, holds in self.rules:
            if not holds(value):
                raise error(f"{name} must be {rule}, got {shown(value)}")

    def holds(self, value: object) -> bool:
        return all(holds(value) for _, holds in self.rules)

    def also(self, rule: str, holds: Test) -> Kind:
        return Kind((*self.rules, (rule, holds)))


def of_type(what: str, *types: type) -> Kind:
    return Kind(((what, lambda value: isinstance(value, types)),))


FLAG = of_type("true or false", bool, np.bool_)
TEXT = of_type("a text", str)
OBJECT = of_type("an object", dict)
NULL = of_type("null", type(None))
INTEGER = of_type("an integer", Integral).also(
    "an integer", lambda value: not isinstance(value, bool)
)
NUMBER = of_type("a number", float, np.floating, Integral).also(
    "a number",  # also infinity and NaN, but no integer that is too large for a float
    lambda x: not isinstance(x, bool) and (not isinstance(x, int) or abs(x) <= LARGEST),
)


def integer(least: int = 0, most: int = MOST) -> Kind:
    return INTEGER.also(f"at least {least}", lambda x: int(x) >= least).also(
        f"at most {most}", lambda x: int(x) <= most
    )


def choice(allowed: Iterable[str]) -> Kind:
    words = tuple(allowed)
    rule = f"one of {', '.join(words)}"
    return Kind(((rule, lambda x: isinstance(x, str) and x in words),))


def list_of(kind: Kind, what: str) -> Kind:
    return of_type(what, list, tuple).also(what, lambda x: all(map(kind.holds, x)))


def object_of(kind: Kind, what: str) -> Kind:
    return OBJECT.also(what, lambda x: all(map(kind.holds, x.values())))


def any_of(*kinds: Kind) -> Kind:
    what = " or ".join(kind.rules[0][0] for kind in kinds)
    return Kind(((what, lambda x: any(kind.holds(x) for kind in kinds)),))


number = NUMBER.also  # makes the kind of numbers that meet a rule, false for NaN
REAL = number("finite", math.isfinite)
POSITIVE = number("positive and finite", lambda x: 0 < x < math.inf)
AT_LEAST_0 = number("at least 0", lambda x: x >= 0)
FINITE = number("at least 0 and finite", lambda x: 0 <= x < math.inf)
SHARE = number("within [0, 1)", lambda x: 0 <= x < 1)
SEED = COUNT = integer(0, 2**63 - 1)

ANNOTATED = {
    "int": INTEGER, "float": NUMBER, "bool": FLAG, "str": TEXT,
    "tuple[int,...]": list_of(INTEGER, "a list of integers"),
}  # fmt: skip
ANNOTATED |= {f"{name}|None": any_of(ANNOTATED[name], NULL) for name in ANNOTATED}


def annotated(annotation: object) -> Kind | None:
    """Return the kind of an argument by its annotation; None if that is not known."""
    text = str(getattr(annotation, "__name__", annotation))
    return ANNOTATED.get(text.replace(" ", ""))


def as_fields(
    kind: type[DataclassInstance], table: Mapping[str, Any], where: str, hint: str = ""
) -> dict[str, Any]:
    """Return the entries of a TOML table, at a place, as a dataclass has them.

    Integers become floats where the field is one, and lists of integers tuples.
    ``hint`` is the advice for a key that is not the name of a field.
    """
    types, found = {item.name: str(item.type) for item in fields(kind)}, {}
    for name, value in table.items():
        if name not in types:
            known = closest(name, types, hint or f"it may have {', '.join(types)}")
            raise ConfigError(f"{where}: unknown setting {name!r}; {known}")
        if type(value) is list and all(type(k) is int for k in value):
            value = tuple(value)
        is_float = type(value) is int and types[name].startswith("float")
        found[name] = float(value) if is_float and NUMBER.holds(value) else value
        rules = annotated(types[name].removesuffix(" | None"))
        if rules is not None:
            rules.check(f"{where}: {name}", found[name])
    return found


def from_text(name: str, text: str, annotation: str) -> int | float | str:
    for word, convert in (("int", int), ("float", float), ("str", str)):
        with suppress(ValueError):
            if word in annotation:
                return convert(text)
    what = "an integer" if "int" in annotation else "a number"
    raise ConfigError(f"{name} must be {what}, got {shown(text)}")


def entry(default: Any, kind: Kind | None, **facts: object) -> Any:
    """Return a field of a dataclass; `check_fields` checks its kind."""
    return field(default=default, metadata={"kind": kind, **facts})


def check_fields(
    record: DataclassInstance, error: type[DadmmError] = ConfigError
) -> None:
    """Raise unless the fields of a dataclass are of their kinds, or have a default.

    A subclass that has another default for a field has the kind of its base. The text
    ``where`` of the class, if any, is before the name of a field in an error.
    """
    kinds: dict[str, Kind | None] = {}
    for base in reversed(type(record).__mro__):
        for item in vars(base).get("__dataclass_fields__", {}).values():
            kinds[item.name] = item.metadata.get("kind", kinds.get(item.name))
    for item in fields(record):
        kind, value = kinds[item.name], getattr(record, item.name)
        is_stated = value is None or "kind" in item.metadata  # where its kind is
        if kind is not None and not (is_stated and value is item.default):
            called = item.metadata.get("called", item.name)  # by an error
            kind.check(getattr(record, "where", "") + called, value, error)


class Checked:
    """The base of a dataclass whose fields are checked when it is made."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    __post_init__ = check_fields


def check_entries(
    content: Mapping[str, object], kinds: Mapping[str, Kind], what: str = "it"
) -> dict[str, Any]:
    """Return a JSON object; raise unless it has these entries only, of these kinds."""
    OBJECT.check(what, content)
    for name in sorted(content.keys() ^ kinds.keys()):
        has = "has an unknown" if name in content else "has no"
        raise ConfigError(f"{what} {has} field {shown(name)}")
    for name, kind in kinds.items():
        kind.check(name, content[name])
    return dict(content)
