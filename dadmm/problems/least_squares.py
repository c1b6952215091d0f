"""Least squares and ridge regression of one node's rows.

The constructor computes one QR decomposition and one singular value decomposition. The
first leaves at most p + 1 rows with the same squared error, from which objectives are
computed. In the axes of the second the objective is a sum of parabolas. So a proximal
step of any weight is two small products, whatever the number of rows. A penalty is an
additional row for each penalised entry, with target zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from dadmm.core.layout import Layout, Matrix, Vector
from dadmm.core.threads import with_one_blas_thread
from dadmm.problems.checks import checked_number
from dadmm.problems.linear import Design, LinearProblem, design
from dadmm.problems.stacking import stack_attributes
from dadmm.problems.traits import Traits


class LeastSquares(LinearProblem):
    """Linear regression: half of the sum of squared errors.

    ``f = 1/2 sum over rows of v (x' coef + intercept - y)^2``, where v is the weight of
    a row, 1 by default. ``theta`` holds ``coef`` (d,) and, with
    ``fit_intercept``, ``intercept`` (). With weight 0 and a rank-deficient design,
    `prox` returns the minimiser of least norm. Singular values below ``eps max(n, p)``
    times the largest count as zero.

    Parameters
    ----------
    X : ndarray or sparse matrix of shape (n, d)
        This node's rows. A sparse X is compressed block by block; there is no dense
        copy of the whole.
    y : ndarray of shape (n,)
    fit_intercept : bool
        Whether there is an intercept. It is not penalised. Without it, ``theta``
        holds ``coef`` only.
    sample_weight : ndarray of shape (n,), optional
        Factors of the losses of the rows, not negative; 1 if not given. A row of
        weight 0 counts as absent. The penalty has no weight.

    Examples
    --------
    >>> import dadmm
    >>> X, y, coef = dadmm.datasets.regression(60, 3)
    >>> problems = [dadmm.problems.LeastSquares(X[i::4], y[i::4]) for i in range(4)]
    >>> result = dadmm.solve(problems, dadmm.Topology.ring(4))
    >>> result.status, result.parts(0).coef.round(1), coef.round(1)
    ('certified', array([ 0.1, -0.1,  0.6]), array([0.1, 0. , 0.6]))
    """

    quadratic = True
    traits = Traits("regression", has_errors=True)

    @with_one_blas_thread
    def __init__(
        self,
        X: Matrix,
        y: Vector,
        *,
        fit_intercept: bool = True,
        sample_weight: Vector | None = None,
    ) -> None:
        self._prepare(design(self, X, y, fit_intercept, sample_weight, squares=True))

    @classmethod
    def of(cls, given: Design, alpha: float = 0.0) -> Self:
        """Return the problem of a design, plus ``alpha/2 |coef|^2``."""
        problem = object.__new__(cls)
        problem._prepare(given, alpha)
        return problem

    def _prepare(self, given: Design, alpha: float = 0.0) -> None:
        n, p = given.n, given.rows.shape[1]
        held = given.penalty_rows(alpha)
        rows = np.vstack([given.rows, held])
        target = np.append(given.y, np.zeros(len(held)))
        rows, target, *_ = given._replace(rows=rows, y=target).compressed()
        self._rows, self._target, self.layout = rows, target, given.layout
        self.lightest = given.lightest
        self._padded, self._aim = np.zeros((p + 1, p)), np.zeros((1, p + 1))
        self._padded[: len(rows)], self._aim[0, : len(rows)] = rows, target
        left, values, right = np.linalg.svd(rows)
        values[values <= np.finfo(float).eps * max(n, p) * values[0]] = 0.0
        singular, turned = np.zeros(p), np.zeros(p + 1)
        singular[: len(values)] = values
        turned[: len(rows)] = target @ left
        # A curvature of zero is replaced by the least positive number: added to a
        # positive weight it is lost, and with weight 0 it avoids 0 / 0.
        curvature = np.maximum(singular**2, np.finfo(float).tiny)
        self._axes = np.ascontiguousarray(right.T)  # (..., p, p)
        self._curvature = curvature[None]  # (..., 1, p)
        self._pull = (singular * turned[:p])[None]  # (..., 1, p)

    @property
    def equations(self) -> tuple[Matrix, Vector]:
        """Rows (r, p) and targets (r,), at most p + 1, with this sum of squares."""
        return self._rows, self._target

    @property
    def kind(self) -> Layout:
        """What problems must have in common to be stacked; not the number of rows."""
        return self.layout

    @classmethod
    def stack(cls, problems: Sequence[LeastSquares]) -> LeastSquares:
        """Return n problems of one kind as one problem.

        Its `prox` and `objectives` take and return arrays with a leading axis of n,
        and give the same bits as each problem alone.
        """
        names = ("_axes", "_curvature", "_pull", "_padded", "_aim")
        return stack_attributes(cls, problems, names)

    def rows(self, theta: Vector, radius: float = 0.0) -> Matrix:
        """Return rows F (r, p) with F'F the Hessian of f."""
        return self._rows

    @with_one_blas_thread
    def within(self, T: Matrix) -> LeastSquares:
        """Return f as a problem in z (k,), where theta = T z and T is (p, k)."""
        return LeastSquares.of(Design.of_z(self._rows @ T, self._target))

    def prox(self, theta: Vector, stats: None, centre: Vector, weight: Any) -> Vector:
        """Return the argmin of ``f(x) + weight/2 |x - centre|^2``, shape (p,)."""
        weight = np.asarray(weight)[..., None, None]
        row = centre[..., None, :] @ self._axes
        row *= weight
        row += self._pull
        row /= self._curvature + weight
        return np.asarray((row @ self._axes.mT)[..., 0, :])

    def objectives(self, thetas: Matrix, stats: None) -> Vector:
        """Return f of each row of ``thetas`` (k, p), shape (k,)."""
        off = thetas @ self._padded.mT
        off -= self._aim
        return np.asarray(0.5 * np.vecdot(off, off))


class Ridge(LeastSquares):
    """Least squares with a squared penalty of the coefficients.

    ``f = 1/2 sum over rows of v (x' coef + intercept - y)^2 + alpha/2 |coef|^2``, where
    v is the weight of a row, 1 by default.

    Parameters
    ----------
    X, y, fit_intercept, sample_weight : as in `LeastSquares`
    alpha : float
        This node's own share of the penalty; not negative.

    Examples
    --------
    >>> import dadmm
    >>> X, y, _ = dadmm.datasets.regression(60, 3)
    >>> problems = [dadmm.problems.Ridge(X[i::4], y[i::4], alpha=5) for i in range(4)]
    >>> result = dadmm.solve(problems, dadmm.Topology.ring(4))  # alpha is 20 in all
    >>> result.parts(0).coef.round(2)
    array([ 0.11, -0.08,  0.42])
    """

    @with_one_blas_thread
    def __init__(
        self,
        X: Matrix,
        y: Vector,
        alpha: float = 1.0,
        *,
        fit_intercept: bool = True,
        sample_weight: Vector | None = None,
    ) -> None:
        self.alpha = checked_number("alpha", alpha)
        given = design(self, X, y, fit_intercept, sample_weight, squares=True)
        self._prepare(given, self.alpha)
