"""Local problems that are stacked, solved alone, or break down."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import dadmm
from dadmm import Topology, solve
from dadmm.penalty import SCHEMES
from dadmm.problems import PPCA

SIZES = [(30, 5, 2), (4, 6, 2), (2, 6, 3), (1, 4, 1)]  # samples, dimension, components


class Alone(PPCA):
    """PPCA that is like no other, so that it is never stacked."""

    kind = property(id)


def shard(n, dimension, seed=0):
    """Return random samples, some directions longer than others."""
    rng = np.random.default_rng([seed, n, dimension])
    return rng.normal(size=(n, dimension)) * np.arange(1, dimension + 1)


@pytest.mark.parametrize("zero_mean", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_stacked_problems_give_the_same_bits(size, zero_mean):
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
def test_a_run_does_not_show_which_problems_were_stacked(scheme):
    """Shards of several sizes, nodes of several degrees: some stacked, some alone."""
    topology = Topology.cluster(6)
    shards = [shard(n, 4, seed) for seed, n in enumerate((9, 9, 9, 3, 3, 8))]
    settings = {"scheme": scheme, "max_iter": 60, "tolerance": 0, "record_edges": True}

    together = solve([PPCA(x, 2) for x in shards], topology, **settings)
    alone = solve([Alone(x, 2) for x in shards], topology, **settings)

    assert_array_equal(together.theta, alone.theta)
    assert_array_equal(together.history["dual"], alone.history["dual"])
    assert_array_equal(together.history.edges.rows, alone.history.edges.rows)


def test_a_subclass_with_its_own_step_is_not_stacked():
    """Stacking would call the methods of the parent."""
    asked = []

    class Own(PPCA):
        def prox(self, *given):
            asked.append(self)
            return super().prox(*given)

    problems = [Own(shard(6, 3, seed), 1) for seed in range(4)]
    solve(problems, Topology.ring(4), scheme="fixed", tolerance=0, max_iter=2)

    assert sorted(asked, key=id) == sorted(problems * 2, key=id)


@pytest.mark.parametrize("samples", [np.zeros((5, 3)), np.ones((5, 3))])
def test_samples_that_are_all_alike_are_refused_in_one_sentence(samples):
    """Alone, such a node has no finite minimum; the error names it."""
    with pytest.raises(dadmm.ProblemError, match=r"node 0"):
        dadmm.solve([PPCA(samples, 1)], dadmm.Topology.complete(1), max_iter=5000)


def test_a_problem_with_a_kind_but_no_stack_runs_node_by_node():
    """`kind` is a common word; alone it promises nothing."""
    problems = [PPCA(x, 1) for x in np.random.default_rng(0).standard_normal((3, 6, 3))]

    class Wrapped:
        kind = "mine"

        def __init__(self, inner):
            self.layout, self.init = inner.layout, inner.init
            self.expect, self.prox = inner.expect, inner.prox
            self.objectives = inner.objectives

    topology = dadmm.Topology.ring(3)
    plain = dadmm.solve(problems, topology, max_iter=5)
    wrapped = dadmm.solve([Wrapped(p) for p in problems], topology, max_iter=5)

    assert (plain.theta == wrapped.theta).all()


def test_starting_parameters_must_be_finite():
    problems = [PPCA(x, 1) for x in np.random.default_rng(0).standard_normal((3, 6, 3))]
    theta0 = np.ones((3, problems[0].layout.size))
    theta0[1, 2] = np.nan

    with pytest.raises(dadmm.ProblemError, match="node 1 is not"):
        dadmm.solve(problems, dadmm.Topology.ring(3), theta0=theta0)
