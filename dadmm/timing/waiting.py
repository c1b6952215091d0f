"""Who waits for whom: how much of each exchange was waiting for slower neighbours.

A run records durations only. Laid end to end they give, on node i's own clock, when it
posted its messages, a_i(t), and when its exchange ended, f_i(t) = a_i(t) + exchange.
The clocks are apart by unknown offsets o_i. No message arrives before it was posted:

    o_i + f_i(t) >= o_j + a_j(t)     for all neighbours i, j and all t,

so that every edge bounds o_j - o_i from above by U_ij = min_t f_i(t) - a_j(t) and from
below by -U_ji, as in NTP. The bounds are apart by the round trip U_ij + U_ji. With
offsets between them (`offsets`), node i waited in iteration t for the last neighbour,

    wait_i(t) = clip(max_j (o_j + a_j(t)) - (o_i + a_i(t)), 0, exchange_i(t)),

and the rest of its exchange is the message's way. Where in the interval an offset lies
the record cannot tell, but whatever it is, the wait lies between what the two bounds
give: ``least`` and ``most``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dadmm.core.arguments import Parser, report_error
from dadmm.core.errors import ConfigError, DadmmError
from dadmm.core.layout import Matrix, Vector
from dadmm.timing.tomltable import SECONDS, quantity
from dadmm.timing.trace import Integers, Trace, write

WINDOW = 200  # iterations that share offsets: what no timer saw makes clocks drift
LOW = 0.05  # fraction of iterations in which a direction must be tight to seem so
DOUBT = 0.01  # spread, of the round trip, that says little


class Waiting(NamedTuple):
    """Seconds that the nodes of a run waited for each other."""

    edges: Integers  # (E, 2)
    seconds: Vector  # (n_nodes,) estimate of what each node waited
    least: Vector  # (n_nodes,) bounds that hold wherever the offsets lie
    most: Vector
    by_edge: Vector  # (E,) what i waited for j, aligned with the edges
    exchange: Vector  # (n_nodes,) all of the exchanges, waiting included
    busy: Vector  # (n_nodes,) local problem, multipliers and penalties

    @property
    def share(self) -> float:
        """Which part of all exchanges was waiting."""
        return float(self.seconds.sum() / max(self.exchange.sum(), 1e-300))

    @property
    def imbalance(self) -> float:
        """How much busier the busiest node is than the mean; 1 is even."""
        return float(self.busy.max() / max(self.busy.mean(), 1e-300))


def waiting(trace: Trace, way: float | None = None, window: int = WINDOW) -> Waiting:
    """Return who waited for whom in a run.

    Parameters
    ----------
    trace : Trace
    way : float, optional
        Seconds from post to arrival of the quickest message, if known. By default half
        the smallest round trip, which is the most that the record allows: where one
        node is always late, the estimate may then be half of the truth.
    window : int
        For how many iterations the offsets of the clocks are taken to be constant.
    """
    if trace.alone:
        raise ConfigError(
            "all nodes of this run lived in one process, where none waits for another; "
            "run it under mpiexec"
        )
    posts, ends = clocks(trace)
    heard = trace.bytes[:, trace.reverse] > 0  # whether i got a message from j
    totals, by_edge = np.zeros((3, trace.n_nodes)), np.zeros(len(trace.edges))
    for first in range(0, len(posts), window):
        part = slice(first, first + window)
        a, f, got = posts[part], ends[part], heard[part]
        o = offsets(trace, a, f, got, way)
        apart = o[trace.edges[:, 1]] - o[trace.edges[:, 0]]
        wait, last = waits(trace, a, f, got, apart)
        if len(by_edge):
            by_edge += np.bincount(last.ravel(), wait.ravel(), len(by_edge))
        upper = bounds(trace, a, f, got)[0]
        low = waits(trace, a, f, got, -upper[trace.reverse])[0]
        high = waits(trace, a, f, got, upper)[0]
        # Least squares may leave an interval, and drift may turn one around.
        totals[0] += wait.sum(axis=0)
        totals[1] += np.minimum(low, wait).sum(axis=0)
        totals[2] += np.maximum(high, wait).sum(axis=0)
    busy = (trace.solve + trace.update).sum(axis=0)
    wait, least, most = totals
    exchange = trace.exchange.sum(axis=0)
    return Waiting(trace.edges, wait, least, most, by_edge, exchange, busy)


def clocks(trace: Trace) -> tuple[Matrix, Matrix]:
    """Return when nodes posted and when their exchanges ended, each on its own clock.

    Both are (iterations, n_nodes); every clock starts with the node's first solve.
    """
    ends = np.cumsum(trace.compute(observe=True) + trace.exchange, axis=0)
    return ends - trace.exchange, ends


def bounds(
    trace: Trace, posts: Matrix, ends: Matrix, heard: NDArray[np.bool_]
) -> tuple[Vector, Vector]:
    """Return the bound U_ij of ``o_j - o_i``, and how far it mostly is from tight.

    Parameters
    ----------
    trace : Trace
    posts, ends : ndarray of shape (iterations, n_nodes)
    heard : ndarray of bool of shape (iterations, E)
        Whether i got a message from j.

    Returns
    -------
    upper, spread : ndarray of shape (E,)
        The spread is that from the smallest gap to a low quantile of all gaps. When j's
        message is the last to arrive, the gap is its way, which varies little; when
        another is, the gap varies as the work of the nodes does.
    """
    i, j = trace.edges.T
    gaps = np.sort(np.where(heard, ends[:, i] - posts[:, j], np.inf), axis=0)
    low = gaps[min(1 + int(LOW * len(gaps)), len(gaps) - 1)]
    known = np.isfinite(low)  # silent edges are given no spread
    return gaps[0], np.where(known, low, 0.0) - np.where(known, gaps[0], 0.0)


def offsets(
    trace: Trace,
    posts: Matrix,
    ends: Matrix,
    heard: NDArray[np.bool_],
    way: float | None = None,
) -> Vector:
    """Return by how much to advance each node's clock, (n_nodes,); the mean is 0.

    Parameters
    ----------
    trace, posts, ends, heard
        As in `bounds`.
    way : float, optional
        As in `waiting`.

    Notes
    -----
    Every edge names a point in its interval, of which least squares over all edges make
    one clock per node, weighted by the inverse square of the round trip: an edge
    cannot be wrong by more than that. (A spanning tree would add up errors along its
    paths.) The point is the middle where messages take equally long both ways. What an
    interval has beyond two ``way`` goes to the direction whose gap varies, because in
    that one messages lay waiting: a node that is always late never shows how quickly
    others reach it, and the middle would hide half of what they wait for it.
    """
    upper, spread = bounds(trace, posts, ends, heard)
    under, back = upper[trace.reverse], spread[trace.reverse]  # of the edge (j, i)
    known = np.isfinite(upper + under)  # else silent: no message, and no bound
    if not known.any():
        return np.zeros(trace.n_nodes)
    edges, upper, under = trace.edges[known], upper[known], under[known]
    spread, back = spread[known], back[known]
    trip = upper + under
    way = trip.min() / 2 if way is None else way
    rest = np.maximum(trip - 2 * way, 0.0)
    doubt = (DOUBT * rest) ** 2 + 1e-24
    loose = (spread**2 + doubt) / (spread**2 + back**2 + 2 * doubt)
    apart = (upper - under) / 2 + rest * (0.5 - loose)
    return _settle(trace.n_nodes, edges, apart, 1 / np.maximum(trip, 1e-6) ** 2)


def _settle(n: int, edges: Integers, apart: Vector, weight: Vector) -> Vector:
    """Return offsets whose differences fit ``apart`` best: a graph's Laplacian."""
    i, j = edges.T
    weight = weight / weight.max()
    laplacian = np.zeros((n, n))
    np.add.at(laplacian, (i, i), weight)
    np.add.at(laplacian, (i, j), -weight)
    pull = np.bincount(i, -weight * apart, minlength=n)
    found = np.linalg.lstsq(laplacian, pull, rcond=None)[0]
    return np.asarray(found - found.mean())


def waits(
    trace: Trace, posts: Matrix, ends: Matrix, heard: NDArray[np.bool_], apart: Vector
) -> tuple[Matrix, Integers]:
    """Return how long nodes waited, and for the end of which edge.

    Parameters
    ----------
    trace : Trace
    posts, ends : ndarray of shape (iterations, n_nodes)
    heard : ndarray of bool of shape (iterations, E)
        Whether i got a message from j.
    apart : ndarray of shape (E,)
        ``o_j - o_i`` of every edge.

    Returns
    -------
    wait : ndarray of shape (iterations, n_nodes)
    last : ndarray of int of shape (iterations, n_nodes)
        The edge to the neighbour that posted last.
    """
    if not len(trace.edges):
        return np.zeros_like(posts), np.zeros(posts.shape, dtype=np.int64)
    i, j = trace.edges.T
    late = np.where(heard, posts[:, j] + apart - posts[:, i], -np.inf)
    latest = np.maximum.reduceat(late, trace.starts, axis=1)
    index = np.where(late == latest[:, i], np.arange(len(i)), len(i))
    last = np.minimum.reduceat(index, trace.starts, axis=1)
    return np.clip(latest, 0.0, ends - posts), last


def table(found: Waiting, rows: int = 5) -> str:
    """Return a few lines: the whole, and the edges with most waiting."""
    total = found.seconds.mean()
    low, high = found.least.mean(), found.most.mean()
    lines = [
        f"a node's exchanges: {found.exchange.mean():.3f} s, of which waiting for "
        f"slower neighbours {total:.3f} s ({100 * found.share:.0f} %; between "
        f"{low:.3f} and {high:.3f})",
        f"busiest node: {found.busy.argmax()}, {found.imbalance:.2f} times the mean of "
        f"{found.busy.mean():.3f} s",
    ]
    for e in np.argsort(-found.by_edge)[:rows]:
        i, j = found.edges[e]
        if found.by_edge[e] > 0:
            lines.append(f"node {i} waited for node {j}: {found.by_edge[e]:.3f} s")
    return "\n".join(lines)


def as_dict(found: Waiting) -> dict[str, Any]:
    """Return all numbers, for JSON."""
    numbers = {k: v.tolist() for k, v in found._asdict().items()}
    return numbers | {"share": found.share, "imbalance": found.imbalance}


def main(argv: Sequence[str] | None = None) -> int:
    """Print who waited for whom in a run; return the exit code."""
    parser = Parser(
        prog="python -m dadmm.waiting", description="Who waited for whom in a run."
    )
    parser.add_argument("run", metavar="RUN", help="folder of a run")
    parser.add_argument(
        "--way", metavar="TIME",
        help="what the quickest message takes, if known, such as '50 us'",
    )  # fmt: skip
    parser.add_argument("--out", metavar="FILE", help="write all numbers as JSON")
    try:
        given = parser.parse_args(argv)
        way = quantity(given.way, SECONDS, "--way") if given.way else None
        found = waiting(Trace.read(given.run), way)
        if given.out:
            write(given.out, json.dumps(as_dict(found)) + "\n")
    except DadmmError as error:
        return report_error(error)
    print(table(found))
    return 0
