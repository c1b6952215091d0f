"""The algebra of one node, against loops and the augmented Lagrangian itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dadmm.admm import consensus
from tests.support.problems import random_graph

SHAPES = [(1, 1), (1, 4), (3, 1), (5, 7)]  # (degree, size)


def draw(degree, size, seed=0):
    """Return theta, neighbours, multipliers and positive penalties."""
    rng = np.random.default_rng([seed, degree, size])
    theta, eta = rng.normal(size=size), np.exp(rng.normal(size=degree))
    return theta, rng.normal(size=(degree, size)), rng.normal(size=(degree, size)), eta


def augmented(x, theta, neighbours, multipliers, eta):
    """Return what the augmented Lagrangian of node i adds to f_i at x.

    The paper's M-step: multipliers of both directions of an edge pull on theta_i, and
    each edge's rho_ij of the last iteration holds it twice, from i and from j.
    """
    total = 0.0
    for theta_j, multiplier, eta_ij in zip(neighbours, multipliers, eta, strict=True):
        rho = (theta + theta_j) / 2
        total += 2 * multiplier @ x + eta_ij * np.sum((x - rho) ** 2)
    return total


@pytest.mark.parametrize(("degree", "size"), SHAPES)
def test_midpoints_are_halfway(degree, size):
    """rho_ij is as far from one end as from the other."""
    theta, neighbours, *_ = draw(degree, size)

    rho = consensus.midpoint(theta, neighbours)

    for row, theta_j in zip(rho, neighbours, strict=True):
        assert_allclose(row - theta, theta_j - row, atol=1e-15)


def test_both_ends_see_the_same_midpoint():
    """Addition commutes bit for bit, so no message is needed to agree on rho."""
    theta, neighbours, *_ = draw(4, 6)
    theirs = np.array([consensus.midpoint(row, theta[None])[0] for row in neighbours])

    assert_array_equal(consensus.midpoint(theta, neighbours), theirs)


def test_midpoints_are_written_where_asked():
    """The node's buffer is reused, and may hold the neighbours themselves."""
    theta, neighbours, *_ = draw(3, 4)
    expected, out = consensus.midpoint(theta, neighbours), np.empty((3, 4))

    assert consensus.midpoint(theta, neighbours, out=out) is out
    assert_array_equal(out, expected)
    assert_array_equal(consensus.midpoint(theta, neighbours, neighbours), expected)


@pytest.mark.parametrize(("degree", "size"), SHAPES)
def test_the_proximal_term_is_the_augmented_one(degree, size):
    """weight/2 |x - centre|^2 differs from it by a constant, at random points."""
    theta, neighbours, multipliers, eta = draw(degree, size)
    rho = consensus.midpoint(theta, neighbours)

    centre, weight = consensus.prox_point(rho, multipliers.sum(axis=0), eta)

    points = 3 * np.random.default_rng(9).normal(size=(20, size))
    gaps = [
        augmented(x, theta, neighbours, multipliers, eta)
        - weight / 2 * np.sum((x - centre) ** 2)
        for x in points
    ]
    assert_allclose(gaps, gaps[0], rtol=0, atol=1e-11 * weight)


@pytest.mark.parametrize(("degree", "size"), SHAPES)
def test_the_centre_minimises_the_augmented_term(degree, size):
    """Coordinate by coordinate, its parabola has its bottom there."""
    theta, neighbours, multipliers, eta = draw(degree, size, seed=1)
    rho = consensus.midpoint(theta, neighbours)

    centre, _ = consensus.prox_point(rho, multipliers.sum(axis=0), eta)

    for step in np.eye(size):
        below, here, above = (
            augmented(centre + k * step, theta, neighbours, multipliers, eta)
            for k in (-1, 0, 1)
        )
        assert_allclose(above, below, rtol=1e-12, atol=1e-12)
        assert here < above


def test_the_centre_is_that_of_the_paper():
    """(sum_j eta_ij (theta_i + theta_j) - 2 lambda_i) / (2 sum_j eta_ij)."""
    theta, neighbours, multipliers, eta = draw(5, 3)
    rho = consensus.midpoint(theta, neighbours)

    centre, weight = consensus.prox_point(rho, multipliers.sum(axis=0), eta)

    top = sum(eta[j] * (theta + neighbours[j]) - 2 * multipliers[j] for j in range(5))
    assert weight == pytest.approx(2 * sum(eta), rel=1e-15)
    assert_allclose(centre, top / (2 * sum(eta)), rtol=1e-13)


def test_the_prox_point_leaves_its_arguments_alone():
    """The sum of the multipliers is kept by the node."""
    theta, neighbours, multipliers, eta = draw(3, 4)
    rho, multiplier = consensus.midpoint(theta, neighbours), multipliers.sum(axis=0)
    kept = rho.copy(), multiplier.copy(), eta.copy()

    consensus.prox_point(rho, multiplier, eta)

    for now, before in zip((rho, multiplier, eta), kept, strict=True):
        assert_array_equal(now, before)


def test_a_node_alone_has_no_proximal_term():
    """Weight 0 makes its problem the centralised one, and the centre is finite."""
    centre, weight = consensus.prox_point(np.empty((0, 3)), np.zeros(3), np.empty(0))

    assert weight == 0.0
    assert_array_equal(centre, np.zeros(3))


@pytest.mark.parametrize(("degree", "size"), SHAPES)
def test_multipliers_move_by_half_the_penalty_times_the_gap(degree, size):
    """Summed over edges it is the step that the paper prints for gamma_i."""
    theta, neighbours, multipliers, eta = draw(degree, size)

    new = consensus.ascend(multipliers, theta, neighbours, eta)

    paper = multipliers.sum(axis=0)
    for j in range(degree):
        gap = theta - neighbours[j]
        assert_allclose(new[j], multipliers[j] + 0.5 * eta[j] * gap, rtol=1e-13)
        paper = paper + 0.5 * eta[j] * gap
    assert_allclose(new.sum(axis=0), paper, rtol=1e-12, atol=1e-13)


def test_multipliers_may_be_moved_in_place():
    """``out`` may be ``multipliers`` itself; the other arguments stay."""
    theta, neighbours, multipliers, eta = draw(3, 4)
    kept = theta.copy(), neighbours.copy(), eta.copy()
    expected = consensus.ascend(multipliers, theta, neighbours, eta)

    out = consensus.ascend(multipliers, theta, neighbours, eta, out=multipliers)

    assert out is multipliers
    assert_array_equal(multipliers, expected)
    for now, before in zip((theta, neighbours, eta), kept, strict=True):
        assert_array_equal(now, before)


@pytest.mark.parametrize("seed", range(10))
def test_the_two_ends_of_an_edge_stay_exactly_opposite(seed):
    """lambda_ij == -lambda_ji to the last bit, over steps of any size, on any graph."""
    rng = np.random.default_rng(seed)
    topology = random_graph(rng, 7)
    (i, j), reverse = topology.edges.T, topology.reverse
    multipliers = np.zeros((len(i), 5))

    for _ in range(30):
        theta = rng.normal(size=(7, 5)) * 10.0 ** rng.integers(-8, 8)
        proposals = 10.0 ** rng.uniform(-5, 7, size=len(i))
        eta = consensus.couple(proposals, proposals[reverse])
        assert_array_equal(eta, eta[reverse])
        for node in range(7):
            own = i == node
            multipliers[own] = consensus.ascend(
                multipliers[own], theta[node], theta[j[own]], eta[own]
            )

    assert_array_equal(multipliers, -multipliers[reverse])
    assert np.abs(multipliers).max() > 0


def test_coupled_penalties_are_the_mean_of_the_two_ends():
    """One number per edge, between the two proposals."""
    mine, theirs = np.array([1.0, 4.0, 1e-6]), np.array([3.0, 4.0, 1e6])

    assert_array_equal(consensus.couple(mine, theirs), [2.0, 4.0, 500000.0000005])


@pytest.mark.parametrize(("degree", "size"), SHAPES)
def test_the_neighbours_mean_leaves_the_node_out(degree, size):
    """theta-bar_i runs over B_i, which does not hold i."""
    theta, neighbours, *_ = draw(degree, size)

    mean = consensus.neighbour_mean(theta, neighbours)

    slow = [math.fsum(neighbours[:, k]) / degree for k in range(size)]
    assert_allclose(mean, slow, rtol=1e-13, atol=1e-15)


def test_a_node_alone_is_its_own_mean():
    """So that its primal residual is zero and not 0/0."""
    theta = np.arange(3.0)
    mean = consensus.neighbour_mean(theta, np.empty((0, 3)))

    assert_array_equal(mean, theta)
    assert consensus.residuals(theta, mean, mean, 0.0) == (0.0, 0.0)


def test_residuals_are_lengths():
    """|theta - mean|, and eta times how far the mean has moved."""
    theta, (mean, before), *_ = draw(2, 6)

    primal, dual = consensus.residuals(theta, mean, before, 2.5)

    apart = math.fsum((theta[k] - mean[k]) ** 2 for k in range(6))
    moved = math.fsum((mean[k] - before[k]) ** 2 for k in range(6))
    assert primal == pytest.approx(math.sqrt(apart), rel=1e-14)
    assert dual == pytest.approx(2.5 * math.sqrt(moved), rel=1e-14)


def test_the_norm_is_euclidean():
    """3-4-5, and nothing at all."""
    assert consensus.norm(np.array([3.0, 0.0, -4.0])) == 5.0
    assert consensus.norm(np.zeros(0)) == 0.0
