"""Run the algorithm on the nodes of this process, and continue after rank failures.

After a failure the remaining ranks continue on the remaining graph, if MPI allows it.
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
    """The nodes of this process, with the exchange and the graph."""

    exchange: Exchange
    topology: Topology
    schedule: Schedule | None
    names: tuple[int, ...]  # the original number of each node of the graph
    nodes: Sequence[Node]
    global_stopping: GlobalStopping | None
    failures: tuple[NodeFailure, ...] = ()

    def take(self) -> state.States:
        """Return the state of the nodes before their first iteration."""
        return state.take(self.nodes, self.exchange, self.global_stopping, None)

    @property
    def lost(self) -> list[int]:
        """Original numbers of the failed nodes that this process knows of."""
        return sorted(i for failure in self.failures for i in failure.lost)

    @property
    def component_root(self) -> int | None:
        """The first node of this component; None in the first component."""
        found = None
        for failure in self.failures:
            if failure.component != failure.components[0]:
                found = failure.component[0]
        return found


@dataclass(frozen=True)
class NodeFactory:
    """Builds the nodes of this process, on the whole graph or without failed nodes.

    Parameters
    ----------
    problems : dict of int to Problem
        By original number of the node.
    starts : dict of int to ndarray of shape (size,)
        Starting parameters, by original number of the node.
    scheme : PenaltyScheme
    rule : Rule
    sending : Sending
    coupling, probe, agreement : str
        See `dadmm.solve`.
    init : {"shared", "independent", "theta0"}
        How the starting parameters were chosen; "theta0" if the caller gave them.
    """

    problems: Mapping[int, Problem]
    starts: Mapping[int, Vector]
    scheme: PenaltyScheme
    rule: Rule
    sending: Sending
    coupling: str
    probe: str
    agreement: str
    init: str

    def build(
        self,
        exchange: Exchange,
        topology: Topology,
        schedule: Schedule | None,
        names: Sequence[int],
    ) -> HostedNodes:
        """Return the nodes of this process; ``names`` are their original numbers."""
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
                    schedule=(
                        None
                        if schedule is None
                        else schedule.active_edges(topology, i)
                    ),
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
    """Run the algorithm, and run it again without the failed nodes after a failure.

    Parameters
    ----------
    local : HostedNodes
    factory : NodeFactory
        Builds the nodes again after a failure.
    max_iter : int
    callbacks : sequence of callables
        After a failure, the method ``rewind`` of each callback that has one is called
        with the `NodeFailure`.
    checkpoints : Checkpoints, optional
        Nothing is saved after the first failure, because a checkpoint needs all nodes.

    Returns
    -------
    local : HostedNodes
        The nodes that finished.
    iterations : int
    reason : str
        One of `stopping.REASONS`.
    """
    start, states = 0, None
    while True:
        exchange, nodes, global_stopping = (
            local.exchange,
            local.nodes,
            local.global_stopping,
        )
        buffer = StateBuffer(nodes[0].reach, start, states)
        if _exchange_initial(local):
            if local.failures:
                assert states is not None
                for i, own in states.items():  # count the initial messages, too
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
        local, states, start = _without_failed(local, buffer, factory)
        for callback in callbacks:
            if hasattr(callback, "rewind"):
                callback.rewind(local.failures[-1])
        if checkpoints is not None:
            checkpoints.saves = False


def _exchange_initial(local: HostedNodes) -> bool:
    """Exchange initial parameters; return True if no rank failed."""
    finished = False
    with suppress(*local.exchange.rank_failure):
        prime(local.nodes, local.exchange)
        finished = True
    return local.exchange.all_finished(finished)


def _without_failed(
    local: HostedNodes, buffer: StateBuffer, factory: NodeFactory
) -> tuple[HostedNodes, state.States, int]:
    """Return the nodes without the failed ones, their states, and the iteration."""
    (me,) = local.exchange.hosted
    graph = local.topology

    def plan(alive: Sequence[int]) -> tuple[Sequence[int], Topology]:
        part = next(part for part in recovery.components(graph, alive) if me in part)
        return part, recovery.restrict(graph, local.schedule, part)[0]

    exchange, alive, t = local.exchange.shrink(buffer.last, plan)
    parts, (part, _) = recovery.components(graph, alive), plan(alive)
    kept = np.isin(graph.neighbours[me], part)

    def named(nodes: Sequence[int]) -> tuple[int, ...]:
        return tuple(local.names[i] for i in nodes)

    dead = sorted(set(range(graph.n_nodes)) - set(alive))
    failure = NodeFailure(t, named(dead), tuple(map(named, parts)), named(part), kept)
    rest = recovery.restrict(graph, local.schedule, part)
    left = factory.build(exchange, *rest, named(part))
    (node,) = left.nodes
    now = recovery.remove_edges(buffer.at(t)[me], kept, node.scheme, node.layout)
    (own,) = exchange.hosted
    # these counts include the iterations that are repeated
    exchange.sent[own][...] = local.exchange.sent[me][kept]
    left = left._replace(failures=(*local.failures, failure))
    return left, {own: now}, t
