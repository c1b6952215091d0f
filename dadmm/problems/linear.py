"""What the linear problems share: the design matrix, the start, and no E-step.

The intercept is the coefficient of a column of ones, the last one. It is not penalised:
each problem multiplies its penalty by `Design.penalised`, which is zero there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dadmm.core.errors import ProblemError
from dadmm.core.layout import Layout, Matrix, Vector
from dadmm.core.linalg import by_row, triangular
from dadmm.core.schema import FLAG
from dadmm.problems.checks import (
    checked_array,
    checked_rows,
    checked_sparse,
    checked_weights,
    is_sparse,
)
from dadmm.problems.traits import Traits

BLOCK = 1000  # rows of a sparse X that are dense at a time, or as many as columns


class Design(NamedTuple):
    """The rows of a linear problem, with a column of ones if it has an intercept."""

    rows: Matrix  # (n, p), p = d, or d + 1 with an intercept
    y: Vector  # (n,)
    layout: Layout  # coef (d,) and, with fit_intercept, intercept ()
    penalised: Vector  # (p,) 1 for a coefficient, 0 for the intercept
    weights: Vector  # (n,) positive factors of the losses
    n: int  # rows of the node, of which there may be fewer after `compressed`
    lightest: float = 1.0  # size of the least row over that of the largest

    def compressed(self) -> Design:
        """Return at most p + 1 rows with the same squared error."""
        rows = triangular(np.column_stack([self.rows, self.y]))
        return self._replace(rows=rows[:, :-1], y=rows[:, -1])

    def weighted(self) -> Design:
        """Return rows and targets times the roots of their weights."""
        root = np.sqrt(self.weights)
        rows = root[:, None] * self.rows
        return self._replace(rows=rows, y=root * self.y, lightest=lightest(rows))

    def penalty_rows(self, alpha: float) -> Matrix:
        """Return rows F (r, p) with ``|F theta|^2 = alpha |coef|^2``."""
        kept = self.penalised * alpha > 0.0
        return np.asarray(np.sqrt(alpha) * np.diag(self.penalised)[kept])

    @classmethod
    def of_z(cls, rows: Matrix, y: Vector) -> Design:
        """Return a design of coordinates z (k,) without names or penalty."""
        n, k = rows.shape
        return cls(rows, y, Layout.of(z=(k,)), np.zeros(k), np.ones(n), n)


def lightest(rows: Matrix) -> float:
    """Return the size of the least row, but zero, over that of the largest.

    Columns are scaled to a largest entry of one.
    """
    entries = np.abs(rows)
    entries /= np.maximum(entries.max(axis=0, initial=0.0), np.finfo(float).tiny)
    sizes = entries.max(axis=1, initial=0.0)
    return float(sizes[sizes > 0.0].min(initial=1.0))


class LinearProblem:
    """A convex problem that starts at zero and has no latent variables."""

    convex = True
    exact = True  # prox returns the minimum to rounding
    quadratic = False  # whether the Hessian is the same everywhere
    needs_inverse = False  # whether T of `within` must be invertible
    lightest = 1.0  # size of the least row over that of the largest, if it is known
    traits = Traits("regression")
    layout: Layout

    def init(self, rng: np.random.Generator) -> Vector:
        """Return zeros (p,)."""
        return np.zeros(self.layout.size)

    def expect(self, theta: Vector) -> None:
        """Return None: there are no latent variables."""

    def theta_of(self, T: Matrix, z: Vector) -> Vector:
        """Return theta = T z, shape (..., p), of ``z`` (..., k).

        A row has the same bits alone and among others.
        """
        return by_row(z, T.T)


def design(
    problem: object,
    X: Any,
    y: ArrayLike,
    fit_intercept: bool,
    sample_weight: ArrayLike | None,
    *,
    squares: bool = False,
) -> Design:
    """Return the design of X (n, d) and y (n,), as copies; raise if not valid.

    Rows of weight zero are left out. With ``squares``, only squared errors matter: rows
    are multiplied by the roots of their weights, and those of a sparse X are compressed
    block by block.
    """
    name, sparse = type(problem).__name__, is_sparse(X)
    X = checked_sparse(name, X) if sparse else checked_rows(name, X)
    y = checked_array(name, "y", y)
    n, d = X.shape
    if y.shape != (n,):
        raise ProblemError(
            f"{name} needs one y for each of the {n} rows of X, shape ({n},), got "
            f"{y.shape}"
        )
    FLAG.check("fit_intercept", fit_intercept, ProblemError)
    weights = checked_weights(name, sample_weight, n)
    if not weights.all():
        kept = weights > 0.0
        X, y, weights = X[kept], y[kept], weights[kept]
    layout, penalised = Layout.of(coef=(d,)), np.ones(d)
    if fit_intercept:
        layout = Layout.of(coef=(d,), intercept=())
        penalised = np.append(penalised, 0.0)

    def of_rows(part: slice) -> Design:
        rows = X[part].toarray() if sparse else X[part]
        if fit_intercept:
            rows = np.hstack([rows, np.ones((len(rows), 1))])
        return Design(rows, y[part], layout, penalised, weights[part], n)

    if not squares:
        return of_rows(slice(None))
    if not sparse:
        return of_rows(slice(None)).weighted()
    step = max(BLOCK, d)
    found = of_rows(slice(0)).weighted()
    for first in range(0, len(y), step):
        more = of_rows(slice(first, first + step)).weighted()
        rows, target = np.vstack([found.rows, more.rows]), np.append(found.y, more.y)
        light = min(found.lightest, more.lightest)
        found = found._replace(rows=rows, y=target, lightest=light).compressed()
    return found._replace(weights=np.ones(len(found.y)))
