"""Linear problems at the edge of double precision, with exact minima.

The squares of a case are summed in rational numbers, so that no reference is rounded.
Near-separable logistic problems are compared with `benchmarks/shared/pooled.py`.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

import dadmm
from benchmarks.shared.pooled import EPS, LONG, NotProved, Pooled, rotate
from dadmm.problems import LogisticRegression, Ridge
from tests.campaigns.properties.cases import STATUSES, Settings

FAMILIES = (
    "powers", "ill conditioned", "nearly collinear", "collinear up to rounding",
    "heavy rows", "units", "more columns than rows", "nearly separable",
)  # fmt: skip
PART = 1e-2  # of a gap, by which the objective may be off
exactly = np.vectorize(Fraction, otypes=[object])  # of floats


@dataclass
class Hard(Settings):
    """A table, its nodes and weights; all columns are coefficients."""

    family: str
    y: np.ndarray  # (n,)
    weights: np.ndarray  # (n,)
    alpha: float  # of each node
    dependent: int | None = None  # a column that others determine, up to rounding

    def problems(self) -> list[Any]:
        free = {"fit_intercept": False}
        tables = zip(*map(self.own, (self.X, self.y, self.weights)), strict=True)
        if self.family == "nearly separable":
            return [LogisticRegression(X, y, self.alpha, **free) for X, y, _ in tables]
        return [Ridge(X, y, self.alpha, sample_weight=w, **free) for X, y, w in tables]


def draw(seed: int, **limits: int) -> Hard:
    """Return the case of a seed, without limits."""
    rng = np.random.default_rng([25, seed])
    family = FAMILIES[seed % len(FAMILIES)]
    n_nodes, p = int(rng.integers(2, 7)), int(rng.integers(2, 6))
    n = int(rng.integers(p + 3, 31))
    X, alpha, dependent = rng.normal(size=(n, p)), 0.0, None
    X[:, -1] = 1.0 if rng.random() < 0.7 else X[:, -1]
    weights, shift = np.ones(n), 10.0 ** rng.uniform(0, 4)
    if family == "powers":
        start = float(rng.choice([0, 100, 1000, 1900, 1990]))
        X = (start + np.arange(n))[:, None] ** np.arange(p + 1.0)
    elif family == "ill conditioned":
        left, right = (np.linalg.qr(rng.normal(size=(k, p)))[0] for k in (n, p))
        X = left * np.logspace(0, -rng.uniform(9, 14), p) @ right
    elif family == "nearly collinear":
        X[:, 0] = X[:, 1:].sum(axis=1) + 10.0 ** -rng.uniform(8, 17) * X[:, 0]
        dependent = 0
    elif family == "collinear up to rounding":
        X[:, -1] = 1.0
        X[:, 1:-1] += shift * rng.normal(size=p - 2)
        X[:, 0] = X[:, 1:] @ rng.normal(size=p - 1)
        dependent = 0
    elif family == "more columns than rows":
        n = int(rng.integers(2, p + 1))
        X, weights, n_nodes = X[:n], weights[:n], min(n_nodes, n)
    y = X @ rng.normal(size=X.shape[1]) * rng.integers(2)
    y = y + 10.0 ** rng.uniform(-6, 1) * rng.normal(size=n)
    if family == "heavy rows":
        heavy = rng.permutation(n)[: int(rng.integers(1, 4))]
        weights[heavy] = 10.0 ** rng.uniform(4, 120)
        y[heavy] *= rng.integers(2)
    if family == "units":
        most = float(rng.choice([30, 130, 300]))
        X = X * 10.0 ** rng.uniform(-most, most, X.shape[1])
        y = y * 10.0 ** rng.uniform(-most / 2, most / 2)
    if family == "nearly separable":
        fit = X @ rng.normal(size=p)
        y = (fit > 0).astype(float)
        y[np.argsort(np.abs(fit))[: int(rng.integers(1, 3))]] = rng.integers(2)
        alpha = 0.0 if rng.random() < 0.7 else 10.0 ** rng.uniform(-12, -3)
    elif dependent is None and rng.random() < 0.3:
        most = float(np.abs(X).max())
        alpha = 10.0 ** rng.uniform(-20, 0) * most**2 if most < 1e154 else 0.0
    graph = dadmm.Topology.ring if n_nodes > 2 else dadmm.Topology.chain
    nodes, rest = np.arange(len(X)) % n_nodes, (family, y, weights, alpha, dependent)
    return Hard(seed, X, nodes, graph(n_nodes), *rest)


def false_statements(case: Hard, result: dadmm.Result) -> dict[str, str]:
    """Return the false statements of a run, by name.

    `NotProved` is raised if it is not known which directions are open but for rounding.
    """
    false, found = {}, result.certificate
    certified = result.status == "certified"
    if result.status not in STATUSES:
        false["status"] = f"the status is {result.status!r}"
    if found is None or not np.isfinite(result.solution).all():
        return {"certificate": "certified, without one"} if certified else false
    value, least, noise, exact = find_truth(case, result.solution)
    if not abs(result.objective - value) <= PART * found.gap + 1e-9 * value + noise:
        false["objective"] = f"objective {result.objective:.9g}, it is {value:.9g}"
    if not value - least <= found.gap + noise:
        false["gap"] = f"{result.status}, gap {found.gap:.3g}, true {value - least:.3g}"
    if certified and not (found.gap <= result.objective or exact):
        false["size"] = f"gap {found.gap:.3g} of objective {result.objective:.3g}"
    return false


def find_truth(case: Hard, solution: np.ndarray) -> tuple[float, float, float, bool]:
    """Return the objective, its minimum, its rounding, and whether all rows fit."""
    if case.family == "nearly separable":
        l2 = np.full(case.X.shape[1], case.topology.n_nodes * LONG(case.alpha))
        pooled = Pooled("logistic", case.X, case.y, 0 * l2, l2)
        best = pooled.minimum()
        least = float(best.value) if best.exists else -np.inf
        value = float(pooled.objective(solution))
        return value, least, pooled.rounding(solution), False
    rows, y, weights, x = map(exactly, (case.X, case.y, case.weights, solution))
    alpha = case.topology.n_nodes * Fraction(case.alpha)

    def value(rows: np.ndarray, x: np.ndarray) -> Fraction:
        off = rows @ x - y
        return Fraction((weights * off) @ off + alpha * (x @ x)) / 2

    terms, off = np.abs(rows) @ np.abs(x) + np.abs(y), np.abs(rows @ x - y)
    slack = 4 * Fraction(EPS) * terms
    exact = bool((off <= Fraction(1, 10**6) * terms).all())
    kept = rows[:, determined(case)]
    gram = kept.T @ (weights[:, None] * kept) + alpha * np.eye(kept.shape[1], dtype=int)
    best = solve_exactly(gram, kept.T @ (weights * y))
    noise = Fraction(weights @ (slack * (off + slack)))
    found = value(rows, x), value(kept, best), noise
    return *(float(v) if v < 10**300 else np.inf for v in found), exact


def determined(case: Hard) -> np.ndarray:
    """Return which columns differ from sums of the others by more than rounding."""
    p = case.X.shape[1]
    every = np.ones(p, bool)
    if case.family in ("heavy rows", "units", "more columns than rows"):
        return every
    values, _ = rotate(np.asarray(case.X, LONG) / np.linalg.norm(case.X, axis=0))
    values = np.sort(values / values.max())
    if not case.alpha and (values < 8 * p * EPS).any():
        if case.dependent is None or values[0] > p * EPS or values[1] < 8 * p * EPS:
            raise NotProved(f"relative singular values {values}")
        every[case.dependent] = False
    return every


def solve_exactly(A: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return a solution of A x = b, by elimination; A may be singular."""
    M, places = np.column_stack([A, b]), []
    for k in range(len(A)):
        rank = len(places)
        pivots = np.flatnonzero(M[rank:, k])
        if len(pivots):
            M[[rank, rank + pivots[0]]] = M[[rank + pivots[0], rank]]
            M[rank] = M[rank] / M[rank, k]
            others = np.arange(len(A)) != rank
            M[others] -= M[others, k : k + 1] * M[rank]
            places.append(k)
    x = np.array([Fraction(0)] * len(A))
    x[places] = M[: len(places), -1]
    return x
