"""Tables in awkward units, divided among nodes, and their pooled problems."""

import numpy as np

from dadmm import problems

KINDS = {
    "least_squares": (problems.LeastSquares, {}),
    "ridge": (problems.Ridge, {"alpha": 0.5}),
    "lasso": (problems.Lasso, {"alpha": 0.5}),
    "logistic": (problems.LogisticRegression, {"alpha": 0.0}),
    "huber": (problems.Huber, {"delta": 0.5}),
    "multinomial": (problems.MultinomialLogistic, {"n_classes": 3, "alpha": 0.0}),
    "poisson": (problems.PoissonRegression, {"alpha": 0.0}),
}


def table(kind, n, seed=0, *, d=4, per_node=40, steep=4.0):
    """Return the problems of n nodes; columns are in units from 1e-6 to 1e6, shifted.

    With a steep slope, the curvature of logistic regression at the optimum is far from
    that at the start.
    """
    rng = np.random.default_rng(seed)
    N = per_node * n
    X = rng.standard_normal((N, d)) * 10.0 ** rng.uniform(-6, 6, d)
    X += rng.uniform(-3, 3, d) * 10.0 ** rng.uniform(-3, 5, d)
    slope = steep * rng.standard_normal(d) / X.std(axis=0)
    u = (X - X.mean(axis=0)) @ slope
    y = u + 0.5 * rng.standard_normal(N)
    if kind == "logistic":
        y = (u + rng.logistic(size=N) > 0.0).astype(float)
    if kind == "multinomial":
        scores = np.column_stack([u, -u, 0.0 * u]) / 2.0
        y = (scores + rng.gumbel(size=(N, 3))).argmax(axis=1).astype(float)
    if kind == "poisson":
        y = rng.poisson(np.exp(1.0 + u / steep)).astype(float)
    problem, settings = KINDS[kind]
    parts = np.array_split(np.arange(N), n)
    return [problem(X[part], y[part], **settings) for part in parts]
