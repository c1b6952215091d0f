"""When a run in the coordinates of the user is stationary: the gradient decides.

The residual of the stopping rule assumes that proximal steps are exact. A sweep of EM
is not. So when all nodes meet the rule, each of them evaluates the gradient of its
Lagrangian, ``grad f_i(theta_i) + 2 sum_j lambda_ij``. If it is too large at some node,
the run continues.

For PPCA, gradients and differences become relative errors of the node's own model. With
N rows, ``sqrt(a) W = U diag(l) R`` and ``C = W W' + I / a``, these are

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
from dataclasses import replace

import numpy as np

from dadmm.admm.loop import Run
from dadmm.admm.rule import Rule, Scales
from dadmm.admm.state import Numbers
from dadmm.comm.world import World
from dadmm.core.layout import Array, Matrix, Vector
from dadmm.graphs.topology import Topology
from dadmm.solver.certificate import Certificate, certify
from dadmm.solver.kind import Saved, SolveKind, merged
from dadmm.solver.plan import Judge
from dadmm.solver.subspace import SubspaceProblem

TIMES = 10.0  # largest relative error of PPCA, over the tolerance
NEAR = 3.0  # multiple of its limit up to which an error is likely to be small soon
SOON, LATER = 8, 3  # the next review is after this part of the iterations so far
ROOT = math.sqrt(2.0)


class RawKind(SolveKind):
    """A run in the coordinates of the user.

    If problems have gradients and are not convex, gradients must be within the limits
    of the rule "optimality"; of PPCA, relative errors below `TIMES` the tolerance. Else
    the run stops by its rule alone.
    """

    def prepare(self, topology: Topology, world: World, saved: Saved | None) -> None:
        """Let a run that is judged by its model have a scaled rule."""
        if self.plan.judge is Judge.MODEL:
            self.rule = replace(self.rule, scaled=True)

    def verdict(self, t: int, run: Run) -> str:
        """Return "converged" if the run is stationary; else it continues."""
        rule = run.stopping.rule
        slopes = self.slope(run) if rule.name == "optimality" else None
        steepest = 0.0 if slopes is None else merged(run, slopes, np.maximum)
        if steepest <= 1.0:
            return "converged"
        run.stopping.reopen(rule.tolerance)
        run.state.held[...] = -(t // (SOON if steepest < NEAR else LATER))
        return ""

    def bound_error(self, run: Run, centre: Vector) -> tuple[Certificate | None, str]:
        """Return a bound if all problems are exact, and why the run is raw."""
        certificate, has_private = None, run.layout.size > run.layout.shared_size
        if self.all_exact and not has_private and not self.plan.asked:
            certificate = certify(run, centre, run.stopping.rule.tolerance, None)
        return certificate, self.plan.why

    def slope(self, run: Run) -> Vector | None:
        """Return the largest gradient or error over its limit, by node."""
        if self.plan.judge is Judge.RULE:
            return None
        layout, own, theta = self.layout, self.own(run), run.state.theta
        m = layout.shared_size
        gradients = [p.gradient(x)[:m] for p, x in zip(own, theta, strict=True)]
        slopes = np.array(gradients) / np.sqrt(layout.pull[:m])
        slopes = slopes + 2.0 * run.work.multiplier  # of each node's Lagrangian
        if self.plan.judge is Judge.MODEL:
            return self._model_errors(run, own, slopes)
        now = Numbers(run.work.numbers.copy(), len(layout.sizes))
        now.parts[4] = np.sqrt(np.add.reduceat(slopes**2, layout.starts, axis=1)).T
        given = run.stopping.rule
        rule = Rule("optimality", given.tolerance, given.absolute_tolerance)
        found = rule.verdict(now, np.sqrt(layout.sizes)[:, None])
        return np.asarray(np.fmax(found.disagreement, found.residual))

    def scales_of(self, names: np.ndarray) -> Scales | None:
        """Return scales with which the rule is met before relative errors are small."""
        if self.plan.judge is not Judge.MODEL:
            return None
        problems = [self.problems[i] for i in names.tolist()]
        rows = np.array([problem.observed_counts.mean() for problem in problems])
        D, M = self.layout.shapes["W"]

        def scales_at(k: int, lengths: Array) -> Array:
            W, _, a = lengths
            if k == 0:
                return TIMES * np.array([W, np.sqrt(W * W + D / a), a])
            noise = 0.5 * (D - M) / a
            return TIMES * np.array([rows * a * W, rows * np.sqrt(a * D), rows * noise])

        return scales_at

    def _model_errors(
        self, run: Run, own: Sequence[SubspaceProblem], slopes: Matrix
    ) -> Vector:
        gaps = run.incidence.spread(run.work.shared) - run.state.received
        limit, found = TIMES * run.stopping.rule.tolerance, []
        theta = run.state.theta
        moments = [p.moment(x) for p, x in zip(own, theta, strict=True)]
        moment = run.total(moments) / run.topology.n_nodes
        for k, problem in enumerate(own):
            mine = gaps[run.incidence.node == k]
            errors = relative_errors(problem, theta[k], slopes[k], mine, moment)
            found.append(errors.max() / limit if limit else math.inf)
        return np.array(found)


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
