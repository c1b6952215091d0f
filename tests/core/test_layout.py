"""Named parts of one vector: where they lie, and that they are the vector itself."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dadmm import Layout

PPCA = {"W": (4, 2), "mu": (4,), "a": ()}


def test_parts_lie_one_after_the_other():
    """Each part is a run of the vector, in C order and in the order of the names."""
    parts = Layout(PPCA).views(np.arange(13.0))

    assert_array_equal(parts.W, np.arange(8.0).reshape(4, 2))
    assert_array_equal(parts.mu, [8, 9, 10, 11])
    assert parts.a == 12
    assert parts._fields == ("W", "mu", "a")


def test_the_size_is_that_of_all_parts():
    """A scalar counts one, an empty part nothing, and no parts give no vector."""
    assert Layout(PPCA).size == 13
    assert Layout.of(a=()).size == 1
    assert Layout.of(W=(3, 0), mu=(2,)).size == 2
    assert Layout.of().size == 0


def test_packing_and_viewing_are_inverse():
    """What goes in comes out, bit for bit."""
    layout, rng = Layout(PPCA), np.random.default_rng(0)
    W, mu, a = rng.normal(size=(4, 2)), rng.normal(size=4), rng.normal()

    theta = layout.pack(W=W, mu=mu, a=a)

    assert theta.dtype == np.float64
    assert theta.flags.c_contiguous
    for given, found in zip((W, mu, a), layout.views(theta), strict=True):
        assert_array_equal(found, given)
    assert_array_equal(layout.pack(**layout.views(theta)._asdict()), theta)


def test_packing_spreads_a_number_over_a_part():
    """A part may be given as anything that numpy can broadcast to its shape."""
    theta = Layout(PPCA).pack(W=np.ones(2), mu=0.0, a=3)

    assert_array_equal(theta, [1] * 8 + [0] * 4 + [3])


def test_packing_asks_for_every_part():
    """A part left out would be whatever was in memory."""
    with pytest.raises(KeyError, match="mu"):
        Layout(PPCA).pack(W=0.0, a=1.0)


def test_packing_refuses_a_part_of_another_shape():
    """Numbers must not slip into the next part."""
    with pytest.raises(ValueError, match="broadcast"):
        Layout(PPCA).pack(W=0.0, mu=np.zeros(5), a=1.0)


@pytest.mark.parametrize("lead", [(), (3,), (3, 2), (0,)])
def test_parts_of_a_stack_keep_its_leading_axes(lead):
    """All neighbours' parameters open in one call."""
    layout = Layout(PPCA)
    thetas = np.random.default_rng(0).normal(size=(*lead, 13))

    parts = layout.views(thetas)

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


def test_parts_of_padded_rows_are_views_too():
    """The rows of an inbox may lie apart in memory."""
    layout, wide = Layout(PPCA), np.zeros((3, 20))

    layout.views(wide[:, 2:15]).W[...] = 1.0

    assert_array_equal(np.flatnonzero(wide[1]), np.arange(2, 10))


def test_layouts_are_equal_when_names_shapes_and_order_are():
    """Two nodes can add their vectors only then."""
    layout = Layout(PPCA)

    assert layout == Layout.of(W=(4, 2), mu=(4,), a=())
    assert layout != Layout.of(mu=(4,), W=(4, 2), a=())
    assert layout != Layout.of(W=(2, 4), mu=(4,), a=())
    assert layout != Layout.of(V=(4, 2), mu=(4,), a=())
    assert layout != PPCA


def test_equal_layouts_hash_alike():
    """A layout can be the key of a dictionary, before and after its first use."""
    layout = Layout(PPCA)
    before = hash(layout)
    layout.views(np.zeros(13))

    assert hash(layout) == before == hash(Layout(PPCA))
    assert len({layout, Layout(PPCA), Layout.of(a=())}) == 2


def test_a_layout_prints_as_the_call_that_makes_it():
    """It stands in error messages, which are to be copied."""
    layout = Layout(PPCA)

    assert repr(layout) == "Layout.of(W=(4, 2), mu=(4,), a=())"
    assert eval(repr(layout)) == layout


def test_the_given_shapes_are_copied():
    """A dictionary that changes later does not move the parts."""
    shapes = dict(PPCA)
    layout = Layout(shapes)
    shapes.clear()

    assert layout == Layout(PPCA)


def test_a_layout_is_pickled_after_use_too():
    """With all that it says about its parts; results and estimators hold one."""
    layout = Layout(PPCA, private=("a",), scales={"W": 2.0})
    layout.views(np.zeros(13))

    twin = pickle.loads(pickle.dumps(layout))

    assert twin == layout
    assert twin.shared_size == 12
    assert twin.views(np.arange(13.0)).a == 12
