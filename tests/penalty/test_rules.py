"""Penalty rules beyond the paper: plain numbers, and where nothing can be learnt."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dadmm import Topology, solve
from dadmm.penalty import rules
from tests.support.problems import Quadratic, distance, optimum

ROWS = (
    np.random.default_rng(0).standard_normal((5, 7)) * 10.0 ** np.arange(-2, 3)[:, None]
)


def full(value, degree=1):
    """Return one number per edge."""
    return np.full(degree, float(value))


# --- lengths, damping, bounds ---------------------------------------------------------


def test_lengths_are_those_of_each_row():
    """Pythagoras, one row at a time; of no rows, none."""
    assert_array_equal(rules.lengths(np.array([[3.0, 4.0], [0.0, 0.0]])), [5.0, 0.0])
    want = [math.sqrt(math.fsum(x * x for x in row)) for row in ROWS.tolist()]
    assert_allclose(rules.lengths(ROWS), want, rtol=1e-15)
    assert rules.lengths(np.empty((0, 3))).shape == (0,)


def test_a_row_has_the_same_length_wherever_it_lies_and_whichever_way_it_points():
    """Bit for bit: both ends of an edge see each other's rows with other strides."""
    wide = np.zeros((5, 11))
    wide[:, 2:9] = -ROWS

    assert_array_equal(rules.lengths(wide[:, 2:9]), rules.lengths(ROWS))
    for k in range(5):
        assert rules.lengths(wide[k : k + 1, 2:9])[0] == rules.lengths(ROWS)[k]


def test_damping_is_the_inverse_square_of_time():
    """1 at the start, a quarter after one scale, a hundredth after nine."""
    assert [rules.damping(t, 150.0) for t in (0, 150, 1350)] == [1.0, 0.25, 0.01]


@pytest.mark.parametrize("scale", [10.0, 150.0])
def test_all_that_a_penalty_may_ever_move_is_bounded(scale):
    """The exponents sum to less than the scale, however long a run is."""
    steps = [rules.damping(t, scale) for t in range(1, 200_000)]

    assert all(later < sooner for sooner, later in pairwise(steps))
    assert 0.9 * scale < math.fsum(steps) < scale


def test_factors_stay_within_their_bound():
    """In both directions alike; what is infinite is the bound, what is NaN stays so."""
    factor = np.array([0.0, 0.1, 0.5, 1.0, 3.0, 100.0, math.inf, math.nan])

    assert_array_equal(
        rules.bounded(factor, 4.0), [0.25, 0.25, 0.5, 1.0, 3.0, 4.0, 4.0, math.nan]
    )


# --- the opening ----------------------------------------------------------------------


def test_the_opening_is_in_the_units_of_the_curvature():
    """Shared evenly by the edges, and the more of it the wider the graph."""
    plain = rules.opening(1.0, 1, 0)

    assert plain == 0.5
    assert rules.opening(2.0**60, 1, 0) == 2.0**60 * plain
    assert rules.opening(1.0, 4, 0) == plain / 4
    assert_allclose(rules.opening(1.0, 1, 8), plain * math.hypot(1.0, 8 / 3.2))


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
    assert 0.25 < best / rules.opening(1.0, degree, topology.diameter) < 4.0
    assert min(taken) < 0.5 * min(taken[0], taken[-1])  # the grid is wide enough


# --- the spectral ratio ---------------------------------------------------------------


def test_the_spectral_ratio_is_how_far_multipliers_went_per_way():
    """Row by row, from lengths."""
    turn, way = np.array([6.0, 1.0, 0.5]), np.array([2.0, 4.0, 0.5])

    ratio = rules.spectral_ratio(turn, way, full(1, 3), full(1, 3))

    assert_array_equal(ratio, [3.0, 0.25, 1.0])


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


def test_a_ratio_of_nothing_known_is_nothing_known():
    """NaN goes in, NaN comes out, and the other edges do not notice."""
    turn = np.array([math.nan, 1.0, 1.0])
    way = np.array([1.0, math.nan, 2.0])

    ratio = rules.spectral_ratio(turn, way, full(1, 3), full(1, 3))

    assert_array_equal(ratio, [math.nan, math.nan, 0.5])


# --- the relative balance -------------------------------------------------------------


def test_the_relative_balance_is_primal_over_dual_each_by_its_own_size():
    """One edge at a time, residual by residual."""
    rng = np.random.default_rng(1)
    rows = np.exp(rng.normal(size=(5, 6)))
    gap, size, drift, multipliers, eta = rows
    want = []
    for k in range(6):
        primal = gap[k] / (math.sqrt(2.0) * size[k])
        dual = eta[k] * drift[k] / multipliers[k]
        want.append(primal / dual)

    assert_allclose(rules.relative_balance(*rows), want, rtol=1e-14)
    assert rules.relative_balance(
        full(1), full(1), full(1), full(math.sqrt(2.0)), full(1)
    ) == pytest.approx(1.0)


@pytest.mark.parametrize("nothing", ["gap", "drift", "multipliers", "size", "noise"])
def test_without_something_to_balance_the_ratio_is_one(nothing):
    """Zero multipliers at the start, exact consensus, midpoints at rest, zero theta."""
    edge = dict.fromkeys(("gap", "size", "drift", "multipliers", "eta"), full(1))
    if nothing == "noise":
        edge["gap"] = full(0.9e-13)
    else:
        edge[nothing] = full(0)

    assert_array_equal(rules.relative_balance(**edge), [1.0])


def test_a_balance_of_one_edge_does_not_touch_another():
    """An idle edge beside a busy one, with no warning for either."""
    with np.errstate(all="raise"):
        ratio = rules.relative_balance(
            np.array([0.0, 3.0]),
            full(1, 2),
            np.array([0.0, 1.0]),
            full(1, 2),
            full(1, 2),
        )

    assert_allclose(ratio, [1.0, 3.0 / math.sqrt(2.0)])


@pytest.mark.parametrize("c", [4.0**-20, 4.0**20])
def test_rules_follow_the_units(c):
    """In c times the objective, multipliers and penalties are c times as large."""
    gap, size, drift, multipliers, eta = np.exp(ROWS[1:2].repeat(5, axis=0) * 10)
    ratio = rules.spectral_ratio(multipliers, drift, multipliers, size)
    balance = rules.relative_balance(gap, size, drift, multipliers, eta)

    scaled = rules.spectral_ratio(c * multipliers, drift, c * multipliers, size)
    assert_array_equal(scaled, c * ratio)
    scaled = rules.relative_balance(gap, size, drift, c * multipliers, c * eta)
    assert_array_equal(scaled, balance)
    scaled = rules.relative_balance(
        c * gap, c * size, c * drift, multipliers / c, eta / c**2
    )
    assert_allclose(scaled, balance, rtol=1e-15)


# --- Barzilai and Borwein -------------------------------------------------------------


def test_one_curvature_is_found_from_any_move():
    """The gradient of h/2 |x|^2 turns by h times the way."""
    for way in ROWS:
        assert rules.barzilai_borwein(way, 3.0 * way) == pytest.approx(3.0)


def test_the_hybrid_is_the_gentle_or_a_tempered_steep_quotient():
    """Gentle where the two are within a factor of two, else steep minus half of it."""
    way = np.array([1.0, 0.0])
    near, far = np.array([2.0, 1.0]), np.array([2.0, 4.0])

    assert rules.barzilai_borwein(way, near) == 2.0  # 2 and 5/2
    assert rules.barzilai_borwein(way, far) == 20.0 / 2.0 - 0.5 * 2.0  # 2 and 10


@pytest.mark.parametrize("seed", range(5))
def test_a_curvature_lies_within_the_spectrum(seed):
    """Of a quadratic, whatever the move."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((4, 4))
    A = A @ A.T + 0.1 * np.eye(4)
    least, *_, most = np.linalg.eigvalsh(A)
    way = rng.standard_normal(4)

    found = rules.barzilai_borwein(way, A @ way, least=0.0)

    assert 0.5 * least < found <= most * (1 + 1e-12)


@pytest.mark.parametrize(
    ("way", "turn"),
    [
        ((0.0, 0.0), (0.0, 0.0)),  # nothing has moved
        ((1.0, 0.0), (0.0, 0.0)),
        ((0.0, 0.0), (1.0, 0.0)),
        ((1.0, 0.0), (0.0, 1.0)),  # at a right angle
        ((1.0, 0.0), (-1.0, 0.0)),  # bent the wrong way
        ((1.0, 0.0), (0.19, math.sqrt(1 - 0.19**2))),  # correlated by 0.19
        ((math.nan, 0.0), (1.0, 0.0)),
        ((1.0, 0.0), (math.nan, 0.0)),
    ],
)
def test_a_move_that_shows_no_curvature_has_none(way, turn):
    """NaN, and no warning."""
    with np.errstate(all="raise"):
        assert math.isnan(rules.barzilai_borwein(np.array(way), np.array(turn)))


def test_correlated_enough_is_a_matter_of_the_threshold():
    """By default 0.2."""
    way, turn = np.array([1.0, 0.0]), np.array([0.21, math.sqrt(1 - 0.21**2)])

    assert rules.barzilai_borwein(way, turn) > 0
    assert math.isnan(rules.barzilai_borwein(way, turn, least=0.3))
