"""The choice of coordinates before a run, by sums over the network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dadmm import penalty
from dadmm.accuracy.coordinates import MOST_COLUMNS, Coordinates, merged, supports
from dadmm.core.interfaces import Problem
from dadmm.core.layout import Vector
from dadmm.exchange.tree import TreeReduction
from dadmm.graphs.topology import Topology
from dadmm.penalty import Scheme
from dadmm.solver.statement import NO_SUMS

UNLESS = 'has no metric unless metric = "full"'


def why_none(metric: str | None, scheme: Scheme, problems: Iterable[Problem]) -> str:
    """Return why a run has no metric; "" if it has one."""
    if metric == "none":
        return NO_SUMS
    for problem in problems:
        if not supports(problem):
            return _why_no_coordinates(problem)
        size = problem.layout.size
        if metric is None and size > MOST_COLUMNS:
            return f"a run with {size} parameters, more than {MOST_COLUMNS}, {UNLESS}"
    if metric is None and not isinstance(scheme, penalty.Auto):
        return f"the scheme {penalty.name_of(scheme)} {UNLESS}"
    return ""


def _why_no_coordinates(problem: Problem) -> str:
    name, layout = type(problem).__name__, problem.layout
    if not hasattr(problem, "rows") or not hasattr(problem, "within"):
        return f"the problem {name} has no methods rows and within"
    if layout.private or layout.scales:
        return f"the problem {name} has private or scaled parts"
    return f"the class {name} overrides prox, expect or objectives, but not within"


def measure(
    hosted: Mapping[int, Problem],
    starts: Mapping[int, Vector],
    topology: Topology,
    comm: Any,
    saved: Mapping[str, np.ndarray] | None,
) -> tuple[Coordinates, np.ndarray]:
    """Return coordinates, and the messages and bytes that were sent by edge.

    Parameters
    ----------
    hosted, starts : dict
        Problems and starting parameters of this process, by node.
    topology : Topology
    comm : MPI.Comm, optional
    saved : dict, optional
        The coordinates of a run that is resumed.
    """
    if saved:
        found = Coordinates(*(saved[name] for name in Coordinates._fields))
        return found, np.zeros((len(topology.edges), 2), dtype=np.int64)
    private = None
    if comm is not None:
        from dadmm.exchange.collectives import wait_sleeping

        private, request = comm.Idup()
        wait_sleeping(request)
    tree = TreeReduction(topology, private)

    def total(rows: Sequence[Any], merge: Any = np.add, finish: Any = None) -> Any:
        return tree.reduce(dict(zip(hosted, rows, strict=True)), merge, finish)

    order = [starts[i] for i in hosted]
    coordinates = merged(total, list(hosted.values()), order, topology.n_nodes)
    if private is not None:
        private.Free()
    return coordinates, tree.sent
