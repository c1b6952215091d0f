"""Over-relaxation: the textbook's iterations."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dadmm import Topology
from tests.support.problems import quadratics
from tests.support.solving import solve


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


@pytest.mark.parametrize("alpha", [0.1, 1.0, 1.6, 1.99])
@pytest.mark.parametrize("graph", ["ring", "cluster", "star"])
def test_a_fixed_penalty_over_relaxed_is_the_textbooks(graph, alpha):
    """One multiplier and one anchor per edge are enough, for all iterations alike."""
    problems, topology = quadratics(6, size=3), getattr(Topology, graph)(6)
    seen = []

    def watch(t, run):
        seen.append(run.theta)

    settings = {"scheme": "fixed", "relaxation": alpha, "tolerance": 0}
    solve(problems, topology, max_iter=30, callbacks=[watch], **settings)

    want = textbook(problems, topology, 10.0, alpha, 30)
    assert_allclose(seen, want, rtol=0, atol=1e-12 * np.abs(want).max())
