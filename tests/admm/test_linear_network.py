"""Regression over a network: the optimum of all rows, and stacks of problems."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dadmm import Topology, solve
from tests.support.linear import NAMES, SIZES, make, pooled
from tests.support.problems import distance


@pytest.mark.parametrize("name", NAMES)
def test_a_ring_finds_the_optimum_of_all_rows(name):
    """Which no node knows from its own rows."""
    cases = [make(name, (12, 4), seed, scale=1 / 6)[0] for seed in range(6)]
    problems = [case.problem for case in cases]
    eta0 = 0.3 if name == "logistic" else 4.0

    settings = {"scheme": "fixed", "eta0": eta0, "tolerance": 0, "max_iter": 400}
    result = solve(problems, Topology.ring(6), record=False, **settings)

    best = pooled(cases)
    assert distance(result.theta, best) < 1e-6
    own = [p.prox(best, None, best, 0.0) for p in problems]
    assert np.linalg.norm(own - best, axis=1).min() > 1e-2 * np.linalg.norm(best)
    assert name != "lasso" or 0 < np.count_nonzero(best) < 4


STACKED = ["least_squares", "ridge", "logistic"]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", STACKED)
def test_stacked_problems_give_the_same_bits(name, size):
    """Of any weights and starts together, and of objectives of several rows."""
    cases = [make(name, size, seed) for seed in range(5)]
    problems = [case.problem for case, _ in cases]
    centre = np.array([centre for _, centre in cases])
    theta = centre * np.array([[0.0], [1.0], [30.0], [300.0], [0.0]])
    weight = np.array([1e-8, 0.0, 1.0, 1e-3, 1e6])
    rows = np.stack([theta, centre, -2 * centre], axis=1)
    assert len({problem.kind for problem in problems}) == 1
    stacked = type(problems[0]).stack(problems)

    new = stacked.prox(theta, stacked.expect(theta), centre, weight)
    values = stacked.objectives(rows, None)

    for k, problem in enumerate(problems):
        one = problem.prox(theta[k], None, centre[k], float(weight[k]))
        assert_array_equal(new[k], one)
        assert_array_equal(values[k], problem.objectives(rows[k], None))
        first = stacked.objectives(rows[:, :1], None)[k]
        assert_array_equal(first, problem.objectives(rows[k, :1], None))


def test_only_problems_of_one_kind_are_stacked():
    """The number of rows matters to logistic regression only."""
    assert make("ridge", (9, 4))[0].problem.kind == make("ridge")[0].problem.kind
    assert make("ridge", (9, 3))[0].problem.kind != make("ridge")[0].problem.kind
    short, long = make("logistic", (9, 4))[0], make("logistic")[0]
    assert short.problem.kind != long.problem.kind


@pytest.mark.parametrize("name", STACKED)
def test_a_run_does_not_show_which_nodes_worked_together(name, monkeypatch):
    """Alone or as a crew, to the last bit."""
    problems = [make(name, (8, 3), seed)[0].problem for seed in range(5)]
    settings = {"scheme": "nap", "tolerance": 0, "max_iter": 30, "record": False}

    together = solve(problems, Topology.ring(5), **settings)
    monkeypatch.setattr(type(problems[0]), "kind", property(id))
    alone = solve(problems, Topology.ring(5), **settings)

    assert_array_equal(together.theta, alone.theta)
