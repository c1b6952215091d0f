"""Random convex problems on random graphs; a seed decides everything."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

import dadmm
from dadmm import problems
from tests.support.pooled import Pooled, class_rows
from tests.support.problems import random_graph

KINDS = {
    "least_squares": problems.LeastSquares,
    "ridge": problems.Ridge,
    "lasso": problems.Lasso,
    "elastic_net": problems.ElasticNet,
    "logistic": problems.LogisticRegression,
    "huber": problems.Huber,
    "multinomial": problems.MultinomialLogistic,
    "poisson": problems.PoissonRegression,
}
COUNTED = 10**6  # first seed of the last two kinds; the others have seeds below
GRAPHS = ("chain", "ring", "star", "grid", "complete", "random")
SCHEMES = ("fixed", "vp", "ap", "nap", "vp_ap", "vp_nap", "global_balance")
SENDING: tuple[dict[str, Any], ...] = (
    {"payload": "quantised:8"}, {"payload": "quantised:4"},
    {"payload": "float32"}, {"payload": "float16"}, {"censor": 1e-2},
    {"send_every": 3}, {"edge_sleep": 0.2},
)  # fmt: skip


@dataclass
class Case:
    """A problem, its rows by node, a graph, and settings of `dadmm.solve`."""

    seed: int
    kind: str
    X: np.ndarray  # (n, d)
    y: np.ndarray  # (n,)
    nodes: np.ndarray  # (n,) node of each row
    topology: dadmm.Topology
    alpha: float  # of the whole problem
    l1_ratio: float
    delta: float
    fit_intercept: bool
    scheme: str
    tolerance: float
    max_iter: int
    sending: dict[str, Any]
    coordinates: str = "auto"
    n_classes: int = 0
    words: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        n, d = self.X.shape
        free = "with intercept" if self.fit_intercept else "without intercept"
        sending = ", ".join(f"{k}={v}" for k, v in self.sending.items())
        words = [
            f"case {self.seed}: {self.kind} {free}, {n} rows, {d} columns",
            f"alpha {self.alpha:.3g}", *self.words,
            f"{self.topology.n_nodes} nodes", self.scheme,
            f"tolerance {self.tolerance:g}", f"max_iter {self.max_iter}", sending,
            "raw" * (self.coordinates == "raw"),
        ]  # fmt: skip
        return ", ".join(filter(None, words))

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the problem, but for alpha."""
        own: dict[str, Any] = {"fit_intercept": self.fit_intercept}
        if self.kind == "elastic_net":
            own["l1_ratio"] = self.l1_ratio
        if self.kind == "huber":
            own["delta"] = self.delta
        if self.kind == "multinomial":
            own["n_classes"] = self.n_classes
        return own

    def problems(self) -> list[Any]:
        """Return the problem of each node, with an equal share of alpha."""
        settings, n_nodes = self.settings, self.topology.n_nodes
        if self.kind != "least_squares":
            settings["alpha"] = self.alpha / n_nodes
        own = [self.nodes == i for i in range(n_nodes)]
        return [KINDS[self.kind](self.X[i], self.y[i], **settings) for i in own]

    def solve(self, **more: Any) -> dadmm.Result:
        """Solve the case in one process."""
        return dadmm.solve(
            self.problems(), self.topology, scheme=self.scheme,
            stopping=dadmm.Stopping(tolerance=self.tolerance, max_iter=self.max_iter),
            sending=dadmm.Sending(**self.sending), record=False, **more,
        )  # fmt: skip

    def pooled(self) -> Pooled:
        """Return the same problem over all rows."""
        X, penalised = self.X, np.ones(self.X.shape[1])
        if self.kind == "multinomial":
            X = class_rows(X, self.n_classes, self.fit_intercept)
            free = np.arange(X.shape[1]) < self.n_classes * self.X.shape[1]
            penalised = free.astype(float)
        elif self.fit_intercept:
            X = np.column_stack([X, np.ones(len(X))])
            penalised = np.append(penalised, 0.0)
        n_nodes = self.topology.n_nodes
        alpha = n_nodes * np.longdouble(self.alpha / n_nodes)  # as the nodes have it
        share = {"lasso": 1.0, "elastic_net": self.l1_ratio}.get(self.kind, 0.0)
        if self.kind == "least_squares":
            alpha = alpha * 0
        own = {kind: kind for kind in ("logistic", "huber", "poisson")}
        loss = (own | {"multinomial": "softmax"}).get(self.kind, "squared")
        return Pooled(
            loss, X, self.y, alpha * share * penalised, alpha * (1 - share) * penalised,
            self.delta,
        )  # fmt: skip


def draw(seed: int, max_iter: int = 1000) -> Case:
    """Return the case of a seed."""
    rng = np.random.default_rng([16, seed])
    words: list[str] = []

    def pick(options: Any) -> Any:
        return options[int(rng.integers(len(options)))]

    def chance(probability: float) -> bool:
        return bool(rng.random() < probability)

    def note(word: str) -> None:
        words.append(word)

    kind, d = pick(tuple(KINDS)[:-2]), int(rng.integers(1, 7))
    if seed >= COUNTED:
        kind, d = tuple(KINDS)[-2:][seed % 2], 1 + d % 4
    n_nodes = 1 if chance(0.05) else int(rng.integers(2, 13))
    topology = graph(pick(GRAPHS), n_nodes, rng, words)
    X, nodes = rows(d, n_nodes, rng, words)
    fit_intercept = chance(0.8)
    X = collinear(X, rng, words)
    clean = X.copy()
    if chance(0.4):
        most = 6.0 if chance(0.1) else 4.0
        X = X + rng.choice([-1, 1], d) * np.round(10.0 ** rng.uniform(0, most, d))
        note(f"columns shifted by up to 1e+0{most:g}")
    exact = any("exactly" in word for word in words)
    if chance(0.6):
        powers = rng.uniform(-6, 6, d)
        X = X * (2.0 ** np.round(3 * powers) if exact else 10.0**powers)
        note("columns in mixed units")
    elif chance(0.3):
        X = X * (2.0 ** pick((-20, 20)) if exact else 10.0 ** rng.uniform(-6, 6))
        note("columns in another unit")

    signal = clean @ (rng.normal(size=d) * (rng.random(d) < 0.7))
    n_classes = 0
    if kind == "multinomial":
        y, n_classes = several_classes(clean, rng, words)
    elif kind == "poisson":
        y = counts(signal, rng, words)
    elif kind == "logistic":
        y = classes(signal, rng, words)
    else:
        y = targets(signal, rng, words)
    if chance(0.3):  # nodes differ
        order = np.argsort(y if chance(0.5) else clean[:, 0], kind="stable")
        X, y, clean = X[order], y[order], clean[order]
        note("sorted rows")
    alpha, share = penalty(kind, X, y, rng, words)
    spread = (float(np.std(y)) if np.ptp(y) else 1.0) * 10.0 ** rng.uniform(-1.5, 1)
    delta = 1.35 if chance(0.2) else float(f"{spread:.3g}")
    if kind == "huber":
        note(f"delta {delta:g}")
    return Case(
        seed, kind, X, y, nodes, topology, alpha, share, delta, fit_intercept,
        scheme="snap" if chance(0.85) else pick(SCHEMES),
        tolerance=float(f"{10.0 ** rng.uniform(-6, -2):.2g}") if chance(0.5) else 1e-3,
        max_iter=int(rng.integers(1, 40)) if chance(0.15) else max_iter,
        sending=pick(SENDING) if chance(0.15) else {},
        coordinates="raw" if chance(0.08) else "auto", n_classes=n_classes, words=words,
    )  # fmt: skip


def graph(
    name: str, n: int, rng: np.random.Generator, words: list[str]
) -> dadmm.Topology:
    words.append(name)
    if name == "random":
        return random_graph(rng, n)
    found: dadmm.Topology = getattr(dadmm.Topology, name)(n)
    return found


def rows(
    d: int, n_nodes: int, rng: np.random.Generator, words: list[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Return rows (n, d) and the node of each; every node has a row."""
    draw = rng.random()
    if draw < 0.7:
        counts = rng.integers(d + 1, 5 * d + 10, n_nodes)
    elif draw < 0.85:
        words.append("at most d rows at each node")
        counts = rng.integers(1, d + 1, n_nodes)
    else:
        words.append("one row at each node")
        counts = np.ones(n_nodes, int)
    if rng.random() < 0.15:
        words.append("one row at node 0")
        counts[0] = 1
    n = int(counts.sum())
    X = rng.normal(size=(n, d))
    if d > 1 and rng.random() < 0.3:
        X = X @ rng.normal(size=(d, d))
        words.append("correlated")
    if rng.random() < 0.2:
        X = np.round(X)
        words.append("integers")
    return X, np.repeat(np.arange(n_nodes), counts)


def collinear(X: np.ndarray, rng: np.random.Generator, words: list[str]) -> np.ndarray:
    """Make a column depend on others, sometimes; exactly, or nearly."""
    d, draw = X.shape[1], rng.random()
    k, j = rng.permutation(d)[:2] if d > 1 else (0, 0)
    X = np.round(X * 2.0**12) / 2.0**12  # sums and shifts are exact
    if draw < 0.06:
        X[:, k] = 0.0
        words.append("a column of zeros exactly")
    elif draw < 0.12:
        X[:, k] = pick_number(rng)
        words.append("a constant column exactly")
    elif d > 1 and draw < 0.2:
        X[:, k] = 2.0 ** rng.integers(-2, 3) * X[:, j]
        words.append("a duplicate column exactly")
    elif d > 2 and draw < 0.26:
        X[:, k] = X.sum(axis=1) - X[:, k]
        words.append("a column exactly the sum of the others")
    elif d > 1 and draw < 0.36:
        size = 10.0 ** rng.uniform(-5, -1)
        X[:, k] = X[:, j] + size * rng.normal(size=len(X))
        words.append(f"a column within {size:.0e} of another")
    return X


def pick_number(rng: np.random.Generator) -> float:
    return float(rng.choice([1.0, -3.0, 0.5, 1024.0]))


def targets(
    signal: np.ndarray, rng: np.random.Generator, words: list[str]
) -> np.ndarray:
    draw = rng.random()
    if draw < 0.04:
        words.append("y = 0")
        return np.zeros(len(signal))
    if draw < 0.08:
        words.append("constant y")
        return np.full(len(signal), float(f"{10.0 ** rng.uniform(-6, 6):.3g}"))
    noise = rng.standard_t(2, len(signal)) if rng.random() < 0.3 else None
    noise = rng.normal(size=len(signal)) if noise is None else noise
    level = 0.0 if rng.random() < 0.05 else 10.0 ** rng.uniform(-5, 1)
    words.append(f"noise {level:.0e}")
    y = signal + level * noise
    if rng.random() < 0.3:
        y = y + 10.0 ** rng.uniform(0, 4)
        words.append("shifted y")
    if rng.random() < 0.6:
        unit = 10.0 ** rng.uniform(-6, 6)
        y = unit * y
        words.append(f"y in units of {unit:.0e}")
    return np.asarray(y)


def classes(
    signal: np.ndarray, rng: np.random.Generator, words: list[str]
) -> np.ndarray:
    draw, noise = rng.random(), rng.logistic(size=len(signal))
    if draw < 0.08:
        words.append("one class")
        return np.full(len(signal), float(rng.integers(2)))
    if draw < 0.25:
        words.append("classes by a plane")
        noise = 0.0 * noise
    return (10.0 ** rng.uniform(-1, 0.7) * signal + noise > 0).astype(float)


def several_classes(
    clean: np.ndarray, rng: np.random.Generator, words: list[str]
) -> tuple[np.ndarray, int]:
    """Return classes (n,), and how many there are; some may have no rows."""
    n_classes, draw = int(rng.integers(2, 5)), rng.random()
    words.append(f"{n_classes} classes")
    noise = rng.gumbel(size=(len(clean), n_classes))
    if draw < 0.08:
        words.append("one class only")
        return np.full(len(clean), float(rng.integers(n_classes))), n_classes
    if draw < 0.2:
        words.append("classes by planes")
        noise = 0.0 * noise
    slopes = rng.normal(size=(clean.shape[1], n_classes)) * 10.0 ** rng.uniform(-1, 0.5)
    levels = rng.normal(size=n_classes)
    return (clean @ slopes + levels + noise).argmax(axis=1).astype(float), n_classes


def counts(
    signal: np.ndarray, rng: np.random.Generator, words: list[str]
) -> np.ndarray:
    draw = rng.random()
    if draw < 0.05:
        words.append("y = 0")
        return np.zeros(len(signal))
    level = rng.uniform(-2, 6)
    words.append(f"counts of about {np.exp(level):.1g}")
    spread = np.abs(signal).max() or 1.0
    mean = np.exp(level + signal / spread * 10.0 ** rng.uniform(-1, 0.7))
    if draw < 0.1:
        words.append("no noise")
        return np.asarray(mean)
    y = rng.poisson(mean).astype(float)
    if draw < 0.3:
        unit = 10.0 ** rng.uniform(-6, 6)
        words.append(f"in units of {unit:.0e}")
        y *= unit
    return np.asarray(y)


def penalty(
    kind: str, X: np.ndarray, y: np.ndarray, rng: np.random.Generator, words: list[str]
) -> tuple[float, float]:
    """Return alpha and the share of absolute values; in natural units mostly."""
    share = float(rng.choice([0.0, 0.1, 0.5, 0.9, 1.0]))
    if kind == "elastic_net":
        words.append(f"l1_ratio {share:g}")
    few = ("least_squares", "ridge", "lasso", "elastic_net")
    without = 0.15 if kind in few else 0.35
    if kind == "least_squares" or rng.random() < without:
        return 0.0, share
    centred = y - y.mean() if np.ptp(y) else y
    slopes, squares = np.abs(centred @ (X - X.mean(axis=0))), (X**2).sum(axis=0)
    natural = slopes if kind in ("lasso", "elastic_net") else squares
    natural = natural[natural > 0] if natural.any() else np.ones(1)
    unit = float(rng.choice(natural))
    draw = rng.random()
    if draw < 0.1:
        alpha = 1.0
    elif draw < 0.2:
        alpha = unit * 10.0 ** rng.uniform(-9, -5)
        words.append("tiny alpha")
    elif draw < 0.3:
        alpha = unit * 10.0 ** rng.uniform(2, 6)
        words.append("huge alpha")
    else:
        alpha = unit * 10.0 ** rng.uniform(-3, 0.2)
    return float(f"{alpha:.3g}"), share
