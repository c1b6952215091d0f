"""Nodes of one process whose problems are solved together, with the bits of each."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dadmm import Topology, solve
from dadmm.penalty import SCHEMES
from dadmm.problems import PPCA
from tests.support.problems import quadratics

SIZES = [(30, 5, 2), (4, 6, 2), (2, 6, 3), (1, 4, 1)]  # samples, dimension, components


class Alone(PPCA):
    """PPCA that is like no other, so that every node works by itself."""

    kind = property(id)


def shard(n, dimension, seed=0):
    """Return random samples, some directions longer than others."""
    rng = np.random.default_rng([seed, n, dimension])
    return rng.normal(size=(n, dimension)) * np.arange(1, dimension + 1)


@pytest.mark.parametrize("zero_mean", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_stacked_problems_give_the_same_bits(size, zero_mean):
    """Expectations, sweeps of any weight, and objectives of several rows."""
    n, dimension, M = size
    problems = [
        PPCA(shard(n, dimension, seed), M, zero_mean=zero_mean) for seed in range(4)
    ]
    rng = np.random.default_rng(0)
    theta = np.array([problem.init(rng) for problem in problems])
    centre, weight = rng.normal(size=theta.shape), np.array([0.0, 1e-6, 3.0, 1e6])
    rows = np.stack([theta, theta + 0.1, 2 * theta], axis=1)
    stacked = PPCA.stack(problems)

    stats = stacked.expect(theta)
    new = stacked.prox(theta, stats, centre, weight)
    values = stacked.objectives(rows, stats)

    for k, problem in enumerate(problems):
        alone = problem.expect(theta[k])
        for together, single in zip(stats, alone, strict=True):
            assert_array_equal(together[k], single)
        one = problem.prox(theta[k], alone, centre[k], float(weight[k]))
        assert_array_equal(new[k], one)
        assert_array_equal(values[k], problem.objectives(rows[k], alone))


def test_only_problems_of_one_kind_are_stacked():
    """That is the shape of their statistics, the number of components and the mean."""
    kind = PPCA(shard(9, 4), 2).kind

    assert kind == PPCA(shard(8, 4, seed=1), 2).kind
    assert kind != PPCA(shard(3, 4), 2).kind
    assert kind != PPCA(shard(9, 4), 1).kind
    assert kind != PPCA(shard(9, 4), 2, zero_mean=True).kind


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_run_does_not_show_which_nodes_worked_together(scheme):
    """Shards of several sizes and nodes of several degrees: some crews, some alone."""
    topology = Topology.cluster(6)
    shards = [shard(n, 4, seed) for seed, n in enumerate((9, 9, 9, 3, 3, 8))]
    settings = {"scheme": scheme, "max_iter": 60, "tolerance": 0, "record_edges": True}

    together = solve([PPCA(x, 2) for x in shards], topology, **settings)
    alone = solve([Alone(x, 2) for x in shards], topology, **settings)

    assert_array_equal(together.theta, alone.theta)
    assert_array_equal(together.history["dual"], alone.history["dual"])
    assert_array_equal(together.history.edges.rows, alone.history.edges.rows)


def test_a_problem_of_ones_own_need_not_be_stacked():
    """Without ``kind`` every node works by itself, whatever its class."""
    problems = quadratics(4)
    asked = []
    for i, problem in enumerate(problems):
        problem.expect = lambda theta, i=i: asked.append(i)

    solve(problems, Topology.complete(4), scheme="nap", tolerance=0, max_iter=2)

    assert asked == [0, 1, 2, 3] * 2
