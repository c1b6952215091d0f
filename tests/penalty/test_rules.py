"""Penalty rules beyond the paper: plain numbers, and where nothing can be learnt."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dadmm import Topology, solve
from dadmm.penalty import rules
from tests.support.problems import Quadratic, distance, optimum

ROWS = (
    np.random.default_rng(0).standard_normal((5, 7)) * 10.0 ** np.arange(-2, 3)[:, None]
)


def full(value, degree=1):
    """Return one number per edge."""
    return np.full(degree, float(value))


def test_a_row_has_the_same_length_wherever_it_lies_and_whichever_way_it_points():
    """Bit for bit: both ends of an edge see each other's rows with other strides."""
    wide = np.zeros((5, 11))
    wide[:, 2:9] = -ROWS

    assert_array_equal(rules.row_norms(wide[:, 2:9]), rules.row_norms(ROWS))
    for k in range(5):
        assert rules.row_norms(wide[k : k + 1, 2:9])[0] == rules.row_norms(ROWS)[k]


@pytest.mark.parametrize("scale", [10.0, 150.0])
def test_all_that_a_penalty_may_ever_move_is_bounded(scale):
    """The exponents sum to less than the scale, however long a run is."""
    steps = [rules.damping(t, scale) for t in range(1, 200_000)]

    assert all(later < sooner for sooner, later in pairwise(steps))
    assert 0.9 * scale < math.fsum(steps) < scale


def iterations(topology, eta):
    """Return how long equal quadratics take to 1e-4 with one penalty for ever."""
    rng = np.random.default_rng(0)
    problems = [
        Quadratic(np.eye(2), 1.0 + rng.standard_normal(2)) for _ in range(len(topology))
    ]
    best, taken = optimum(problems), []

    def watch(t, nodes):
        close = distance(np.array([node.theta for node in nodes]), best) < 1e-4
        if close and not taken:
            taken.append(t)
        return "signal" if close else None

    settings = {"scheme": "fixed", "eta0": eta, "tolerance": 0, "record": False}
    solve(problems, topology, max_iter=120, callbacks=[watch], **settings)
    return taken[0] if taken else math.inf


@pytest.mark.parametrize(
    "topology",
    [Topology.complete(8), Topology.ring(5), Topology.ring(14), Topology.chain(9)],
    ids=["complete 8", "ring 5", "ring 14", "chain 9"],
)
def test_the_opening_is_near_the_best_fixed_penalty(topology):
    """Within a factor of four, by a grid, for equal curvatures on any graph.

    The middle of a chain has two neighbours, its ends one.
    """
    degree = 2 if topology.diameter > 1 else len(topology) - 1
    grid = 2.0 ** np.arange(-3, 4)

    taken = [iterations(topology, eta) for eta in grid / degree]

    best = grid[int(np.argmin(taken))] / degree
    assert 0.25 < best / rules.initial_penalty(1.0, degree, topology.diameter) < 4.0
    assert min(taken) < 0.5 * min(taken[0], taken[-1])  # the grid is wide enough


def test_where_only_one_side_has_moved_the_bound_decides():
    """0 or infinity: the end of the range that the move points to."""
    assert rules.spectral_ratio(full(0), full(1), full(1), full(1)) == 0.0
    assert rules.spectral_ratio(full(1), full(0), full(1), full(1)) == math.inf
    assert_array_equal(
        rules.bounded(rules.spectral_ratio(full(1), full(0), full(1), full(1)), 10.0),
        [10.0],
    )


@pytest.mark.parametrize("size", [0.0, 1.0, 1e9])
def test_noise_has_no_spectral_ratio(size):
    """Nothing has moved, or by less than rounding, on both sides."""
    quiet, loud = full(0.5e-13 * size), full(2e-13 * size)

    assert np.isnan(rules.spectral_ratio(quiet, quiet, full(size), full(size)))
    if size:
        for turn, way in [(quiet, loud), (loud, quiet), (loud, loud)]:
            assert rules.spectral_ratio(turn, way, full(size), full(size)) == turn / way
