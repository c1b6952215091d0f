"""Named parts of one vector: where they lie, and that they are the vector itself."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dadmm import Layout

PPCA = {"W": (4, 2), "mu": (4,), "a": ()}


@pytest.mark.parametrize("lead", [(), (3,), (3, 2), (0,)])
def test_parts_are_views_of_a_vector_or_of_each_in_a_stack(lead):
    """They share memory, scalars too, so that a node fills its outbox in place."""
    layout, thetas = Layout(PPCA), np.random.default_rng(0).normal(size=(*lead, 13))
    parts = layout.views(thetas)

    assert parts._fields == ("W", "mu", "a")  # one after the other, in C order
    flat = thetas[..., :8].reshape(*lead, 4, 2), thetas[..., 8:12], thetas[..., 12]
    for part, expected in zip(parts, flat, strict=True):
        assert_array_equal(part, expected)
        assert part.shape == expected.shape
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
    assert layout != PPCA
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
