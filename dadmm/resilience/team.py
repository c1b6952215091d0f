"""The nodes of a process on their graph, and how they carry a run through.

Where MPI allows it a run outlives its ranks: those that are left make a new team on
what is left of the graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dadmm.admm import state
from dadmm.admm.algorithm import Keeper, Watcher, iterate, prime
from dadmm.admm.node import Node
from dadmm.admm.stopping import Council, Rule
from dadmm.core.interfaces import PenaltyScheme, Problem
from dadmm.core.layout import Vector
from dadmm.exchange.links import Links
from dadmm.exchange.sending import Sending
from dadmm.graphs.schedule import Schedule
from dadmm.graphs.topology import Topology
from dadmm.resilience import recovery
from dadmm.resilience.checkpoint import Checkpoints
from dadmm.resilience.recovery import Loss, Recent


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


@dataclass(frozen=True)
class Recipe:
    """What the nodes of a run are made of, on all of the graph or what is left of it.

    Nodes go by their numbers at the start.
    """

    problems: Mapping[int, Problem]
    starts: Mapping[int, Vector]
    scheme: PenaltyScheme
    rule: Rule
    sending: Sending
    coupling: str
    probe: str
    agreement: str

    def team(
        self,
        exchange: Any,
        topology: Topology,
        schedule: Schedule | None,
        names: Sequence[int],
    ) -> Team:
        """Return the nodes of this process on a graph of nodes with these names."""
        cycle = 1 if schedule is None else schedule.period
        nodes = [
            Node(
                names[i],
                self.problems[names[i]],
                self.starts[names[i]],
                self.scheme,
                self.rule,
                links=Links(
                    exchange,
                    i,
                    self.problems[names[i]].layout,
                    self.sending,
                    agrees=self.scheme.is_symmetric,
                    schedule=None if schedule is None else schedule.active_edges(topology, i),
                ),
                diameter=topology.diameter,
                reach=topology.diameter * cycle,
                coupling=self.coupling,
                probe=self.probe,
                decentralised=self.agreement == "neighbours",
            )
            for i in exchange.hosted
        ]
        council = None
        if self.agreement == "global":
            council = Council(self.rule, nodes[0].links.cycle)
        return Team(exchange, topology, schedule, tuple(names), nodes, council)


def carry_through(
    team: Team,
    recipe: Recipe,
    max_iter: int,
    watchers: Sequence[Watcher],
    checkpoints: Checkpoints | None = None,
) -> tuple[Team, int, str]:
    """Run the algorithm to its end; return who finished it, after how long, and why.

    Parameters
    ----------
    team : Team
    recipe : Recipe
        Of the team, and of what is left of it after a loss.
    max_iter : int
    watchers : sequence of callables
        Those with a method ``rewind`` are told of a `recovery.Loss`.
    checkpoints : Checkpoints, optional
        They end with the first loss: a checkpoint has all nodes.
    """
    start, states = 0, None
    while True:
        exchange, nodes, council = team.exchange, team.nodes, team.council
        recent = Recent(nodes[0].reach, start, states)
        if _opened(team):
            if team.losses:
                assert states is not None
                for i, own in states.items():  # the opening's messages are among them
                    own["sent"] = exchange.sent[i].copy()
            elif checkpoints is not None:
                start, states = checkpoints.start, checkpoints.states(team.take())
            if states is not None:
                state.give(states, nodes, exchange, council)
            keepers: list[Keeper] = [] if checkpoints is None else [checkpoints]
            if exchange.lost:
                recent = Recent(nodes[0].reach, start, states or team.take())
                keepers.append(recent)
            ended = None
            with suppress(exchange.lost):
                ended = iterate(
                    nodes, exchange, max_iter, council, watchers, keepers, start
                )
            if exchange.agree(ended is not None):
                assert ended is not None
                return team, *ended
        elif recent.empty:
            exchange.mourn()
        team, states, start = _without_the_lost(team, recent, recipe)
        for watcher in watchers:
            if hasattr(watcher, "rewind"):
                watcher.rewind(team.losses[-1])
        if checkpoints is not None:
            checkpoints.saves = False


def _opened(team: Team) -> bool:
    """Let neighbours know each other; return whether nobody died over it."""
    opened = False
    with suppress(team.exchange.lost):
        prime(team.nodes, team.exchange)
        opened = True
    return team.exchange.agree(opened)


def _without_the_lost(
    team: Team, recent: Recent, recipe: Recipe
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
    rest = recovery.within(graph, team.schedule, part)
    left = recipe.team(exchange, *rest, named(part))
    (node,) = left.nodes
    now = recovery.without(recent.at(t)[me], kept, node.scheme, node.layout)
    (own,) = exchange.hosted
    exchange.sent[own][...] = team.exchange.sent[me][kept]  # what was taken back, too
    left = left._replace(losses=(*team.losses, loss))
    return left, {own: now}, t
