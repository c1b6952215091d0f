"""Over-relaxation, and the lengths by which a node judges how far it has come."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dadmm import Topology, solve
from dadmm.admm import consensus
from dadmm.penalty import SCHEMES, build
from tests.support.problems import distance, optimum, quadratics

RNG = np.random.default_rng(0)
OLD, NEW = RNG.standard_normal((2, 4, 3))  # anchors and midpoints of four edges


@pytest.mark.parametrize("alpha", [0.3, 1.0, 1.6])
def test_anchors_move_to_the_midpoints_and_beyond(alpha):
    """Edge by edge, entry by entry, in place."""
    anchors = OLD.copy()
    consensus.relax(anchors, NEW, alpha)

    for k, x in np.ndindex(4, 3):
        want = OLD[k, x] + alpha * (NEW[k, x] - OLD[k, x])
        assert anchors[k, x] == pytest.approx(want, rel=1e-13)


def test_without_relaxation_anchors_are_the_midpoints():
    """Bit for bit, so that the paper's schemes are the paper's."""
    anchors = OLD.copy()
    consensus.relax(anchors, NEW, 1.0)

    assert_array_equal(anchors, NEW)


@pytest.mark.parametrize("name", SCHEMES)
def test_a_scheme_has_a_relaxation_of_its_own_unless_told(name):
    """None but auto's is other than 1."""
    own = 1.6 if name == "auto" else 1.0

    assert build(name).alpha == own
    assert build(name, relaxation=1.2).alpha == 1.2
    assert build(name, relaxation=1.0).alpha == 1.0


def textbook(problems, topology, eta, alpha, n_iterations):
    """Return theta (t, n_nodes, size) of over-relaxed ADMM as textbooks have it.

    Boyd et al. (2011), section 3.4.3, scaled form with rho = 2 eta: x_i is held to an
    edge's z by both its ends, x-hat mixes the new x with the old z, z is the mean of
    x-hat + u over the ends, and u collects x-hat - z.
    """
    x = np.array([problem.init(np.random.default_rng([0, 0])) for problem in problems])
    ends = [(int(i), int(j)) for i, j in topology.edges if i < j]
    z = {edge: (x[edge[0]] + x[edge[1]]) / 2 for edge in ends}
    u = {(edge, i): np.zeros_like(x[0]) for edge in ends for i in edge}
    rows = []
    for _ in range(n_iterations):
        for i, problem in enumerate(problems):
            mine = [edge for edge in ends if i in edge]
            gram = problem.A + 2 * eta * len(mine) * np.eye(len(x[i]))
            pull = sum(2 * eta * (z[edge] - u[edge, i]) for edge in mine)
            x[i] = np.linalg.solve(gram, problem.A @ problem.b + pull)
        for edge in ends:
            mixed = {i: alpha * x[i] + (1 - alpha) * z[edge] for i in edge}
            z[edge] = sum(mixed[i] + u[edge, i] for i in edge) / 2
            for i in edge:
                u[edge, i] = u[edge, i] + mixed[i] - z[edge]
        rows.append(x.copy())
    return np.array(rows)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 1.6, 1.9])
@pytest.mark.parametrize("graph", ["ring", "cluster", "star"])
def test_a_fixed_penalty_over_relaxed_is_the_textbooks(graph, alpha):
    """One multiplier and one anchor per edge are enough, for all iterations alike."""
    problems, topology = quadratics(6, size=3), getattr(Topology, graph)(6)
    seen = []

    def watch(t, nodes):
        seen.append([node.theta for node in nodes])

    settings = {"scheme": "fixed", "relaxation": alpha, "tolerance": 0}
    solve(problems, topology, max_iter=30, callbacks=[watch], **settings)

    want = textbook(problems, topology, 10.0, alpha, 30)
    assert_allclose(seen, want, rtol=0, atol=1e-12 * np.abs(want).max())


@pytest.mark.parametrize("alpha", [0.1, 1.99])
def test_any_relaxation_between_0_and_2_leads_to_the_optimum(alpha):
    """Slowly at the ends of the range, but exactly."""
    problems = quadratics(3)

    settings = {"scheme": "fixed", "relaxation": alpha, "tolerance": 0}
    result = solve(problems, Topology.chain(3), max_iter=1500, **settings)

    assert distance(result.theta, optimum(problems)) < 1e-8


def test_over_relaxation_pays():
    """Where the penalty is rather small: a third fewer iterations, as 1 is to 1.6."""
    problems, taken = quadratics(8), {}
    best = optimum(problems)
    for alpha in (1.0, 1.6):

        def watch(t, nodes, alpha=alpha):
            if distance(np.array([node.theta for node in nodes]), best) < 1e-8:
                taken.setdefault(alpha, t)
                return "signal"

        settings = {"scheme": "fixed", "relaxation": alpha, "eta0": 2.0}
        solve(problems, Topology.ring(8), tolerance=0, callbacks=[watch], **settings)

    assert taken[1.6] < 0.67 * taken[1.0]


# --- how far a node has come ----------------------------------------------------------


def test_disagreement_is_the_root_mean_square_distance():
    """Neighbour by neighbour; a node alone agrees with all there are."""
    theta, neighbours = NEW[0], OLD
    total = math.fsum(math.dist(theta, row) ** 2 for row in neighbours)

    found = consensus.norm(consensus.disagreement(theta, neighbours))

    assert found == pytest.approx(math.sqrt(total / 4), rel=1e-14)
    assert not consensus.disagreement(theta, np.empty((0, 3))).any()
    assert not consensus.disagreement(theta, np.tile(theta, (5, 1))).any()


def test_optimality_sums_what_edges_still_pull():
    """Twice the penalty times how far each midpoint has come; nothing for no edges."""
    eta = np.array([1.0, 2.0, 0.5, 3.0])
    want = [
        math.fsum(2 * eta[k] * (NEW[k, x] - OLD[k, x]) for k in range(4))
        for x in range(3)
    ]

    assert_allclose(consensus.optimality(NEW - OLD, eta), want, rtol=1e-13)
    empty = consensus.optimality(np.empty((0, 3)), np.empty(0))
    assert_array_equal(empty, np.zeros(3))


@pytest.mark.parametrize("scheme", ["fixed", "nap", "auto"])
def test_residuals_of_all_nodes_sum_to_the_slope_of_the_sum(scheme):
    """Without a sign, for multipliers of the two ends of an edge cancel."""
    problems, topology = quadratics(6), Topology.cluster(6)
    used = {}

    def watch(t, nodes):
        slopes, residuals = np.zeros(2), np.zeros(2)
        for node in nodes:
            problem, before = node.problem, used.get(node.index)
            slopes += problem.A @ (node.theta - problem.b)
            if before is not None:
                residuals += consensus.optimality(node.drift, before)
                length = np.linalg.norm(consensus.optimality(node.drift, before))
                assert node.residual == pytest.approx(length, rel=1e-12)
            used[node.index] = node.eta.copy()
        if t > 1:
            largest = max(np.abs(node.multipliers).max() for node in nodes)
            assert_allclose(-residuals, slopes, atol=1e-12 * largest)

    settings = {"scheme": scheme, "tolerance": 0, "max_iter": 40}
    solve(problems, topology, callbacks=[watch], **settings)
