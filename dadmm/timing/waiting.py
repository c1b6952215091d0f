"""Estimate how long nodes waited for neighbours: ``dadmm waiting RUN``.

A run records durations only. Their sums give, on node i's clock, the time a_i(t) at
which it posted its messages and the time f_i(t) at which its exchange ended. The clocks
have unknown offsets o_i. No message arrives before it is posted:

    o_i + f_i(t) >= o_j + a_j(t)     for all neighbours i, j and all t,

so every edge bounds o_j - o_i from above by U_ij = min_t f_i(t) - a_j(t) and from below
by -U_ji, as in NTP. The difference of the bounds is the round trip U_ij + U_ji. With
offsets between the bounds (`Clocks.offsets`), node i waited in iteration t for

    wait_i(t) = clip(max_j (o_j + a_j(t)) - (o_i + a_i(t)), 0, exchange_i(t)),

and the rest of the exchange is the transfer of the last message. The record does not
determine the offset within its interval, but the waiting time lies between the values
for the two bounds, ``least`` and ``most``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dadmm.core.arguments import Parser
from dadmm.core.documents import write_text
from dadmm.core.errors import ConfigError
from dadmm.core.layout import Matrix, Vector
from dadmm.graphs.topology import Integers, Topology
from dadmm.timing.network import AMOUNT, SECONDS, quantity
from dadmm.timing.replay import Trace

WINDOW = 200  # iterations with constant offsets: untimed work makes clocks drift
LOW = 0.05  # quantile of the gaps that measures their spread
DOUBT = 0.01  # spread, relative to the round trip, that is not significant


class Waiting(NamedTuple):
    """Seconds that the nodes of a run waited for each other."""

    topology: Topology
    seconds: Vector  # (n_nodes,) estimated waiting time
    least: Vector  # (n_nodes,) bounds for all possible offsets
    most: Vector
    by_edge: Vector  # (E,) what i waited for j, aligned with the edges
    exchange: Vector  # (n_nodes,) of all exchanges, with waiting
    busy: Vector  # (n_nodes,) local problem, multipliers and penalties

    @property
    def share(self) -> float:
        """Fraction of the exchange time that was waiting."""
        return float(self.seconds.sum() / max(self.exchange.sum(), 1e-300))

    @property
    def imbalance(self) -> float:
        """Computing time of the busiest node, divided by the mean."""
        return float(self.busy.max() / max(self.busy.mean(), 1e-300))


def waiting(trace: Trace, way: float | None = None) -> Waiting:
    """Estimate how long nodes waited, with offsets constant in windows of iterations.

    ``way`` is the seconds from post to arrival of the fastest message, by default half
    the smallest round trip, the largest possible value: if one node is always late, the
    estimate may then be half of the true waiting time.
    """
    if trace.alone:
        raise ConfigError(
            "all nodes of this run were in one process, where none waits; run it under "
            "mpiexec"
        )
    clocks = Clocks.of(trace)
    totals, by_edge = np.zeros((3, trace.n_nodes)), np.zeros(len(trace.edges))
    for first in range(0, len(trace.solve), WINDOW):
        part = slice(first, first + WINDOW)
        some = Clocks(trace, clocks.posts[part], clocks.ends[part], clocks.heard[part])
        offsets, upper = some.offsets(way), some.bounds()[0]
        wait, last = some.waits(np.diff(offsets[trace.edges])[:, 0])
        if len(by_edge):
            by_edge += np.bincount(last.ravel(), wait.ravel(), len(by_edge))
        low, high = some.waits(-upper[trace.topology.reverse])[0], some.waits(upper)[0]
        # least squares can leave an interval, and drift can invert one
        totals[0] += wait.sum(axis=0)
        totals[1] += np.minimum(low, wait).sum(axis=0)
        totals[2] += np.maximum(high, wait).sum(axis=0)
    busy = (trace.solve + trace.update).sum(axis=0)
    seconds, least, most = totals
    exchange = trace.exchange.sum(axis=0)
    return Waiting(trace.topology, seconds, least, most, by_edge, exchange, busy)


class Clocks(NamedTuple):
    """When nodes posted and ended exchanges, on clocks that start with the solve."""

    trace: Trace
    posts: Matrix  # (iterations, n_nodes)
    ends: Matrix  # (iterations, n_nodes)
    heard: NDArray[np.bool_]  # (iterations, E) whether i got a message from j

    @classmethod
    def of(cls, trace: Trace) -> Clocks:
        """Return the clocks of a run."""
        ends = np.cumsum(trace.compute(observe=True) + trace.exchange, axis=0)
        heard = trace.bytes[:, trace.topology.reverse] > 0
        return cls(trace, ends - trace.exchange, ends, heard)

    def bounds(self) -> tuple[Vector, Vector]:
        """Return the bounds U_ij of ``o_j - o_i``, and the spread of the gaps, (E,).

        The spread is that of a low quantile to the smallest gap. If j's message arrives
        last, a gap is its transfer time, which varies little; else it varies as much as
        the computing times.
        """
        i, j = self.trace.edges.T
        gaps = np.where(self.heard, self.ends[:, i] - self.posts[:, j], np.inf)
        gaps.sort(axis=0)
        low = gaps[min(1 + int(LOW * len(gaps)), len(gaps) - 1)]
        known = np.isfinite(low)  # edges without messages get no spread
        return gaps[0], np.where(known, low, 0.0) - np.where(known, gaps[0], 0.0)

    def offsets(self, way: float | None) -> Vector:
        """Return the offset of each node's clock, (n_nodes,), with mean 0.

        The offsets are the least-squares fit of a point in each edge's interval,
        weighted by the inverse square of the round trip, which bounds its error. The
        point is the middle if messages take equally long in both directions. The part
        of an interval beyond two ``way`` goes to the direction whose gap varies, as its
        messages arrived early: the middle would hide half of the waiting for a node
        that is always late.
        """
        n, reverse = self.trace.n_nodes, self.trace.topology.reverse
        upper, spread = self.bounds()
        known = np.isfinite(upper + upper[reverse])  # else no message, and no bound
        if not known.any():
            return np.zeros(n)
        under, back = upper[reverse][known], spread[reverse][known]  # of (j, i)
        upper, spread = upper[known], spread[known]
        trip = upper + under
        way = trip.min() / 2 if way is None else way
        rest = np.maximum(trip - 2 * way, 0.0)
        doubt = (DOUBT * rest) ** 2 + 1e-24
        loose = (spread**2 + doubt) / (spread**2 + back**2 + 2 * doubt)
        apart = (upper - under) / 2 + rest * (0.5 - loose)
        weight = 1 / np.maximum(trip, 1e-6) ** 2
        weight = weight / weight.max()
        i, j = self.trace.edges[known].T
        laplacian = np.zeros((n, n))
        np.add.at(laplacian, (i, i), weight)
        np.add.at(laplacian, (i, j), -weight)
        pull = np.bincount(i, -weight * apart, minlength=n)
        found = np.linalg.lstsq(laplacian, pull, rcond=None)[0]
        return np.asarray(found - found.mean())

    def waits(self, apart: Vector) -> tuple[Matrix, Integers]:
        """Return how long nodes waited, and the edge to the neighbour that posted last.

        Both are (iterations, n_nodes); ``apart`` (E,) is ``o_j - o_i`` of every edge.
        """
        trace, posts = self.trace, self.posts
        if not len(trace.edges):
            return np.zeros_like(posts), np.zeros(posts.shape, dtype=np.int64)
        (i, j), starts = trace.edges.T, trace.topology.indptr[:-1]
        late = np.where(self.heard, posts[:, j] + apart - posts[:, i], -np.inf)
        latest = np.maximum.reduceat(late, starts, axis=1)
        index = np.where(late == latest[:, i], np.arange(len(i)), len(i))
        last = np.minimum.reduceat(index, starts, axis=1)
        return np.clip(latest, 0.0, self.ends - posts), last


def table(found: Waiting) -> str:
    """Return the totals, and the five edges with most waiting time, as text."""
    total, low, high = (x.mean() for x in (found.seconds, found.least, found.most))
    of, by_edge = found.topology.label, found.by_edge
    lines = [
        f"a node's exchanges: {found.exchange.mean():.3f} s, of which waiting for "
        f"slower neighbours {total:.3f} s ({100 * found.share:.0f} %; between "
        f"{low:.3f} and {high:.3f})",
        f"busiest node: {of(int(found.busy.argmax()))}, {found.imbalance:.2f} times "
        f"the mean of {found.busy.mean():.3f} s",
    ]
    for e in np.argsort(-by_edge)[: min(5, np.count_nonzero(by_edge > 0))]:
        i, j = map(of, found.topology.edges[e])
        lines.append(f"node {i} waited for node {j}: {by_edge[e]:.3f} s")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the waiting times of a run; return the exit code."""
    parser = Parser(
        "waiting", "Estimate how long nodes waited for each other in a run."
    )
    add = parser.add_argument
    add("run", metavar="RUN", help="folder of a run")
    add("--way", metavar="TIME", help="transfer time of the fastest message, if known, "
        "such as '50 us'")  # fmt: skip
    add("--out", metavar="FILE", help="write all numbers as JSON")
    given = parser.parse_args(argv)
    way = None
    if given.way is not None:
        AMOUNT.check("--way", way := quantity(given.way, SECONDS, "--way"))
    found = waiting(Trace.read(given.run), way)
    if given.out:
        graph, *columns = found
        named = zip(Waiting._fields[1:], columns, strict=True)
        numbers: dict[str, object] = {name: own.tolist() for name, own in named}
        numbers |= {"share": found.share, "imbalance": found.imbalance}
        numbers |= {"edges": graph.edges.tolist(), "names": graph.names}
        write_text(Path(given.out), json.dumps(numbers) + "\n")
    print(table(found))
    return 0
