"""What can be said about the result of a run: its status, and a bound on its error."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dadmm.admm.local import BREAKDOWNS
from dadmm.admm.loop import Run
from dadmm.core.layout import Layout, Matrix, Vector
from dadmm.solver.certificate import LIGHT, Certificate, certify
from dadmm.solver.coordinates import is_exact
from dadmm.solver.merged import MergedReview, MergedStart
from dadmm.solver.metric import MOST_CHANGES, MetricReview
from dadmm.solver.plan import Plan
from dadmm.solver.subspace import SubspaceBound, bound_subspace, supports
from dadmm.solver.units import UnitReview

STATUSES = ("certified", "stopped", "stationary", "max_iter", "not converged")
FAR = 5.0  # degrees that a result of complete rows may be from merged axes
SMALL_GAP = 0.1  # of two components, below which constant penalties may go astray


class Statement(NamedTuple):
    """The part of a result that holds for all nodes together."""

    layout: Layout  # of the coordinates of the user
    status: str  # one of `STATUSES`
    why: str  # why no more can be said; "" for "certified" and "stationary"
    solution: Vector  # (size,) the mean over the nodes; private parts are NaN
    objective: float  # sum of all f_i at the solution; NaN if it cannot be evaluated
    certificate: Certificate | None
    start: MergedStart | None = None
    subspace_bound: SubspaceBound | None = None


def conclude(run: Run, reason: str, plan: Plan, bound_angle: bool) -> Statement:
    """Return the statement about a run that has ended.

    Parameters
    ----------
    run : Run
    reason : str
        Why the run ended.
    plan : Plan
    bound_angle : bool
        Whether to bound the angle of a subspace, if that is possible.
    """
    review, rule = run.review, run.stopping.rule
    problems: Any = run.local.problems
    given: Any = problems
    if isinstance(review, UnitReview):
        given = [review.problems[i] for i in run.names.tolist()]
    complete, why = False, plan.why  # whether all nodes have PPCA without gaps
    if isinstance(review, MetricReview):
        certificate = review.conclude(run)
        solution = review.points(review.centre[None])[0]
        layout = review.layout
        if review.no_minimum:
            certificate, why = None, review.no_minimum
        elif certificate is None:
            why = (
                "the proximal step of the problem is not known to be exact; set exact "
                "= True if it is"
            )
    else:
        layout, certificate = run.layout, None
        shared = layout.shared(run.state.theta)
        facts = [[is_exact(problem), supports(problem)] for problem in given]
        total: Vector = run.total(list(np.column_stack([shared, facts])))
        centre = total[:-2] / run.topology.n_nodes
        solution = layout.whole(centre, np.full(layout.size, np.nan))
        all_exact, complete = (total[-2:] == run.topology.n_nodes).tolist()
        if all_exact and layout.size == layout.shared_size and not plan.asked:
            certificate = certify(run, centre, rule.tolerance, None)
    if certificate is not None:
        objective = certificate.objective
    else:
        centre = review.centre if isinstance(review, MetricReview) else solution
        objective = _objective(run, centre)
    start, bound = None, None
    if isinstance(review, UnitReview):
        solution, layout = review.points(solution[None])[0], review.layout
    if isinstance(review, MergedReview):
        start = review.describe_start(solution)
    if complete and bound_angle and isinstance(review, UnitReview):
        bound = _bound(run, review, solution)
    convex = all(getattr(problem, "convex", False) for problem in problems)
    if certificate is not None and not certificate.holds and plan.is_chosen:
        why = _why_not(certificate, review)
    status = _status(run, reason, convex, certificate)
    if status == "stationary":
        why = _why_not_stationary(run, start, bound, complete)
        status = "stopped" if why else status
    elif status == "certified":
        why = ""
    elif not convex and status != "max_iter":
        why = "the problem is not convex"
    return Statement(
        layout, status, why, solution, objective, certificate, start, bound
    )


def _status(
    run: Run, reason: str, convex: bool, certificate: Certificate | None
) -> str:
    if run.stopping.rule.tolerance == 0.0 and reason == "max_iter":
        return "max_iter"  # as many iterations as were asked for
    if certificate is not None and certificate.holds:
        return "certified"
    if reason != "converged":
        return "not converged"
    return "stopped" if convex else "stationary"


def _why_not_stationary(
    run: Run, start: MergedStart | None, bound: SubspaceBound | None, complete: bool
) -> str:
    """Return why a run that met its rule is not known to be stationary; "" if it is."""
    scheme, rule = run.penalties.scheme, run.stopping.rule
    if rule.name == "objective":
        return "the rule objective cannot tell a plateau from a solution"
    if scheme.coupling == "own" and not scheme.is_symmetric:
        return "with directed penalties, nodes agree on another point than the optimum"
    if not hasattr(run.review, "slope"):
        return "the problem has no method gradient, by which it could be judged"
    slopes = run.review.slope(run)  # type: ignore[union-attr]
    steepest = float(run.total([np.array([own]) for own in slopes], np.maximum)[0])
    if not steepest <= 1.0:
        return f"the gradient of a node is {steepest:.2g} times its limit"
    bounded = bound is not None and not bound.why
    if start is None or bounded:
        return ""
    if getattr(scheme, "is_constant", False) and start.gap < SMALL_GAP:
        return (
            "two components hardly differ, and constant penalties may then leave the "
            "solution"
        )
    if complete and start.angle > FAR:
        return (
            f"the result is {start.angle:.0f} degrees from the axes that the nodes "
            "merged, and the angle to the principal axes of all rows is not bounded"
        )
    return ""


def _why_not(certificate: Certificate, review: Any) -> str:
    """Return why a certificate does not hold."""
    if review.changes == MOST_CHANGES:
        return "the curvature does not settle; the objective may have no minimum"
    if certificate.lightest < LIGHT:
        return (
            "rows differ too much in size or weight: the least is "
            f"{certificate.lightest:.0e} of the largest"
        )
    if certificate.open_directions and not np.isfinite(certificate.radius):
        n = certificate.open_directions
        return (
            f"the data leave {n} direction{'s' * (n > 1)} open, and the curvature of "
            "the objective gives no bound there"
        )
    if not np.isfinite(certificate.shortfall):
        return "the curvature near the solution gives no bound on the error"
    return f"the bound on the error is {certificate.shortfall:.1e} times its limit"


def _bound(run: Run, review: UnitReview, solution: Vector) -> SubspaceBound:
    """Return the bound on the angle of a result of PPCA."""
    problems = [review.problems[i] for i in run.names.tolist()]
    views, n_nodes = review.layout.views, run.topology.n_nodes
    W, centre = views(run.points).W, views(solution).W
    return bound_subspace(run.total, problems, W, centre, n_nodes)


def _objective(run: Run, centre: Matrix) -> float:
    """Return the sum of all f_i at the mean; private parts are those of each node."""
    layout, theta = run.layout, run.state.theta
    try:
        if isinstance(run.review, UnitReview):
            centre = run.review.rotated(centre)
        shared = np.tile(layout.shared(centre), (len(theta), 1))
        values = run.local.values_at(layout.whole(shared, theta))
    except BREAKDOWNS:
        values = np.full(len(theta), np.nan)
    return float(run.total([np.array([value]) for value in values])[0])
