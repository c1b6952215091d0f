"""What the linear problems share: the design matrix, the start, and no E-step.

The intercept is the coefficient of a column of ones, the last one. It is not penalised:
each problem multiplies its penalty by `Design.penalised`, which is zero there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dadmm.core.errors import ProblemError
from dadmm.core.layout import Layout, Matrix, Vector
from dadmm.core.linalg import by_row, triangular
from dadmm.problems.checks import checked_array, checked_rows


class Design(NamedTuple):
    """The rows of a linear problem, with a column of ones if it has an intercept."""

    rows: Matrix  # (n, p), p = d, or d + 1 with an intercept
    y: Vector  # (n,)
    layout: Layout  # coef (d,) and, with fit_intercept, intercept ()
    penalised: Vector  # (p,) 1 for a coefficient, 0 for the intercept

    def compressed(self) -> Design:
        """Return at most p + 1 rows with the same squared error."""
        rows = triangular(np.column_stack([self.rows, self.y]))
        return self._replace(rows=rows[:, :-1], y=rows[:, -1])

    def penalty_rows(self, alpha: float) -> Matrix:
        """Return rows F (r, p) with ``|F theta|^2 = alpha |coef|^2``."""
        kept = self.penalised * alpha > 0.0
        return np.asarray(np.sqrt(alpha) * np.diag(self.penalised)[kept])

    @classmethod
    def of_z(cls, rows: Matrix, y: Vector) -> Design:
        """Return a design of coordinates z (k,) without names or penalty."""
        k = rows.shape[1]
        return cls(rows, y, Layout.of(z=(k,)), np.zeros(k))


class LinearProblem:
    """A convex problem that starts at zero and has no latent variables."""

    convex = True
    exact = True  # prox returns the minimum to rounding
    quadratic = False  # whether the Hessian is the same everywhere
    needs_inverse = False  # whether T of `within` must be invertible
    layout: Layout

    def init(self, rng: np.random.Generator) -> Vector:
        """Return zeros (p,)."""
        return np.zeros(self.layout.size)

    def expect(self, theta: Vector) -> None:
        """Return None: there are no latent variables."""

    def point(self, T: Matrix, z: Vector) -> Vector:
        """Return theta = T z, shape (..., p), of ``z`` (..., k).

        A row has the same bits alone and among others.
        """
        return by_row(z, T.T)


def design(problem: object, X: ArrayLike, y: ArrayLike, fit_intercept: bool) -> Design:
    """Return the design of X (n, d) and y (n,), as copies; raise if not valid."""
    name = type(problem).__name__
    X, y = checked_rows(name, X), checked_array(name, "y", y)
    if y.shape != X.shape[:1]:
        raise ProblemError(
            f"{name} needs one y for each of the {len(X)} rows of X, shape "
            f"({len(X)},), got {y.shape}"
        )
    if not isinstance(fit_intercept, bool):
        raise ProblemError(
            f"fit_intercept must be true or false, got {fit_intercept!r}"
        )
    penalised = np.ones(X.shape[1])
    if not fit_intercept:
        return Design(X, y, Layout.of(coef=X.shape[1:]), penalised)
    rows = np.hstack([X, np.ones((len(X), 1))])
    layout = Layout.of(coef=X.shape[1:], intercept=())
    return Design(rows, y, layout, np.append(penalised, 0.0))
