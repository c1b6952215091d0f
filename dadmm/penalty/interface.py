"""The interface of penalty schemes, and what they compute from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from dadmm.core.layout import Matrix, Vector
from dadmm.graphs.incidence import Incidence

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
    incidence: Incidence  #: sums over the edges of each node
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

    def init(self, incidence: Incidence, proposed: Vector) -> PenaltyState:
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
