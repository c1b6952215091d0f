"""Least squares and ridge regression of one node's rows.

One singular value decomposition in the constructor serves every weight: in its axes
the objective is a sum of parabolas, ``floor + 1/2 sum curvature (z - best)^2``, so a
proximal step is two small products whatever the number of rows is, and no objective is
a difference of large numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dadmm.core.errors import ProblemError
from dadmm.core.layout import Layout, Matrix, Vector
from dadmm.core.metrics import triangular


class LeastSquares:
    """f(theta) = 1/2 |X theta - y|^2, a sum over the rows.

    ``theta`` holds ``coef`` (d,). With weight 0 and a rank-deficient design, `prox`
    returns the solution of least norm; singular values below ``eps max(n, d)`` times
    the largest count as zero.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        This node's rows.
    y : ndarray of shape (n,)
    """

    convex = True

    def __init__(self, X: Matrix, y: Vector) -> None:
        self._plan(X, y, 0.0)

    def _plan(self, X: Matrix, y: Vector, alpha: float) -> None:
        X, y = checked(self, X, y)
        n, d = X.shape
        self.layout = Layout.of(coef=(d,))
        rows = compressed(X, y)
        left, values, right = np.linalg.svd(rows[:, :-1])
        values[values <= np.finfo(float).eps * max(n, d) * values[0]] = 0.0
        singular, target = np.zeros(d), np.zeros(max(d, len(rows)))
        singular[: len(values)] = values
        target[: len(rows)] = rows[:, -1] @ left
        # Where nothing bends f, the least positive number stands for the curvature: it
        # is lost beside any weight, and makes 0 / 0, which weight 0 would give, zero.
        curvature = np.maximum(singular**2 + alpha, np.finfo(float).tiny)
        best = singular * target[:d] / curvature
        target[:d] -= singular * best
        floor = 0.5 * (target @ target + alpha * (best @ best))
        self._axes = np.ascontiguousarray(right.T)  # (..., d, d)
        self._curvature, self._best = curvature[None], best[None]  # (..., 1, d)
        self._pull = self._curvature * self._best  # (..., 1, d)
        self._floor = np.array([floor])  # (..., 1)

    @property
    def kind(self) -> Layout:
        """What problems must have in common to be stacked: not the number of rows."""
        return self.layout

    @classmethod
    def stack(cls, problems: Sequence[LeastSquares]) -> LeastSquares:
        """Return n problems of one kind as one problem.

        Its `prox` and `objectives` take and return arrays with a leading axis of n,
        and give each problem the bits that it would get alone.
        """
        stacked = object.__new__(LeastSquares)
        stacked.layout = problems[0].layout
        for name in ("_axes", "_curvature", "_best", "_pull", "_floor"):
            setattr(stacked, name, np.array([getattr(p, name) for p in problems]))
        return stacked

    def init(self, rng: np.random.Generator) -> Vector:
        """Return zeros (d,)."""
        return np.zeros(self.layout.size)

    def expect(self, theta: Vector) -> None:
        """Return None: nothing is latent here."""

    def prox(self, theta: Vector, stats: None, centre: Vector, weight: Any) -> Vector:
        """Return the argmin of ``f(x) + weight/2 |x - centre|^2``, shape (d,)."""
        weight = np.asarray(weight)[..., None, None]
        row = centre[..., None, :] @ self._axes
        row *= weight
        row += self._pull
        row /= self._curvature + weight
        return np.asarray((row @ self._axes.mT)[..., 0, :])

    def objectives(self, thetas: Matrix, stats: None) -> Vector:
        """Return f of each row of ``thetas`` (k, d), shape (k,)."""
        off = thetas @ self._axes
        off -= self._best
        return np.asarray(0.5 * np.vecdot(off * self._curvature, off) + self._floor)


class Ridge(LeastSquares):
    """f(theta) = 1/2 |X theta - y|^2 + alpha/2 |theta|^2.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        This node's rows.
    y : ndarray of shape (n,)
    alpha : float
        This node's own share of the penalty; not negative.
    """

    def __init__(self, X: Matrix, y: Vector, alpha: float = 1.0) -> None:
        self.alpha = checked_number("alpha", alpha)
        self._plan(X, y, self.alpha)


def compressed(X: Matrix, y: Vector) -> Matrix:
    """Return at most d + 1 rows of [X y] (n, d + 1) with the same squared error."""
    return triangular(np.column_stack([X, y]))


def checked(problem: object, X: Any, y: Any) -> tuple[Matrix, Vector]:
    """Return X (n, d) and y (n,) as contiguous arrays, or say what is wrong."""
    name = type(problem).__name__
    try:
        X = np.ascontiguousarray(X, dtype=np.float64)
        y = np.ascontiguousarray(y, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ProblemError(f"{name} needs X and y of numbers: {error}") from None
    if X.ndim != 2 or 0 in X.shape:
        raise ProblemError(
            f"{name} needs X of shape (n, d) with n, d >= 1, got {X.shape}"
        )
    if y.shape != X.shape[:1]:
        raise ProblemError(
            f"{name} needs one y for each of the {len(X)} rows of X, shape "
            f"({len(X)},), got {y.shape}"
        )
    if not np.isfinite(X).all():
        row, column = np.argwhere(~np.isfinite(X))[0]
        raise ProblemError(
            f"{name} needs finite X, but row {row}, column {column} is {X[row, column]}"
        )
    if not np.isfinite(y).all():
        row = np.flatnonzero(~np.isfinite(y))[0]
        raise ProblemError(f"{name} needs finite y, but row {row} is {y[row]}")
    return X, y


def checked_number(
    name: str, value: Any, *, positive: bool = False, most: float = math.inf
) -> float:
    """Return a finite number, not negative, as a float, or say what is wrong."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    allowed = number > 0.0 if positive else 0.0 <= number <= most
    if allowed and math.isfinite(number):
        return number
    rule = "positive and finite" if positive else "not negative and finite"
    rule = f"from 0 to {most:g}" if math.isfinite(most) else rule
    raise ProblemError(f"{name} must be a number, {rule}, got {value!r}")
