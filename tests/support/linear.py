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
SETTINGS = {  # of each problem
    "least_squares": {}, "ridge": {"alpha": 0.3}, "lasso": {"alpha": 12.0},
    "elastic_net": {"alpha": 2.5, "l1_ratio": 0.6},
    "huber": {"alpha": 0.2, "delta": 0.7}, "logistic": {"alpha": 0.1},
    "poisson": {"alpha": 0.1}, "multinomial": {"alpha": 0.1, "n_classes": 3},
}  # fmt: skip
LOSSES = {"logistic": "logistic", "huber": "huber", "poisson": "poisson",
          "multinomial": "softmax"}  # fmt: skip


def pooled_of(
    kind, X, y, alpha=0.0, fit_intercept=True, l1_ratio=None, delta=np.inf, n_classes=1
):
    """Return the arguments of `Pooled` for a problem of this kind with its settings."""
    rows, count = X, X.shape[1] * n_classes
    if kind == "multinomial":
        rows = class_rows(X, n_classes, fit_intercept)
    elif fit_intercept:
        rows = np.column_stack([X, np.ones(len(X))])
    share = float(kind == "lasso") if l1_ratio is None else l1_ratio
    alphas = alpha * (np.arange(rows.shape[1]) < count)  # not of intercepts
    loss = LOSSES.get(kind, "squared")
    return loss, rows, y, alphas * share, alphas * (1 - share), delta


class Case(Pooled):
    """A problem beside its formula: losses of rows, l1 and l2 of each entry."""

    def __init__(self, name, X, y, scale=1.0):
        self.name, _, free = name.partition(" with ")
        settings = SETTINGS[self.name] | {"fit_intercept": bool(free)}
        if "alpha" in settings:
            settings["alpha"] *= scale
        self.problem = problems.PROBLEMS[self.name](X, y, **settings)
        super().__init__(*pooled_of(self.name, X, y, **settings))

    def hessian(self, x):
        T = np.eye(len(x), dtype=LONG)
        return self.derivatives(T, np.asarray(x, LONG))[1].astype(float)


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
