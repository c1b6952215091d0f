"""Discrete-event simulation of a run's messages on a modelled network.

When node i has done its work of iteration t, it posts messages to all neighbours in
their order. Its exchange ends when all messages of its neighbours have arrived:

    post_i(t) = end_i(t - 1) + work_i(t)
    end_i(t)  = max(post_i(t), max_j arrival_ji(t))

A message that leaves its host passes the host's interface, in the order in which the
messages of all its nodes are posted, and at the same time its link:

    start   = max(post, interface free)
    left    = max(start + wire / egress, max(start, link free) + wire / bandwidth)
    arrival = left + latency

(An interface with a burst is ahead by the bytes that it can send at once.) If messages
are confirmed, an exchange also waits for the confirmations. The receiver confirms a
message when it has arrived and the receiver's own exchange has begun.
"""

from __future__ import annotations

import heapq
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from dadmm.core.layout import Matrix, Vector
from dadmm.timing.network import Network, Wires
from dadmm.timing.trace import Integers, Trace

POST, CONFIRM = 0, 1  # kinds of events


class Played(NamedTuple):
    """Simulated times; row 0 is the exchange before iteration 1."""

    posts: Matrix  # (iterations + 1, n_nodes)
    ends: Matrix  # (iterations + 1, n_nodes)
    origin: Integers  # (iterations + 1, n_nodes) the node whose message ended it
    edge: Integers  # (iterations + 1, n_nodes) the edge of that message, or -1
    parts: np.ndarray  # (iterations + 1, n_nodes, 3) from that post to this end:
    # seconds on the wire, in queues, and of latency


def play(trace: Trace, network: Network, wires: Wires, work: Matrix) -> Played:
    """Simulate a run with computing times (iterations + 1, n_nodes) before each post.

    Of the trace only its messages are used; ``wires`` are those of its edges.
    """
    simulation = _Simulation(trace, network, wires, work)
    heap = simulation.events
    # Events are in the order of time, and none causes an earlier one. So interfaces
    # send in that order, even if the nodes of a host are in different iterations.
    while heap:
        now, kind, which, t = heapq.heappop(heap)
        if kind == POST:
            simulation.post(now, which, t)
        else:
            simulation.confirm(now, which, t)
    return simulation.played


class _Simulation:
    """The state of nodes, interfaces and links."""

    def __init__(
        self, trace: Trace, network: Network, wires: Wires, work: Matrix
    ) -> None:
        sizes = np.concatenate([trace.prime[None], trace.bytes])
        wire = np.where(wires.leaves, network.overhead.wire(sizes), sizes)
        self._hold = np.where(wires.leaves, wire / network.egress, 0.0)
        self._carry = wire / wires.bandwidth
        self._ahead = network.burst / network.egress  # seconds
        reply = network.overhead.confirmation + network.overhead.packet
        self._reply = reply / network.egress, reply / wires.bandwidth
        self._wires, self._work, self._edges = wires, work, trace.edges
        bins = [*trace.starts.tolist(), len(trace.edges)]
        self._rows = [slice(*pair) for pair in pairwise(bins)]
        self._reverse = trace.reverse.tolist()
        self._sent = sizes > 0
        self._checked = wires.leaves & (sizes > network.confirm_above)
        shape = len(sizes), trace.n_nodes
        self._due = np.ones(shape, dtype=np.int64)  # events before an end: the post,
        np.add.at(self._due.T, trace.edges[:, 1], self._sent.T)  # messages,
        np.add.at(self._due.T, trace.edges[:, 0], self._checked.T)  # confirmations
        self._interface = np.zeros(int(wires.host.max()) + 1)
        self._link = np.zeros(len(trace.edges))
        self._arrival = np.zeros(len(trace.edges))  # of each edge's last message
        self._ways = np.zeros((len(trace.edges), 3))  # its parts
        self._latest = np.full(trace.n_nodes, -1)  # iteration that each node posted
        self._came = np.full(shape, -np.inf)
        nodes = np.tile(np.arange(trace.n_nodes), (len(sizes), 1))
        self.played = Played(
            np.zeros(shape), np.zeros(shape), nodes, np.full(shape, -1),
            np.zeros((*shape, 3)),
        )  # fmt: skip
        self.events = [(work[0, i], POST, i, 0) for i in range(trace.n_nodes)]
        heapq.heapify(self.events)

    def post(self, now: float, i: int, t: int) -> None:
        """Send node i's messages."""
        row, sent = self._rows[i], self._sent[t, self._rows[i]]
        left, wired = self._send(now, i, row, self._hold[t, row], self._carry[t, row])
        latency = self._wires.latency[row]
        arrival = left + latency
        queued = np.maximum(left - wired - now, 0.0)
        self._arrival[row] = arrival
        self._ways[row] = np.stack([wired, queued, latency], axis=1)
        self._latest[i] = t
        self.played.posts[t, i] = now
        to = self._edges[row, 1]
        later = sent & (arrival > self._came[t, to])
        self._come(t, to[later], arrival[later], i, np.flatnonzero(later) + row.start)
        self.played.parts[t, to[later]] = self._ways[row][later]
        self._due[t, to] -= sent
        self._due[t, i] -= 1
        if self._checked[t].any():
            self._plan(now, row, t)
        for j in (i, *to[sent].tolist()):
            self._end(t, j)

    def _plan(self, now: float, row: slice, t: int) -> None:
        """Schedule the confirmations that follow from the post on these edges."""
        for e in range(row.start, row.stop):
            back = self._reverse[e]
            if self._latest[self._edges[e, 1]] == t:  # both ends have posted
                for k in (e, back):
                    if self._checked[t, k]:
                        when = max(self._arrival[k], now)
                        heapq.heappush(self.events, (when, CONFIRM, k, t))

    def confirm(self, now: float, e: int, t: int) -> None:
        """Send the confirmation of the message on edge e back to its sender."""
        i, j = self._edges[e].tolist()
        back = self._reverse[e]
        row = slice(back, back + 1)
        hold, carry = self._reply
        left, wired = self._send(now, j, row, np.array([hold]), carry[row])
        latency = self._wires.latency[back]
        way = np.array([wired[0], max(left[0] - wired[0] - now, 0.0), latency])
        when = left[0] + latency
        if when > self._came[t, i]:
            slow = self._arrival[e] >= self.played.posts[t, j]  # else j was late
            at = np.array([i])
            self._come(t, at, np.array([when]), i if slow else j, e if slow else back)
            self.played.parts[t, i] = way + (self._ways[e] if slow else 0.0)
        self._due[t, i] -= 1
        self._end(t, i)

    def _send(
        self, now: float, i: int, row: slice, hold: Vector, carry: Vector
    ) -> tuple[Vector, Vector]:
        """Return when messages of node i on some edges have left, and their wire times.

        ``hold`` and ``carry`` are their seconds on interface and link.
        """
        leaves, host = self._wires.leaves[row], self._wires.host[i]
        free = max(now, self._interface[host])
        through = np.where(leaves, free + np.cumsum(hold) - self._ahead, now)
        start = np.maximum(through - hold, now)
        if leaves.any():
            self._interface[host] = free + hold.sum()
        begun = np.maximum(start, self._link[row])
        left = np.maximum(np.maximum(through, now), begun + carry)
        self._link[row] = left
        return left, np.minimum(np.maximum(hold, carry), left - now)

    def _come(
        self, t: int, to: Integers, when: Vector, origin: int, edge: Integers | int
    ) -> None:
        """Record the latest arrival so far."""
        self._came[t, to] = when
        self.played.origin[t, to], self.played.edge[t, to] = origin, edge

    def _end(self, t: int, i: int) -> None:
        """End node i's exchange if nothing is missing, and schedule its next post."""
        if self._due[t, i]:
            return
        posted, came = self.played.posts[t, i], self._came[t, i]
        end = self.played.ends[t, i] = max(posted, came)
        if came <= posted:  # it did not wait
            self.played.origin[t, i], self.played.edge[t, i] = i, -1
        if t + 1 < len(self._work):
            heapq.heappush(self.events, (end + self._work[t + 1, i], POST, i, t + 1))
