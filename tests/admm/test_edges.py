"""What nodes measure at their edges."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dadmm import Topology
from tests.support.problems import quadratics, random_graph
from tests.support.runs import run_of

GRAPHS = {
    "pair": Topology.chain(2), "star": Topology.star(6),
    "random": random_graph(np.random.default_rng(3), 9),
}  # fmt: skip


def lengths(rows):
    return np.sqrt((rows**2).sum(axis=-1))


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("payload", ["float64", "float32"])
def test_what_a_node_can_know_of_its_edges(graph, payload):
    """After iterations with unlike penalties; neighbours may have rounded numbers."""
    topology = GRAPHS[graph]
    problems = quadratics(len(topology), 3)
    run = run_of(problems, topology, payload=payload, tolerance=0, max_iter=4)
    state, work, influence = run.state, run.work, run.edges.influence()

    both = run.by_edge(influence)
    assert_array_equal(both, both[topology.reverse])
    for row, theta in enumerate(state.theta):
        own = run.incidence.edges_of(row)
        sent, received, drift = state.sent[own], state.received[own], work.drift[own]
        behind, eta = theta - sent, state.eta[own]
        slope = 2 * (eta[:, None] * (drift + behind)).sum(axis=0)
        assert_allclose(work.stationarity[row], slope, rtol=1e-11, atol=1e-12)
        assert_allclose(work.residual[row], lengths(slope), rtol=1e-11)
        apart = np.sqrt(((theta - received) ** 2).mean(axis=0))
        lag = np.sqrt((behind**2).mean(axis=0))
        assert_allclose(work.disagreement[row], lengths(apart), rtol=1e-13)
        assert_allclose(work.lag[row], lengths(lag), rtol=1e-13)
        assert_allclose(work.difference[row], apart + lag, rtol=1e-13)
        assert (work.lag[row] > 0.0) == (payload == "float32")
        between = lengths(sent - received) / 2
        assert_allclose(influence[own], eta * (lengths(drift) + between), rtol=1e-13)
