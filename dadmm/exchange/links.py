"""A node's edges as messages see them: what was said, what was heard, what is due.

``said`` is this node's parameters as each neighbour has them, rounded or old, and
``heard`` the neighbours' as this node has them. Both ends of an edge know both, bit for
bit, so whatever moves an edge (dual step, anchor, penalty) is made of these and never
of the parameters themselves: then the two ends stay equal and opposite.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dadmm.core.interfaces import Exchange, StopState
from dadmm.core.layout import Layout, Matrix, Vector
from dadmm.exchange import codec, wire
from dadmm.exchange.sending import EVERYTHING, REVISIT, Sending
from dadmm.exchange.wire import PAYLOAD, SLEEPY, Headers, Rows

Mask = np.ndarray  # of bool, (degree,)
# all that the next iteration depends on; each of the arrays has a row per edge
STATE = (
    "said", "heard", "eta_said", "eta_heard", "t", "silent", "lost",
    "_threshold", "_influence", "_sleepy", "_asleep", "_missed",
)  # fmt: skip


class Links:
    """All edges of one node.

    Parameters
    ----------
    exchange : Exchange
        Whose rows are written and read.
    index : int
        Of the node.
    layout : Layout
    sending : Sending
    agrees : bool
        Whether both ends find the same penalty, so that none is sent after the opening.
    schedule : ndarray of bool, shape (period, degree), optional
        Which edges there are in iteration ``1 + k period + row``; all without it.
    """

    def __init__(
        self,
        exchange: Exchange,
        index: int,
        layout: Layout,
        sending: Sending = EVERYTHING,
        *,
        agrees: bool = False,
        schedule: np.ndarray | None = None,
    ) -> None:
        outbox, inbox = exchange.outbox[index], exchange.inbox[index]
        self.lengths = exchange.lengths[index]
        self.index, self.sending, self.schedule = index, sending, schedule
        degree, size = len(outbox), layout.shared_size
        self._opening = Rows(outbox, True), Rows(inbox, True)
        self._out, self._in = Rows(outbox, not agrees), Rows(inbox, not agrees)
        self._agrees = agrees
        self.codec = codec.build(sending.payload, layout, sending.bits)
        end = self._out.start + self.codec.length
        self._writing = self._out.payload[:, : self.codec.length]
        self._reading = self._in.payload[:, : self.codec.length]
        self._full, self._short = end, self._out.start
        self.direct = sending.always and schedule is None
        if self.direct:  # the rows themselves are what was said and heard
            self.said, self.heard = self._out.numbers(size), self._in.numbers(size)
        else:
            self.said, self.heard = np.empty((degree, size)), np.empty((degree, size))
        self.eta_said, self.eta_heard = np.empty(degree), np.empty(degree)
        self.t = 0
        self._period = 1 if schedule is None else len(schedule)
        self.cycle = sending.send_every * self._period  # until all edges moved
        self.idle = False  # whether no edge of any node moves in this iteration
        self.live: Mask | None = None  # edges that move in this iteration; None is all
        self.present: Mask | None = None  # edges that there are; None is all
        self.silent = np.zeros(degree, dtype=np.int64)  # messages without payload
        self.lost = np.zeros(degree, dtype=np.int64)  # payloads that did not arrive
        self._everybody = np.ones(degree, dtype=bool)
        self._threshold = sending.censor
        self._influence = np.full(degree, np.inf)
        self._sleepy = np.zeros(degree, dtype=bool)  # as told to the neighbours
        self._asleep = np.zeros(degree, dtype=bool)  # as both ends told each other
        self._missed = np.zeros(degree, dtype=np.int64)  # turns since an edge moved

    def greet(self, shared: Vector, eta: Vector, accord: StopState) -> None:
        """Write the opening messages."""
        rows, _ = self._opening
        rows.write(accord)
        rows.flags[:] = PAYLOAD
        rows.eta[:] = self.eta_said[:] = eta
        rows.numbers(len(shared))[:] = shared
        self.lengths[:] = wire.width(len(shared))

    def meet(self) -> Headers:
        """Take in the opening messages."""
        out, rows = self._opening
        size = self.said.shape[1]
        self.eta_heard[:] = rows.eta
        said, heard = out.numbers(size).copy(), rows.numbers(size).copy()
        self.said[:], self.heard[:] = said, heard
        self.lengths[:] = self._full
        return rows.headers()

    def send(self, shared: Vector | Matrix, eta: Vector, accord: StopState) -> None:
        """Write the messages of the next iteration, and how long they are.

        Parameters
        ----------
        shared : ndarray of shape (size,), or (degree, size) for one to each neighbour
        eta : ndarray of shape (degree,)
        accord : StopState
        """
        self.t += 1
        self._out.write(accord)
        if self.direct:  # the flags are those of the opening
            self._tell(eta)
            self.said[:] = shared
            return
        self._choose()
        self._tell(eta)
        due = self._everybody if self.live is None else self.live
        if self.sending.censor:
            due = due & self._changed(shared)
        self._write(shared, due)
        self._out.flags[:] = due * PAYLOAD + self._sleepy * SLEEPY
        self.lengths[:] = np.where(due, self._full, self._short)
        if self.present is not None:
            self.lengths[~self.present] = 0
        self.silent += ~due & (self.lengths > 0)

    def receive(self) -> Headers:
        """Take in the neighbours' messages; return their words on stopping."""
        headers = self._in.headers()
        if self.direct:
            if not self._agrees:
                self.eta_heard[:] = self._in.eta
            return headers
        came = self._everybody if self.present is None else self.present
        if not self._agrees:
            self.eta_heard[came] = self._in.eta[came]
        flags = self._in.flags
        fresh = came & ((flags & PAYLOAD) > 0)
        if self.sending.drop_probability:
            fresh = self.live = self._arrived(fresh)
        self._read(fresh)
        if self.sending.edge_sleep:
            theirs = (flags & SLEEPY) > 0
            self._asleep[came] = self._sleepy[came] & theirs[came]
        if self.present is not None:
            headers = Headers(*(header[came] for header in headers))
        return headers

    def rest(self, influence: Vector) -> None:
        """Note by how much each edge (degree,) moved this node, for ``edge_sleep``."""
        moved = self._everybody if self.live is None else self.live
        self._influence[moved] = influence[moved]
        most = self._influence.max(initial=0.0)
        self._sleepy = self._influence < self.sending.edge_sleep * most

    def state(self) -> dict[str, Any]:
        """Return all that the next iteration depends on; the arrays are in use."""
        return {name: getattr(self, name) for name in STATE}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        for name in STATE:
            own = getattr(self, name)
            if isinstance(own, np.ndarray):  # which may be the message rows themselves
                own[...] = state[name]
            else:
                setattr(self, name, state[name])

    def lag(self, shared: Vector) -> Matrix | None:
        """Return what neighbours do not know yet of this node; None if nothing."""
        return None if self.direct else shared - self.said

    def _choose(self) -> None:
        """Find out which edges there are and which of them move."""
        periods, row = divmod(self.t - 1, self._period)
        self.idle = (periods + 1) % self.sending.send_every > 0
        if self.schedule is not None:
            self.present = self.schedule[row]
        self.live = self.present
        if self.idle:
            self.live = ~self._everybody
        elif self.sending.edge_sleep:
            self.live = self._awake(self._everybody if self.live is None else self.live)

    def _awake(self, turn: Mask) -> Mask:
        """Return which of the edges whose turn it is do not sleep through it.

        Counted by an edge's own turns: in iterations, those of a schedule might never
        fall on the one in which it is woken.
        """
        self._missed += turn
        awake = turn & (~self._asleep | (self._missed >= REVISIT))
        self._missed[awake] = 0
        return awake

    def _tell(self, eta: Vector) -> None:
        """Write the penalties where they are sent."""
        if self._agrees:
            return
        self._out.eta[:] = eta
        if self.present is None:
            self.eta_said[:] = eta
        else:
            self.eta_said[self.present] = eta[self.present]

    def _changed(self, shared: Vector) -> Mask:
        """Return to whom there is news."""
        self._threshold *= self.sending.censor_decay
        news = np.sqrt(np.square(shared - self.said).sum(axis=1))
        changed: Mask = news > self._threshold * np.sqrt(shared.dot(shared))
        return changed

    def _write(self, shared: Vector | Matrix, due: Mask) -> None:
        """Write the payloads that are due; alike ones once."""
        if not due.any():
            return
        sleeps = self.sending.edge_sleep > 0
        alike = shared.ndim == 1 and not sleeps and self.schedule is None
        if alike:  # then all are due or none
            self.codec.write(shared[None], self.said[:1], self._writing[:1])
            self.said[1:], self._writing[1:] = self.said[0], self._writing[0]
        else:
            said, out = self.said[due], self._writing[due]
            self.codec.write(np.broadcast_to(shared, self.said.shape)[due], said, out)
            self.said[due], self._writing[due] = said, out

    def _arrived(self, sent: Mask) -> Mask:
        """Return which payloads arrive, by this node's luck in this iteration."""
        luck = np.random.default_rng(
            [self.sending.drop_seed, 5, self.index, self.t]
        ).random(len(sent))
        arrived = sent & (luck >= self.sending.drop_probability)
        self.lost += sent & ~arrived
        return arrived

    def _read(self, fresh: Mask) -> None:
        if fresh.all():
            self.codec.read(self._reading, self.heard)
        elif fresh.any():
            heard = self.heard[fresh]
            self.codec.read(self._reading[fresh], heard)
            self.heard[fresh] = heard
