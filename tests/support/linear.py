"""Regression problems beside their formulas, which several tests share.

Objectives and gradients are written once more, row by row in extended precision, so
that what is left of a gradient is the rounding of the point itself.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from scipy.optimize import minimize

from dadmm.problems import (
    ElasticNet,
    Huber,
    Lasso,
    LeastSquares,
    LogisticRegression,
    PoissonRegression,
    Ridge,
)

# (n, d): more rows than columns, fewer, and one row
SIZES = [(30, 4), (3, 6), (1, 5)]
BARE = ["least_squares", "ridge", "lasso", "elastic_net", "huber"]
FREE = [f"{name} with intercept" for name in [*BARE, "logistic", "poisson"]]
NAMES = [*BARE, *FREE]
LONG = np.longdouble


class Case:
    """A problem beside its plain formula: losses of rows, l1 and l2 of each entry."""

    def __init__(self, name, X, y, scale=1.0):
        self.name, _, free = name.partition(" with ")
        rows = np.column_stack([X, np.ones(len(X))]) if free else X
        self.X, self.y = rows.astype(LONG), y.astype(LONG)
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
        penalised = np.arange(rows.shape[1]) < X.shape[1]
        self.l1, self.l2 = l1 * penalised, l2 * penalised

    def objective(self, x):
        """Return f, a loss at a time."""
        total = LONG(0)
        for row, target in zip(self.X, self.y, strict=True):
            fit = row @ x
            off = abs(fit - target)
            if self.name == "logistic":
                total += np.log(1 + np.exp(-fit if target > 0 else fit))
            elif self.name == "poisson":
                count = target * np.log(target) - target if target > 0 else 0
                total += np.exp(fit) - target * fit + count
            elif self.name == "huber" and off > 0.7:
                total += 0.7 * off - 0.245
            else:
                total += off**2 / 2
        return total + np.sum(self.l1 * np.abs(x)) + np.sum(self.l2 * x**2) / 2

    def forces(self, x):
        """Return the derivative of each row's loss by its fit, (n,)."""
        fit = self.X @ x
        if self.name == "logistic":
            return 1 / (1 + np.exp(-fit)) - (self.y > 0)
        if self.name == "poisson":
            return np.exp(fit) - self.y
        off = fit - self.y
        return off / np.maximum(1, np.abs(off) / 0.7) if self.name == "huber" else off

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


def pooled(cases):
    """Return the minimum of the sum of all nodes' objectives, found otherwise."""
    d = cases[0].problem.layout.size
    if cases[0].name in ("huber", "logistic", "poisson"):
        sums = lambda x: float(sum(case.objective(x) for case in cases))  # noqa: E731
        slope = lambda x: sum(case.gradient(x) for case in cases).astype(float)  # noqa: E731
        return minimize(sums, np.zeros(d), jac=slope, tol=1e-9).x
    X = np.vstack([case.X for case in cases]).astype(float)
    y = np.concatenate([case.y for case in cases]).astype(float)
    gram = X.T @ X + np.diag(sum(case.l2 for case in cases))
    l1 = sum(case.l1 for case in cases)
    best, least = None, np.inf
    for signs in product(*([-1, 0, 1] if entry else [1] for entry in l1)):
        inside, x = np.flatnonzero(signs), np.zeros(d)
        pull = y @ X - l1 * signs
        x[inside] = np.linalg.solve(gram[np.ix_(inside, inside)], pull[inside])
        value = sum(case.objective(x) for case in cases)
        if value < least:
            best, least = x, value
    return best
