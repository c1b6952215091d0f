"""The interfaces of dadmm and the records that pass between them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

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
    quiet_count: float = 0.0
    stop_at: float = math.inf
    requests: int = 0  # a code of each of two rounds, the even ones in the lower 4 bits


class Traffic(NamedTuple):
    """What was sent, counted as it was sent; aligned with ``topology.edges``."""

    edge_messages: np.ndarray  # (E,) point-to-point messages
    edge_bytes: np.ndarray  # (E,) their bytes, headers included
    edge_silent: np.ndarray  # (E,) messages that were a header without payload
    edge_lost: np.ndarray  # (E,) payloads that were dropped on purpose
    collectives: int  # collective calls inside the loop (agreement = "global")
    collective_bytes: int  # payload that all nodes put into them
    tree_messages: np.ndarray  # (E,) of sums over a tree, before and after the loop
    tree_bytes: np.ndarray  # (E,)

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
    def rank_failure(self) -> tuple[type[Exception], ...]:
        """The exceptions that report a failed rank; none if a failure ends the job."""

    def all_finished(self, finished: bool) -> bool:
        """Return whether all processes have finished and none has failed."""

    def raise_failed(self) -> NoReturn:
        """Raise that a rank has failed, one of ``rank_failure``."""

    def shrink(
        self, last: int, plan: Callable[[Sequence[int]], tuple[Sequence[int], Any]]
    ) -> tuple[Exchange, list[int], int]:
        """Return an exchange without the failed ranks.

        Parameters
        ----------
        last : int
            The last iteration that this process has finished.
        plan : callable
            Takes the nodes that are left. Returns the nodes of this process's
            component and their `Topology`.

        Returns
        -------
        exchange : Exchange
        alive : list of int
            The nodes that are left, of all components.
        t : int
            The last iteration that all of them have finished.
        """

    @property
    def private_comm(self) -> Any:
        """The communicator of the messages, for use between swaps; None without MPI."""

    @property
    def comm(self) -> Any:
        """A communicator of these ranks, which the caller keeps; None without MPI."""

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

    posts: int  # number of calls of post()

    @property
    def collectives(self) -> tuple[int, int]:
        """The number of calls of ``post``, and the bytes of all nodes in them."""

    def close(self) -> None:
        """Free what the constructor has allocated."""


class World(Protocol):
    """The processes of a run, for set-up, results and errors.

    Every method is collective: all processes call it, in the same order. The exceptions
    are ``dead``, ``abort`` and ``end``.
    """

    @property
    def rank(self) -> int:
        """Number of this process, from 0."""

    @property
    def size(self) -> int:
        """Number of processes."""

    @property
    def number(self) -> int:
        """Rank as mpiexec numbers it; `renumber` does not change it."""

    @property
    def comm(self) -> Any:
        """The communicator (`mpi4py.MPI.Comm`), or None in a single process."""

    @property
    def library(self) -> str:
        """Name and version of the MPI library."""

    @property
    def shrunk(self) -> bool:
        """Whether ranks have failed and the others have continued."""

    def share(self, text: str, root: int = 0) -> str:
        """Return the text of rank ``root`` on every rank."""

    def share_array(self, array: NDArray[Any], root: int = 0) -> NDArray[Any]:
        """Return the one-dimensional array of rank ``root`` on every rank.

        All ranks pass an array of the same type.
        """

    def first(self, text: str | None) -> str | None:
        """Return the text of the lowest rank that has one, on every rank."""

    def texts(self, text: str) -> list[str]:
        """Return the texts of all ranks, in order, on every rank."""

    def gather_texts(self, text: str) -> list[str]:
        """Return the texts of all ranks, in order, on rank 0; [] elsewhere."""

    def gather(self, rows: Matrix) -> Matrix:
        """Return the rows of all ranks, in order, on rank 0; no rows elsewhere."""

    def scatter(self, blocks: Sequence[Matrix] | None) -> Matrix:
        """Return this rank's block of those that rank 0 passes; others pass None."""

    def reduce(
        self,
        graph: Any,
        values: Sequence[Any],
        merge: Callable[[Any, Any], Any] = ...,
    ) -> Any:
        """Return the values of all nodes merged, by default added, on every rank.

        They are merged along a spanning tree of the graph, a `Topology`, so the bits do
        not depend on the processes; see `dadmm.exchange.tree`. ``values`` are those of
        the nodes of this process.
        """

    def compare(self, facts: Mapping[str, str]) -> None:
        """Raise a DadmmError on all ranks if their facts differ."""

    def check_fault_tolerance(self) -> None:
        """Raise a ConfigError if this MPI ends all ranks when one fails."""

    def sent(self) -> tuple[int, int]:
        """Return the calls and bytes outside the iterations, on rank 0.

        The calls are those of this rank; the bytes are those of all ranks.
        """

    def renumber(self, rank: int) -> None:
        """Give this process another rank; rank 0 stays rank 0."""

    def adopt(self, comm: Any) -> None:
        """Continue with a communicator of the ranks that are left."""

    def dead(self, error: BaseException) -> list[int]:
        """Return the ranks that are known to have failed, if ``error`` reports one."""

    def leave(self, code: int) -> None:
        """End this process, when all that are left call this."""

    def abort(self, error: BaseException) -> None:
        """Print the traceback and end the processes of all ranks."""

    def end(self, code: int) -> None:
        """End the processes of all ranks with this exit code."""
