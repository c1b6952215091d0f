"""What can be said about the result of a run: its status, and a bound on its error."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dadmm.accuracy.certificate import LIGHT, Certificate, certify
from dadmm.accuracy.coordinates import is_exact
from dadmm.accuracy.merged import MergedReview, MergedStart
from dadmm.accuracy.review import MOST_CHANGES, MetricReview
from dadmm.accuracy.subspace import SubspaceBound, bound_subspace, supports
from dadmm.accuracy.units import UnitReview
from dadmm.admm.local import BREAKDOWNS
from dadmm.admm.loop import Run
from dadmm.core.layout import Layout, Matrix, Vector

STATUSES = ("certified", "stopped", "stationary", "not converged")


class Statement(NamedTuple):
    """The part of a result that holds for all nodes together."""

    layout: Layout  # of the coordinates of the user
    status: str  # one of `STATUSES`
    why: str  # why the result is not certified; "" if it is
    metric: str  # "full" or "none"
    solution: Vector  # (size,) the mean over the nodes; private parts are NaN
    objective: float  # sum of all f_i at the solution; NaN if it cannot be evaluated
    certificate: Certificate | None
    start: MergedStart | None = None
    subspace_bound: SubspaceBound | None = None


def conclude(run: Run, reason: str, tolerance: float, why: str) -> Statement:
    """Return the statement about a run that has ended.

    Parameters
    ----------
    run : Run
    reason : str
        Why the run ended.
    tolerance : float
    why : str
        Why the run has no metric; "" if it has one.
    """
    review = run.review
    problems: Any = run.local.problems
    given: Any = problems
    if isinstance(review, UnitReview):
        given = [review.problems[i] for i in run.names.tolist()]
    complete = False  # whether all nodes have PPCA without missing entries
    if isinstance(review, MetricReview):
        certificate = review.conclude(run)
        solution = review.points(review.centre[None])[0]
        layout, metric = review.layout, "full"
        if review.no_minimum:
            certificate, why = None, review.no_minimum
        elif certificate is None:
            why = (
                "the proximal step of the problem is not known to be exact; set exact "
                "= True if it is"
            )
    else:
        layout, metric, certificate = run.layout, "none", None
        shared = layout.shared(run.state.theta)
        facts = [[is_exact(problem), supports(problem)] for problem in given]
        total: Vector = run.total(list(np.column_stack([shared, facts])))
        centre = total[:-2] / run.topology.n_nodes
        solution = layout.whole(centre, np.full(layout.size, np.nan))
        all_exact, complete = (total[-2:] == run.topology.n_nodes).tolist()
        if all_exact and layout.size == layout.shared_size and why != NO_SUMS:
            certificate = certify(run, centre, tolerance, None)
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
    if complete and isinstance(review, UnitReview):
        bound = _bound(run, review, solution)
    convex = all(getattr(problem, "convex", False) for problem in problems)
    status = _status(reason, convex, certificate)
    if status == "certified":
        why = ""
    elif certificate is not None and metric == "full":
        why = _why_not(certificate, review)
    elif not convex:
        why = "the problem is not convex"
    return Statement(
        layout, status, why, metric, solution, objective, certificate, start, bound
    )


NO_SUMS = 'metric = "none"'  # no derivative leaves a node


def _status(reason: str, convex: bool, certificate: Certificate | None) -> str:
    if certificate is not None and certificate.holds:
        return "certified"
    if reason != "converged":
        return "not converged"
    return "stopped" if convex else "stationary"


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
