"""Local problems that break down, or that must not be stacked."""

from __future__ import annotations

import numpy as np
import pytest

import dadmm
from dadmm.admm.crew import Crew, crews
from dadmm.admm.node import Node
from dadmm.admm.stopping import Rule
from dadmm.exchange import InProcessExchange, wire
from dadmm.exchange.links import Links
from dadmm.penalty import build
from dadmm.problems import PPCA, metrics

RNG = np.random.default_rng(0)


def nodes_of(problems):
    """Return the nodes of a ring with these problems."""
    topology = dadmm.Topology.ring(len(problems))
    exchange = InProcessExchange(topology, wire.width(problems[0].layout.size))
    return [
        Node(i, p, p.init(RNG), build("fixed"), Rule(), diameter=topology.diameter,
             links=Links(exchange, i, p.layout))
        for i, p in enumerate(problems)
    ]  # fmt: skip


@pytest.mark.parametrize("samples", [np.zeros((5, 3)), np.ones((5, 3))])
def test_samples_that_are_all_alike_are_refused_in_one_sentence(samples):
    """Alone, such a node has no finite minimum; the error names it."""
    with pytest.raises(dadmm.ProblemError, match=r"node 0"):
        dadmm.solve([PPCA(samples, 1)], dadmm.Topology.complete(1), max_iter=5000)


def test_a_subclass_with_its_own_step_is_not_stacked():
    """Stacking would call the methods of the parent."""

    class Own(PPCA):
        def prox(self, theta, stats, centre, weight):
            return super().prox(theta, stats, centre, weight)

    samples = RNG.standard_normal((4, 6, 3))

    assert [type(w) for w in crews(nodes_of([PPCA(x, 1) for x in samples]))] == [Crew]
    assert [type(w) for w in crews(nodes_of([Own(x, 1) for x in samples]))] == [
        Node
    ] * 4


def test_a_problem_with_a_kind_but_no_stack_runs_node_by_node():
    """`kind` is a common word; alone it promises nothing."""
    problems = [PPCA(x, 1) for x in RNG.standard_normal((3, 6, 3))]

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


def test_the_reference_of_few_samples_has_all_its_columns():
    """Components without data are zero, so that shapes can be relied on."""
    best = metrics.ppca_reference(RNG.standard_normal((2, 5)), 3)

    assert best.W.shape == (5, 3)


def test_starting_parameters_must_be_finite():
    """The sentence names the node."""
    problems = [PPCA(x, 1) for x in RNG.standard_normal((3, 6, 3))]
    theta0 = np.ones((3, problems[0].layout.size))
    theta0[1, 2] = np.nan

    with pytest.raises(dadmm.ProblemError, match="node 1 is not"):
        dadmm.solve(problems, dadmm.Topology.ring(3), theta0=theta0)
