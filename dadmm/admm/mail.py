"""The messages of all edges: header, penalty and parameters, written and read.

``sent`` has a node's parameters as each neighbour has them, rounded or old, and
``received`` those of the neighbours as this node has them. Multipliers and anchors are
computed from these, so that they are opposite and equal at the two ends of an edge.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dadmm.admm.edges import Edges
from dadmm.admm.state import Nodes
from dadmm.comm import wire
from dadmm.comm.codec import Coder
from dadmm.comm.sending import Gates, Sending, Turn
from dadmm.comm.wire import PAYLOAD, SLEEPY
from dadmm.core.layout import Matrix
from dadmm.graphs.schedule import Schedule


class Mail:
    """Write and read messages: a codec encodes them, gates decide which are sent.

    ``with_eta`` tells whether they carry proposed penalties; the initial ones do.
    """

    def __init__(
        self,
        nodes: Nodes,
        edges: Edges,
        sending: Sending,
        schedule: Schedule | None,
        with_eta: bool,
    ) -> None:
        state, exchange, incidence = nodes.state, nodes.exchange, nodes.incidence
        self.state, self.work, self.edges = state, nodes.work, edges
        self.exchange, self.incidence, self.direct = exchange, incidence, nodes.direct
        self.outbox, self.inbox = exchange.outbox, exchange.inbox
        kept = {} if self.direct else state.sending
        self.gates = Gates(nodes, nodes.names, sending, schedule, kept)
        self._codec = codec = Coder(sending.codec, nodes.layout)
        self._writing = self.outbox.payload[:, : codec.length]
        self._reading = self.inbox.payload[:, : codec.length]
        self._with_eta = with_eta
        self._begin = 0 if with_eta else wire.ETA
        if not with_eta and codec.length < self.outbox.payload.shape[1]:
            self._begin = wire.BRIEF
        self._short = 2 * wire.ETA - self._begin
        self._full = self._short + codec.length
        self._message: Matrix = state.sent if self.direct else state.sent.copy()
        self._sleeps = sending.edge_sleep > 0
        self._all = np.ones(len(state.eta), dtype=bool)
        self._is_sent = np.zeros(len(state.eta))
        self._sum_bytes = incidence.reducer(np.add, exchange.lengths, self.work.bytes)
        self._sum_sent = incidence.reducer(np.add, self._is_sent, self.work.messages)
        self._first = incidence.offsets[:-1][incidence.degrees > 0]  # edge of each node

    def open(self) -> None:
        """Exchange starting parameters and proposed penalties."""
        state, out, exchange = self.state, self.outbox, self.exchange
        kept = state.sending
        out.header[...] = wire.IDLE
        out.eta[...] = state.penalty["eta"]
        self.incidence.spread_into(self.work.shared, out.numbers)
        exchange.begin, exchange.width = 0, out.payload.shape[1]
        exchange.lengths[...] = 2 * wire.ETA + exchange.width
        exchange.swap()
        exchange.begin = self._begin
        exchange.width = self._codec.length
        exchange.lengths[...] = self._full
        state.sent[...], state.received[...] = out.numbers, self.inbox.numbers
        if "eta_sent" in kept:
            kept["eta_sent"][...], kept["eta_received"][...] = out.eta, self.inbox.eta
        if self.direct:  # all messages from now on have these lengths
            self.work.messages[...] = self.incidence.degrees
            self.work.bytes[...] = self.incidence.degrees * self._full

    def write(self, t: int) -> Turn:
        """Write the messages of iteration ``t``; return which edges take part."""
        state, out, turn = self.state, self.outbox, Turn(t)
        self.incidence.spread_into(state.header, out.header)
        if self._with_eta:
            out.eta[...] = state.penalty["eta"]
        self.edges.message(self._message)
        if self.direct:
            return turn
        kept = state.sending
        self.gates.before(turn, self._message, state.sent)
        due = self._all if turn.due is None else turn.due
        flags = due * np.uint8(PAYLOAD)
        if self._sleeps:
            flags += kept["sleepy"] * np.uint8(SLEEPY)
        out.fields["flags"] = flags
        self._encode(due)
        lengths = self.exchange.lengths
        lengths[...] = np.where(due, self._full, self._short)
        if self._begin == wire.BRIEF:
            lengths += wire.HEADER.itemsize * out.needs_more
        if turn.present is not None:
            lengths[~turn.present] = 0
            np.copyto(kept["eta_sent"], out.eta, where=turn.present)
        np.greater(lengths, 0, out=self._is_sent)
        kept["silent"] += ~due & (lengths > 0)
        self._sum_bytes()
        self._sum_sent()
        return turn

    def read(self, turn: Turn) -> None:
        if self.direct:
            return
        kept = self.state.sending
        turn.arrived = (self.inbox.fields["flags"] & PAYLOAD) > 0
        if turn.present is not None:
            turn.arrived &= turn.present
            np.copyto(kept["eta_received"], self.inbox.eta, where=turn.present)
        self.gates.after(turn, self.inbox)
        _masked(self._codec.read, turn.arrived, self._reading, self.state.received)

    def update_gates(self, turn: Turn) -> None:
        """Update the gates by how much each edge moved its ends."""
        if self._sleeps:
            self.gates.update(turn, self.edges.influence())

    def _encode(self, due: np.ndarray) -> None:
        """Write the payloads that are due; equal ones of a node are encoded once."""
        sent, writing, message = self.state.sent, self._writing, self._message
        if not self.gates.by_node:
            _masked(self._codec.write, due, message, sent, writing)
            return
        first = self._first[due[self._first]]
        if len(first):
            copy, out = sent[first], writing[first]
            self._codec.write(message[first], copy, out)
            node = self.incidence.node
            which = np.searchsorted(node[first], node[due])
            sent[due], writing[due] = copy[which], out[which]


def _masked(code: Callable[..., None], mask: np.ndarray, *arrays: np.ndarray) -> None:
    """Apply a codec to the rows of a mask."""
    if not mask.any():
        return
    if mask.all():
        code(*arrays)  # without copies
    else:
        parts = [array[mask] for array in arrays]
        code(*parts)
        for array, part in zip(arrays, parts, strict=True):
            array[mask] = part
