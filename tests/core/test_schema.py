"""One checker: kinds of values, fields of dataclasses, entries of JSON objects."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

from dadmm.core import schema
from dadmm.core.errors import ConfigError

KINDS = [  # a kind, what it allows, and what not
    (schema.integer(1, 9), [1, 9, np.int64(3)], [0, 10, 2.0, True, "1", None]),
    (schema.integer(), [0, 10**9], [-1, 10**10]),
    (schema.NUMBER, [1, -2.5, math.nan, np.float32(1)], [True, "1", 10**400]),
    (schema.FINITE, [0, 1.5], [-1, math.inf, math.nan]),
    (schema.FLAG, [True, np.False_], [0, "true"]),
    (schema.choice("ab"), ["a"], ["ab", 1, ["a"], None]),
    (schema.list_of(schema.TEXT, "texts"), [[], ["a"]], [["a", 1], "a"]),
    (schema.any_of(schema.COUNT, schema.NULL), [None, 3], [-3, "3"]),
    (schema.annotated("int | None"), [None, 3, -3], [1.5, "3"]),
]


@pytest.mark.parametrize(("kind", "allowed", "refused"), KINDS)
def test_a_value_is_of_its_kind_or_refused_in_one_sentence(kind, allowed, refused):
    for value in allowed:
        kind.check("size", value)
        assert kind.holds(value)
    for value in refused:
        with pytest.raises(ConfigError, match=r"^size must be [^\n]*$"):
            kind.check("size", value)
        assert not kind.holds(value)


@dataclass
class Base:
    size: int = schema.entry(1, schema.integer(1))
    rest: int | None = schema.entry(None, schema.integer(1))


@dataclass
class Derived(Base):
    size: int = 2


def test_fields_and_entries_are_checked_and_known():
    """Also of a class with another default."""
    for kind in (Base, Derived):
        schema.check_fields(kind())
        for given in ({"size": 0}, {"size": None}, {"rest": 0}):
            with pytest.raises(ConfigError, match=f"^in: {next(iter(given))} must be "):
                schema.check_fields(kind(**given), "in: ")
    kinds = {"a": schema.COUNT}
    assert schema.check_entries({"a": 1}, kinds) == {"a": 1}
    for given, culprit in (({}, "a"), ({"a": 1, "b": 2}, "b"), ({"a": -1}, "a")):
        with pytest.raises(ConfigError, match=rf"\b{culprit}\b"):
            schema.check_entries(given, kinds)


def test_a_toml_value_becomes_that_of_its_field():
    assert repr(schema.from_toml("x", 3, "float | None")) == "3.0"
    assert schema.from_toml("x", [1, 2], "tuple[int, ...]") == (1, 2)
    assert schema.from_toml("x", [1, "a"], "Any") == [1, "a"]
    for value, kind in ((1.5, "int"), (True, "float"), ([1.5], "tuple[int, ...]")):
        with pytest.raises(ConfigError, match=r"^x must be"):
            schema.from_toml("x", value, kind)
