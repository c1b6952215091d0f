"""The interfaces of dadmm and the records that pass between them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from dadmm.core.layout import Layout, Matrix, Vector


@runtime_checkable
class Problem(Protocol):
    """The objective f_i of one node over its own shard.

    A problem never hears of graphs, multipliers or penalties.
    """

    layout: Layout

    def init(self, rng: np.random.Generator) -> Vector:
        """Return starting parameters of shape (size,)."""

    def expect(self, theta: Vector) -> Any:
        """Return what the E-step finds at ``theta``; None without latent variables."""

    def prox(self, theta: Vector, stats: Any, centre: Vector, weight: float) -> Vector:
        """Return the argmin over x of ``f_i(x; stats) + weight/2 |x - centre|^2``.

        A block sweep from ``theta`` that never raises this sum will do too. Where parts
        are private or scaled, the weight of each entry is ``weight * layout.pull``.
        """

    def objectives(self, thetas: Matrix, stats: Any) -> Vector:
        """Return ``f_i(.; stats)`` of each row of ``thetas`` (n, size), shape (n,)."""


class PenaltyState(NamedTuple):
    """What a penalty scheme remembers of a node's edges, each of shape (degree,)."""

    eta: Vector  # eta_ij, as this end proposes it for the next iteration
    spent: Vector  # sum of |tau_ij| so far
    budget: Vector  # T_ij
    growths: Vector  # how often T_ij was raised
    memory: Any = None  # what else a scheme keeps, in arrays of its own


class Edges(NamedTuple):
    """Where a node and its edges stand; the arrays are the node's, so copy to keep.

    Both ends of an edge know all but the first and the last two, with ``said`` and
    ``neighbours`` in turn and the multiplier with opposite sign.
    """

    theta: Vector  # (size,) what is shared of it
    said: Matrix  # (degree, size) theta as each neighbour has it
    neighbours: Matrix  # (degree, size) theirs, as heard
    anchors: Matrix  # (degree, size) z_ij
    drift: Matrix  # (degree, size) rho_ij - z_ij as it was before
    multipliers: Matrix  # (degree, size)
    eta: Vector  # (degree,) as used in this iteration
    centre: Vector  # (size,) of the proximal term just used
    weight: float  # of the proximal term just used


class Sighting(NamedTuple):
    """What a node sees in one iteration, from which its penalties follow."""

    t: int  # iteration, counted from 1
    own: float  # f_i(theta_i)
    own_previous: float  # the same, one iteration ago; inf at t = 1
    tried: Vector  # f_i at each edge's probe, (degree,); empty if not probed
    primal: float  # |r_i|
    dual: float  # |s_i|
    edges: Edges | None = None
    network: tuple[float, float] | None = None  # |r| and |s| of all nodes at t - 1


class PenaltyScheme(Protocol):
    """How eta_ij moves. Pure: the same state and sighting give the same new state."""

    @property
    def eta0(self) -> float: ...

    @property
    def alpha(self) -> float:
        """By how much steps are over-relaxed; 1 is not at all."""

    @property
    def probes(self) -> bool:
        """Whether ``Sighting.tried`` is needed."""

    @property
    def surveys(self) -> bool:
        """Whether ``init`` wants to know the curvature of f_i."""

    @property
    def agrees(self) -> bool:
        """Whether both ends of an edge come to the same eta by themselves."""

    @property
    def reduces(self) -> bool:
        """Whether ``Sighting.network`` is needed, which takes a collective."""

    def init(
        self, degree: int, curvature: float = ..., diameter: int = ...
    ) -> PenaltyState:
        """Return the state that a node proposes to its neighbours."""

    def settle(
        self, state: PenaltyState, eta_theirs: Vector, anchors: Matrix
    ) -> PenaltyState:
        """Return the state for iteration 1, given what the neighbours proposed."""

    def update(self, state: PenaltyState, seen: Sighting) -> PenaltyState: ...

    def keep(self, state: PenaltyState, kept: np.ndarray) -> PenaltyState:
        """Return the state of the edges that are left, where ``kept`` (degree,)."""


class StopState(NamedTuple):
    """What a node knows about the end of the run."""

    streak: int = 0  # its own satisfied iterations in a row
    quiet: float = 0.0
    stop_at: float = math.inf
    wishes: int = 0  # a code of each of two rounds, the even ones in the lower 4 bits


class Traffic(NamedTuple):
    """What was sent, counted as it was sent; aligned with ``topology.edges``."""

    edge_messages: np.ndarray  # (E,) point-to-point messages
    edge_bytes: np.ndarray  # (E,) their bytes, headers included
    edge_silent: np.ndarray  # (E,) messages that were a header without payload
    edge_lost: np.ndarray  # (E,) payloads that were dropped on purpose
    collectives: int  # collective calls inside the loop (agreement = "global")
    collective_bytes: int  # payload that all nodes put into them

    @property
    def messages(self) -> int:
        """Messages over all directed edges, the opening ones included."""
        return int(self.edge_messages.sum())

    @property
    def bytes(self) -> int:
        """Bytes of these messages."""
        return int(self.edge_bytes.sum())

    @property
    def silent(self) -> int:
        """Messages without payload."""
        return int(self.edge_silent.sum())

    @property
    def lost(self) -> int:
        """Payloads that did not arrive."""
        return int(self.edge_lost.sum())


class Exchange(Protocol):
    """Moves outboxes into neighbours' inboxes.

    Plans in the constructor, works in ``swap()``, releases in ``close()``.
    """

    @property
    def lost(self) -> type[Exception] | tuple[()]:
        """What is raised when another process has died, if this one may go on."""

    def agree(self, finished: bool) -> bool:
        """Return whether all processes have finished and none has died."""

    @property
    def hosted(self) -> tuple[int, ...]:
        """The nodes of this process: (rank,) under MPI, all of them without."""

    @property
    def outbox(self) -> Mapping[int, np.ndarray]:
        """By hosted node, bytes (degree, width): a row for each neighbour."""

    @property
    def inbox(self) -> Mapping[int, np.ndarray]:
        """By hosted node, bytes (degree, width): what each neighbour put in for it."""

    @property
    def lengths(self) -> Mapping[int, np.ndarray]:
        """By hosted node, (degree,): how many bytes of each outbox row to send.

        Where it is 0 nothing is sent and nothing awaited: both ends must have it so.
        """

    @property
    def sent(self) -> Mapping[int, np.ndarray]:
        """By hosted node, (degree, 2): messages and bytes sent so far."""

    def swap(self) -> None:
        """Send every outbox row that has a length; fill the inbox rows of these."""

    def post(self, rows: Matrix) -> None:
        """Start to share rows, one per hosted node, with all nodes."""

    def read(self) -> Matrix:
        """Return the rows posted last, of all nodes in order."""

    def collect(self, rows: Matrix) -> Matrix:
        """Return the rows of all processes in node order, on every process."""

    polls: int  # how often rows were posted so far

    @property
    def collectives(self) -> tuple[int, int]:
        """How many rows were posted, and the bytes of all nodes in them."""

    def close(self) -> None: ...
