"""When an edge sends and moves: each gate restricts an iteration in one way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dadmm.core.layout import Matrix, Vector
from dadmm.exchange.wire import SLEEPY, Box
from dadmm.graphs.incidence import Incidence

REVISIT = 10  # a sleeping edge carries a payload in one of this many of its turns
Arrays = dict[str, np.ndarray]  # by edge, (E,)


@dataclass
class Turn:
    """Which edges take part in an iteration; masks (E,), or None for all edges."""

    t: int
    idle: bool = False  # whether no edge of any node is used
    present: np.ndarray | None = None  # edges that have a message
    live: np.ndarray | None = None  # edges that move
    due: np.ndarray | None = None  # edges whose message has a payload
    arrived: np.ndarray | None = None  # edges on which a payload has arrived


class Gate(Protocol):
    """One way to send less."""

    needs_influence: bool  # whether `learn` is needed
    by_node: bool  # whether it treats all edges of a node alike

    def arrays(self, n_edges: int) -> Arrays:
        """Return what the gate keeps from one iteration to the next, by edge."""

    def before(self, kept: Arrays, turn: Turn, message: Matrix, sent: Matrix) -> None:
        """Restrict an iteration before its messages are written.

        Parameters
        ----------
        kept : dict of str to ndarray
            Updated in place.
        turn : Turn
        message, sent : ndarray of shape (E, m)
            What would be sent, and what the neighbour has.
        """

    def after(self, kept: Arrays, turn: Turn, box: Box) -> None:
        """Take note of the messages that have arrived."""

    def learn(self, kept: Arrays, turn: Turn, influence: Vector) -> None:
        """Take note of how much each edge moved its ends, (E,)."""


class Open:
    """A gate that is always open; the base of the others."""

    needs_influence = False
    by_node = True

    def arrays(self, n_edges: int) -> Arrays:
        return {}

    def before(self, kept: Arrays, turn: Turn, message: Matrix, sent: Matrix) -> None:
        pass

    def after(self, kept: Arrays, turn: Turn, box: Box) -> None:
        pass

    def learn(self, kept: Arrays, turn: Turn, influence: Vector) -> None:
        pass


class Scheduled(Open):
    """Use the edges of a schedule.

    Parameters
    ----------
    active : ndarray of bool, shape (period, E)
        The edges of iteration ``1 + k period + row``.
    """

    by_node = False

    def __init__(self, active: np.ndarray) -> None:
        self.active = active

    def arrays(self, n_edges: int) -> Arrays:
        # penalties as last sent and received; an absent edge keeps its own
        return {"eta_sent": np.empty(n_edges), "eta_received": np.empty(n_edges)}

    def before(self, kept: Arrays, turn: Turn, message: Matrix, sent: Matrix) -> None:
        turn.present = self.active[(turn.t - 1) % len(self.active)]
        turn.live = turn.due = turn.present


class Every(Open):
    """Send payloads in one period out of ``every``; solve local problems in all."""

    def __init__(self, every: int, period: int = 1) -> None:
        self.every, self.period = every, period

    def before(self, kept: Arrays, turn: Turn, message: Matrix, sent: Matrix) -> None:
        periods = (turn.t - 1) // self.period
        turn.idle = (periods + 1) % self.every > 0
        if turn.idle:
            turn.live = turn.due = np.zeros(len(sent), dtype=bool)


class Sleep(Open):
    """Skip edges that move both ends by less than a share of what others do."""

    needs_influence = True
    by_node = False

    def __init__(self, share: float, incidence: Incidence) -> None:
        self.share, self.incidence = share, incidence

    def arrays(self, n_edges: int) -> Arrays:
        return {
            "sleepy": np.zeros(n_edges, dtype=bool),  # as told to the neighbours
            "asleep": np.zeros(n_edges, dtype=bool),  # as both ends told each other
            "missed": np.zeros(n_edges, dtype=np.int64),  # turns since an edge moved
            "influence": np.full(n_edges, np.inf),
        }

    def before(self, kept: Arrays, turn: Turn, message: Matrix, sent: Matrix) -> None:
        """Skip edges that sleep, but wake them in one of `REVISIT` of their turns.

        Turns are counted by edge. Counted in iterations, the turns of a schedule might
        never fall on the one in which an edge is woken.
        """
        if turn.idle:
            return
        live = np.ones(len(sent), dtype=bool) if turn.live is None else turn.live
        kept["missed"] += live
        live = live & (~kept["asleep"] | (kept["missed"] >= REVISIT))
        kept["missed"][live] = 0
        turn.live = turn.due = live

    def after(self, kept: Arrays, turn: Turn, box: Box) -> None:
        both = kept["sleepy"] & ((box.words["flags"] & SLEEPY) > 0)
        if turn.present is not None:
            both = np.where(turn.present, both, kept["asleep"])
        kept["asleep"][...] = both

    def learn(self, kept: Arrays, turn: Turn, influence: Vector) -> None:
        known = kept["influence"]
        moved = slice(None) if turn.live is None else turn.live
        known[moved] = influence[moved]
        most = np.zeros(len(self.incidence.degrees))
        self.incidence.reduce(np.maximum, known, most)
        kept["sleepy"][...] = known < self.share * self.incidence.spread(most)


class Censor(Open):
    """Send a payload only if theta has moved enough since the last one.

    The threshold is ``censor decay^t |theta|`` (COCA: Liu, Xu, Zhang and Ling, 2019).
    """

    def __init__(self, censor: float, decay: float) -> None:
        self.censor, self.decay = censor, decay

    def arrays(self, n_edges: int) -> Arrays:
        return {"threshold": np.full(n_edges, float(self.censor))}

    def before(self, kept: Arrays, turn: Turn, message: Matrix, sent: Matrix) -> None:
        kept["threshold"] *= self.decay
        moved = np.sqrt(np.square(message - sent).sum(axis=1))
        news = moved > kept["threshold"] * np.sqrt(np.vecdot(message, message))
        turn.due = news if turn.due is None else turn.due & news


class Loss(Open):
    """Drop payloads at random, as a simulation of lost messages.

    Parameters
    ----------
    probability : float
    seed : int
    nodes : ndarray of int, shape (n,)
        Numbers of the nodes, which decide their random streams.
    degrees : ndarray of int, shape (n,)
    """

    by_node = False

    def __init__(
        self, probability: float, seed: int, nodes: np.ndarray, degrees: np.ndarray
    ) -> None:
        self.probability, self.seed = probability, seed
        self.nodes, self.degrees = nodes.tolist(), degrees.tolist()

    def arrays(self, n_edges: int) -> Arrays:
        return {"lost": np.zeros(n_edges, dtype=np.int64)}

    def after(self, kept: Arrays, turn: Turn, box: Box) -> None:
        draws = [
            np.random.default_rng([self.seed, 5, node, turn.t]).random(degree)
            for node, degree in zip(self.nodes, self.degrees, strict=True)
        ]
        assert turn.arrived is not None
        arrived = turn.arrived & (np.concatenate(draws) >= self.probability)
        kept["lost"] += turn.arrived & ~arrived
        turn.arrived = arrived
