"""Recovery from failed nodes: return to a common iteration, and drop their edges.

Neighbours wait for each other, so two nodes are at most as many iterations apart as a
message needs between them. Each node keeps the states of that many iterations in
memory. After a failure all return to the last iteration that every remaining node has
finished. The multipliers at the two ends of an edge are equal and opposite. Without the
edges of failed nodes they still sum to zero, so the run converges to the optimum of the
remaining nodes' data.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dadmm.admm.loop import Run
from dadmm.admm.state import State
from dadmm.admm.stopping import NeighbourStopping
from dadmm.comm.wire import IDLE
from dadmm.core.layout import Layout
from dadmm.graphs.schedule import Schedule
from dadmm.graphs.topology import Topology


class NodeFailure(NamedTuple):
    """The failure of one or more nodes, as one of the remaining processes sees it."""

    t: int  # the iteration after which the remaining nodes continue
    lost: tuple[int, ...]  # failed nodes
    components: tuple[tuple[int, ...], ...]  # of the remaining graph
    component: tuple[int, ...]  # that of this process
    kept: NDArray[np.bool_]  # (degree,) edges that are left of this process's node


class StateBuffer:
    """A callback that keeps the states of the last iterations in memory.

    Parameters
    ----------
    reach : int
        Number of iterations by which another node may be behind.
    start : int
    state : State, optional
        The state after iteration ``start``.
    """

    def __init__(self, reach: int, start: int = 0, state: State | None = None) -> None:
        self._states: deque[tuple[int, State]] = deque(maxlen=reach + 1)
        if state is not None:
            self._states.append((start, state.choose()))

    def __call__(self, t: int, run: Run) -> None:
        """Copy the state after iteration ``t``."""
        self._states.append((t, run.snapshot()))

    @property
    def empty(self) -> bool:
        """Whether no state has been saved."""
        return not self._states

    @property
    def last(self) -> int:
        """The last saved iteration."""
        return self._states[-1][0]

    def at(self, t: int) -> State:
        """Return the state after iteration ``t``."""
        return next(state for known, state in self._states if known == t)


def components(graph: Topology, alive: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return the connected components of the remaining graph."""
    left, found = set(alive), []
    while left:
        part: set[int] = set()
        frontier = {min(left)}
        while frontier:
            part |= frontier
            near = {j for i in frontier for j in graph.neighbours[i]}
            frontier = near & left - part
        found.append(tuple(sorted(part)))
        left -= part
    return tuple(found)


def restrict(
    graph: Topology, schedule: Schedule | None, part: Sequence[int]
) -> tuple[Topology, Schedule | None]:
    """Return the graph and schedule of these nodes, renumbered in their order."""
    number = {node: k for k, node in enumerate(part)}

    def inside(edges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        return [(number[i], number[j]) for i, j in edges if {i, j} <= number.keys()]

    if schedule is not None:
        schedule = Schedule(len(part), [inside(edges) for edges in schedule.rounds])
        return schedule.union, schedule
    return Topology.from_edges(len(part), inside(graph.edges.tolist())), None


def remove_edges(state: State, kept: NDArray[np.bool_], layout: Layout) -> State:
    """Return the state of one node without the edges to failed nodes.

    The agreement on a stop begins again: it described the network before the failure.

    Parameters
    ----------
    state : State
    kept : ndarray of bool, shape (degree,)
    layout : Layout
    """
    left = state.choose(edge=kept)
    left.header[...] = IDLE
    left.held[...] = 0
    left.mean[...] = layout.shared(left.theta)
    if kept.any():
        left.mean[...] = left.received.sum(axis=0) / len(left.received)
    left.stopping = NeighbourStopping.without_agreement(left.stopping)
    return left
