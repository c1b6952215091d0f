"""Regression problems beside their formulas in extended precision.

What is left of a gradient is then the rounding of the point itself.
"""

from __future__ import annotations

import numpy as np

from dadmm.problems import (
    ElasticNet,
    Huber,
    Lasso,
    LeastSquares,
    LogisticRegression,
    PoissonRegression,
    Ridge,
)
from tests.support.pooled import LONG, Pooled

# (n, d): more rows than columns, fewer, and one row
SIZES = [(30, 4), (3, 6), (1, 5)]
BARE = ["least_squares", "ridge", "lasso", "elastic_net", "huber"]
FREE = [f"{name} with intercept" for name in [*BARE, "logistic", "poisson"]]
NAMES = [*BARE, *FREE]
OWN_LOSS = ("huber", "logistic", "poisson")  # the others are squared


class Case:
    """A problem beside its formula in extended precision, `Pooled` of its own rows."""

    def __init__(self, name, X, y, scale=1.0):
        self.name, _, free = name.partition(" with ")
        kind, l1, l2, *settings = {
            "least_squares": (LeastSquares, 0.0, 0.0),
            "ridge": (Ridge, 0.0, 0.3 * scale, 0.3 * scale),
            "lasso": (Lasso, 12.0 * scale, 0.0, 12.0 * scale),
            "elastic_net": (ElasticNet, 1.5 * scale, 1.0 * scale, 2.5 * scale, 0.6),
            "huber": (Huber, 0.0, 0.2 * scale, 0.7, 0.2 * scale),
            "logistic": (LogisticRegression, 0.0, 0.1 * scale, 0.1 * scale),
            "poisson": (PoissonRegression, 0.0, 0.1 * scale, 0.1 * scale),
        }[self.name]
        self.problem = kind(X, y, *settings, fit_intercept=bool(free))
        rows = np.column_stack([X, np.ones(len(X))]) if free else X
        penalised = np.arange(rows.shape[1]) < X.shape[1]
        self.l1, self.l2 = l1 * penalised, l2 * penalised
        self.X, self.y = rows.astype(LONG), y.astype(LONG)
        loss = self.name if self.name in OWN_LOSS else "squared"
        self.formula = Pooled(loss, rows, y, self.l1, self.l2, 0.7)

    def objective(self, x):
        """Return f."""
        return self.formula.objective(x)

    def forces(self, x):
        """Return the derivative of each row's loss by its fit, (n,)."""
        signs = np.where(self.y > 0, 1, -1) if self.name == "logistic" else 1
        return signs * self.formula.forces(signs * (self.X @ x))

    def gradient(self, x):
        """Return the gradient of all of f but its absolute values."""
        return self.forces(x) @ self.X + self.l2 * x

    def unrest(self, x, centre, weight):
        """Return how far a point is from being the proximal one, and what is rounding.

        The first is the least element of the subgradient.
        """
        slope = self.gradient(x) + weight * (x - centre)
        slope += self.l1 * np.sign(x)
        slope = np.where(x == 0, np.maximum(np.abs(slope) - self.l1, 0), np.abs(slope))
        size = np.abs(self.X)
        terms = (
            np.abs(self.forces(x)) @ size + self.l1.max() + weight * np.abs(x - centre)
        )
        whole = np.sqrt((size**2).sum())  # steps are exact for the norm of all rows
        misfit = whole * np.sqrt(x @ x) + np.sqrt(self.y @ self.y)
        reach = whole * misfit + 4 * weight * np.abs(x).max()
        return slope.max(), 1e-12 * terms.max() + 1e-15 * reach


def data(n, d, seed=0):
    """Return random X (n, d), y (n,) and a centre (d,)."""
    rng = np.random.default_rng([seed, n, d])
    return rng.normal(size=(n, d)), rng.normal(size=n), rng.normal(size=d)


def make(name, size=(30, 4), seed=0, scale=1.0):
    """Return a case with rows of its own, and a centre."""
    n, d = size
    rng = np.random.default_rng([seed, n, d])
    X = rng.normal(size=(n, d)) * np.linspace(0.5, 2.0, d)
    y = X @ np.where(np.arange(d) % 2, 0.0, 1.0) + 0.5 * rng.standard_t(1.5, size=n)
    if name.startswith("logistic"):
        y = (y + rng.normal(size=n) > 0).astype(float)
    if name.startswith("poisson"):
        y = np.floor(np.exp(np.clip(y, -2, 2)))
    case = Case(name, X, y, scale)
    return case, rng.normal(size=case.problem.layout.size)
