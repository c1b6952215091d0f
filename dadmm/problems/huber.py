"""Huber regression of one node's rows, solved exactly.

Each row is within delta of its target, above, or below. Where no row changes its side,
the objective is a parabola. A Newton step that changes no side ends at the minimum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dadmm.core.layout import Matrix, Vector
from dadmm.core.linalg import EPS, row_lengths
from dadmm.core.schema import FINITE, entry, number
from dadmm.problems.linear import Design, LinearProblem

MAX_STEPS = 100
TOLERANCE = 1e-14  # of the gradient, relative to its terms


class LocalModel(NamedTuple):
    """The proximal objective near a point."""

    misfit: Vector  # (n,) X theta - y, times the roots of the weights
    force: Vector  # (n,) the misfit, clipped at delta
    inside: NDArray[np.bool_]  # (n,) whether the row is within delta
    pull: Vector  # (p,) gradient of the penalty and the proximal term
    gradient: Vector  # (p,)


@dataclass(eq=False, repr=False)
class Huber(LinearProblem):
    """Robust regression: the Huber loss.

    ``f = sum over rows of v h(x' coef + intercept - y) + alpha/2 |coef|^2``. Here h(r)
    is ``r^2 / 2`` up to delta, and ``delta (|r| - delta / 2)`` beyond; v and ``theta``
    are as in `LeastSquares`.

    Parameters
    ----------
    X, y, fit_intercept, sample_weight : as in `LeastSquares`
        A copy of all rows is kept, dense also if X is sparse.
    delta : float
        Error from which the loss is linear; positive, in the unit of y.
    alpha : float
        This node's own share of the penalty; not negative.

    Examples
    --------
    >>> problem = Huber(np.ones((3, 1)), [0.0, 1.0, 50.0], 1.0, fit_intercept=False)
    >>> problem.prox(np.zeros(1), None, np.zeros(1), 0.0)  # 50 counts as an outlier
    array([1.])
    """

    delta: float = entry(1.35, number("above 0 and finite", lambda x: 0 < x < math.inf))
    alpha: float = entry(0.0, FINITE)
    mapped = ("_X", "_held")

    def _adopt(self, given: Design) -> None:
        # v h(r) is h of r times the root of v, with a delta times the root of v
        self._reach = self.delta * np.sqrt(given.weights)  # (n,)
        self._X, self._y, *_ = given.weighted()
        self._held = given.penalty_rows(self.alpha)  # (r, p)
        self._prepare()

    def _prepare(self) -> None:
        self._penalty = self._held.T @ self._held
        self._least = max(float(np.linalg.eigvalsh(self._penalty)[0]), 0.0)
        self._eye = np.eye(self.layout.size)
        self._lengths = row_lengths(self._X)
        # rounding of the misfits changes a gradient by EPS of these
        self._fixed = self._lengths @ np.abs(self._y)
        self._bend = self._lengths @ self._lengths + self._penalty.trace()

    def rows(self, theta: Vector, radius: float = 0.0) -> Matrix:
        """Return rows F (r, p) with F'F at most the Hessian within a positive radius.

        Only rows that stay within delta count. With radius 0, a row beyond delta counts
        with ``delta / error``, as in reweighted least squares.
        """
        errors = np.abs(self._X @ theta - self._y)
        if radius > 0.0:
            kept = self._X[errors + self._lengths * radius <= self._reach]
        else:
            share = self._reach / np.maximum(errors, self._reach)
            kept = np.sqrt(share)[:, None] * self._X
        return np.vstack([kept, self._held])

    def within(self, T: Matrix) -> LinearProblem:
        """Return f as a problem in z (k,), where theta = T z and T is (p, k)."""
        return self._mapped(Huber, T)

    def prox(self, theta: Vector, stats: None, centre: Vector, weight: float) -> Vector:
        """Return the argmin of ``f(x) + weight/2 |x - centre|^2``, shape (p,)."""
        here, stiffness = theta.copy(), self._penalty + weight * self._eye
        least = self._least + weight
        model, aim = self._evaluate(here, centre, weight), np.abs(weight * centre).max()
        kept = 0  # steps in a row that changed no side; the second reduces rounding
        for _ in range(MAX_STEPS):
            terms = np.abs(model.force) @ self._lengths + np.abs(model.pull).max()
            rounding = self._fixed + self._bend * np.abs(here).max() + aim
            noise = TOLERANCE * terms + 2.0 * EPS * rounding
            if kept == 2 or np.abs(model.gradient).max() <= noise:
                break
            step, whole = self._step(model, stiffness, least)
            new = self._evaluate(here + step, centre, weight)
            if not whole or new.gradient @ step > 0.0:
                step *= self._length(model, step, stiffness)
                new = self._evaluate(here + step, centre, weight)
            same = (model.force == new.force)[~(model.inside & new.inside)].all()
            kept = kept + 1 if same and whole else 0
            here, model = here + step, new
        if not stiffness.any():
            return np.asarray(np.linalg.lstsq(self._X, self._X @ here)[0])
        return here

    def objectives(self, thetas: Matrix, stats: None) -> Vector:
        """Return f of each row of ``thetas`` (k, d), shape (k,)."""
        errors = np.abs(thetas @ self._X.T - self._y)
        counted = np.minimum(errors, self._reach)
        losses = np.vecdot(counted, errors - 0.5 * counted)
        held = thetas @ self._held.T
        return np.asarray(losses + 0.5 * np.vecdot(held, held))

    def gradient(self, theta: Vector) -> Vector:
        """Return the gradient of f, shape (d,)."""
        return self._evaluate(theta, theta, 0.0).gradient

    def _evaluate(self, here: Vector, centre: Vector, weight: float) -> LocalModel:
        misfit = self._X @ here - self._y
        force = np.clip(misfit, -self._reach, self._reach)
        pull = self._penalty @ here + weight * (here - centre)
        return LocalModel(misfit, force, force == misfit, pull, force @ self._X + pull)

    def _step(
        self, model: LocalModel, stiffness: Matrix, least: float
    ) -> tuple[Vector, bool]:
        """Return a descent step, and whether it ends at the minimum of the parabola."""
        rows = self._X[model.inside]
        hessian = rows.T @ rows
        hessian += stiffness
        if least > EPS * len(hessian) * float(hessian.trace()):
            return np.asarray(-np.linalg.solve(hessian, model.gradient)), True
        values, axes = np.linalg.eigh(hessian)
        slopes = model.gradient @ axes
        flat = values <= EPS * len(values) * values[-1]
        noise = 1e-12 * (np.abs(model.force) @ self._lengths)
        if (np.abs(slopes[flat]) > noise).any():  # f falls without bound
            return -axes[:, flat] @ slopes[flat], False
        slopes[~flat] /= values[~flat]
        return -axes[:, ~flat] @ slopes[~flat], True

    def _length(self, model: LocalModel, step: Vector, stiffness: Matrix) -> float:
        """Return the multiple of a step that minimises f along it.

        The slope along the step is piecewise linear. Its corners are where a row comes
        within delta or leaves it. The length is where the slope is zero.
        """
        drift = self._X @ step
        moving = drift != 0.0
        drift, misfit, reach = drift[moving], model.misfit[moving], self._reach[moving]
        ends = (np.stack([-reach, reach]) - misfit) / drift
        bend = drift**2
        enters, leaves = ends.min(axis=0), ends.max(axis=0)
        corners = np.concatenate([np.maximum(enters, 0.0), np.maximum(leaves, 0.0)])
        order = np.argsort(corners, kind="stable")
        corners = np.concatenate([[0.0], corners[order]])
        changes = np.concatenate([bend, -bend])[order]
        bends = np.concatenate([[0.0], changes.cumsum()]) + (stiffness @ step) @ step
        rises = np.concatenate([[0.0], (bends[:-1] * np.diff(corners)).cumsum()])
        slopes = model.gradient @ step + rises
        last = max(int(np.searchsorted(slopes, 0.0)) - 1, 0)
        if bends[last] <= 0.0:  # f is constant from here on
            return float(corners[last])
        return float(corners[last] - slopes[last] / bends[last])
