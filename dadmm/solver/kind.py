"""A kind of run: how it is prepared, when it stops, and what is said of its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dadmm.admm.local import BREAKDOWNS
from dadmm.admm.loop import Callback, Run, RunKind
from dadmm.comm.world import World
from dadmm.core.layout import Array, Vector
from dadmm.graphs.topology import Topology
from dadmm.solver.certificate import Certificate
from dadmm.solver.coordinates import Total, is_exact
from dadmm.solver.plan import Plan, can_merge_axes
from dadmm.solver.subspace import SubspaceBound

if TYPE_CHECKING:
    from dadmm.solver.merged import MergedStart


class Statement(NamedTuple):
    """The part of a result that holds for all nodes together, see `Result`."""

    solution: Vector
    objective: float
    certificate: Certificate | None = None
    start: MergedStart | None = None
    subspace_bound: SubspaceBound | None = None
    why: str = ""
    status: str = ""


Saved = Mapping[str, Array]  # the record of a checkpoint


class SolveKind(RunKind):
    """The kind of a run of `dadmm.solve`; a subclass for each member of `plan.Kind`.

    Problems, starts and duals are given in the coordinates of the user. `prepare` sets
    ``within`` and replaces starts, duals and rule, see `RunKind`.
    """

    RECORD: ClassVar[Any] = None  # what all nodes know after set-up, a NamedTuple
    KEEPS_PARTS: ClassVar[bool] = True  # whether theta has its parts during the run
    callbacks: tuple[Callback, ...] = ()
    sent: np.ndarray | None = None  # messages and bytes of `prepare`, by edge
    plan: Plan  # set by `solve`
    record: Any
    all_exact = complete = False  # set by `mean`

    def prepare(self, topology: Topology, world: World, saved: Saved | None) -> None:
        """Choose coordinates and start by sums over all nodes, or use saved ones."""
        if saved:
            self.enter(self.RECORD(*(saved[name] for name in self.RECORD._fields)))
            return
        with world.tree(topology) as tree:

            def total(rows: Sequence[Array], *how: Any) -> Array:
                values = dict(zip(self.problems, rows, strict=True))
                return np.asarray(tree.reduce(values, *how))

            self.choose(total, topology.n_nodes)
            self.sent = tree.sent

    def save(self, run: Run, **more: ArrayLike) -> None:
        """Keep the record in the state of a run, with further numbers."""
        known = (self.record._asdict() | more).items()
        run.state.coordinates = {name: np.asarray(value) for name, value in known}

    def choose(self, total: Total, n_nodes: int) -> None:
        """Choose the record by sums over all nodes, and `enter` it."""
        raise NotImplementedError

    def enter(self, record: Any) -> None:
        """Set what the run is made of."""
        raise NotImplementedError

    def slope(self, run: Run) -> Vector | None:
        """Return the gradient over its limit, by node; None if it is not known."""
        return None

    def own(self, run: Run) -> list[Any]:
        """Return the problems of this process by row, in the user's coordinates."""
        return [self.problems[i] for i in run.names.tolist()]

    def mean(self, run: Run) -> Vector:
        """Return the mean over all nodes, NaN in private parts, and note facts."""
        layout, n_nodes = run.layout, run.topology.n_nodes
        facts: list[list[bool]] = []
        for own in self.own(run):
            whole = can_merge_axes(type(own)) and own.observed_counts == own.n_samples
            facts.append([is_exact(own), bool(np.all(whole))])
        shared = layout.shared(run.state.theta)
        total: Vector = run.total(list(np.column_stack([shared, facts])))
        self.all_exact, self.complete = (total[-2:] == n_nodes).tolist()
        return layout.whole(total[:-2] / n_nodes, np.full(layout.size, np.nan))

    def bound_error(self, run: Run, centre: Vector) -> tuple[Certificate | None, str]:
        """Return a bound on the error of the mean, if any, and why it does not hold."""
        return None, ""

    def with_more(self, run: Run, said: Statement) -> Statement:
        """Return the statement with what else is known."""
        return said

    def rotated(self, theta: Vector) -> Vector:
        """Return the same model with smaller errors of rounding."""
        return theta

    def conclude(self, run: Run, reason: str) -> Statement:
        """Return the statement about a run that has ended for this reason."""
        centre = self.mean(run)
        certificate, why = self.bound_error(run, centre)
        if certificate is None:
            objective = self._objective_at(run, centre)
        else:
            objective = certificate.objective
        solution = np.asarray(self.theta_of(centre[None])[0])
        said = Statement(solution, objective, certificate, why=why)
        said = self.with_more(run, said)
        convex = all(getattr(own, "convex", False) for own in run.local.problems)
        status = "stopped"
        if run.stopping.rule.tolerance == 0.0:  # max_iter iterations are asked for
            status = "max_iter" if reason == "max_iter" else "not converged"
            if status != "max_iter":
                why = "it did fewer iterations than were asked for"
        elif certificate is not None and certificate.holds:
            status, why = "certified", ""
        elif reason != "converged":
            status = "not converged"
            why = why if convex else "the problem is not convex"
        elif not convex:
            why = self.doubt(run, said)
            status = status if why else "stationary"
        return said._replace(status=status, why=why)

    def _objective_at(self, run: Run, centre: Vector) -> float:
        """Return the sum of all f_i at the mean, with private parts of each node."""
        layout, theta = run.layout, run.state.theta
        try:
            shared = np.tile(layout.shared(self.rotated(centre)), (len(theta), 1))
            values = run.local.values_at(layout.whole(shared, theta))
        except BREAKDOWNS:
            values = np.full(len(theta), np.nan)
        return merged(run, values, np.add)

    def doubt(self, run: Run, said: Statement) -> str:
        """Return why a run that met its rule may not be stationary; "" if it is."""
        scheme = run.penalties.scheme
        if run.stopping.rule.name == "objective":
            return "the rule objective cannot tell a plateau from a solution"
        if scheme.coupling == "own" and not scheme.is_symmetric:
            return (
                "with directed penalties, nodes agree on another point than the optimum"
            )
        slopes = self.slope(run)
        if slopes is None:
            return "the problem has no method gradient, by which it could be judged"
        steepest = merged(run, slopes, np.maximum)
        if not steepest <= 1.0:
            return f"the gradient of a node is {steepest:.2g} times its limit"
        return ""


def merged(run: Run, values: Array, merge: np.ufunc) -> float:
    """Return one number for all nodes, given one for each row of this process."""
    return float(run.total([np.array([float(own)]) for own in values], merge)[0])
