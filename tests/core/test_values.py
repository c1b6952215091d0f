"""Values: their kinds, as TOML and in files, and the named parts of one vector."""

import math
import pickle
import tomllib
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from dadmm import Layout
from dadmm.core import schema
from dadmm.core.documents import to_toml
from dadmm.core.errors import ConfigError

KINDS = [  # a kind, what it allows, and what not
    (schema.integer(1, 9), [1, 9, np.int64(3)], [0, 10, 2.0, True, "1", None]),
    (schema.integer(), [0, 10**9], [-1, 10**10]),
    (schema.NUMBER, [1, -2.5, math.nan, np.float32(1)], [True, "1", 10**400]),
    (schema.FINITE, [0, 1.5], [-1, math.inf, math.nan]),
    (schema.POSITIVE, [1e-300, 1], [0, math.inf, math.nan]),
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
    where = "in: "


@dataclass
class Derived(Base):
    size: int = 2


@dataclass
class Wrong(Base):
    size: int = 0


def test_fields_and_entries_are_checked_and_known():
    """Also of a class with another default, and that default."""
    with pytest.raises(ConfigError, match="size"):
        schema.check_fields(Wrong())
    for kind in (Base, Derived):
        schema.check_fields(kind())
        for name, value in (("size", 0), ("size", None), ("rest", 0)):
            with pytest.raises(ConfigError, match=f"^in: {name} must be "):
                schema.check_fields(kind(**{name: value}))
    kinds = {"a": schema.COUNT}
    assert schema.check_entries({"a": 1}, kinds) == {"a": 1}
    for entries, culprit in (({}, "a"), ({"a": 1, "b": 2}, "b"), ({"a": -1}, "a")):
        with pytest.raises(ConfigError, match=rf"\b{culprit}\b"):
            schema.check_entries(entries, kinds)


PLAIN = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats()
PLAIN |= st.text(st.characters(exclude_categories=["Cs"]))


@given(PLAIN | st.lists(PLAIN))
def test_a_value_is_read_back_from_toml(value):
    assert repr(tomllib.loads(f"x = {to_toml(value)}\n")["x"]) == repr(value)
    assert to_toml((1, 2)) == to_toml([1, 2])
    with pytest.raises(ConfigError, match="Unicode"):
        to_toml("data-\udcff.npy")


PPCA = {"W": (4, 2), "mu": (4,), "a": ()}


@pytest.mark.parametrize("lead", [(), (3,), (3, 2), (0,)])
def test_parts_are_views_of_a_vector_or_of_each_in_a_stack(lead):
    """They share memory, scalars too, so that a node fills its outbox in place."""
    layout, thetas = Layout(PPCA), np.random.default_rng(0).normal(size=(*lead, 13))
    parts = layout.views(thetas)

    assert parts._fields == ("W", "mu", "a")  # one after the other, in C order
    flat = thetas[..., :8].reshape(*lead, 4, 2), thetas[..., 8:12], thetas[..., 12]
    for part, expected in zip(parts, flat, strict=True):
        assert_array_equal(part, expected, strict=True)
    for number, part in enumerate(parts, start=1):
        part[...] = number
    assert_array_equal(thetas, np.broadcast_to([1] * 8 + [2] * 4 + [3], thetas.shape))


def test_layouts_are_values_that_pack_what_broadcasts():
    """Equal by names, shapes and order, and hashed alike; they ask for every part."""
    shapes = dict(PPCA)
    layout = Layout(shapes)
    shapes.clear()

    assert layout == Layout.of(W=(4, 2), mu=(4,), a=())
    assert hash(layout) == hash(Layout(PPCA))
    for other in ({"mu": (4,), "W": (4, 2), "a": ()}, PPCA | {"W": (2, 4)}):
        assert layout != Layout(other)
    assert layout not in (PPCA, Layout(PPCA, ("a",)), Layout(PPCA, scales={"W": 2.0}))
    assert [Layout.of(W=(3, 0), mu=(2,)).size, Layout.of().size] == [2, 0]
    assert_array_equal(layout.pack(W=np.ones(2), mu=0.0, a=3), [1] * 8 + [0] * 4 + [3])
    with pytest.raises(KeyError, match="mu"):
        layout.pack(W=0.0, a=1.0)


def test_private_parts_are_not_shared_and_scales_are_their_roots():
    layout, theta = Layout(PPCA, private=("a",), scales={"W": 2.0}), np.arange(13.0)
    twin = pickle.loads(pickle.dumps(layout))  # results and estimators hold one
    shared = theta[:12] * np.sqrt([2.0] * 8 + [1.0] * 4)

    assert twin == layout
    assert (twin.shared_size, twin.views(theta).a) == (12, 12)
    assert_array_equal(layout.shared(theta), shared)
    assert_allclose(layout.whole(shared, theta), theta, rtol=1e-15)
