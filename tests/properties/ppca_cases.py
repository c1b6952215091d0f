"""Random tables for PPCA on random graphs; a seed decides everything."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

import dadmm
from dadmm.problems import PPCA
from tests.properties.cases import GRAPHS, SCHEMES, SENDING, graph


@dataclass
class PPCACase:
    """Rows by node, a graph, and settings of `dadmm.solve`."""

    seed: int
    X: np.ndarray  # (n, D)
    nodes: np.ndarray  # (n,) node of each row
    topology: dadmm.Topology
    M: int
    zero_mean: bool
    init: str | None
    scheme: str
    tolerance: float
    max_iter: int
    sending: dict[str, Any]
    coordinates: str
    words: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        n, D = self.X.shape
        words = [
            f"case {self.seed}: ppca, {n} rows, {D} columns, {self.M} components",
            *self.words, "zero mean" * self.zero_mean,
            f"{self.topology.n_nodes} nodes", self.scheme,
            f"init {self.init}" * (self.init is not None),
            f"tolerance {self.tolerance:g}", f"max_iter {self.max_iter}",
            ", ".join(f"{k}={v}" for k, v in self.sending.items()),
            "raw" * (self.coordinates == "raw"),
        ]  # fmt: skip
        return ", ".join(filter(None, words))

    def solve(self) -> dadmm.Result:
        """Solve the case in one process."""
        own = [self.X[self.nodes == i] for i in range(self.topology.n_nodes)]
        return dadmm.solve(
            [PPCA(rows, self.M, zero_mean=self.zero_mean) for rows in own],
            self.topology, scheme=self.scheme, init=self.init,
            coordinates=self.coordinates,
            stopping=dadmm.Stopping(tolerance=self.tolerance, max_iter=self.max_iter),
            sending=dadmm.Sending(**self.sending), seed=self.seed, record=False,
        )  # fmt: skip


def draw(seed: int, max_iter: int = 1000) -> PPCACase:
    """Return the case of a seed."""
    rng = np.random.default_rng([17, seed])
    words: list[str] = []

    def pick(options: Any) -> Any:
        return options[int(rng.integers(len(options)))]

    def chance(probability: float) -> bool:
        return bool(rng.random() < probability)

    D = int(rng.integers(2, 21 if chance(0.6) else 45))
    M = int(rng.integers(1, min(D, 6)))
    n_nodes = 1 if chance(0.05) else int(rng.integers(2, 13))
    topology = graph(pick(GRAPHS), n_nodes, rng, words)
    counts = row_counts(D, n_nodes, rng, words)
    X = rng.normal(size=(counts.sum(), D)) * deviations(D, M, rng, words)
    if chance(0.5):
        X = X @ np.linalg.qr(rng.normal(size=(D, D)))[0]
        words.append("turned")
    if chance(0.1):
        X = X * rng.standard_t(2, (len(X), 1))
        words.append("heavy tails")
    X = columns(X, rng, words)
    if chance(0.3):  # nodes differ
        X = X[np.argsort(X[:, rng.integers(D)], kind="stable")]
        words.append("sorted rows")
    nodes = np.repeat(np.arange(n_nodes), counts)
    if chance(0.15):
        X = X + X.std(axis=0) * rng.normal(size=(n_nodes, D))[nodes]
        words.append("nodes with means of their own")
    zero_mean = chance(0.15)
    if chance(0.4) and not zero_mean:
        size = 10.0 ** rng.uniform(0, 5)
        X = X + X.std() * np.round(size * rng.normal(size=D))
        words.append(f"shifted by {size:.0e}")
    if chance(0.4):
        unit = 10.0 ** rng.uniform(-6, 6)
        X = unit * X
        words.append(f"in units of {unit:.0e}")
    snap, raw = chance(0.8), chance(0.05)
    inits = [None, None, "shared", "independent"]
    inits += ["merged"] if not snap and not raw else []
    return PPCACase(
        seed, X, nodes, topology, M, zero_mean,
        init=pick(inits),
        scheme="snap" if snap else pick(SCHEMES),
        tolerance=float(f"{10.0 ** rng.uniform(-6, -3):.2g}") if chance(0.4) else 1e-3,
        max_iter=int(rng.integers(1, 30)) if chance(0.15) else max_iter,
        sending=pick(SENDING) if chance(0.1) else {},
        coordinates="raw" if raw else "auto", words=words,
    )  # fmt: skip


def row_counts(
    D: int, n_nodes: int, rng: np.random.Generator, words: list[str]
) -> np.ndarray:
    """Return the number of rows of each node."""
    choice = rng.random()
    if choice < 0.6:
        counts = rng.integers(D + 1, 4 * D + 10, n_nodes)
    elif choice < 0.8:
        words.append("at most D rows at each node")
        counts = rng.integers(2, max(D, 3) + 1, n_nodes)
    else:
        words.append("few rows at each node")
        counts = rng.integers(1, 4, n_nodes)
    if rng.random() < 0.15:
        words.append("one row at node 0")
        counts[0] = 1
    counts[-1] += max(0, 3 - counts.sum())
    return np.asarray(counts)


def deviations(
    D: int, M: int, rng: np.random.Generator, words: list[str]
) -> np.ndarray:
    """Return standard deviations (D,), with or without a gap after M of them."""
    choice, k = rng.random(), np.arange(D)
    if choice < 0.1:
        words.append("no gap")
        return np.ones(D)
    if choice < 0.4:
        ratio, noise = 1.0 + 10.0 ** rng.uniform(-2, 1), 10.0 ** rng.uniform(-1, 1)
        words.append(f"a gap of {ratio:.3g}")
        return noise * np.where(k < M, ratio, 1.0)
    if choice < 0.5:
        noise = 10.0 ** rng.uniform(-7, -2)
        words.append(f"noise {noise:.0e}")
        return np.where(k < M, rng.uniform(0.5, 2.0, D), noise)
    if choice < 0.75:
        ratio = rng.uniform(1.05, 3.0)
        words.append(f"deviations fall by {ratio:.3g}")
        return np.asarray(ratio**-k)
    words.append("deviations of all sizes")
    return np.asarray(10.0 ** rng.uniform(-2, 2, D))


def columns(X: np.ndarray, rng: np.random.Generator, words: list[str]) -> np.ndarray:
    """Make columns constant, nearly dependent, or of other units, sometimes."""
    D, choice = X.shape[1], rng.random()
    i, j = rng.permutation(D)[:2]
    if choice < 0.08:
        X[:, i] = rng.choice([0.0, 1.0, -3.0, 1024.0])
        words.append("a constant column")
    elif choice < 0.16:
        X[:, i] = X[:, j]
        words.append("a duplicate column")
    elif choice < 0.26:
        size = 10.0 ** rng.uniform(-7, -1)
        X[:, i] = X[:, j] + size * X[:, j].std() * rng.normal(size=len(X))
        words.append(f"a column within {size:.0e} of another")
    elif choice < 0.36:
        X = X * 10.0 ** rng.uniform(-3, 3, D)
        words.append("columns in mixed units")
    elif choice < 0.44:
        X = np.round(3.0 * X)
        words.append("integers")
    return X
