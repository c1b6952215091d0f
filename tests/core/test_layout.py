"""Named parts of one vector: where they lie, and that they are the vector itself."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dadmm import Layout

PPCA = {"W": (4, 2), "mu": (4,), "a": ()}


@pytest.mark.parametrize("lead", [(), (3,), (3, 2), (0,)])
def test_parts_of_a_stack_keep_its_leading_axes(lead):
    layout = Layout(PPCA)
    thetas = np.random.default_rng(0).normal(size=(*lead, 13))

    parts = layout.views(thetas)

    assert parts._fields == ("W", "mu", "a")  # one after the other, in C order
    flat = thetas[..., :8].reshape(*lead, 4, 2), thetas[..., 8:12], thetas[..., 12]
    for part, expected in zip(parts, flat, strict=True):
        assert_array_equal(part, expected)
    assert [part.shape for part in parts] == [(*lead, 4, 2), (*lead, 4), lead]
    for index in np.ndindex(lead):
        for part, alone in zip(parts, layout.views(thetas[index]), strict=True):
            assert_array_equal(part[index], alone)


@pytest.mark.parametrize("lead", [(), (3,), (3, 2)])
def test_writing_into_a_part_writes_into_the_vector(lead):
    """Views share memory, scalars too, so that a node fills its outbox in place."""
    layout = Layout(PPCA)
    theta = np.zeros((*lead, 13))

    for number, part in enumerate(layout.views(theta), start=1):
        assert np.shares_memory(part, theta)
        part[...] = number

    assert_array_equal(theta, np.broadcast_to([1] * 8 + [2] * 4 + [3], theta.shape))


def test_packing_takes_what_broadcasts_and_asks_for_every_part():
    layout = Layout(PPCA)

    assert_array_equal(layout.pack(W=np.ones(2), mu=0.0, a=3), [1] * 8 + [0] * 4 + [3])
    with pytest.raises(KeyError, match="mu"):
        layout.pack(W=0.0, a=1.0)
    with pytest.raises(ValueError, match="broadcast"):
        layout.pack(W=0.0, mu=np.zeros(5), a=1.0)


def test_layouts_are_values():
    """Equal by names, shapes and order, hashed alike, printed as a call, copied."""
    shapes = dict(PPCA)
    layout = Layout(shapes)
    shapes.clear()
    before = hash(layout)
    layout.views(np.zeros(13))

    assert [Layout.of(W=(3, 0), mu=(2,)).size, Layout.of().size] == [2, 0]
    assert layout == Layout.of(W=(4, 2), mu=(4,), a=())
    assert layout != Layout.of(mu=(4,), W=(4, 2), a=())
    assert layout != Layout.of(W=(2, 4), mu=(4,), a=())
    assert layout != Layout.of(V=(4, 2), mu=(4,), a=())
    assert layout != PPCA
    assert hash(layout) == before == hash(Layout(PPCA))
    assert repr(layout) == "Layout.of(W=(4, 2), mu=(4,), a=())"
    layout = Layout(PPCA, private=("a",), scales={"W": 2.0})
    layout.views(np.zeros(13))
    twin = pickle.loads(pickle.dumps(layout))  # results and estimators hold one
    assert twin == layout
    assert twin.shared_size == 12
    assert twin.views(np.arange(13.0)).a == 12
