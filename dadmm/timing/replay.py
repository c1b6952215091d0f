"""Predict a run on another network: ``dadmm replay RUN --network wan``.

Computing times and message sizes come from the recorded run; its messages are
simulated. Before node i posts the messages of iteration t to all neighbours, it does
the update of t - 1 and the solve of t, times its straggler factor. Callbacks are left
out. Its exchange ends when all messages of its neighbours have arrived:

    post_i(t) = end_i(t - 1) + work_i(t)
    end_i(t)  = max(post_i(t), max_j arrival_ji(t))

A message that leaves its host passes the host's interface, in the order in which the
messages of all its nodes are posted, and at the same time its link (by radio a node
sends messages to all neighbours once, if they are the same):

    start   = max(post, interface free)
    left    = max(start + wire / egress, max(start, link free) + wire / bandwidth)
    arrival = left + latency

(An interface with a burst is ahead by the bytes that it can send at once.) If messages
are confirmed, an exchange also waits for the confirmations. The receiver confirms a
message when it has arrived and the receiver's own exchange has begun. Sums over a tree,
of set-up and end, go from level to level of the tree, up and down.
"""

from __future__ import annotations

import heapq
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dadmm.comm.tree import spanning_tree
from dadmm.core.arguments import Parser
from dadmm.core.documents import write_text
from dadmm.core.errors import ConfigError
from dadmm.core.layout import Matrix, Vector
from dadmm.graphs.topology import Integers, Topology
from dadmm.runs.stored import NOT_NEGATIVE, StoredRun
from dadmm.timing.network import CLASSES, Network

POST, CONFIRM = 0, 1  # kinds of events


@dataclass(frozen=True)
class Trace:
    """The timing of a recorded run: seconds, (iterations, n_nodes), and bytes."""

    topology: Topology
    solve: Matrix
    exchange: Matrix
    update: Matrix  # of multipliers and penalties
    observe: Matrix  # callbacks of the iteration before; when they end, solve starts
    bytes: Matrix  # (iterations, E) payload of i's message to j; 0 if none was sent
    prime: Vector  # (E,) payload of the exchange before iteration 1
    hosts: tuple[str, ...] = ()  # of each node, if known
    collectives: int = 0  # calls inside the loop; their time is part of exchange
    is_broadcast: bool = False  # a node's messages of an iteration have the same bytes
    sums: Matrix | None = None  # (E, 2) messages and bytes of sums over a tree
    alone: bool = False  # all nodes ran in one process, where none waits

    @property
    def edges(self) -> Integers:
        return self.topology.edges

    @property
    def n_nodes(self) -> int:
        return self.topology.n_nodes

    @property
    def seconds(self) -> float:
        """Seconds of the loop, on the slowest node."""
        spent = self.solve + self.exchange + self.update + self.observe
        return float(spent.sum(axis=0).max())

    def compute(self, observe: bool = False) -> Matrix:
        """Return the work between an exchange and the next, (iterations, n_nodes).

        Row t is the update of iteration t - 1 and the solve of t, and with ``observe``
        the callbacks in between. The last update comes after the last exchange.
        """
        work = self.solve + (self.observe if observe else 0.0)
        work[1:] += self.update[:-1]
        return work

    @classmethod
    def read(cls, folder: str | Path) -> Trace:
        return cls.of(StoredRun.read(folder))

    @classmethod
    def of(cls, run: StoredRun) -> Trace:
        summary, graph = run.summary, run.topology
        hosts = summary.get("node_hosts", [])
        if len(hosts) not in (0, graph.n_nodes):
            raise ConfigError(
                f"{run.folder / 'summary.json'} is damaged: it names {len(hosts)} "
                f"hosts for {graph.n_nodes} nodes"
            )
        spent = {
            name: run.by_iteration(run.column(f"{name}_seconds", NOT_NEGATIVE))
            for name in ("solve", "exchange", "update", "observe")
        }
        payload = run.by_iteration(_payload(run))
        edges, sums = graph.indices.shape, None
        missing = max(run.entry("bytes") - payload.sum(), 0.0)  # has no row
        prime = np.full(edges, missing / max(*edges, 1))
        if run.arrays.keys() >= {"tree_messages", "tree_bytes"}:
            tree = [run.array(f"tree_{what}", edges) for what in ("messages", "bytes")]
            sums = np.array(tree, dtype=float).T
        return cls(
            graph, **spent, bytes=payload, prime=prime, hosts=tuple(hosts), sums=sums,
            collectives=summary.get("collectives", 0), alone=not summary.over_mpi,
            is_broadcast=summary.get("is_broadcast", False),
        )  # fmt: skip


def _payload(run: StoredRun) -> Matrix:
    """Return the payloads of the messages of each row, (rows, E).

    Without edges.csv, the bytes of a node are divided evenly among its neighbours.
    This needs a message with payload to every neighbour.
    """
    if run.by_edge:
        return run.edge_column("bytes", NOT_NEGATIVE)
    messages = run.column("messages", NOT_NEGATIVE)
    sent, degrees = run.column("bytes", NOT_NEGATIVE), run.topology.degrees
    uneven = (messages != run.spans[:, None] * degrees).any()
    uneven |= (sent % np.maximum(messages, 1)).any()
    if uneven or run.summary.get("silent_messages"):
        raise ConfigError(
            f"the messages of the run in {run.folder} differ from edge to edge, and it "
            "has no edges.csv; run it again with --record-edges"
        )
    return np.asarray((sent / np.maximum(degrees, 1))[:, run.topology.edges[:, 0]])


class Breakdown(NamedTuple):
    """Seconds of the critical path by cause. Their sum is the time of the run.

    The path goes back from the end of an exchange to the post of the message that
    arrived or was confirmed last, and to the end of its sender's previous exchange.
    """

    compute: float  # mean over the nodes
    stragglers: float  # computing time on the path beyond the mean
    transmission: float  # bytes on the wire
    queueing: float  # waiting for an interface or link
    latency: float
    sums: float = 0.0  # sums over a tree, in set-up and at the end


class Replay:
    """A recorded run on a modelled network.

    Row 0 of the arrays is the exchange before iteration 1. ``work`` (iterations + 2,
    n_nodes) has the computing times before each post, and after the last, with
    ``observe`` of callbacks, too; ``posts`` and ``ends`` say when nodes post their
    messages and end their exchanges. ``origin`` and ``edge`` are of the message that
    ended an exchange, -1 without one, and ``parts`` (..., 3) from that post to this end
    the seconds on the wire, in queues, and of latency.
    """

    def __init__(self, trace: Trace, network: Network, observe: bool = False) -> None:
        self.trace, self.network = trace, network
        n, n_edges = trace.n_nodes, len(trace.edges)
        self.wires = wires = network.wires(trace.edges, n, trace.hosts)
        factors = network.stragglers.factors(len(trace.solve), n)
        work, after = trace.compute(observe) * factors, trace.update[-1:] * factors[-1:]
        self.work = np.concatenate([np.zeros((1, n)), work, after])
        sizes = np.concatenate([trace.prime[None], trace.bytes])
        wire = np.where(wires.leaves, network.overhead.wire(sizes), sizes)
        if network.broadcast and trace.is_broadcast:  # only a node's first edge counts
            wire[1:, ~np.isin(np.arange(n_edges), trace.topology.indptr)] = 0.0
        self._wire = wire
        self._hold = np.where(wires.leaves, wire / network.egress, 0.0)
        self._carry = wire / wires.bandwidth
        self._ahead = network.burst / network.egress  # seconds
        self._rows = [slice(*pair) for pair in pairwise(trace.topology.indptr.tolist())]
        self._reverse = trace.topology.reverse.tolist()
        self._sent = sizes > 0
        self._checked = wires.leaves & (sizes > network.confirm_above)
        self._reply = network.overhead.confirmation + network.overhead.packet  # bytes
        shape = len(sizes), n
        self._due = np.ones(shape, dtype=np.int64)  # events before an end: the post,
        np.add.at(self._due.T, trace.edges[:, 1], self._sent.T)  # messages,
        np.add.at(self._due.T, trace.edges[:, 0], self._checked.T)  # confirmations
        self._interface = np.zeros(int(wires.host.max()) + 1)
        self._link = np.zeros(n_edges)
        self._arrival = np.zeros(n_edges)  # of each edge's last message
        self._ways = np.zeros((n_edges, 3))  # its parts
        self._latest = np.full(n, -1)  # iteration that each node posted
        self._came = np.full(shape, -np.inf)
        self.posts, self.ends = np.zeros(shape), np.zeros(shape)
        self.origin = np.tile(np.arange(n), (len(sizes), 1))
        self.edge, self.parts = np.full(shape, -1), np.zeros((*shape, 3))
        # Events are played in the order of time, and none causes an earlier one. So
        # interfaces send in that order, whatever the iterations of a host's nodes.
        self._events = [(self.work[0, i], POST, i, 0) for i in range(n)]
        while self._events:
            now, kind, which, t = heapq.heappop(self._events)
            (self._post if kind == POST else self._confirm)(now, which, t)

    @property
    def seconds(self) -> float:
        """Time of the run, with the first exchange, and sums of set-up and end."""
        return float((self.ends[-1] + self.work[-1]).max()) + self.sum_seconds

    @cached_property
    def sum_seconds(self) -> float:
        """Time of sums over a tree, in set-up and at the end."""
        trace = self.trace
        if trace.sums is None:
            return 0.0
        return tree_seconds(trace.topology, self.network, trace.sums, trace.hosts)

    @property
    def loop_seconds(self) -> float:
        """Time of the iterations, on the slowest node."""
        return float((self.ends[-1] + self.work[-1] - self.ends[0]).max())

    @property
    def bytes(self) -> int:
        """Payload of all messages."""
        return int(self.trace.bytes.sum() + self.trace.prime.sum())

    @property
    def wire_bytes(self) -> int:
        """Bytes that leave the hosts, with headers."""
        replies = np.count_nonzero(self._checked) * self._reply
        return int(self._wire[:, self.wires.leaves].sum() + replies)

    @cached_property
    def path(self) -> tuple[Breakdown, Vector]:
        """The critical path by cause, and its network seconds by edge, (E,)."""
        by_edge = np.zeros((3, len(self.trace.edges)))
        i = int((self.ends[-1] + self.work[-1]).argmax())
        work = float(self.work[-1, i])
        for t in range(len(self.ends) - 1, -1, -1):
            e = self.edge[t, i]
            if e >= 0:
                by_edge[:, e] += self.parts[t, i]
                i = self.origin[t, i]
            work += float(self.work[t, i])
        compute = min(float(self.work.mean(axis=1).sum()), work)
        wired, queued, latency = by_edge.sum(axis=1).tolist()
        late, sums = work - compute, self.sum_seconds
        parts = Breakdown(compute, late, wired, queued, latency, sums)
        return parts, by_edge.sum(axis=0)

    @property
    def breakdown(self) -> Breakdown:
        return self.path[0]

    @property
    def slowest(self) -> tuple[int, int] | None:
        """The edge with most network time on the critical path, or None."""
        by_edge = self.path[1]
        if not by_edge.any():
            return None
        i, j = self.trace.edges[by_edge.argmax()].tolist()
        return i, j

    def _post(self, now: float, i: int, t: int) -> None:
        """Send node i's messages."""
        row, sent = self._rows[i], self._sent[t, self._rows[i]]
        left, wired = self._send(now, i, row, self._hold[t, row], self._carry[t, row])
        latency = self.wires.latency[row]
        arrival = left + latency
        queued = np.maximum(left - wired - now, 0.0)
        self._arrival[row] = arrival
        self._ways[row] = np.stack([wired, queued, latency], axis=1)
        self._latest[i] = t
        self.posts[t, i] = now
        to = self.trace.edges[row, 1]
        later = np.flatnonzero(sent & (arrival > self._came[t, to]))
        ends = t, to[later]
        self._came[ends], self.parts[ends] = arrival[later], self._ways[row][later]
        self.origin[ends], self.edge[ends] = i, later + row.start
        self._due[t, to] -= sent
        self._due[t, i] -= 1
        if self._checked[t].any():
            both = np.flatnonzero(self._latest[to] == t) + row.start  # ends have posted
            for e in both.tolist():
                for k in (e, self._reverse[e]):
                    if self._checked[t, k]:
                        when = max(self._arrival[k], now)
                        heapq.heappush(self._events, (when, CONFIRM, k, t))
        for j in (i, *to[sent].tolist()):
            self._end(t, j)

    def _confirm(self, now: float, e: int, t: int) -> None:
        """Send the confirmation of the message on edge e back to its sender."""
        i, j = self.trace.edges[e].tolist()
        back = self._reverse[e]
        row = slice(back, back + 1)
        hold = np.array([self._reply / self.network.egress])
        carry = self._reply / self.wires.bandwidth[row]
        left, wired = self._send(now, j, row, hold, carry)
        latency = self.wires.latency[back]
        way = np.array([wired[0], max(left[0] - wired[0] - now, 0.0), latency])
        when = left[0] + latency
        if when > self._came[t, i]:
            self._came[t, i] = when
            slow = self._arrival[e] >= self.posts[t, j]  # else j was late
            self.origin[t, i], self.edge[t, i] = (i, e) if slow else (j, back)
            self.parts[t, i] = way + (self._ways[e] if slow else 0.0)
        self._due[t, i] -= 1
        self._end(t, i)

    def _send(
        self, now: float, i: int, row: slice, hold: Vector, carry: Vector
    ) -> tuple[Vector, Vector]:
        """Return when messages of node i on some edges have left, and their wire times.

        ``hold`` and ``carry`` are their seconds on interface and link.
        """
        leaves, host = self.wires.leaves[row], self.wires.host[i]
        free = max(now, self._interface[host])
        through = np.where(leaves, free + np.cumsum(hold) - self._ahead, now)
        start = np.maximum(through - hold, now)
        if leaves.any():
            self._interface[host] = free + hold.sum()
        begun = np.maximum(start, self._link[row])
        left = np.maximum(np.maximum(through, now), begun + carry)
        self._link[row] = left
        return left, np.minimum(np.maximum(hold, carry), left - now)

    def _end(self, t: int, i: int) -> None:
        """End node i's exchange if nothing is missing, and schedule its next post."""
        if self._due[t, i]:
            return
        posted, came = self.posts[t, i], self._came[t, i]
        end = self.ends[t, i] = max(posted, came)
        if came <= posted:  # it did not wait
            self.origin[t, i], self.edge[t, i] = i, -1
        if t + 1 < len(self.ends):
            heapq.heappush(self._events, (end + self.work[t + 1, i], POST, i, t + 1))


def tree_seconds(
    graph: Topology, network: Network, sent: Matrix, hosts: tuple[str, ...] = ()
) -> float:
    """Return the modelled time of sums over a tree: level by level, up and down.

    ``sent`` (E, 2) has messages and bytes by edge.
    """
    times = int(sent[:, 0].max(initial=0))
    if not times:
        return 0.0
    parents, depth = spanning_tree(graph)
    i, j = graph.edges.T
    up, down = parents[i] == j, parents[j] == i
    levels = [up & (depth[i] == d) for d in range(int(depth.max()), 0, -1)]
    levels += [down & (depth[j] == d) for d in range(1, int(depth.max()) + 1)]
    each = np.array([np.where(level, sent[:, 1] / times, 0.0) for level in levels])
    none, nothing = np.zeros((len(each), graph.n_nodes)), np.zeros(len(i))
    trace = Trace(graph, none, none, none, none, each, nothing, hosts)
    return times * Replay(trace, network).seconds


def table(replays: Sequence[Replay]) -> str:
    """Return a table with a row per network."""
    head = ("network", "seconds", *Breakdown._fields, "bytes on wire", "slowest link")
    rows: list[tuple[str, ...]] = [head]
    for found in replays:
        (causes, by_edge), link = found.path, "none"
        seconds = (found.seconds, *causes)
        numbers = [f"{x:.4g}" if x > 1e-9 else "0" for x in seconds]  # else rounding
        if found.slowest is not None:
            i, j = map(found.trace.topology.label, found.slowest)
            e = by_edge.argmax()
            share = by_edge[e] / max(found.seconds, 1e-300)
            link = f"{i} to {j} ({CLASSES[found.wires.kind[e]]}), {100 * share:.0f} %"
        rows.append((found.network.name, *numbers, f"{found.wire_bytes:,}", link))
    first, *widths = (max(map(len, column)) for column in zip(*rows, strict=True))
    lines = []
    for name, *cells, link in rows:
        middle = map(str.rjust, cells, widths)
        lines.append("  ".join([name.ljust(first), *middle, link]))
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the predicted time of a run on each network; return the exit code."""
    parser = Parser("replay", "Predict the time of a recorded run on other networks.")
    add = parser.add_argument
    add("run", metavar="RUN", help="folder of a run")
    add("--network", action="append", required=True, metavar="NAME", help="a preset "
        "(host, lan, wan, wireless) or a TOML file; may be repeated")  # fmt: skip
    add("--out", metavar="FILE", help="write the numbers as JSON")
    given = parser.parse_args(argv)
    networks = [Network.read(name) for name in given.network]
    trace = Trace.read(given.run)
    found = [Replay(trace, network) for network in networks]
    if given.out:
        names = ("seconds", "loop_seconds", "bytes", "wire_bytes")
        rows = [
            {name: getattr(each, name) for name in names}
            | {"network": each.network.name, "slowest_link": each.slowest}
            | {"iterations": len(trace.solve), **each.breakdown._asdict()}
            for each in found
        ]
        write_text(Path(given.out), json.dumps(rows, indent=2) + "\n")
    if trace.collectives:
        print(
            f"dadmm: warning: {trace.collectives} collectives of this run are not "
            "modelled; use a run with --agreement neighbours",
            file=sys.stderr,
        )
    print(
        f"{trace.n_nodes} nodes, {len(trace.edges)} directed edges, "
        f"{len(trace.solve)} iterations, {found[0].bytes:,} bytes; recorded in "
        f"{trace.seconds:.4g} s"
    )
    print(table(found))
    return 0
