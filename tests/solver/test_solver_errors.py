"""What solve refuses, each in one sentence."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from dadmm import Topology
from dadmm.core.errors import ConfigError, ProblemError, TopologyError
from tests.support.problems import Quadratic, quadratics
from tests.support.solving import solve

RING = Topology.ring(5)
OTHER = Quadratic(np.eye(3), np.zeros(3))  # with another layout

SETTINGS = {
    "watchers is now called callbacks": {"watchers": []},
    "eta0 must be a number, got None": {"eta0": None},
    "max_iter must be an integer, got 2.5": {"max_iter": 2.5},
    "max_iter must be from 1 to 1000000000": {"max_iter": 10**12},
}  # values out of range: see test_config.py
PROBLEMS = {
    "init must have shape (5, 2), got (5, 3)": {"init": np.zeros((5, 3))},
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
    refuse(ConfigError, sentence, **SETTINGS[sentence])


@pytest.mark.parametrize("sentence", PROBLEMS)
def test_problems_that_do_not_fit_the_call_are_refused(sentence):
    refuse(ProblemError, sentence, **PROBLEMS[sentence])


@pytest.mark.parametrize("n", [0, 4, 6])
def test_a_graph_of_another_size_is_refused(n):
    sentence = f"the graph has 5 nodes but {n} problems were given; pass one per node"
    refuse(TopologyError, sentence, problems=quadratics(n))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_an_objective_without_a_value_ends_the_run(value):
    problems, calls = quadratics(5), []

    def fail_late(rows, stats):
        calls.append(rows)
        return np.full(len(rows), value if len(calls) > 3 else 1.0)

    problems[2].objectives = fail_late
    sentence = f"node 2: the objective is {value} in iteration 4; the local problem has"
    refuse(ProblemError, sentence, problems=problems, tolerance=0, max_iter=9)
