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
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dadmm.admm import consensus, state
from dadmm.core.interfaces import PenaltyScheme, StopState
from dadmm.core.layout import Layout
from dadmm.exchange.links import STATE as EDGE_STATE
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
    """The states of the last iterations, in memory; a `Checkpointer`.

    Parameters
    ----------
    reach : int
        Number of iterations by which another node may be behind.
    start : int
    states : States, optional
        The states after iteration ``start``.
    """

    def __init__(
        self, reach: int, start: int = 0, states: state.States | None = None
    ) -> None:
        self._states: deque[tuple[int, state.States]] = deque(maxlen=reach + 1)
        if states is not None:
            self._states.append((start, deepcopy(states)))

    def save(self, t: int, request: str, take: Callable[[], state.States]) -> None:
        """Copy the state after iteration ``t``."""
        self._states.append((t, deepcopy(take())))

    @property
    def empty(self) -> bool:
        """Whether no state has been saved."""
        return not self._states

    @property
    def last(self) -> int:
        """The last saved iteration."""
        return self._states[-1][0]

    def at(self, t: int) -> state.States:
        """Return the states after iteration ``t``."""
        return next(states for known, states in self._states if known == t)


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


def remove_edges(
    before: dict[str, Any],
    kept: NDArray[np.bool_],
    scheme: PenaltyScheme,
    layout: Layout,
) -> dict[str, Any]:
    """Return a node's state without the edges to failed nodes.

    The stopping state starts again: it described the network before the failure.

    Parameters
    ----------
    before : dict
        A state as `state.take` returns it.
    kept : ndarray of bool, shape (degree,)
    scheme : PenaltyScheme
    layout : Layout
    """
    node = dict(before["node"])
    links = dict(node["links"])
    for name in EDGE_STATE:
        if isinstance(links[name], np.ndarray):
            links[name] = links[name][kept]
    shared = layout.shared(node["theta"])
    node |= {
        "links": links,
        "multipliers": node["multipliers"][kept],
        "anchors": node["anchors"][kept],
        "eta": node["eta"][kept],
        "penalty": scheme.keep(node["penalty"], kept),
        "mean": consensus.neighbour_mean(shared, links["heard"]),
        "accord": StopState(),
        "satisfied": False,
        "standing": np.concatenate([[0.0], node["standing"][1:]]),  # held = 0
        "network": None,
    }
    return {**before, "node": node, "sent": before["sent"][kept], "council": None}
