"""Regression over a network: the optimum of all rows, and stacks of problems."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dadmm import Topology, solve
from dadmm.penalty import SCHEMES
from tests.support.linear import NAMES, SIZES, make, pooled
from tests.support.problems import distance

STACKED = [n for n in NAMES if n.split()[0] in ("least_squares", "ridge", "logistic")]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", STACKED)
def test_stacked_problems_give_the_same_bits(name, size):
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
    name = "logistic with intercept"
    assert make(name, (9, 4))[0].problem.kind != make(name)[0].problem.kind
    wide = make("ridge", (9, 5))[0].problem
    assert make("ridge with intercept", (9, 4))[0].problem.kind != wide.kind


@pytest.mark.parametrize("name", STACKED)
def test_a_run_does_not_show_which_nodes_worked_together(name, monkeypatch):
    problems = [make(name, (8, 3), seed)[0].problem for seed in range(5)]
    settings = {"scheme": "nap", "tolerance": 0, "max_iter": 30, "record": False}

    together = solve(problems, Topology.ring(5), **settings)
    monkeypatch.setattr(type(problems[0]), "kind", property(id))
    alone = solve(problems, Topology.ring(5), **settings)

    assert_array_equal(together.theta, alone.theta)


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

    def watch(t, run):
        return "signal" if distance(run.theta, best) < 1e-7 else None

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
