"""Run the nodes of this process, and continue without the nodes of failed ranks.

Two nodes are at most as many iterations apart as a message needs between them, so each
keeps the states of that many iterations. After a failure all return to the last
iteration that every remaining node has finished. Multipliers at the two ends of an edge
are opposite: without the edges of failed nodes they still sum to zero, and the run
converges to the optimum of the remaining nodes' data.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dadmm.admm.local import row_order
from dadmm.admm.loop import Callback, Run, iterate
from dadmm.admm.rule import SAVED
from dadmm.admm.state import State
from dadmm.comm.exchange import Part
from dadmm.comm.wire import IDLE
from dadmm.core.layout import Layout
from dadmm.graphs import measures
from dadmm.graphs.incidence import Incidence
from dadmm.graphs.schedule import Schedule
from dadmm.graphs.topology import Integers, Topology
from dadmm.solver.checkpoint import Checkpoints, restoring


class NodeFailure(NamedTuple):
    """The failure of one or more nodes, as one of the remaining processes sees it."""

    t: int  # the iteration after which the remaining nodes continue
    lost: tuple[int, ...]  # failed nodes
    components: tuple[tuple[int, ...], ...]  # of the remaining graph
    component: tuple[int, ...]  # that of this process
    kept_nodes: NDArray[np.bool_]  # (n,) nodes of this process that are left
    kept: NDArray[np.bool_]  # (E,) edges of these nodes that are left


class LocalRun(NamedTuple):
    """The run of this process, and the failures before it."""

    run: Run
    schedule: Schedule | None
    names: tuple[int, ...]  # the original number of each node of the graph
    failures: tuple[NodeFailure, ...] = ()
    iterations: int = 0
    reason: str = ""  # why it ended, one of `stopping.REASONS`

    @property
    def lost(self) -> tuple[int, ...]:
        """Original numbers of the failed nodes that this process knows of."""
        return tuple(sorted(i for failure in self.failures for i in failure.lost))


class StateBuffer(dict[int, State]):
    """A callback that keeps the states of the last iterations, one more than reach."""

    def __init__(self, reach: int, start: int = 0, state: State | None = None) -> None:
        super().__init__({} if state is None else {start: state.choose()})
        self._reach = reach

    def __call__(self, t: int, run: Run) -> None:
        self[t] = run.snapshot()
        self.pop(t - self._reach - 1, None)


def run_with_recovery(
    local: LocalRun,
    max_iter: int,
    callbacks: Sequence[Callback],
    checkpoints: Checkpoints | None = None,
) -> LocalRun:
    """Return the run that finished; call ``rewind`` of callbacks after a failure.

    Nothing is saved after a failure, because a checkpoint needs all nodes.
    """
    start, state = 0, None
    last = [] if checkpoints is None else [checkpoints]
    while True:
        run, exchange = local.run, local.run.exchange
        buffer = StateBuffer(run.stopping.reach, start, state)
        is_open = False
        with suppress(*exchange.rank_failure):
            run.open()
            is_open = True
        if exchange.all_finished(is_open):
            if local.failures:
                assert state is not None
                state.traffic[...] = exchange.sent  # with the initial messages
            with restoring(checkpoints):
                if checkpoints is not None and not local.failures:
                    start, state = checkpoints.start, checkpoints.state(run.names)
                if state is not None:
                    run.restore(state)
            called: list[Callback] = [*callbacks, *last]
            if exchange.rank_failure:
                buffer = StateBuffer(run.stopping.reach, start, run.snapshot())
                called.append(buffer)
            ended = None
            with suppress(*exchange.rank_failure):
                ended = iterate(run, max_iter, called, start)
            if exchange.all_finished(ended is not None):
                assert ended is not None
                return local._replace(iterations=ended[0], reason=ended[1])
        elif not buffer:
            exchange.raise_failed()
        local, state, start = _without_failed(local, buffer)
        for callback in callbacks:
            if hasattr(callback, "rewind"):
                callback.rewind(local.failures[-1])
        if checkpoints is not None:
            checkpoints.saves = False


def _without_failed(
    local: LocalRun, buffer: StateBuffer
) -> tuple[LocalRun, State, int]:
    """Return the run without the failed nodes, its state, and the iteration."""
    before, graph = local.run, local.run.topology
    hosts, rank = before.exchange.hosts, before.exchange.rank
    problems = dict(zip(before.nodes.tolist(), before.local.problems, strict=True))

    def plan(alive: Sequence[int]) -> Part:
        part = next(
            part for part in components(graph, hosts, alive) if rank in hosts[[*part]]
        )
        topology, _ = restrict(graph, local.schedule, part)
        own = {k: problems[i] for k, i in enumerate(part) if hosts[i] == rank}
        ranks = np.unique(hosts[[*part]], return_inverse=True)[1]
        return Part(part, topology, ranks, row_order(topology, own))

    exchange, alive, t = before.exchange.shrink(max(buffer), plan)
    parts, (part, topology, *_) = components(graph, hosts, alive), plan(alive)

    def named(nodes: Iterable[int]) -> tuple[int, ...]:
        return tuple(local.names[i] for i in nodes)

    dead = sorted(set(range(graph.n_nodes)).difference(*parts))
    ends = before.by_edge(graph.edges[before.arcs])
    kept_nodes = np.isin(before.by_node(before.nodes), part)
    kept = np.asarray(np.isin(ends, part).all(axis=1))
    split = tuple(map(named, parts)), named(part)
    failure = NodeFailure(t, named(dead), *split, kept_nodes, kept)
    _, schedule = restrict(graph, local.schedule, part)
    run = Run(before.setup, exchange, topology, schedule, named(part))

    def places(rows: Integers, wanted: Integers) -> Integers:
        """Return where the wanted numbers are in rows, which are all different."""
        order = np.argsort(rows)
        return np.asarray(order[np.searchsorted(rows, wanted, sorter=order)])

    # the rows before of the nodes and edges that are left, in the order of the new rows
    old = np.array(part)
    node = places(before.nodes, old[run.nodes])
    ends, n = old[topology.edges[run.arcs]], len(graph)
    arcs = np.searchsorted(graph.sources * n + graph.indices, ends @ [n, 1])
    edge = places(before.arcs, arcs)
    state = reopened(buffer[t].choose(node, edge), run.incidence, run.layout)
    # these counts include the iterations that are repeated
    exchange.sent[...] = before.exchange.sent[edge]
    failures = *local.failures, failure
    return LocalRun(run, schedule, named(part), failures), state, t


def components(
    graph: Topology, hosts: Integers, alive: Sequence[int]
) -> list[tuple[int, ...]]:
    """Return the connected parts of the nodes of these ranks, by their first nodes.

    A rank continues in one part; its nodes elsewhere are lost.
    """
    left = np.isin(hosts, alive)
    while True:
        inside = graph.edges[left[graph.edges].all(axis=1)]
        roots = measures.components(len(graph), inside)
        best = {}
        for rank in alive:
            found, counts = np.unique(roots[left & (hosts == rank)], return_counts=True)
            best[rank] = int(found[counts.argmax()])
        chosen = np.full(int(hosts.max()) + 1, -1)
        chosen[list(best)] = list(best.values())
        more = left & (roots == chosen[hosts])
        if (more == left).all():
            break
        left = more
    nodes = np.flatnonzero(left)
    parts = [nodes[roots[nodes] == root] for root in np.unique(roots[nodes])]
    return [tuple(part.tolist()) for part in parts]


def restrict(
    graph: Topology, schedule: Schedule | None, part: Sequence[int]
) -> tuple[Topology, Schedule | None]:
    """Return the graph and schedule of these nodes, renumbered in their order."""
    number = {node: k for k, node in enumerate(part)}

    def inside(edges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        return [(number[i], number[j]) for i, j in edges if {i, j} <= number.keys()]

    if schedule is not None:
        schedule = Schedule(len(part), [inside(edges) for edges in schedule.rounds])
    edges = graph.edges.tolist() if schedule is None else schedule.union.edges
    kept = inside(edges) if schedule is None else edges
    names = [graph.names[i] for i in part] if graph.names else ()
    places = None if graph.positions is None else graph.positions[list(part)]
    return Topology.from_edges(len(part), kept, names, places), schedule


def reopened(left: State, incidence: Incidence, layout: Layout) -> State:
    """Return the state without edges to failed nodes; the agreement begins again."""
    left.header[...] = IDLE
    left.held[...] = 0
    left.mean[...] = 0.0
    incidence.reduce(np.add, left.received, left.mean)
    left.mean /= incidence.count[:, None]
    alone = incidence.degrees == 0
    left.mean[alone] = layout.shared(left.theta)[alone]
    left.stopping = left.stopping[:, :SAVED].copy()  # without votes
    left.stopping[:, 0] = 0.0  # `CriteriaLog.held`
    return left
