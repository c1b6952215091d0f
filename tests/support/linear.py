"""Regression problems beside their formulas, which several tests share.

The formulas are those of `Pooled`, in extended precision, so that what is left of a
gradient is the rounding of the point itself.
"""

import numpy as np

from benchmarks.shared.pooled import LONG, Pooled, class_rows
from dadmm import problems

# (n, d): more rows than columns, fewer, and one row
SIZES = [(30, 4), (3, 6), (1, 5)]
BARE = ["least_squares", "ridge", "lasso", "elastic_net", "huber"]
OTHERS = [f"{name} with intercept" for name in ("logistic", "poisson", "multinomial")]
NAMES = [*BARE, *(f"{name} with intercept" for name in BARE), *OTHERS]
KINDS = {  # the class, the losses, l1 and l2 of the coefficients, and settings
    "least_squares": ("LeastSquares", "squared", 0.0, 0.0, {}),
    "ridge": ("Ridge", "squared", 0.0, 0.3, {"alpha": 0.3}),
    "lasso": ("Lasso", "squared", 12.0, 0.0, {"alpha": 12.0}),
    "elastic_net": ("ElasticNet", "squared", 1.5, 1, {"alpha": 2.5, "l1_ratio": 0.6}),
    "huber": ("Huber", "huber", 0.0, 0.2, {"alpha": 0.2, "delta": 0.7}),
    "logistic": ("LogisticRegression", "logistic", 0.0, 0.1, {"alpha": 0.1}),
    "poisson": ("PoissonRegression", "poisson", 0.0, 0.1, {"alpha": 0.1}),
    "multinomial": (
        "MultinomialLogistic", "softmax", 0.0, 0.1, {"alpha": 0.1, "n_classes": 3}
    ),
}  # fmt: skip


class Case(Pooled):
    """A problem beside its formula: losses of rows, l1 and l2 of each entry."""

    def __init__(self, name, X, y, scale=1.0):
        self.name, _, free = name.partition(" with ")
        kind, loss, l1, l2, settings = KINDS[self.name]
        settings = {**settings, "fit_intercept": bool(free)}
        if "alpha" in settings:
            settings["alpha"] *= scale
        self.problem = getattr(problems, kind)(X, y, **settings)
        rows = np.column_stack([X, np.ones(len(X))]) if free else X
        if loss == "softmax":
            rows = class_rows(X, 3, bool(free))
        coef = self.problem.layout.shapes["coef"]
        penalised = scale * (np.arange(rows.shape[1]) < np.prod(coef))
        super().__init__(loss, rows, y, l1 * penalised, l2 * penalised, 0.7)

    def gradient(self, x):
        """Return the gradient of all of f but its absolute values."""
        return self.forces(self.X @ x) @ self.X + self.l2 * x

    def hessian(self, x):
        T = np.eye(len(x), dtype=LONG)
        return self.derivatives(T, np.asarray(x, LONG))[1].astype(float)

    def unrest(self, x, centre, weight):
        """Return the least element of the subgradient, and what is rounding of it."""
        slope = self.gradient(x) + weight * (x - centre)
        slope += self.l1 * np.sign(x)
        slope = np.where(x == 0, np.maximum(np.abs(slope) - self.l1, 0), np.abs(slope))
        size, forces = np.abs(self.X), np.abs(self.forces(self.X @ x))
        terms = forces @ size + self.l1.max() + weight * np.abs(x - centre)
        whole = np.sqrt((size**2).sum())  # steps are exact for the norm of all rows
        misfit = whole * np.sqrt(x @ x) + np.sqrt(self.y @ self.y)
        reach = whole * misfit + 4 * weight * np.abs(x).max()
        return slope.max(), 1e-12 * terms.max() + 1e-15 * reach


def data(n, d, seed=0):
    rng = np.random.default_rng([seed, n, d])
    return rng.normal(size=(n, d)), rng.normal(size=n), rng.normal(size=d)


def targets(name, y, rng):
    """Return numbers as targets of a problem: classes, counts, or as they are."""
    if name.startswith("logistic"):
        return (y + rng.normal(size=len(y)) > 0).astype(float)
    if name.startswith("multinomial"):
        return np.digitize(y + rng.normal(size=len(y)), [-0.5, 0.5]).astype(float)
    return np.floor(np.exp(np.clip(y, -2, 2))) if name.startswith("poisson") else y


def make(name, size=(30, 4), seed=0, scale=1.0):
    n, d = size
    rng = np.random.default_rng([seed, n, d])
    X = rng.normal(size=(n, d)) * np.linspace(0.5, 2.0, d)
    y = X @ np.where(np.arange(d) % 2, 0.0, 1.0) + 0.5 * rng.standard_t(1.5, size=n)
    case = Case(name, X, targets(name, y, rng), scale)
    return case, rng.normal(size=case.problem.layout.size)
