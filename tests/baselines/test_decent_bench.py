"""EXTRA and NIDS beside the same methods of decent-bench, where it is installed."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dadmm import Topology, baselines
from dadmm.baselines import ALGORITHMS
from dadmm.problems import LeastSquares

WHY = "decent-bench, which needs Python 3.13, is not installed"
p2p = pytest.importorskip("decent_bench.algorithms.p2p", reason=WHY)
N, ITERATIONS = 6, 100


def rows(i):
    rng = np.random.default_rng([3, i])
    X = rng.standard_normal((12, 4))
    return X, X @ np.array([1.0, -2.0, 0.0, 0.5]) + 0.3 * rng.standard_normal(12)


def theirs(method):
    """Return the estimates (iterations, nodes, 4) of a method of decent-bench."""
    import decent_array.interoperability as iop
    import networkx as nx
    from decent_bench.agents import Agent
    from decent_bench.costs import QuadraticCost
    from decent_bench.networks import P2PNetwork

    iop.set_backend("numpy")
    agents = []
    for X, y in map(rows, range(N)):
        cost = QuadraticCost(iop.from_numpy(X.T @ X), iop.from_numpy(-X.T @ y))
        agents.append(Agent(cost))
    ring, seen = P2PNetwork(nx.cycle_graph(N), agents), []

    def look(_):
        seen.append([iop.to_numpy(agent.x).copy() for agent in ring.agents()])

    method.run(ring, ITERATIONS + 1, progress_callback=look)
    return np.array(seen)


@pytest.mark.parametrize(("name", "ahead"), [("extra", 0), ("nids", 1)])
def test_estimates_are_those_of_decent_bench(name, ahead):
    """NIDS takes its first step before the first message; decent-bench counts it."""
    seen = []
    run = baselines.solve(
        [LeastSquares(*rows(i), fit_intercept=False) for i in range(N)],
        Topology.ring(N), ALGORITHMS[name](), max_iter=ITERATIONS, coordinates="raw",
        callbacks=[lambda t, run: seen.append(run.theta)],
    )  # fmt: skip
    step = ALGORITHMS[name]().step / run.curvature
    found = theirs(getattr(p2p, name.upper())(step_size=step))

    assert_allclose(seen, found[ahead : ahead + ITERATIONS], rtol=0, atol=1e-9)
