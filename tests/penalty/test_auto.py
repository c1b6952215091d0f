"""The default scheme: it needs no penalty, no units, and few iterations."""

from __future__ import annotations

import math
from functools import cache
from statistics import median

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dadmm import Topology
from dadmm.admm.curvature import curvature
from dadmm.data.datasets import synthetic
from dadmm.data.shard import split
from dadmm.penalty import build, rules
from dadmm.problems import PPCA, metrics
from tests.support.problems import Quadratic, distance, optimum, quadratics
from tests.support.solving import solve


@cache
def dppca(n_nodes=20, n_samples=500):
    """Return the paper's synthetic problem and the subspace of all samples together."""
    samples, _ = synthetic(n_samples, 20, 5, seed=0)
    problems = [PPCA(own, 5) for own in split(samples, n_nodes)]
    return problems, metrics.ppca_reference(samples, 5).W


def auto(problems, topology, max_iter=60, **settings):
    """Solve with the default scheme for exactly so many iterations."""
    return solve(problems, topology, tolerance=0, max_iter=max_iter, **settings)


@pytest.mark.parametrize("kind", ["quadratics", "ppca"])
def test_the_starting_penalty_of_others_is_ignored(kind):
    problems = quadratics(6) if kind == "quadratics" else dppca(6, 120)[0]
    topology = Topology.cluster(6)
    plain = auto(problems, topology)

    for eta0 in (0.1, 1.0, 100.0, 1000.0):
        other = auto(problems, topology, eta0=eta0)
        assert_array_equal(other.theta, plain.theta)
        assert_array_equal(other.eta, plain.eta)


@pytest.mark.parametrize(
    ("f", "x"), [(1e-9, 1.0), (0.3, 1.0), (1e9, 1.0), (1.0, 1e-9), (1.0, 0.3), (1, 1e9)]
)
def test_other_units_give_the_same_run(f, x):
    problems, topology = quadratics(6, size=3), Topology.cluster(6)
    scaled = [Quadratic(f * problem.A / x**2, x * problem.b) for problem in problems]
    theta0 = np.random.default_rng(0).standard_normal((6, 3))

    plain = auto(problems, topology, 40, init=theta0)
    other = auto(scaled, topology, 40, init=x * theta0)

    assert_allclose(other.theta, x * plain.theta, rtol=1e-6)
    assert_allclose(other.eta, f * plain.eta / x**2, rtol=1e-3)


def first(problems, topology, **settings):
    """Return the penalties of iteration 1, (E,)."""
    result = auto(problems, topology, 1, record_edges=True, **settings)
    return result.history.edges["eta"][0]


def test_an_edge_starts_from_the_mean_of_its_ends_proposals():
    problems, topology = quadratics(5), Topology.star(5)
    theta0 = np.random.default_rng(0).standard_normal((5, 2))
    bends = [curvature(p, x) for p, x in zip(problems, theta0, strict=True)]
    proposed = [rules.initial_penalty(h, 1 if i else 4, 2) for i, h in enumerate(bends)]

    etas = first(problems, topology, init=theta0)

    want = [math.sqrt(proposed[i] * proposed[j]) for i, j in topology.edges]
    assert_allclose(etas, want, rtol=1e-14)


def test_without_any_curvature_eta0_takes_its_place():
    problems, topology = quadratics(4), Topology.chain(4)
    theta0 = np.array([problem.b for problem in problems])

    assert_array_equal(first(problems, topology, init=theta0, eta0=7.0), [7.0] * 6)
    result = auto(problems, topology, 300, init=theta0, eta0=7.0)
    assert distance(result.theta, optimum(problems)) < 1e-8


@pytest.mark.parametrize(
    ("mine", "theirs", "agreed"),
    [
        (4.0, 9.0, 6.0),
        (4.0, math.nan, 4.0),
        (math.nan, 9.0, 9.0),
        (math.nan, math.nan, 10.0),
        (1e-300, 1e300, 1.0),
        (1e300, 1e300, 1e300),
    ],
)
def test_both_ends_come_to_the_same_start(mine, theirs, agreed):
    scheme, anchors = build("auto"), np.zeros((1, 2))

    given = anchors, np.zeros_like(anchors)
    one = scheme.start({"eta": np.array([mine])}, np.array([theirs]), *given)
    other = scheme.start({"eta": np.array([theirs])}, np.array([mine]), *given)

    assert_array_equal(one["eta"], other["eta"])
    assert_allclose(one["eta"], [agreed], rtol=1e-14)


def iterations(problems, topology, reached, cap, **settings):
    """Return after how many iterations all nodes have reached something."""
    taken = []

    def watch(t, run):
        if not taken and reached(run.theta):
            taken.append(t)
        return "signal" if taken else None

    settings = {"record": False, "callbacks": [watch], **settings}
    auto(problems, topology, cap, **settings)
    return taken[0] if taken else math.inf


# of 20 starts: median iterations until every node is within one degree of the
# centralised subspace and within 1e-2 of the mean of all
AIMS = {
    ("complete", "shared"): 25,
    ("complete", "independent"): 40,
    ("cluster", "shared"): 40,
    ("cluster", "independent"): 75,
    ("ring", "shared"): 70,
    ("ring", "independent"): 160,
}


@pytest.mark.parametrize(
    ("graph", "init"),
    [
        ("complete", "shared"),
        ("cluster", "independent"),
        pytest.param("complete", "independent", marks=pytest.mark.slow),
        pytest.param("cluster", "shared", marks=pytest.mark.slow),
        pytest.param("ring", "shared", marks=pytest.mark.slow),
        pytest.param("ring", "independent", marks=pytest.mark.slow),
    ],
)
def test_the_papers_problem_takes_few_iterations(graph, init):
    problems, W = dppca()
    topology, layout = getattr(Topology, graph)(20), problems[0].layout

    def reached(theta):
        if metrics.consensus_error(theta) > 1e-2:
            return False
        return metrics.subspace_angle(layout.views(theta).W, W).max() <= 1.0

    cap = int(1.3 * AIMS[graph, init])
    settings = {"init": init, "cap": cap + 1}
    taken = [
        iterations(problems, topology, reached, seed=seed, **settings)
        for seed in range(5)
    ]

    assert median(taken) <= cap
