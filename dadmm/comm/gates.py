"""Gates: rules that decide which edges send, and which take their step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dadmm.comm.wire import SLEEPY, Box
from dadmm.core.layout import Matrix, Vector
from dadmm.graphs.incidence import Incidence

REVISIT = 10  # a sleeping edge carries a payload in one of this many of its turns
Arrays = dict[str, np.ndarray]  # by edge, (E,)


@dataclass
class Turn:
    """Which edges take part in an iteration; masks (E,), or None for all edges."""

    t: int
    idle: bool = False  # whether no edge of any node is used
    present: np.ndarray | None = None  # edges of this iteration's graph
    live: np.ndarray | None = None  # edges whose multiplier and anchor change
    due: np.ndarray | None = None  # edges whose message has a payload
    arrived: np.ndarray | None = None  # edges on which a payload has arrived


class Gate(Protocol):
    """One way to send less."""

    needs_influence: bool  # whether `update` is needed
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
        """Update ``kept`` and ``turn`` by the messages that have arrived."""

    def update(self, kept: Arrays, turn: Turn, influence: Vector) -> None:
        """Update ``kept`` by how much each edge moved its ends, (E,)."""


class Open:
    """A gate that restricts nothing; the base of the others."""

    needs_influence = False
    by_node = True

    def arrays(self, n_edges: int) -> Arrays:
        return {}

    def before(self, kept: Arrays, turn: Turn, message: Matrix, sent: Matrix) -> None:
        pass

    def after(self, kept: Arrays, turn: Turn, box: Box) -> None:
        pass

    def update(self, kept: Arrays, turn: Turn, influence: Vector) -> None:
        pass


class Scheduled(Open):
    """Use the edges that a schedule names for the iteration.

    Parameters
    ----------
    active : ndarray of bool, shape (period, E)
        The edges of iteration ``1 + k period + row``.
    """

    by_node = False

    def __init__(self, active: np.ndarray) -> None:
        self.active = active

    def arrays(self, n_edges: int) -> Arrays:
        # as last sent and received; an edge that is not present keeps its penalty
        return {"eta_sent": np.empty(n_edges), "eta_received": np.empty(n_edges)}

    def before(self, kept: Arrays, turn: Turn, message: Matrix, sent: Matrix) -> None:
        turn.present = self.active[(turn.t - 1) % len(self.active)]
        turn.live = turn.due = turn.present


class SendEvery(Open):
    """Send payloads in one period out of ``every``; solve local problems in all."""

    def __init__(self, every: int, period: int = 1) -> None:
        self.every, self.period = every, period

    def before(self, kept: Arrays, turn: Turn, message: Matrix, sent: Matrix) -> None:
        periods = (turn.t - 1) // self.period
        turn.idle = (periods + 1) % self.every > 0
        if turn.idle:
            turn.live = turn.due = np.zeros(len(sent), dtype=bool)


class Sleep(Open):
    """Skip edges whose influence is a small fraction of the node's largest."""

    needs_influence = True
    by_node = False

    def __init__(self, share: float, incidence: Incidence) -> None:
        self.share, self.incidence = share, incidence

    def arrays(self, n_edges: int) -> Arrays:
        return {
            "sleepy": np.zeros(n_edges, dtype=bool),  # this end may skip the edge
            "asleep": np.zeros(n_edges, dtype=bool),  # both ends may skip the edge
            "missed": np.zeros(n_edges, dtype=np.int64),  # turns that it was skipped
            "influence": np.full(n_edges, np.inf),
        }

    def before(self, kept: Arrays, turn: Turn, message: Matrix, sent: Matrix) -> None:
        """Skip edges that sleep, but use each in one of `REVISIT` of its turns.

        Turns are counted by edge, because a schedule might never have the edge in every
        `REVISIT`-th iteration.
        """
        if turn.idle:
            return
        live = np.ones(len(sent), dtype=bool) if turn.live is None else turn.live
        kept["missed"] += live
        live = live & (~kept["asleep"] | (kept["missed"] >= REVISIT))
        kept["missed"][live] = 0
        turn.live = turn.due = live

    def after(self, kept: Arrays, turn: Turn, box: Box) -> None:
        both = kept["sleepy"] & ((box.fields["flags"] & SLEEPY) > 0)
        if turn.present is not None:
            both = np.where(turn.present, both, kept["asleep"])
        kept["asleep"][...] = both

    def update(self, kept: Arrays, turn: Turn, influence: Vector) -> None:
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


class Drop(Open):
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
