"""A kind of run: how it is prepared, when it stops, and what is said of its result.

For PPCA in raw coordinates, gradients and differences become relative errors of the
node's own model. With N rows, ``sqrt(a) W = U diag(l) R`` and ``C = W W' + I / a``,
these are

* of W, by row q of R: ``|E R_q'| / max(l_q, 1)``, where E is ``sqrt(a)`` times a
  difference from a neighbour, or times the Newton step of a gradient. The curvature
  out of the column space is a times the mean of ``E sum z z'`` over all nodes: the
  rows of one node may say little about a direction. Within it, the pair p, q has
  ``a N s_p s_q`` with ``s = sqrt(2) / max(l, sqrt(2))``. Turns of W are free.
* of mu: ``sqrt(d' C^-1 d / D)`` of differences, ``sqrt(g' C g / D) / N`` of gradients
* of a: ``|d| / a`` of differences, ``2 a |g| / (N (D - M))`` of gradients

The largest error over all q counts, and the root mean square over the neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from dadmm.admm.local import BREAKDOWNS
from dadmm.admm.loop import Callback, Run, RunKind
from dadmm.admm.rule import Rule, Scales
from dadmm.admm.state import Numbers
from dadmm.comm.world import World
from dadmm.core.layout import Array, Matrix, Vector
from dadmm.graphs.topology import Topology
from dadmm.solver.certificate import Certificate, Total, certify, is_exact
from dadmm.solver.plan import Judge, Plan

if TYPE_CHECKING:
    from dadmm.solver.merged import MergedStart
    from dadmm.solver.subspace import SubspaceBound, SubspaceProblem

TIMES = 10.0  # largest relative error of PPCA, over the tolerance
NEAR = 3.0  # multiple of its limit up to which an error is likely to be small soon
SOON, LATER = 8, 3  # the next review is after this part of the iterations so far
ROOT = math.sqrt(2.0)


class Statement(NamedTuple):
    """The part of a result that holds for all nodes together, see `Result`."""

    solution: Vector
    objective: float = math.nan
    certificate: Certificate | None = None
    start: MergedStart | None = None
    subspace_bound: SubspaceBound | None = None
    why: str = ""
    status: str = ""


class SolveKind(RunKind):
    """The kind of a run of `dadmm.solve`; a subclass for each member of `plan.Kind`.

    Problems, starts and duals are given in the coordinates of the user. `prepare` sets
    ``within`` and replaces starts and duals, see `RunKind`.
    """

    RECORD: ClassVar[Any] = None  # what all nodes know after set-up, a NamedTuple
    callbacks: tuple[Callback, ...] = ()
    sent: np.ndarray | None = None  # messages and bytes of `prepare`, by edge
    plan: Plan  # set by `solve`
    bound_angle = True  # set by `solve`: whether to bound the angle of a subspace
    record: Any
    all_exact = complete = False  # set by `mean`

    def prepare(self, topology: Topology, world: World) -> None:
        """Choose coordinates and start by sums over all nodes."""
        with world.tree(topology) as tree:

            def total(rows: Sequence[Array], *how: Any) -> Array:
                by_node = dict(zip(self.problems, rows, strict=True))
                return np.asarray(tree.reduce(by_node, *how))

            self.choose(total, topology.n_nodes)
            self.sent = tree.sent

    def save(self, run: Run) -> None:
        """Keep the record in the state of a run."""
        known = self.record._asdict().items()
        run.state.coordinates = {name: np.array(value) for name, value in known}

    def choose(self, total: Total, n_nodes: int) -> None:
        """Choose the record by sums over all nodes, and `enter` it."""

    def enter(self, record: Any) -> None:
        """Set what the run is made of."""

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
            counts = getattr(own, "observed_counts", math.nan)  # of PPCA
            whole = bool(np.all(counts == getattr(own, "n_samples", None)))
            facts.append([is_exact(own), whole])
        shared = layout.shared(run.state.theta)
        total: Vector = run.total(list(np.column_stack([shared, facts])))
        self.all_exact, self.complete = (total[-2:] == n_nodes).tolist()
        return layout.whole(total[:-2] / n_nodes, np.full(layout.size, np.nan))

    def bounded(self, run: Run, said: Statement, centre: Vector) -> Statement:
        """Return the statement with bounds, if any, and why they do not hold."""
        return said

    def rotated(self, theta: Vector) -> Vector:
        """Return the same model with smaller errors of rounding."""
        return theta

    def conclude(self, run: Run, reason: str) -> Statement:
        """Return the statement about a run that has ended for this reason."""
        centre, layout, theta = self.mean(run), run.layout, run.state.theta
        solution = np.asarray(self.theta_of(centre[None])[0])
        said = self.bounded(run, Statement(solution), centre)
        certificate, why = said.certificate, said.why
        if certificate is not None:
            objective = certificate.objective
        else:  # the sum of all f_i at the mean, with private parts of each node
            try:
                shared = np.tile(layout.shared(self.rotated(centre)), (len(theta), 1))
                values = run.local.values_at(layout.whole(shared, theta))
            except BREAKDOWNS:
                values = np.full(len(theta), np.nan)
            objective = merged(run, values, np.add)
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
        return said._replace(objective=objective, status=status, why=why)

    def doubt(self, run: Run, said: Statement) -> str:
        """Return why a run that met its rule may not be stationary; "" if it is."""
        scheme = run.penalties.scheme
        if run.stopping.rule.name == "objective":
            return "the rule objective cannot tell a plateau from a solution"
        if scheme.coupling == "own" and not scheme.is_symmetric:
            return "directed penalties lead nodes to another point than the optimum"
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


class RawKind(SolveKind):
    """A run in the coordinates of the user.

    The residual of the stopping rule assumes exact proximal steps, which a sweep of EM
    is not. So if problems have gradients and are not convex, the gradient of each
    node's Lagrangian, ``grad f_i(theta_i) + 2 sum_j lambda_ij``, must be within the
    limits of the rule "optimality" when all nodes meet it; of PPCA, relative errors
    below `TIMES` the tolerance. Else the run stops by its rule alone.
    """

    def verdict(self, t: int, run: Run) -> str:
        rule = run.stopping.rule
        slopes = self.slope(run) if rule.name == "optimality" else None
        if slopes is None or (steepest := merged(run, slopes, np.maximum)) <= 1.0:
            return "converged"
        run.stopping.reopen(rule.tolerance)
        run.state.held[...] = -(t // (SOON if steepest < NEAR else LATER))
        return ""

    def bounded(self, run: Run, said: Statement, centre: Vector) -> Statement:
        if self.all_exact and not run.layout.private and not self.plan.asked:
            found = certify(run, centre, run.stopping.rule.tolerance, None)
            said = said._replace(certificate=found)
        return said._replace(why=self.plan.why)

    def slope(self, run: Run) -> Vector | None:
        if self.plan.judge is Judge.RULE:
            return None
        layout, own, theta = self.layout, self.own(run), run.state.theta
        m, given = layout.shared_size, run.stopping.rule
        gradients = [p.gradient(x)[:m] for p, x in zip(own, theta, strict=True)]
        slopes = np.array(gradients) / np.sqrt(layout.pull[:m])
        slopes = slopes + 2.0 * run.work.multiplier  # of each node's Lagrangian
        if self.plan.judge is Judge.GRADIENT:
            now = Numbers(run.work.numbers.copy(), len(layout.sizes))
            now.parts[4] = np.sqrt(np.add.reduceat(slopes**2, layout.starts, axis=1)).T
            rule = Rule("optimality", given.tolerance, given.absolute_tolerance)
            found = rule.verdict(now, np.sqrt(layout.sizes)[:, None])
            return np.asarray(np.fmax(found.disagreement, found.residual))
        gaps = run.incidence.spread(run.work.shared) - run.state.received
        moments = [p.moment(x) for p, x in zip(own, theta, strict=True)]
        moment = run.total(moments) / run.topology.n_nodes
        limit, worst = TIMES * given.tolerance, []
        for k, problem in enumerate(own):
            mine = gaps[run.incidence.node == k]
            errors = relative_errors(problem, theta[k], slopes[k], mine, moment)
            worst.append(errors.max() / limit if limit else math.inf)
        return np.array(worst)

    def scales_of(self, names: np.ndarray) -> Scales | None:
        """Return scales with which the rule is met before relative errors are small."""
        if self.plan.judge is not Judge.MODEL:
            return None
        own = [self.problems[i].observed_counts.mean() for i in names.tolist()]
        rows, (D, M) = np.array(own), self.layout.shapes["W"]

        def scales_at(k: int, lengths: Array) -> Array:
            W, _, a = lengths
            if k == 0:
                return TIMES * np.array([W, np.sqrt(W * W + D / a), a])
            noise = 0.5 * (D - M) / a
            return TIMES * np.array([rows * a * W, rows * np.sqrt(a * D), rows * noise])

        return scales_at


def relative_errors(
    problem: SubspaceProblem, theta: Vector, slope: Vector, gaps: Matrix, moment: Matrix
) -> Matrix:
    """Return the errors (2, 3) of differences and of gradients, of W, mu and a.

    ``slope`` (size,) is the gradient of the node's Lagrangian, ``gaps`` are differences
    from neighbours, and ``moment`` (M, M) is the mean of ``E sum z z'`` over all nodes.
    """
    W, _, a = problem.layout.views(theta)
    D, M = W.shape
    n, a = float(problem.observed_counts.mean()), float(a)
    left, lengths, right = np.linalg.svd(math.sqrt(a) * W, full_matrices=False)
    squares = lengths**2
    W_slope, mu_slope, a_slope = problem.layout.views(slope)
    W_gaps, mu_gaps, a_gaps = problem.layout.views(gaps)

    within = left.T @ W_slope
    beyond = W_slope - left @ within
    steps = np.linalg.solve(a * moment, beyond.T).T @ right.T
    if not problem.free_axes:
        within = within @ right.T
        wide = np.maximum(lengths, ROOT) / ROOT
        steps += left @ (0.5 * (within + within.T) * np.outer(wide, wide) / (a * n))

    def by_column(rows: Matrix, count: int) -> float:
        columns = np.sqrt(a * np.sum(rows**2, axis=(0, 1)) / max(count, 1))
        return float((columns / np.maximum(lengths, 1.0)).max())

    k, shrunk = len(gaps), squares / (1.0 + squares)
    mu_squares = np.sum(mu_gaps**2) - np.sum(shrunk * (mu_gaps @ left) ** 2)
    mu_bent = np.sum(mu_slope**2) + np.sum(squares * (mu_slope @ left) ** 2)
    return np.array([
        [
            by_column(W_gaps @ right.T, k),
            math.sqrt(a * max(mu_squares, 0.0) / (D * max(k, 1))),
            math.sqrt(np.sum(a_gaps**2) / max(k, 1)) / a,
        ],
        [
            by_column(steps[None], 1),
            math.sqrt(mu_bent / (a * D)) / n,
            2.0 * a * abs(float(a_slope)) / (n * (D - M)),
        ],
    ])  # fmt: skip
