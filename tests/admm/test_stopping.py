"""The verdict of a node, and the agreement of all nodes by headers of messages."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dadmm.admm.rule import FRACTION, Rule, over
from dadmm.admm.state import Work
from dadmm.admm.stopping import PATIENCE, REQUESTS, NeighbourStopping
from dadmm.comm.sending import Turn
from dadmm.comm.wire import IDLE, Box
from dadmm.core.layout import Layout
from dadmm.graphs.incidence import Incidence
from tests.support.problems import distances, random_graph

# At tolerance 0.1 a node is satisfied with this: all lengths are half of their limits.
CALM = {
    "objective": 10.0, "previous": 10.5, "primal": 0.5, "dual": 0.5, "theta": 10.0,
    "mean": 10.0, "multipliers": 10.0,  # 2 lambda_i
    "disagreement": 0.5, "residual": 0.5,
}  # fmt: skip


def holds(rule, now, size=4):
    """Return the verdict of a node with one part, by both forms of the rule."""
    names = ("theta", "mean", "multipliers", "disagreement", "residual")
    lengths, work = np.array([now[name] for name in names]), Work(1, 0, 1, 1)
    lengths[2] /= 2.0
    work.judged[...], work.tolerance[...] = now["objective"], rule.tolerance
    for name in ("previous", "primal", "dual"):
        getattr(work, name)[...] = now[name]
    work.lengths[:5], work.parts[...] = lengths[:, None], lengths[:, None, None]
    sizes = np.array([[math.sqrt(size)]])
    (found,) = rule.met(work, sizes).tolist()
    multiples = np.array(rule.verdict(work, sizes)[:3])
    assert found == np.all((multiples < 1.0) | np.isnan(multiples))
    return found


@pytest.mark.parametrize(
    ("change", "met"),  # by "residuals", "objective" and "optimality"
    [
        ({}, (1, 1, 1)),
        ({"previous": 11.0}, (0, 0, 0)),  # |change| = 0.1 |f| exactly
        ({"previous": 9.0}, (0, 0, 0)),
        ({"previous": math.inf}, (0, 0, 0)),  # there is none at t = 1
        ({"objective": -10.0, "previous": -10.5}, (1, 1, 1)),
        ({"objective": 0.0, "previous": 0.09}, (1, 1, 1)),  # |f| below 1
        ({"objective": 0.0, "previous": 0.11}, (0, 0, 0)),
        ({"primal": 1.0}, (0, 1, 1)),
        ({"primal": 1.0, "theta": 10.1}, (1, 1, 1)),
        ({"primal": 1.0, "mean": 10.1}, (1, 1, 1)),
        ({"dual": 1.0}, (0, 1, 1)),
        ({"dual": 1.0, "multipliers": 10.1}, (1, 1, 1)),
        ({"dual": 0.09, "multipliers": 0.0}, (1, 1, 0)),  # multipliers below 1
        ({"dual": 0.11, "multipliers": 0.0}, (0, 1, 0)),
        ({"disagreement": 1.0}, (1, 1, 0)),
        ({"disagreement": 1.0, "theta": 10.1}, (1, 1, 1)),
        ({"disagreement": 1.0, "mean": 10.1}, (1, 1, 1)),
        ({"residual": 1.0}, (1, 1, 0)),
        ({"residual": 1.0, "multipliers": 10.1}, (1, 1, 1)),
        ({"dual": 0.0, "residual": 0.0, "multipliers": 0.0}, (1, 1, 0)),  # not below 0
    ],
)
def test_each_clause_counts_and_is_strict(change, met):
    rules = ("residuals", "objective", "optimality")
    assert tuple(holds(Rule(name, 0.1, 0.0), CALM | change) for name in rules) == met


@pytest.mark.parametrize("name", ["disagreement", "residual"])
@pytest.mark.parametrize(
    ("rule", "length", "size", "limit"),
    [
        (Rule("optimality", 0.1, 0.01), length, size, 0.01 * size**0.5 + 0.1 * length)
        for length in (0.0, 10.0)
        for size in (1, 100)
    ]
    + [(Rule("optimality", 0.1, scaled=True), 0.0, 4, 0.1 * FRACTION * 4.0)],
)
def test_the_absolute_tolerance_is_per_entry_and_adds_to_the_relative(
    rule, name, length, size, limit
):
    """Near zero, a scaled limit follows the length that would explain all of f."""
    still = dict.fromkeys(("disagreement", "residual"), 0.0)
    others = dict.fromkeys(("mean", "multipliers"), 10.0 if rule.scaled else length)
    now = CALM | still | others | {"objective": 8.0, "previous": 8.0, "theta": length}

    for times, met in ((0.999, True), (1.001, False)):
        assert holds(rule, now | {name: times * limit}, size=size) == met


RULE = Rule("objective", 0.5)  # |f - f_previous| < 1/2 if |f| is below 1


def stopping(node, degree, reach):
    """Return the stopping of a process with one node, with a record of its own."""
    state = SimpleNamespace(
        header=np.full(1, IDLE), objective=np.zeros(1), held=np.zeros(1, int)
    )
    given = SimpleNamespace(
        state=state, work=Work(1, degree, 1, 1), layout=Layout.of(x=(1,)),
        names=np.array([node]), incidence=Incidence(np.array([degree])),
    )  # fmt: skip
    return NeighbourStopping(given, RULE, reach)


def agree(topology, content, requests):
    """Return when and why each node is done, and how quiet it was (t, n_nodes).

    ``content`` (t, n_nodes) has the verdicts, ``requests`` are (t, node, request).
    """
    near, reach = topology.neighbours, topology.diameter
    nodes = [stopping(i, len(around), reach) for i, around in enumerate(near)]
    ends, quiet = [None] * len(near), np.zeros(content.shape)
    for t, verdicts in enumerate(content, start=1):
        headers = np.concatenate([node.state.header for node in nodes])
        for i, node in enumerate(nodes):
            box = Box(len(near[i]), 1)
            box.header[...] = headers[list(near[i])]
            node.work.objective[...] = 0.0 if verdicts[i] else 1.0
            node.judge(box, Turn(t))
            done, due = node.done(t), node.due_request(t)
            assert node.due_request(t) == ""  # it is carried out once
            quiet[t - 1, i] = node.work.quiet[0]
            if (done or due) and ends[i] is None:
                ends[i] = t, "converged" if done else due
        for _, i, request in (request for request in requests if request[0] == t):
            verdict = nodes[i]._fields[["quiet_count", "stop_at"]].copy()
            nodes[i].request(t, request)
            assert_array_equal(nodes[i]._fields[["quiet_count", "stop_at"]], verdict)
    return ends, quiet


def expected_quiet(content, apart):
    """Return for how many steps back, one edge wider each, all nodes were patient."""
    patient = np.zeros(content.shape, dtype=bool)
    for t in range(PATIENCE - 1, len(content)):
        patient[t] = content[t - PATIENCE + 1 : t + 1].all(axis=0)
    found, holds = np.zeros(content.shape, dtype=int), np.ones(content.shape, bool)
    for back in range(len(content)):
        near = apart <= back  # i and j
        spoilt = (~patient[: len(content) - back, None, :] & near).any(axis=2)
        holds[:back] = False
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


@pytest.mark.parametrize("seed", range(25))
def test_all_nodes_stop_after_the_same_iteration_for_the_same_reason(seed):
    """Verdicts settle node by node or flicker for ever; up to three nodes request."""
    rng = np.random.default_rng(seed)
    topology = random_graph(rng, int(rng.integers(1, 11)))
    n = len(topology)
    settled = np.arange(70)[:, None] >= rng.integers(45, size=n) + 100 * (seed % 5 == 0)
    content = settled | (rng.random(settled.shape) < rng.uniform(0.3, 0.97))
    reasons = rng.choice(REQUESTS[1:], size=rng.integers(4)).tolist()
    times = rng.integers(5, 40) + rng.integers(3, size=len(reasons))
    nodes = rng.integers(n, size=len(reasons))
    requests = list(zip(times.tolist(), nodes.tolist(), reasons, strict=True))

    ends, quiet = agree(topology, content, requests)

    assert_array_equal(quiet, expected_quiet(content, distances(topology)))
    end = expected_end(quiet, requests, topology.diameter)
    assert ends == [end] * n
    if end is not None and end[1] == "converged":
        assert content[: end[0] - topology.diameter].all(axis=1).any()


@pytest.mark.filterwarnings("error")
def test_a_length_over_a_tiny_limit_overflows_without_a_warning():
    found = over([1e10, np.nan, 1.0], [1e-300, 1.0, 2.0])
    assert found.tolist() == [math.inf, math.inf, 0.5]
