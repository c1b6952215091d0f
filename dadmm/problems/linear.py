"""The design matrix of the linear problems, and checks of their arguments.

The intercept is the coefficient of a column of ones, the last one. It is not penalised:
each problem multiplies its penalty by `Design.penalised`, which is zero there.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dadmm.core.errors import ProblemError
from dadmm.core.layout import Layout, Matrix, Vector
from dadmm.core.linalg import triangular


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


def design(problem: object, X: ArrayLike, y: ArrayLike, fit_intercept: bool) -> Design:
    """Return the design of X (n, d) and y (n,); raise if they are not valid."""
    X, y = checked(problem, X, y)
    if not isinstance(fit_intercept, bool):
        raise ProblemError(
            f"fit_intercept must be true or false, got {fit_intercept!r}"
        )
    penalised = np.ones(X.shape[1])
    if not fit_intercept:
        return Design(X.copy(), y.copy(), Layout.of(coef=X.shape[1:]), penalised)
    rows = np.hstack([X, np.ones((len(X), 1))])
    layout = Layout.of(coef=X.shape[1:], intercept=())
    return Design(rows, y.copy(), layout, np.append(penalised, 0.0))


def checked(problem: object, X: ArrayLike, y: ArrayLike) -> tuple[Matrix, Vector]:
    """Return X (n, d) and y (n,) as contiguous arrays; raise if they are not valid."""
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
    """Return a finite number, not negative, as a float; raise otherwise."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    allowed = number > 0.0 if positive else 0.0 <= number <= most
    if allowed and math.isfinite(number):
        return number
    rule = "positive and finite" if positive else "not negative and finite"
    rule = f"from 0 to {most:g}" if math.isfinite(most) else rule
    raise ProblemError(f"{name} must be a number, {rule}, got {value!r}")
