"""Sums over the edges of each node, against one node alone."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from dadmm.graphs.incidence import Incidence

DEGREES = st.lists(st.integers(0, 40), min_size=1, max_size=9).map(sorted)


@given(DEGREES, st.sampled_from([0, 1, 2, 7]))  # 0 is a number for each edge
@example([*range(41)], 3)  # from 8 on numpy adds in pairs
@example([3] * 6, 2)
@example([0], 1)
def test_a_reduction_has_the_bits_of_one_node_alone(degrees, m):
    """Also of rows that have changed since; those of nodes without edges stay."""
    degrees, shape = np.array(degrees), (m,) if m else ()
    rng, n_edges = np.random.default_rng(m), degrees.sum()
    weights, edges = np.zeros(n_edges), np.zeros((n_edges, *shape))
    ends, incidence = np.cumsum(degrees), Incidence(degrees)
    calls = [np.add.reduce, np.minimum.reduce, np.maximum.reduce]
    outs = np.full((5, len(degrees), *shape), 7.0)
    ufuncs = (np.add, np.minimum, np.maximum)
    pairs = list(zip(ufuncs, outs, strict=False))
    planned = [incidence.reducer(ufunc, edges, out) for ufunc, out in pairs]
    if m:
        planned.append(incidence.weighted_sum(weights, edges, outs[3]))
        calls.append(lambda rows, axis: weights[own] @ rows)
    weights[...] = rng.normal(size=n_edges)
    edges[...] = rng.normal(size=edges.shape) * 10.0 ** rng.integers(-5, 5, edges.shape)
    for call in planned:
        call()

    assert_array_equal(incidence.reduce(np.add, edges, outs[4]), outs[0])
    for node, (degree, end) in enumerate(zip(degrees, ends, strict=True)):
        own = slice(end - degree, end)
        for call, out in zip(calls, outs, strict=False):
            want = call(edges[own], axis=0) if degree else np.full(shape, 7.0)
            assert_array_equal(out[node], want)


@given(DEGREES)
def test_each_edge_has_the_row_of_its_node(degrees):
    incidence, ends = Incidence(np.array(degrees)), np.cumsum(degrees)
    rows = np.random.default_rng(0).normal(size=(len(degrees), 3))
    out, want = np.empty((ends[-1], 3)), np.repeat(rows, degrees, axis=0)

    incidence.spread_into(rows, out)

    assert_array_equal(out, want)
    assert_array_equal(np.broadcast_to(incidence.spread(rows), want.shape), want)
    assert_array_equal(incidence.count, np.maximum(degrees, 1))
    for node, end in enumerate(ends):
        assert incidence.edges_of(node) == slice(end - degrees[node], end)
        assert (incidence.node[incidence.edges_of(node)] == node).all()
