"""Problems with a known solution, and the goal that every node must reach."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from benchmarks.shared import pooled
from dadmm.core.interfaces import Problem
from dadmm.data import datasets
from dadmm.data.shard import split
from dadmm.problems import (
    PPCA,
    Lasso,
    LeastSquares,
    LogisticRegression,
    metrics,
)

DIMENSION, ROWS = 10, 25  # of a node's data
CLOSE = 1e-6  # relative distance from the optimum, convex problems
# Graphs on which schemes are compared, in the order of the tables.
NETWORKS = (
    "ring", "chain", "star", "grid", "cluster", "random-geometric", "complete",
)  # fmt: skip
ANGLE, APART = 1.0, 1e-2  # degrees from the centralised subspace; from the mean
Goal = Callable[[np.ndarray], bool]  # of theta (n_nodes, size)


class Instance(NamedTuple):
    """A network's local problems, when they count as solved, and when to give up."""

    problems: Sequence[Problem]
    goal: Goal
    cap: int


class Near:
    """Every node within a relative distance of the optimum (size,)."""

    def __init__(self, optimum: np.ndarray, distance: float = CLOSE) -> None:
        self.optimum, self.most = optimum, distance * np.linalg.norm(optimum)

    def __call__(self, theta: np.ndarray) -> bool:
        return bool(np.linalg.norm(theta - self.optimum, axis=1).max() <= self.most)


class Subspace:
    """Every node's W near the centralised one, and all nodes near their mean."""

    def __init__(self, layout: Any, W: np.ndarray) -> None:
        self.layout, self.W = layout, W

    def __call__(self, theta: np.ndarray) -> bool:
        if not metrics.consensus_error(theta) <= APART:  # first, as it is cheap
            return False
        own = self.layout.views(theta).W
        return bool(metrics.subspace_angle(own, self.W).max() <= ANGLE)


def designs(
    n_nodes: int, heterogeneity: float, rng: np.random.Generator
) -> list[np.ndarray]:
    """Return X (25, 10) of each node; its scale and those of its columns vary.

    Both are powers of ten with exponents drawn evenly, within ``heterogeneity`` and
    half of it.
    """
    drawn = []
    for _ in range(n_nodes):
        node = 10.0 ** (heterogeneity * rng.uniform(-1, 1))
        columns = 10.0 ** (heterogeneity / 2 * rng.uniform(-1, 1, DIMENSION))
        drawn.append(node * columns * rng.standard_normal((ROWS, DIMENSION)))
    return drawn


def least_squares(n_nodes: int, seed: int, heterogeneity: float) -> Instance:
    """Draw a linear model; the optimum is that of all rows together."""
    rng = np.random.default_rng([seed, 0])
    truth = rng.standard_normal(DIMENSION)
    X = designs(n_nodes, heterogeneity, rng)
    y = [x @ truth + 0.1 * rng.standard_normal(ROWS) for x in X]
    best = np.linalg.lstsq(np.vstack(X), np.concatenate(y))[0]
    problems = [
        LeastSquares(*rows, fit_intercept=False) for rows in zip(X, y, strict=True)
    ]
    return Instance(problems, Near(best), 2000)


def logistic(n_nodes: int, seed: int, heterogeneity: float) -> Instance:
    """Draw classes by a logistic model, with an intercept; alpha is 0.1 a node."""
    rng = np.random.default_rng([seed, 1])
    truth = rng.standard_normal(DIMENSION) / np.sqrt(DIMENSION)
    X = designs(n_nodes, heterogeneity, rng)
    y = [
        (rng.random(ROWS) < 1 / (1 + np.exp(-0.5 - x @ truth))).astype(float) for x in X
    ]
    model = pooled.Model("logistic", l2=0.1 * n_nodes)
    best = pooled.solve(model, np.vstack(X), np.concatenate(y)).theta
    problems = [LogisticRegression(*rows, 0.1) for rows in zip(X, y, strict=True)]
    return Instance(problems, Near(best), 2000)


def lasso(n_nodes: int, seed: int, heterogeneity: float) -> Instance:
    """Draw a linear model with half its entries zero; alpha is 2 a node."""
    rng = np.random.default_rng([seed, 2])
    truth = rng.standard_normal(DIMENSION) * (np.arange(DIMENSION) % 2)
    X = designs(n_nodes, heterogeneity, rng)
    y = [x @ truth + rng.standard_normal(ROWS) for x in X]
    best = lasso_optimum(np.vstack(X), np.concatenate(y), 2.0 * n_nodes)
    problems = [
        Lasso(*rows, 2.0, fit_intercept=False) for rows in zip(X, y, strict=True)
    ]
    return Instance(problems, Near(best), 2000)


def lasso_optimum(X: np.ndarray, y: np.ndarray, alpha: float) -> np.ndarray:
    """Return the coefficients (10,) for all rows, one entry at a time."""
    gram, pull, theta = X.T @ X, X.T @ y, np.zeros(X.shape[1])
    for _ in range(100_000):
        before = theta.copy()
        for k in range(len(theta)):
            alone = pull[k] - gram[k] @ theta + gram[k, k] * theta[k]
            theta[k] = np.sign(alone) * max(abs(alone) - alpha, 0.0) / gram[k, k]
        if np.abs(theta - before).max() <= 1e-15 * np.abs(theta).max():
            break
    return theta


def dppca(samples: np.ndarray, n_nodes: int) -> Instance:
    """Share samples (n, 20) among the nodes of D-PPCA with five components."""
    problems = [PPCA(shard, 5) for shard in split(samples, n_nodes)]
    best = metrics.ppca_reference(samples, 5)
    return Instance(problems, Subspace(problems[0].layout, best.W), 600)


CONVEX: dict[str, Callable[[int, int], Instance]] = {
    "quadratic-0": lambda n, seed: least_squares(n, seed, 0.0),
    "quadratic-0.5": lambda n, seed: least_squares(n, seed, 0.5),
    "quadratic-1": lambda n, seed: least_squares(n, seed, 1.0),
    "logistic": lambda n, seed: logistic(n, seed, 0.5),
    "lasso": lambda n, seed: lasso(n, seed, 0.5),
}


@lru_cache(maxsize=32)
def instance(problem: str, n_nodes: int, seed: int) -> Instance:
    """Return the local problems of a network, by name.

    The name is a key of `CONVEX`, whose data have a seed, or "dppca": the paper's
    samples, 25 a node, seed 0.
    """
    if problem in CONVEX:
        return CONVEX[problem](n_nodes, seed)
    return dppca(datasets.synthetic(ROWS * n_nodes, seed=0)[0], n_nodes)
