"""What the survivors of a lost node do: go back a little, drop its edges, go on.

Neighbours wait for each other, so no node is further ahead of another than a word takes
from one to the other. Each keeps its states of so many iterations in memory; after a
loss all go back to the last one that every survivor has finished. Multipliers of the
two ends of an edge are equal and opposite: without the edges of the dead those of the
survivors still add up to zero, and the optimum to which they lead is that of the
survivors' data.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np

from dadmm.admm import consensus, state
from dadmm.admm.stopping import StopState
from dadmm.core.interfaces import PenaltyScheme
from dadmm.core.layout import Layout
from dadmm.exchange.links import STATE as EDGE_STATE
from dadmm.graphs.schedule import Schedule
from dadmm.graphs.topology import Topology


class NodeFailure(NamedTuple):
    """What happened, as one of the survivors sees it."""

    t: int  # the iteration from which the survivors go on
    lost: tuple[int, ...]  # nodes that died
    parts: tuple[tuple[int, ...], ...]  # survivors that still have a path between them
    part: tuple[int, ...]  # the one of this process
    kept: np.ndarray  # (degree,) which edges of this process's node are left


class StateBuffer:
    """A checkpointer of the states of the last iterations, in memory.

    Parameters
    ----------
    reach : int
        How far behind another node may be.
    start : int
    states : States, optional
        After iteration ``start``, from which the nodes go on.
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
        """Whether the run has not begun."""
        return not self._states

    @property
    def last(self) -> int:
        """The last iteration that was finished."""
        return self._states[-1][0]

    def at(self, t: int) -> state.States:
        """Return the states after iteration ``t``."""
        return next(states for known, states in self._states if known == t)


def parts(graph: Topology, alive: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return the nodes that are alive, those together that still have a path."""
    left, found = set(alive), []
    while left:
        part, frontier = set(), {min(left)}
        while frontier:
            part |= frontier
            near = {j for i in frontier for j in graph.neighbours[i]}
            frontier = near & left - part
        found.append(tuple(sorted(part)))
        left -= part
    return tuple(found)


def within(
    graph: Topology, schedule: Schedule | None, part: Sequence[int]
) -> tuple[Topology, Schedule | None]:
    """Return graph and schedule of these nodes, numbered anew in their order."""
    number = {node: k for k, node in enumerate(part)}

    def inside(edges: Any) -> list[tuple[int, int]]:
        return [(number[i], number[j]) for i, j in edges if {i, j} <= number.keys()]

    if schedule is not None:
        schedule = Schedule(len(part), [inside(edges) for edges in schedule.rounds])
        return schedule.union, schedule
    return Topology.from_edges(len(part), inside(graph.edges.tolist())), None


def without(
    before: dict[str, Any], kept: np.ndarray, scheme: PenaltyScheme, layout: Layout
) -> dict[str, Any]:
    """Return a node's state without the edges of the dead.

    What it knew about the end of the run is forgotten: the run has become another.

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
        "standing": np.concatenate([[0.0], node["standing"][1:]]),  # none held
        "network": None,
    }
    return {**before, "node": node, "sent": before["sent"][kept], "council": None}
