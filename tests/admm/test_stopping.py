"""A node's verdict, and the agreement of all nodes through their neighbours alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dadmm import Topology
from dadmm.admm import stopping
from dadmm.admm.stopping import (
    PATIENCE,
    REQUESTS,
    GlobalStopping,
    Part,
    Progress,
    Rule,
    StopState,
)
from dadmm.core.errors import ConfigError
from tests.support.agreement import agree
from tests.support.problems import distances, random_graph

# At tolerance 0.1 a node is content with this: all lengths are half of their limits.
CALM = Progress(
    objective=10.0,
    objective_previous=10.5,
    primal=0.5,
    dual=0.5,
    theta=10.0,
    mean=10.0,
    multipliers=10.0,
    parts=(Part(0.5, 0.5, theta=10.0, mean=10.0, multipliers=10.0, size=4),),
)


def changed(now, **change):
    """Return the progress with other lengths, of the whole and of its one part."""
    whole = {k: v for k, v in change.items() if k in Progress._fields}
    part = {k: v for k, v in change.items() if k in Part._fields}
    return now._replace(**whole, parts=(now.parts[0]._replace(**part),))


STILL = changed(
    CALM, objective_previous=10.0, primal=0.0, dual=0.0, disagreement=0.0, residual=0.0
)


@pytest.mark.parametrize(
    ("change", "residuals", "objective"),
    [
        ({}, True, True),
        ({"objective_previous": 11.0}, False, False),  # |change| = 0.1 |f| exactly
        ({"objective_previous": 9.0}, False, False),
        ({"objective_previous": math.inf}, False, False),  # there is none at t = 1
        ({"objective": -10.0, "objective_previous": -10.5}, True, True),
        ({"objective": 0.0, "objective_previous": 0.09}, True, True),  # |f| below 1
        ({"objective": 0.0, "objective_previous": 0.11}, False, False),
        ({"primal": 1.0}, False, True),
        ({"primal": 1.0, "theta": 10.1}, True, True),
        ({"primal": 1.0, "mean": 10.1}, True, True),
        ({"dual": 1.0}, False, True),
        ({"dual": 1.0, "multipliers": 10.1}, True, True),
        ({"dual": 0.09, "multipliers": 0.0}, True, True),  # multipliers below 1
        ({"dual": 0.11, "multipliers": 0.0}, False, True),
    ],
)
def test_each_clause_counts_and_is_strict(change, residuals, objective):
    """A length at its limit is too long, though the paper looks at f only."""
    now = changed(CALM, **change)

    assert Rule("residuals", 0.1).holds(now) is residuals
    assert Rule("objective", 0.1).holds(now) is objective


@pytest.mark.parametrize(
    ("change", "holds"),
    [
        ({}, True),
        ({"objective_previous": 11.0}, False),  # |change| = 0.1 |f| exactly
        ({"objective_previous": math.inf}, False),  # there is none at t = 1
        ({"disagreement": 1.0}, False),
        ({"disagreement": 1.0, "theta": 10.1}, True),
        ({"disagreement": 1.0, "mean": 10.1}, True),
        ({"residual": 1.0}, False),
        ({"residual": 1.0, "multipliers": 10.1}, True),
        ({"residual": 0.0, "multipliers": 0.0}, False),  # 0 is not below 0
        ({"primal": 99.0, "dual": 99.0}, True),  # the paper's lengths do not count
    ],
)
def test_each_clause_of_optimality_counts_and_is_strict(change, holds):
    """Relative to theta and to the multipliers; with no absolute part."""
    assert Rule("optimality", 0.1, 0.0).holds(changed(CALM, **change)) is holds


@pytest.mark.parametrize("name", ["disagreement", "residual"])
@pytest.mark.parametrize("length", [0.0, 10.0])
@pytest.mark.parametrize("size", [1, 4, 100])
def test_the_absolute_tolerance_is_per_entry_and_adds_to_the_relative(
    name, length, size
):
    """Its limit is the root of the size; alone it decides where the optimum is zero."""
    lengths = {"theta": length, "mean": length, "multipliers": length, "size": size}
    now = changed(STILL, **lengths)
    rule, limit = Rule("optimality", 0.1, 0.01), 0.01 * math.sqrt(size) + 0.1 * length

    assert rule.holds(changed(now, **{name: 0.999 * limit}))
    assert not rule.holds(changed(now, **{name: 1.001 * limit}))


def test_every_part_counts_by_itself():
    """A large mean must not hide that the directions still disagree."""
    (calm,) = CALM.parts
    large = calm._replace(theta=1e6, mean=1e6, disagreement=1.0)
    small = calm._replace(theta=1.0, mean=1.0, disagreement=1.0)
    rule = Rule("optimality", 0.1)

    assert rule.holds(CALM._replace(parts=(calm, large)))
    assert not rule.holds(CALM._replace(parts=(calm, large, small)))


@pytest.mark.parametrize("tolerance", [-1e-3, math.inf, math.nan])
def test_unusable_rules_are_refused(tolerance):
    with pytest.raises(ConfigError, match=f"^tolerance must be .*got {tolerance!r}$"):
        Rule("residuals", tolerance)
    with pytest.raises(ConfigError, match=r"^unknown stopping 'never'; choose one of "):
        Rule("never", 0.1)


def run(topology, content, requests=()):
    """Return when and why each node is done, and how quiet it was (t, n_nodes)."""
    return agree([topology.neighbours], topology.diameter, content, requests)


def expected_quiet(content, apart):
    """Return for how many steps back, one edge wider each, all nodes were patient."""
    patient = np.zeros(content.shape, dtype=bool)
    for t in range(PATIENCE - 1, len(content)):
        patient[t] = content[t - PATIENCE + 1 : t + 1].all(axis=0)
    found, holds = (
        np.zeros(content.shape, dtype=int),
        np.ones(content.shape, dtype=bool),
    )
    for back in range(len(content)):
        holds[:back] = False
        near = apart <= back  # i and j
        spoilt = (~patient[: len(content) - back, None, :] & near).any(axis=2)
        holds[back:] &= ~spoilt
        found += holds
    return found


def expected_end(quiet, requests, diameter):
    """Return when and why all must stop, from what any node knows or wants."""
    known = np.flatnonzero((quiet > diameter).any(axis=1)) + 1
    length = max(diameter, 1)
    ends = [(t + diameter, "converged") for t in known[:1].tolist()]
    ends += [((t // length + 2) * length, request) for t, _, request in requests]
    first = min((t for t, _ in ends), default=math.inf)
    why = [reason for t, reason in ends if t == first]
    if first > len(quiet):
        return None
    return first, "converged" if "converged" in why else max(why, key=REQUESTS.index)


def moody(rng, n_nodes):
    """Return random verdicts that settle node by node, or flicker for ever."""
    t = np.arange(70)[:, None]
    settled = t >= rng.integers(45, size=n_nodes) + 100 * (rng.random() < 0.2)
    return settled | (rng.random(settled.shape) < rng.uniform(0.3, 0.97))


def impatient(rng, n_nodes):
    """Return up to three requests, at about the same time."""
    reasons = rng.choice(REQUESTS[1:], size=rng.integers(4)).tolist()
    times = rng.integers(5, 40) + rng.integers(3, size=len(reasons))
    nodes = rng.integers(n_nodes, size=len(reasons))
    return list(zip(times.tolist(), nodes.tolist(), reasons, strict=True))


@pytest.mark.parametrize("seed", range(25))
def test_all_nodes_stop_after_the_same_iteration_for_the_same_reason(seed):
    rng = np.random.default_rng(seed)
    topology = random_graph(rng, int(rng.integers(1, 11)))
    content, requests = moody(rng, len(topology)), impatient(rng, len(topology))

    ends, quiet = run(topology, content, requests)

    assert_array_equal(quiet, expected_quiet(content, distances(topology)))
    end = expected_end(quiet, requests, topology.diameter)
    assert ends == [end] * len(topology)
    if end is not None and end[1] == "converged":
        assert content[: end[0] - topology.diameter].all(axis=1).any()


def test_of_a_round_the_gravest_wish_counts():
    """A signal takes precedence over the time limit; later requests are late."""
    content = np.zeros((20, 6), dtype=bool)
    both = [(3, 0, "max_seconds"), (4, 5, "signal")]
    late = [(4, 0, "max_seconds"), (5, 5, "output"), (5, 0, "signal")]

    assert run(Topology.chain(6), content, both)[0] == [(10, "signal")] * 6
    assert run(Topology.chain(6), content, late)[0] == [(10, "max_seconds")] * 6


def test_a_wish_is_fulfilled_once_and_leaves_the_verdict_alone():
    """So that a run that was saved, or stopped and resumed, converges as it would."""
    mine = StopState(streak=6, quiet_count=3.0, stop_at=40.0)

    asked = stopping.add_request(
        stopping.add_request(mine, 7, "save", 5), 11, "signal", 5
    )

    assert stopping.due_request(asked, 14, 5) == ("", asked)
    request, left = stopping.due_request(asked, 15, 5)
    assert request == "save"
    assert left == stopping.add_request(mine, 11, "signal", 5)
    assert stopping.due_request(left, 20, 5) == ("signal", mine)


def test_the_council_waits_until_all_are_content_in_a_row():
    global_stopping = GlobalStopping(Rule("residuals", 0.1))
    votes = [[1, 1]] * 3 + [[1, 0]] + [[1, 1]] * 4

    heard = [global_stopping.update(np.array(row, dtype=float)) for row in votes]

    assert heard == [False] * 7 + [True]


def test_the_council_of_the_paper_looks_at_the_sum_of_objectives():
    """Nodes may still move against each other; the first sum has none before it."""
    global_stopping = GlobalStopping(Rule("objective", 0.1))
    votes = [[50, 50], [70, 31], [20, 82], [60, 41], [10, 91], [0, 150]]

    heard = [global_stopping.update(np.array(row, dtype=float)) for row in votes]

    assert heard == [False] * 4 + [True, False]
