"""What solve refuses, each in one sentence."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import dadmm
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
    "tolerance must be a number of at most 1e308, got 1000": {"tolerance": 10**400},
    "tolerance must be a number, got Fraction": {"tolerance": Fraction(1, 3)},
    "unknown stopping array([1., 1.]); choose": {"stopping": np.ones(2)},
    "unknown payload []; choose": {"sending": []},
    "unknown scheme []; choose": {"scheme": []},
    "unknown wait array([1., 1.]); choose": {"wait": np.ones(2)},
    "record must be True or False, got 'no'": {"record": "no"},
    "record edges must be True or False, got 1": {"record_edges": 1},
    "observe must be a dict of functions of theta by name, got": {"observe": ["x"]},
    "observe needs names that the history does not have yet, got 'primal'": {
        "observe": {"primal": np.sum}
    },
    "comm must be a communicator of mpi4py, such as MPI.COMM_WORLD": {"comm": "world"},
    "checkpoints must be dadmm.Checkpoints(folder), got 'a'": {"checkpoints": "a"},
    "callbacks must be a list of functions of (t, run), got": {"callbacks": print},
    "callbacks must be a list of functions of (t, run), got [1]": {"callbacks": [1]},
    "a callback returned 0.0; return None, or one of save, stop,": {
        "callbacks": [lambda t, run: 0.0]
    },
}  # values out of range: see test_config.py
PROBLEMS = {
    "init must have shape (5, 2), got (5, 3)": {"init": np.zeros((5, 3))},
    "init must be one of merged, shared, independent, or numbers of": {
        "init": [[1.0], []]
    },
    "without comm, pass a list with one problem per node; w": {"problems": None},
    "3 of node 4 is no problem; a problem has a layout": {
        "problems": [*quadratics(4), 3]
    },
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


def test_an_old_argument_names_an_object_that_uses_it():
    sentence = "t_max is now a field .*, as in scheme=dadmm.penalty.VP.t_max=...."
    with pytest.raises(ConfigError, match=sentence):
        dadmm.solve(quadratics(5), RING, t_max=5)


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
