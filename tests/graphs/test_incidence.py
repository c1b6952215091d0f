"""Sums over the edges of each node, against one node alone."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dadmm.graphs.incidence import Incidence

DEGREES = {
    "every": np.arange(41),  # from 8 on numpy adds in pairs
    "several": np.repeat([0, 1, 2, 3, 8, 9, 40], [2, 3, 1, 4, 3, 1, 2]),
    "regular": np.full(6, 3),
    "one": np.array([12]),
    "alone": np.array([0]),
}


@pytest.fixture(params=DEGREES)
def degrees(request):
    return DEGREES[request.param]


def rows_of(degrees):
    """Return each node's edges as positions, from the degrees alone."""
    ends = np.cumsum(degrees)
    return [np.arange(b - d, b) for d, b in zip(degrees, ends, strict=True)]


@pytest.mark.parametrize("m", [0, 1, 2, 7])  # 0 is a number for each edge
@pytest.mark.parametrize("ufunc", [np.add, np.minimum, np.maximum])
def test_a_reduction_has_the_bits_of_one_node_alone(degrees, m, ufunc):
    """Rows of nodes without edges stay unchanged."""
    rng, shape = np.random.default_rng(m), (m,) if m else ()
    whole = degrees.sum(), *shape
    edges = rng.normal(size=whole) * 10.0 ** rng.integers(-5, 5, size=whole)
    out = np.full((len(degrees), *shape), 7.0)
    incidence = Incidence(degrees)
    planned = incidence.reducer(ufunc, edges, np.full_like(out, 7.0))

    assert incidence.reduce(ufunc, edges, out) is out
    planned()

    for node, own in enumerate(rows_of(degrees)):
        want = ufunc.reduce(edges[own], axis=0) if len(own) else np.full(shape, 7.0)
        assert_array_equal(out[node], want)
        if len(own):
            one = np.empty((1, *shape))
            Incidence(degrees[node : node + 1]).reduce(ufunc, edges[own], one)
            assert_array_equal(one[0], want)


@pytest.mark.parametrize("m", [1, 2, 7])
def test_a_weighted_sum_has_the_bits_of_one_node_alone(degrees, m):
    """Also when weights and rows have changed since it was planned."""
    rng = np.random.default_rng(m)
    weights, edges = np.zeros(degrees.sum()), np.zeros((degrees.sum(), m))
    out = np.full((len(degrees), m), 7.0)
    planned = Incidence(degrees).weighted_sum(weights, edges, out)
    weights[...] = rng.normal(size=len(weights))
    edges[...] = rng.normal(size=edges.shape)

    planned()

    for node, own in enumerate(rows_of(degrees)):
        want = weights[own] @ edges[own] if len(own) else np.full(m, 7.0)
        assert_array_equal(out[node], want)


def test_each_edge_has_the_row_of_its_node(degrees):
    incidence = Incidence(degrees)
    rows = np.random.default_rng(0).normal(size=(len(degrees), 3))
    out = np.empty((degrees.sum(), 3))

    incidence.spread_into(rows, out)

    want = np.repeat(rows, degrees, axis=0)
    assert_array_equal(out, want)
    assert_array_equal(np.broadcast_to(incidence.spread(rows), want.shape), want)
    assert_array_equal(incidence.count, np.maximum(degrees, 1))
    for node, own in enumerate(rows_of(degrees)):
        assert_array_equal(np.arange(degrees.sum())[incidence.edges_of(node)], own)
        assert (incidence.node[own] == node).all()
