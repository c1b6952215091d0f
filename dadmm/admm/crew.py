"""Nodes of one process whose local problems are solved together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dadmm.admm.node import Node


class Crew:
    """Nodes of equal degree, whose local problems are stacked into one.

    It does what each node would do by itself, with the same bits: stacking is the one
    way of batching that keeps them. Small problems are then limited by arithmetic and
    not by the number of calls.

    Parameters
    ----------
    nodes : sequence of Node
    problem : stacked Problem
        Its methods take and return arrays with a leading axis of nodes.
    """

    def __init__(self, nodes: Sequence[Node], problem: Any) -> None:
        self.nodes, self.problem = tuple(nodes), problem
        self.theta = np.array([node.theta for node in nodes])
        self.centre, self.weight = np.empty_like(self.theta), np.empty(len(nodes))
        self.trial = np.array([node.trial for node in nodes])
        for node, trial in zip(self.nodes, self.trial, strict=True):
            node.trial = trial

    def propose(self) -> None:
        """Solve the local problems and write their solutions into the outboxes."""
        self.stats = self.problem.expect(self.theta)
        for k, node in enumerate(self.nodes):
            self.centre[k], self.weight[k] = node.prox_point()
        self.theta = self.problem.prox(self.theta, self.stats, self.centre, self.weight)
        for node, theta in zip(self.nodes, self.theta, strict=True):
            node.accept(theta)

    def absorb(self, t: int) -> None:
        """Move multipliers, verdicts and penalties by what the neighbours sent."""
        for node in self.nodes:
            node.hear()
        values = self.problem.objectives(self.trial, self.stats)
        for node, row in zip(self.nodes, values, strict=True):
            node.conclude(t, row)


def crews(nodes: Sequence[Node]) -> list[Node | Crew]:
    """Return the nodes, as crews where their problems can be stacked.

    A problem that can has ``kind``, equal for those that go together, and a class
    method ``stack``, which makes one problem of several.
    """
    groups: dict[Any, list[Node]] = {}
    for node in nodes:
        problem = type(node.problem)
        kind = getattr(node.problem, "kind", None) if stacks(problem) else node.index
        groups.setdefault((problem, kind, node.trial.shape), []).append(node)
    workers: list[Node | Crew] = []
    for (problem, *_), group in groups.items():
        if len(group) == 1:
            workers += group
        else:
            stacked = problem.stack([node.problem for node in group])
            workers.append(Crew(group, stacked))
    return workers


def stacks(problem: type) -> bool:
    """Return whether a class stacks its own methods, not those it has overridden."""
    owners = [kind for kind in problem.__mro__ if "stack" in vars(kind)]
    names = ("expect", "prox", "objectives")
    return bool(owners) and all(
        getattr(problem, name) is getattr(owners[0], name) for name in names
    )
