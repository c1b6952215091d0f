"""The nodes of a process on their graph, and how they carry a run through.

Where MPI allows it a run outlives its ranks: those that are left make a new local on
what is left of the graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dadmm.admm import state
from dadmm.admm.algorithm import Callback, Checkpointer, iterate, prime
from dadmm.admm.node import Node
from dadmm.admm.stopping import GlobalStopping, Rule
from dadmm.core.interfaces import Exchange, PenaltyScheme, Problem
from dadmm.core.layout import Vector
from dadmm.exchange.links import Links
from dadmm.exchange.sending import Sending
from dadmm.graphs.schedule import Schedule
from dadmm.graphs.topology import Topology
from dadmm.resilience import recovery
from dadmm.resilience.checkpoint import Checkpoints
from dadmm.resilience.recovery import NodeFailure, StateBuffer


class HostedNodes(NamedTuple):
    """The nodes of this process, and what is between them and the others."""

    exchange: Exchange
    topology: Topology
    schedule: Schedule | None
    names: tuple[int, ...]  # of all nodes of the graph: their numbers at the start
    nodes: Sequence[Node]
    global_stopping: GlobalStopping | None
    failures: tuple[NodeFailure, ...] = ()

    def take(self) -> state.States:
        """Return the state of the nodes before their first iteration together."""
        return state.take(self.nodes, self.exchange, self.global_stopping, None)

    @property
    def lost(self) -> list[int]:
        """The nodes that died, as far as this process knows."""
        return sorted(i for failure in self.failures for i in failure.lost)

    @property
    def component_root(self) -> int | None:
        """The first node of a part that went on by itself; None for the first part."""
        found = None
        for failure in self.failures:
            if failure.part != failure.parts[0]:
                found = failure.part[0]
        return found


@dataclass(frozen=True)
class NodeFactory:
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

    def build(
        self,
        exchange: Exchange,
        topology: Topology,
        schedule: Schedule | None,
        names: Sequence[int],
    ) -> HostedNodes:
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
        global_stopping = None
        if self.agreement == "global":
            global_stopping = GlobalStopping(self.rule, nodes[0].links.cycle)
        return HostedNodes(
            exchange, topology, schedule, tuple(names), nodes, global_stopping
        )


def run_with_recovery(
    local: HostedNodes,
    factory: NodeFactory,
    max_iter: int,
    callbacks: Sequence[Callback],
    checkpoints: Checkpoints | None = None,
) -> tuple[HostedNodes, int, str]:
    """Run the algorithm to its end; return who finished it, after how long, and why.

    Parameters
    ----------
    local : HostedNodes
    factory : NodeFactory
        Of the local, and of what is left of it after a failure.
    max_iter : int
    callbacks : sequence of callables
        Those with a method ``rewind`` are told of a `recovery.NodeFailure`.
    checkpoints : Checkpoints, optional
        They end with the first failure: a checkpoint has all nodes.
    """
    start, states = 0, None
    while True:
        exchange, nodes, global_stopping = (
            local.exchange,
            local.nodes,
            local.global_stopping,
        )
        buffer = StateBuffer(nodes[0].reach, start, states)
        if _opened(local):
            if local.failures:
                assert states is not None
                for i, own in states.items():  # the opening's messages are among them
                    own["sent"] = exchange.sent[i].copy()
            elif checkpoints is not None:
                start, states = checkpoints.start, checkpoints.states(local.take())
            if states is not None:
                state.give(states, nodes, exchange, global_stopping)
            checkpointers: list[Checkpointer] = (
                [] if checkpoints is None else [checkpoints]
            )
            if exchange.rank_failure:
                buffer = StateBuffer(nodes[0].reach, start, states or local.take())
                checkpointers.append(buffer)
            ended = None
            with suppress(*exchange.rank_failure):
                ended = iterate(
                    nodes,
                    exchange,
                    max_iter,
                    global_stopping,
                    callbacks,
                    checkpointers,
                    start,
                )
            if exchange.all_finished(ended is not None):
                assert ended is not None
                return local, *ended
        elif buffer.empty:
            exchange.raise_failed()
        local, states, start = _without_the_lost(local, buffer, factory)
        for callback in callbacks:
            if hasattr(callback, "rewind"):
                callback.rewind(local.failures[-1])
        if checkpoints is not None:
            checkpoints.saves = False


def _opened(local: HostedNodes) -> bool:
    """Let neighbours know each other; return whether nobody died over it."""
    opened = False
    with suppress(*local.exchange.rank_failure):
        prime(local.nodes, local.exchange)
        opened = True
    return local.exchange.all_finished(opened)


def _without_the_lost(
    local: HostedNodes, buffer: StateBuffer, factory: NodeFactory
) -> tuple[HostedNodes, state.States, int]:
    """Return the local of those that are left, their states, and the iteration."""
    (me,) = local.exchange.hosted
    graph = local.topology

    def plan(alive: Sequence[int]) -> tuple[Sequence[int], Topology]:
        part = next(part for part in recovery.parts(graph, alive) if me in part)
        return part, recovery.within(graph, local.schedule, part)[0]

    exchange, alive, t = local.exchange.shrink(buffer.last, plan)
    parts, (part, _) = recovery.parts(graph, alive), plan(alive)
    kept = np.isin(graph.neighbours[me], part)

    def named(nodes: Sequence[int]) -> tuple[int, ...]:
        return tuple(local.names[i] for i in nodes)

    dead = sorted(set(range(graph.n_nodes)) - set(alive))
    failure = NodeFailure(t, named(dead), tuple(map(named, parts)), named(part), kept)
    rest = recovery.within(graph, local.schedule, part)
    left = factory.build(exchange, *rest, named(part))
    (node,) = left.nodes
    now = recovery.without(buffer.at(t)[me], kept, node.scheme, node.layout)
    (own,) = exchange.hosted
    exchange.sent[own][...] = local.exchange.sent[me][kept]  # what was taken back, too
    left = left._replace(failures=(*local.failures, failure))
    return left, {own: now}, t
