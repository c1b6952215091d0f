"""What solve refuses, each in one sentence."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from dadmm import Topology, solve
from dadmm.core.errors import ConfigError, ProblemError, TopologyError
from tests.support.problems import Quadratic, quadratics

RING = Topology.ring(5)
OTHER = Quadratic(np.eye(3), np.zeros(3))  # with another layout

SETTINGS = {
    "unknown scheme 'admm'; choose one of fixed, vp, ap,": {"scheme": "admm"},
    "eta0 must be positive and finite, got 0": {"eta0": 0},
    "t_max must be at least 0, got -1": {"t_max": -1},
    "residual_ratio must be greater than 1, got 1": {"residual_ratio": 1},
    "budget0 must be at least 0, got -1": {"budget0": -1},
    "budget_decay must be within [0, 1), got 1": {"budget_decay": 1},
    "budget_trigger must be at least 0 (inf is allowed)": {"budget_trigger": -1},
    "unknown stopping 'x'; choose one of optimality,": {"stopping": "x"},
    "tolerance must be at least 0, got -1": {"tolerance": -1},
    "wait = nap is now called wait = poll": {"wait": "nap"},
    "watchers is now called callbacks": {"watchers": []},
    "unknown init 'x'; choose one of shared, independent": {"init": "x"},
    "unknown agreement 'x'; choose one of neighbours,": {"agreement": "x"},
    "unknown coupling 'x'; choose one of symmetric, own": {"coupling": "x"},
    "unknown probe 'x'; choose one of midpoint,": {"probe": "x"},
    "max_iter must be at least 1, got 0": {"max_iter": 0},
    "max_seconds must be positive, got 0.0": {"max_seconds": 0.0},
    "max_seconds must be positive, got nan": {"max_seconds": math.nan},
    "seed must be at least 0, got -1": {"seed": -1},
}
PROBLEMS = {
    "theta0 must have shape (5, 2), got (5, 3)": {"theta0": np.zeros((5, 3))},
    "without comm, pass a list with one problem per node;": {"problems": OTHER},
    "all nodes must share one layout, but node 0 has Layout.of(x=(2,)) and node 4 "
    "has Layout.of(x=(3,))": {"problems": [*quadratics(4), OTHER]},
}


def refuse(error, sentence, **given):
    """Check that a run on five nodes is refused in this sentence."""
    with pytest.raises(error, match=re.escape(sentence)) as caught:
        solve(**{"problems": quadratics(5), "topology": RING, **given})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("sentence", SETTINGS)
def test_a_setting_that_is_unknown_or_out_of_range_is_refused(sentence):
    """By its name, with the rule and the value, or with the values there are."""
    refuse(ConfigError, sentence, **SETTINGS[sentence])


@pytest.mark.parametrize("sentence", PROBLEMS)
def test_problems_that_do_not_fit_the_call_are_refused(sentence):
    """Their number, their layouts, and where they start."""
    refuse(ProblemError, sentence, **PROBLEMS[sentence])


@pytest.mark.parametrize("n", [0, 4, 6])
def test_a_graph_of_another_size_is_refused(n):
    """There is one problem per node."""
    sentence = f"the graph has 5 nodes but {n} problems were given; pass one per node"
    refuse(TopologyError, sentence, problems=quadratics(n))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_an_objective_without_a_value_ends_the_run(value):
    """With the node and the iteration in which it happened."""
    problems, calls = quadratics(5), []

    def fail_late(rows, stats):
        calls.append(rows)
        return np.full(len(rows), value if len(calls) > 3 else 1.0)

    problems[2].objectives = fail_late
    sentence = f"node 2: the objective is {value} in iteration 4; the local problem has"
    refuse(ProblemError, sentence, problems=problems, tolerance=0, max_iter=9)
