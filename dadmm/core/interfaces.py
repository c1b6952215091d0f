"""The interfaces of dadmm and the records that pass between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dadmm.core.layout import Layout, Matrix, Vector


@runtime_checkable
class Problem(Protocol):
    """The objective f_i of one node over its own shard.

    A problem knows nothing about graphs, multipliers or penalties.

    Notes
    -----
    A method ``neg_log_likelihood(theta)`` is optional. It returns
    ``-log p(X_i | theta)``, equation (14), if f_i is its expected form with latent
    variables. The stopping rule "objective" judges it. The method of a stack takes
    (n, size) and returns (n,).
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


def stacks(problem: type, method: str = "stack") -> bool:
    """Return whether problems of a class can be stacked.

    They cannot if a subclass inherits `stack` but overrides a method that it replaces.
    The same holds for ``within``, see `dadmm.solver.coordinates`, and for
    ``neg_log_likelihood``.
    """
    owners = [kind for kind in problem.__mro__ if method in vars(kind)]
    names = ("expect", "prox", "objectives")
    return bool(owners) and all(
        getattr(problem, name) is getattr(owners[0], name) for name in names
    )


@runtime_checkable
class TransformableProblem(Problem, Protocol):
    """A convex problem that can be solved in other coordinates z, theta = T z.

    Notes
    -----
    These members are optional. ``margins(theta)`` are the least and the largest margin
    of the rows: if the least margin of all nodes is positive, the sum of all f_i falls
    along ``theta`` for ever, so it has no minimum. ``separated`` is a str: what can be
    separated then, "the classes" by default. A certificate needs subgradients: either
    ``exact`` is True, which states that `prox` is exact to rounding, or there is a
    method ``subgradient(theta, near)`` (size,), which returns a subgradient at theta,
    that nearest to ``near`` if there are several. ``l1`` (size,) are the weights of
    absolute values, and ``assumed`` is a str: what a certificate assumes of the
    problem.
    """

    convex: bool
    quadratic: bool  #: whether `rows` depends on neither argument
    needs_inverse: bool  #: whether T must be square and invertible

    def rows(self, theta: Vector, radius: float = 0.0) -> Matrix:
        """Return F (r, size), where F'F bounds the Hessian of f_i from below.

        The bound holds for the smooth part of f_i within ``radius`` of ``theta``. With
        radius 0, F'F only serves as the metric of the coordinates.
        """

    def within(self, T: Matrix) -> Problem:
        """Return f_i as a problem in z with layout ``z=(k,)``, given T (size, k).

        It has `rows`, ``convex`` and ``quadratic`` too.
        """

    def theta_of(self, T: Matrix, z: Vector) -> Vector:
        """Return theta = T z, shape (..., size), of ``z`` (..., k).

        Entries that `prox` sets to zero are exactly zero. A row has the same bits alone
        and among others.
        """


class Traffic(NamedTuple):
    """What was sent, counted as it was sent; aligned with ``topology.edges``."""

    edge_messages: np.ndarray  #: (E,) point-to-point messages
    edge_bytes: np.ndarray  #: (E,) their bytes, headers included
    edge_silent: np.ndarray  #: (E,) messages that were a header without payload
    edge_lost: np.ndarray  #: (E,) payloads that were dropped on purpose
    collectives: int  #: collective calls inside the loop (agreement = "global")
    collective_bytes: int  #: payload that all nodes put into them
    tree_messages: np.ndarray  #: (E,) of sums over a tree in this session
    tree_bytes: np.ndarray  #: (E,)

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
    """Moves the messages of each outbox into the neighbours' inboxes.

    The constructor allocates buffers and requests, and ``close()`` frees them.
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

        ``last`` is the last iteration that this process has finished. ``plan`` takes
        the nodes that are left, and returns the nodes of this process's component and
        their `Topology`. Also returned are the nodes that are left, of all components,
        and the last iteration that all of them have finished.
        """

    @property
    def private_comm(self) -> Any:
        """The communicator of the messages, for use between swaps; None without MPI."""

    @property
    def comm(self) -> Any:
        """A communicator of these ranks, which the caller keeps; None without MPI."""

    nodes: NDArray[np.int64]  # (n,) the nodes of this process, by row
    arcs: NDArray[np.int64]  # (E,) their edges, as indices of ``topology.edges``
    outbox: Any  # `wire.Box`: the messages to send, a row per edge
    inbox: Any  # `wire.Box`: the messages received
    begin: int  # first byte of a message; 8 if messages have no eta
    lengths: NDArray[np.int64]
    """(E,) bytes of each message. Where it is 0, nothing is sent and nothing is
    received; both ends must have it so."""
    collectives: NDArray[np.int64]
    """(2,) the number of calls of ``post``, and the bytes of all nodes in them."""

    @property
    def sent(self) -> NDArray[np.int64]:
        """(E, 2): messages and bytes sent so far."""

    def swap(self) -> None:
        """Send every message that has a length, and receive those of the neighbours.

        Rows posted before are complete afterwards.
        """

    def post(self, name: str, rows: Matrix) -> None:
        """Start to share rows, one per node of this process, with all nodes."""

    def read(self, name: str) -> Matrix:
        """Return the rows of that name posted before the last swap, by node number."""

    def collect(self, rows: Matrix, everywhere: bool = True) -> Matrix:
        """Return the rows of all processes in order, on every process.

        If not ``everywhere``, processes other than the first return no rows.
        """

    def close(self) -> None:
        """Free what the constructor has allocated."""


class World(Protocol):
    """The processes of a run, for set-up, results and errors.

    Every method is collective: all processes call it, in the same order. The exceptions
    are ``dead``, ``abort`` and ``end``.
    """

    rank: int  # of this process, from 0
    size: int  # number of processes
    number: int  # rank as mpiexec numbers it; `renumber` does not change it
    comm: Any  # the communicator (`mpi4py.MPI.Comm`), or None in a single process
    library: str  # name and version of the MPI library
    shrunk: bool  # whether ranks have failed and the others have continued

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
        finish: Callable[[Any], Any] | None = None,
    ) -> Any:
        """Return the values of all nodes merged, by default added, on every rank.

        They are merged along a spanning tree of the graph, a `Topology`, so the bits do
        not depend on the processes; see `dadmm.comm.tree`. ``values`` are those of
        the nodes of this process. With ``finish``, every rank gets what it returns for
        the merged values, which only rank 0 has.
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
