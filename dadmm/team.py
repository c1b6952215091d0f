"""The nodes of a process on their graph, and how they carry a run through.

Where MPI allows it a run outlives its ranks: those that are left make a new team on
what is left of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dadmm import recovery, state
from dadmm.algorithm import Keeper, Watcher, iterate, prime
from dadmm.checkpoint import Checkpoints
from dadmm.node import Node
from dadmm.recovery import Loss, Recent
from dadmm.schedule import Schedule
from dadmm.stopping import Council
from dadmm.topology import Topology


class Team(NamedTuple):
    """The nodes of this process, and what is between them and the others."""

    exchange: Any
    topology: Topology
    schedule: Schedule | None
    names: tuple[int, ...]  # of all nodes of the graph: their numbers at the start
    nodes: Sequence[Node]
    council: Council | None
    losses: tuple[Loss, ...] = ()

    def take(self) -> state.States:
        """Return the state of the nodes before their first iteration together."""
        return state.take(self.nodes, self.exchange, self.council, None)

    @property
    def lost(self) -> list[int]:
        """The nodes that died, as far as this process knows."""
        return sorted(i for loss in self.losses for i in loss.lost)

    @property
    def offshoot(self) -> int | None:
        """The first node of a part that went on by itself; None for the first part."""
        found = None
        for loss in self.losses:
            if loss.part != loss.parts[0]:
                found = loss.part[0]
        return found


Make = Callable[[Any, Topology, Schedule | None, Sequence[int]], Team]


def carry_through(
    team: Team,
    make: Make,
    max_iter: int,
    watchers: Sequence[Watcher],
    checkpoints: Checkpoints | None = None,
) -> tuple[Team, int, str]:
    """Run the algorithm to its end; return who finished it, after how long, and why.

    Parameters
    ----------
    team : Team
    make : callable
        Returns a team, given exchange, graph, schedule and the names of its nodes.
    max_iter : int
    watchers : sequence of callables
        Those with a method ``rewind`` are told of a `recovery.Loss`.
    checkpoints : Checkpoints, optional
        They end with the first loss: a checkpoint has all nodes.
    """
    keepers: list[Keeper] = [] if checkpoints is None else [checkpoints]
    start, states = 0, None
    while True:
        exchange, nodes, council = team.exchange, team.nodes, team.council
        recent = Recent(nodes[0].reach) if exchange.lost else None
        ended = None
        try:
            prime(nodes, exchange)
            if states is not None:
                for i, node in states.items():  # the messages of the new opening, too
                    node["sent"] = node["sent"] + exchange.sent[i]
                state.give(states, nodes, exchange, council)
            elif checkpoints is not None:
                start = checkpoints.give(nodes, exchange, council)
            if recent is not None:
                recent.keep(start, "", team.take)
                keepers = [*keepers[: checkpoints is not None], recent]
            ended = iterate(
                nodes, exchange, max_iter, council, watchers, keepers, start
            )
        except exchange.lost:
            if recent is None or recent.empty:
                raise
        if exchange.agree(ended is not None):
            assert ended is not None
            return team, *ended
        assert recent is not None
        team, states, start = _without_the_lost(team, recent, make)
        for watcher in watchers:
            if hasattr(watcher, "rewind"):
                watcher.rewind(team.losses[-1])
        if checkpoints is not None:
            checkpoints.saves = False


def _without_the_lost(
    team: Team, recent: Recent, make: Make
) -> tuple[Team, state.States, int]:
    """Return the team of those that are left, their states, and the iteration."""
    (me,) = team.exchange.hosted
    graph = team.topology

    def plan(alive: Sequence[int]) -> tuple[Sequence[int], Topology]:
        part = next(part for part in recovery.parts(graph, alive) if me in part)
        return part, recovery.within(graph, team.schedule, part)[0]

    exchange, alive, t = team.exchange.survive(recent.last, plan)
    parts, (part, _) = recovery.parts(graph, alive), plan(alive)
    kept = np.isin(graph.neighbours[me], part)

    def named(nodes: Sequence[int]) -> tuple[int, ...]:
        return tuple(team.names[i] for i in nodes)

    dead = sorted(set(range(graph.n_nodes)) - set(alive))
    loss = Loss(t, named(dead), tuple(map(named, parts)), named(part), kept)
    left = make(exchange, *recovery.within(graph, team.schedule, part), named(part))
    (node,) = left.nodes
    now = recovery.without(recent.at(t)[me], kept, node.scheme, node.layout)
    now["sent"] = team.exchange.sent[me][kept]
    left = left._replace(losses=(*team.losses, loss))
    return left, {exchange.hosted[0]: now}, t
