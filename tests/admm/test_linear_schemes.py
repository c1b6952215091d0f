"""Every regression problem by every scheme ends at the optimum of all rows."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from dadmm import Topology, solve
from dadmm.admm import consensus
from dadmm.penalty import SCHEMES
from tests.support.linear import NAMES, make, pooled
from tests.support.problems import distance

GRAPHS = {"ring": Topology.ring(4), "cluster": Topology.cluster(4)}
PAIRS = [(name, "auto") for name in NAMES] + [("lasso", each) for each in SCHEMES]


@cache
def network(name, n):
    """Return n nodes' problems, and the optimum of all their rows by other means."""
    cases = [make(name, (12, 4), seed, scale=1 / n)[0] for seed in range(n)]
    return [case.problem for case in cases], pooled(cases)


def off(name, graph, most=1000, **settings):
    """Return the worst node's relative distance from the optimum, once below 1e-7."""
    problems, best = network(name, len(graph))

    def watch(t, nodes):
        near = distance(np.array([node.theta for node in nodes]), best) < 1e-7
        return "signal" if near else None

    eta0 = 0.3 if name.startswith("logistic") else 4.0
    result = solve(
        problems, graph, eta0=eta0, tolerance=0, max_iter=most, record=False,
        callbacks=[watch], **settings,
    )  # fmt: skip
    return distance(result.theta, best)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize(("name", "scheme"), dict.fromkeys(PAIRS))
def test_every_scheme_finds_the_optimum_of_all_rows(name, scheme, graph):
    """To 1e-6; f_i is a plain sum over rows, alpha is shared evenly by the nodes."""
    assert off(name, GRAPHS[graph], scheme=scheme) < 1e-6


@pytest.mark.parametrize("name", NAMES)
def test_a_broken_coupling_is_noticed(name, monkeypatch):
    """Ends that move their multipliers differently agree on another point."""
    ascend = consensus.ascend

    def uneven(multipliers, theta, neighbours, eta, out=None):
        """Let the end with the larger first entry take a longer step."""
        longer = 1.0 + 0.3 * (theta[:, 0] > neighbours[:, 0])
        return ascend(multipliers, theta, neighbours, eta * longer, out)

    monkeypatch.setattr(consensus, "ascend", uneven)

    assert off(name, GRAPHS["ring"], 300, scheme="auto") > 1e-4
