"""What solve refuses, each in one sentence."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dadmm import Topology
from dadmm.core.errors import ConfigError, ProblemError, TopologyError
from tests.support.problems import Quadratic, quadratics
from tests.support.solving import solve

RING = Topology.ring(5)
OTHER = Quadratic(np.eye(3), np.zeros(3))  # with another layout

SETTINGS = [  # values out of range: see test_config.py
    ("eta0", {"eta0": "best"}),
    ("coordinates", {"coordinates": "full"}),
    ("bound_angle", {"bound_angle": 1}),
    ("max_iter", {"max_iter": 2.5}),
    ("max_iter", {"max_iter": 10**12}),
    ("tolerance", {"tolerance": 10**400}),
    ("tolerance", {"tolerance": Fraction(1, 3)}),
    ("stopping array", {"stopping": np.ones(2)}),
    ("payload", {"sending": []}),
    ("scheme", {"scheme": []}),
    ("scheme", {"scheme": "auto"}),
    ("wait array", {"wait": np.ones(2)}),
    ("record", {"record": "no"}),
    ("record edges", {"record_edges": 1}),
    ("observe", {"observe": ["x"]}),
    ("observe.*'primal'", {"observe": {"primal": np.sum}}),
    ("comm", {"comm": "world"}),
    ("checkpoints", {"checkpoints": "a"}),
    ("callbacks", {"callbacks": print}),
    ("callbacks", {"callbacks": [1]}),
    ("a callback returned 0.0", {"callbacks": [lambda t, run: 0.0]}),
]
PROBLEMS = [
    ("init", {"init": np.zeros((5, 3))}),
    ("init", {"init": [[1.0], []]}),
    ("without comm", {"problems": None}),
    ("3 of node 4", {"problems": [*quadratics(4), 3]}),
    ("without comm", {"problems": OTHER}),
    ("node 0 has Layout.*node 4", {"problems": [*quadratics(4), OTHER]}),
]


def refuse(error, culprit, **given):
    """Check that a run on five nodes is refused in one line that names the culprit."""
    with pytest.raises(error, match=culprit) as caught:
        solve(**{"problems": quadratics(5), "topology": RING, **given})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("culprit", "given"), SETTINGS)
def test_a_setting_that_is_unknown_or_out_of_range_is_refused(culprit, given):
    refuse(ConfigError, culprit, **given)


@pytest.mark.parametrize(("culprit", "given"), PROBLEMS)
def test_problems_that_do_not_fit_the_call_are_refused(culprit, given):
    refuse(ProblemError, culprit, **given)


@pytest.mark.parametrize("n", [0, 4, 6])
def test_a_graph_of_another_size_is_refused(n):
    refuse(TopologyError, f"5 nodes but {n}", problems=quadratics(n))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_an_objective_without_a_value_ends_the_run(value):
    problems, calls = quadratics(5), []

    def fail_late(rows, stats):
        calls.append(rows)
        return np.full(len(rows), value if len(calls) > 3 else 1.0)

    problems[2].objectives = fail_late
    culprit = f"node 2: .* {value} in iteration 4"
    given = {"tolerance": 0, "max_iter": 9, "scheme": "fixed"}
    refuse(ProblemError, culprit, problems=problems, **given)


def test_the_result_of_one_node_says_nothing_of_others():
    """As on a rank with gather="none"."""
    whole = solve(quadratics(5), RING)
    own = replace(whole, theta=whole.theta[2:3], nodes=np.array([2]))

    assert (own.of(2) == whole.of(2)).all()
    for other in (1, 3, -1):
        with pytest.raises(ConfigError, match=f"no parameters of node {other}; they"):
            own.of(other)


def test_a_graph_too_long_for_the_counter_of_the_agreement_is_refused():
    """Two bytes count hops; a collective needs no counter."""
    n = 65_536
    problems, graph = quadratics(1) * n, Topology.chain(n)
    settings = {"max_iter": 1, "record": False, "scheme": "fixed"}

    with pytest.raises(ConfigError, match="need 65535 iterations to agree on a stop"):
        solve(problems, graph, **settings)
    assert solve(problems, graph, agreement="global", **settings).iterations == 1
