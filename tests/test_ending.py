"""When a run ends, why, and after which iteration."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers import distance, optimum, quadratics

from dadmm import Topology, solve

RING = Topology.ring(5)
CHAIN = Topology.chain(4)  # its diameter is 3


@pytest.mark.parametrize("agreement", ["neighbours", "global"])
@pytest.mark.parametrize("stopping", ["residuals", "objective"])
def test_a_run_ends_when_all_are_satisfied(stopping, agreement):
    """The smaller the tolerance, the later and the closer."""
    problems = quadratics(5)
    settings = {"scheme": "fixed", "stopping": stopping, "agreement": agreement}
    loose = solve(problems, RING, tolerance=1e-3, **settings)
    tight = solve(problems, RING, tolerance=1e-8, **settings)

    assert loose.converged
    assert tight.reason == "converged"
    assert loose.iterations < tight.iterations < 300
    assert len(tight.history) == tight.iterations
    assert distance(tight.theta, optimum(problems)) < 1e-5


@pytest.mark.parametrize("agreement", ["neighbours", "global"])
@pytest.mark.parametrize("stopping", ["residuals", "objective"])
def test_tolerance_zero_runs_exactly_max_iter_iterations(stopping, agreement):
    """Even long after nothing moves any more, and that is not called convergence."""
    settings = {"stopping": stopping, "agreement": agreement}
    result = solve(
        quadratics(2), Topology.chain(2), tolerance=0, max_iter=400, **settings
    )

    assert result.iterations == 400
    assert (result.reason, result.converged) == ("max_iter", False)


def test_a_watcher_sees_every_iteration_and_can_end_the_run():
    """Its word takes a diameter to get round, in one process as over MPI."""
    seen = []

    def watch(t, nodes):
        seen.append((t, [node.index for node in nodes]))
        return "signal" if t == 7 else None

    result = solve(quadratics(4), CHAIN, tolerance=0, watchers=[watch])

    assert result.iterations == 7 + CHAIN.diameter
    assert (result.reason, result.converged) == ("signal", False)
    assert seen == [(t, [0, 1, 2, 3]) for t in range(1, 11)]


def test_the_wish_of_one_node_reaches_all():
    """With its reason, from one end of the chain to the other."""

    def watch(t, nodes):
        if t == 7:
            nodes[-1].ask_to_stop(t, "signal")

    result = solve(quadratics(4), CHAIN, tolerance=0, watchers=[watch])

    assert (result.reason, result.iterations) == ("signal", 7 + CHAIN.diameter)


def test_a_node_is_satisfied_by_the_stated_lengths():
    """All of DESIGN.md's rule, measured anew from what each node has."""
    tolerance, last, verdicts = 0.05, {}, []

    def watch(t, nodes):
        for node in nodes:
            f, before = node.objective, last.get(node.index, math.inf)
            pull = np.linalg.norm(2 * node.multipliers.sum(axis=0))
            length = max(np.linalg.norm(node.theta), np.linalg.norm(node.mean))
            clauses = (
                abs(f - before) < tolerance * max(abs(f), 1),
                node.primal < tolerance * length,
                node.dual < tolerance * max(pull, 1),
            )
            verdicts.append(clauses)
            last[node.index] = f
            assert node.satisfied == all(clauses)

    solve(quadratics(5), RING, tolerance=tolerance, max_iter=60, watchers=[watch])

    assert len(set(verdicts)) > 4


def test_a_time_limit_ends_the_run():
    """After the iteration in which it is up, and a diameter more."""
    result = solve(quadratics(4), CHAIN, tolerance=0, max_seconds=1e-9)

    assert (result.reason, result.iterations) == ("max_seconds", 1 + CHAIN.diameter)
