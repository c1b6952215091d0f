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

    A problem knows nothing about graphs, multipliers or penalties.
    """

    layout: Layout

    def init(self, rng: np.random.Generator) -> Vector:
        """Return starting parameters of shape (size,)."""

    def expect(self, theta: Vector) -> Any:
        """Return the statistics of the E-step at ``theta``, or None without E-step."""

    def prox(self, theta: Vector, stats: Any, centre: Vector, weight: float) -> Vector:
        """Return the argmin over x of ``f_i(x; stats) + weight/2 |x - centre|^2``.

        One sweep over blocks of parameters from ``theta`` is enough if it never raises
        this sum. If parts are private or scaled, the weight of each entry is
        ``weight * layout.pull``.
        """

    def objectives(self, thetas: Matrix, stats: Any) -> Vector:
        """Return ``f_i(.; stats)`` of each row of ``thetas`` (n, size), shape (n,)."""


class PenaltyState(NamedTuple):
    """State of a penalty scheme at one node; arrays of shape (degree,)."""

    eta: Vector  # eta_ij, proposed by this end for the next iteration
    spent: Vector  # sum of |tau_ij| so far
    budget: Vector  # T_ij
    growths: Vector  # how often T_ij was raised
    memory: Any = None  # further arrays of a scheme


class Edges(NamedTuple):
    """The variables of a node and its edges after an iteration.

    The arrays belong to the node: copy what you keep. Both ends of an edge know the
    same values, except ``theta``, ``centre`` and ``weight``. At the other end
    ``sent_theta`` and ``received_theta`` are exchanged, and the multiplier has the
    opposite sign.
    """

    theta: Vector  # (size,) the shared parts
    sent_theta: Matrix  # (degree, size) theta, as each neighbour received it
    received_theta: Matrix  # (degree, size) theta of each neighbour
    anchors: Matrix  # (degree, size) z_ij
    drift: Matrix  # (degree, size) rho_ij minus the previous z_ij
    multipliers: Matrix  # (degree, size)
    eta: Vector  # (degree,) used in this iteration
    centre: Vector  # (size,) of the proximal term of this iteration
    weight: float  # of the proximal term of this iteration


class Observation(NamedTuple):
    """What a node knows after an iteration; a scheme computes penalties from it."""

    t: int  # iteration, counted from 1
    own: float  # f_i(theta_i)
    own_previous: float  # f_i(theta_i) of the previous iteration; inf at t = 1
    f_probe: Vector  # (degree,) f_i at each edge's probe; empty without `probes`
    primal: float  # |r_i|
    dual: float  # |s_i|
    edges: Edges | None = None
    # |r| and |s| of the whole network at t - 1
    global_residuals: tuple[float, float] | None = None


class PenaltyScheme(Protocol):
    """How eta_ij adapts: pure functions from state and observation to a new state."""

    @property
    def eta0(self) -> float: ...

    @property
    def alpha(self) -> float:
        """Over-relaxation of the steps; 1 is none."""

    @property
    def probes(self) -> bool:
        """Whether ``Observation.f_probe`` is needed."""

    @property
    def needs_curvature(self) -> bool:
        """Whether ``init`` needs the curvature of f_i."""

    @property
    def is_symmetric(self) -> bool:
        """Whether both ends of an edge compute the same eta without a message."""

    @property
    def needs_global_residuals(self) -> bool:
        """Whether ``Observation.global_residuals`` is needed, by a collective."""

    def init(
        self, degree: int, curvature: float = ..., diameter: int = ...
    ) -> PenaltyState:
        """Return the state of a node before it knows its neighbours' proposals."""

    def start(
        self, state: PenaltyState, eta_neighbours: Vector, anchors: Matrix
    ) -> PenaltyState:
        """Return the state for iteration 1, given the neighbours' proposals of eta."""

    def update(self, state: PenaltyState, obs: Observation) -> PenaltyState:
        """Return the state for the next iteration."""

    def keep(self, state: PenaltyState, kept: np.ndarray) -> PenaltyState:
        """Return the state of the edges selected by the mask ``kept`` (degree,)."""


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
    edge_lost: np.ndarray  # (E,) payloads that did not arrive (`Sending.loss`)
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
