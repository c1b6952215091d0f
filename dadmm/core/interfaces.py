"""The interfaces of dadmm and the records that pass between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

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


PenaltyState = dict[str, NDArray[Any]]
"""Arrays of a penalty scheme with one row per edge. ``"eta"`` (E,) is the penalty that
this end proposes for the next iteration."""


@dataclass
class Observation:
    """What the nodes of a process know after an iteration.

    A scheme computes penalties from it. Arrays have one row per node (n, ...) or per
    directed edge (E, ...), and change in the next iteration: copy what you keep. Both
    ends of an edge know the same numbers of the edge; ``sent`` and ``received`` are
    exchanged at the other end, and the multiplier has the opposite sign.
    """

    t: int  #: iteration, counted from 1
    incidence: Any  #: `graphs.incidence.Incidence`: sums over the edges of each node
    objective: Vector  #: (n,) f_i(theta_i)
    previous: Vector  #: (n,) f_i(theta_i) of the previous iteration; inf at t = 1
    probes: Vector  #: (E,) f_i at each edge's probe, if the scheme `probes`
    f_min: Vector  #: (n,) least of ``objective`` and ``probes`` of the node
    f_max: Vector  #: (n,) largest of these
    primal: Vector  #: (n,) ``|r_i|``
    dual: Vector  #: (n,) ``|s_i|``
    theta: Matrix  #: (n, m) the shared parts
    centre: Matrix  #: (n, m) of the proximal term of this iteration
    weight: Vector  #: (n,) of the proximal term of this iteration
    sent: Matrix  #: (E, m) theta, as the neighbour has it
    received: Matrix  #: (E, m) theta of the neighbour
    anchors: Matrix  #: (E, m) z_ij
    drift: Matrix  #: (E, m) rho_ij minus the previous z_ij
    multipliers: Matrix  #: (E, m) lambda_ij
    eta: Vector  #: (E,) used in this iteration
    # |r| and |s| of the whole network at t - 1
    global_residuals: tuple[float, float] | None = None


class PenaltyScheme(Protocol):
    """How eta_ij adapts: functions from state and observation to a new state.

    They may overwrite arrays of the state that they keep, but not the observation.
    """

    @property
    def eta0(self) -> float | str | None:
        """The first penalty: a number, or "auto"; see `penalty.first`."""

    @property
    def alpha(self) -> float:
        """Over-relaxation of the steps; 1 is none."""

    @property
    def probe(self) -> str:
        """Where f_i is evaluated for an edge: "midpoint" or "neighbour"."""

    @property
    def coupling(self) -> str:
        """Whether an edge has one penalty, "symmetric", or each end its "own"."""

    @property
    def probes(self) -> bool:
        """Whether ``Observation.probes`` is needed."""

    @property
    def is_symmetric(self) -> bool:
        """Whether both ends of an edge compute the same eta without a message."""

    @property
    def couples(self) -> bool:
        """Whether an edge uses the mean of both proposals, which messages carry."""

    @property
    def needs_global_residuals(self) -> bool:
        """Whether ``Observation.global_residuals`` is needed, by a collective."""

    def init(self, incidence: Any, proposed: Vector) -> PenaltyState:
        """Return the state before the nodes know their neighbours' proposals.

        ``proposed`` (E,) are the first penalties, NaN where an end knows none.
        """

    def start(
        self,
        state: PenaltyState,
        eta_neighbours: Vector,
        anchors: Matrix,
        multipliers: Matrix,
    ) -> PenaltyState:
        """Return the state for the next iteration, given the neighbours' proposals.

        It is called before iteration 1, and after a change of coordinates.
        """

    def update(self, state: PenaltyState, obs: Observation) -> PenaltyState:
        """Return the state for the next iteration."""
