"""Random convex problems on random graphs, and which statements of a run are false.

A seed decides everything.
"""

from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np

import dadmm
from benchmarks.shared.pooled import EPS, LONG, Minimum, Pooled
from dadmm.problems import PROBLEMS
from tests.campaigns.draw import Draw
from tests.support.linear import pooled_of
from tests.support.problems import random_graph

KINDS = (
    "least_squares", "ridge", "lasso", "elastic_net", "logistic", "huber",
    "multinomial", "poisson",
)  # fmt: skip
COUNTED = 10**6  # first seed of the last two kinds; the others have seeds below
GRAPHS = ("chain", "ring", "star", "grid", "complete", "random")
SCHEMES = ("fixed", "vp", "ap", "nap", "vp_ap", "vp_nap", "global_balance")
SENDING: tuple[dict[str, Any], ...] = (
    {"payload": "quantised:8"}, {"payload": "quantised:4"},
    {"payload": "float32"}, {"payload": "float16"}, {"censor": 1e-2},
    {"send_every": 3}, {"edge_sleep": 0.2},
)  # fmt: skip
STATUSES = ("certified", "stopped", "stationary", "not converged")
LEAST = 1e-8  # of the objective: the smallest gap that may be stated
SAME = 1e-8  # relative difference of two evaluations of an objective,
PART = 0.01  # or this part of the stated gap


@dataclass
class Settings:
    """Rows by node, a graph, and settings of `dadmm.solve`."""

    seed: int
    X: np.ndarray  # (n, d)
    nodes: np.ndarray  # (n,) node of each row
    topology: dadmm.Topology
    _: KW_ONLY
    scheme: str = "snap"
    tolerance: float = 1e-3
    max_iter: int = 1000
    sending: dict[str, Any] = field(default_factory=dict)
    coordinates: str = "auto"

    def own(self, rows: np.ndarray) -> list[np.ndarray]:
        return [rows[self.nodes == i] for i in range(self.topology.n_nodes)]

    def solve(self, **more: Any) -> dadmm.Result:
        return dadmm.solve(
            self.problems(), self.topology, scheme=self.scheme,
            stopping=dadmm.Stopping(tolerance=self.tolerance, max_iter=self.max_iter),
            sending=dadmm.Sending(**self.sending), record=False,
            **{"coordinates": self.coordinates} | more,
        )  # fmt: skip


@dataclass
class Case(Settings):
    """A convex problem; ``settings`` are its own, but for alpha of the whole."""

    kind: str
    y: np.ndarray  # (n,)
    alpha: float
    settings: dict[str, Any]

    def problems(self) -> list[Any]:
        """Return the problem of each node, with an equal share of alpha."""
        settings = dict(self.settings)
        if self.kind != "least_squares":
            settings["alpha"] = self.alpha / self.topology.n_nodes
        pairs = zip(self.own(self.X), self.own(self.y), strict=True)
        return [PROBLEMS[self.kind](X, y, **settings) for X, y in pairs]

    def pooled(self) -> Pooled:
        """Return the same problem over all rows."""
        n_nodes = self.topology.n_nodes
        alpha = n_nodes * LONG(self.alpha / n_nodes)  # as the nodes have it
        return Pooled(*pooled_of(self.kind, self.X, self.y, alpha, **self.settings))


def draw(seed: int, max_iter: int = 1000) -> Case:
    by = Draw(16, seed)
    rng = by.rng
    kind, d = by.pick(KINDS[:-2]), by.integer(1, 6)
    if seed >= COUNTED:
        kind, d = KINDS[-2:][seed % 2], 1 + d % 4
    topology = draw_graph(by)
    clean, nodes = draw_rows(by, d, topology.n_nodes)
    own: dict[str, Any] = {"fit_intercept": by.chance(0.8)}
    clean, exact = make_collinear(by, clean)
    X = change_units(by, clean, exact)

    signal = clean @ (rng.normal(size=d) * (rng.random(d) < 0.7))
    if kind == "multinomial":
        y, own["n_classes"] = draw_classes(by, clean)
    else:
        targets = {"poisson": draw_counts, "logistic": draw_labels}
        y = targets.get(kind, draw_targets)(by, signal)
    if by.chance(0.3):  # nodes differ
        order = np.argsort(y if by.chance(0.5) else clean[:, 0], kind="stable")
        X, y = X[order], y[order]
    alpha, share = draw_penalty(by, kind, X, y)
    spread = (float(np.std(y)) if np.ptp(y) else 1.0) * by.power(-1.5, 1)
    delta = 1.35 if by.chance(0.2) else float(f"{spread:.3g}")
    own |= {"elastic_net": {"l1_ratio": share}, "huber": {"delta": delta}}.get(kind, {})
    return Case(
        seed, X, nodes, topology,
        scheme="snap" if by.chance(0.85) else by.pick(SCHEMES),
        tolerance=draw_tolerance(by, 0.5, -2),
        max_iter=by.integer(1, 39) if by.chance(0.15) else max_iter,
        sending=by.pick(SENDING) if by.chance(0.15) else {},
        coordinates="raw" if by.chance(0.08) else "auto",
        kind=kind, y=y, alpha=alpha, settings=own,
    )  # fmt: skip


def draw_graph(by: Draw) -> dadmm.Topology:
    n = 1 if by.chance(0.05) else by.integer(2, 12)
    name = by.pick(GRAPHS)
    if name == "random":
        return random_graph(by.rng, n)
    return getattr(dadmm.Topology, name)(n)


def draw_tolerance(by: Draw, probability: float, most: float) -> float:
    return float(f"{by.power(-6, most):.2g}") if by.chance(probability) else 1e-3


def draw_rows(by: Draw, d: int, n_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows (n, d) and the node of each; every node has a row."""
    rng, choice = by.rng, by.rng.random()
    if choice < 0.7:
        sizes = rng.integers(d + 1, 5 * d + 10, n_nodes)
    elif choice < 0.85:
        sizes = rng.integers(1, d + 1, n_nodes)
    else:
        sizes = np.ones(n_nodes, int)
    if by.chance(0.15):
        sizes[0] = 1
    X = rng.normal(size=(int(sizes.sum()), d))
    if d > 1 and by.chance(0.3):
        X = X @ rng.normal(size=(d, d))
    X = np.round(X) if by.chance(0.2) else X
    return X, np.repeat(np.arange(n_nodes), sizes)


def make_collinear(by: Draw, X: np.ndarray) -> tuple[np.ndarray, bool]:
    """Make a column depend on others, sometimes; return also if it does exactly."""
    rng, d, choice = by.rng, X.shape[1], by.rng.random()
    k, j = rng.permutation(d)[:2] if d > 1 else (0, 0)
    X = np.round(X * 2.0**12) / 2.0**12  # sums and shifts are exact
    if choice < 0.06:
        X[:, k] = 0.0
    elif choice < 0.12:
        X[:, k] = float(rng.choice([1.0, -3.0, 0.5, 1024.0]))
    elif d > 1 and choice < 0.2:
        X[:, k] = 2.0 ** rng.integers(-2, 3) * X[:, j]
    elif d > 2 and choice < 0.26:
        X[:, k] = X.sum(axis=1) - X[:, k]
    elif d > 1 and choice < 0.36:
        X[:, k] = X[:, j] + by.power(-5, -1) * rng.normal(size=len(X))
        return X, False
    else:
        return X, False
    return X, True


def change_units(by: Draw, X: np.ndarray, exact: bool) -> np.ndarray:
    rng, d = by.rng, X.shape[1]
    if by.chance(0.4):
        most = 6.0 if by.chance(0.1) else 4.0
        X = X + rng.choice([-1, 1], d) * np.round(10.0 ** rng.uniform(0, most, d))
    if by.chance(0.6):
        powers = rng.uniform(-6, 6, d)
        return X * (2.0 ** np.round(3 * powers) if exact else 10.0**powers)
    if by.chance(0.3):
        return X * (2.0 ** by.pick((-20, 20)) if exact else by.power(-6, 6))
    return X


def draw_targets(by: Draw, signal: np.ndarray) -> np.ndarray:
    rng, n, choice = by.rng, len(signal), by.rng.random()
    if choice < 0.04:
        return np.zeros(n)
    if choice < 0.08:
        return np.full(n, float(f"{by.power(-6, 6):.3g}"))
    noise = rng.standard_t(2, n) if by.chance(0.3) else rng.normal(size=n)
    y = signal + (0.0 if by.chance(0.05) else by.power(-5, 1)) * noise
    if by.chance(0.3):
        y = y + by.power(0, 4)
    return by.power(-6, 6) * y if by.chance(0.6) else y


def draw_labels(by: Draw, signal: np.ndarray) -> np.ndarray:
    choice, noise = by.rng.random(), by.rng.logistic(size=len(signal))
    if choice < 0.08:
        return np.full(len(signal), float(by.rng.integers(2)))
    noise = noise * (choice >= 0.25)  # else they are separable
    return (by.power(-1, 0.7) * signal + noise > 0).astype(float)


def draw_classes(by: Draw, clean: np.ndarray) -> tuple[np.ndarray, int]:
    """Return classes (n,), and how many there are; some may have no rows."""
    rng, n_classes = by.rng, by.integer(2, 4)
    choice, noise = rng.random(), rng.gumbel(size=(len(clean), n_classes))
    if choice < 0.08:
        return np.full(len(clean), float(rng.integers(n_classes))), n_classes
    slopes = rng.normal(size=(clean.shape[1], n_classes)) * by.power(-1, 0.5)
    logits = clean @ slopes + rng.normal(size=n_classes) + noise * (choice >= 0.2)
    return logits.argmax(axis=1).astype(float), n_classes


def draw_counts(by: Draw, signal: np.ndarray) -> np.ndarray:
    choice = by.rng.random()
    if choice < 0.05:
        return np.zeros(len(signal))
    level, spread = by.rng.uniform(-2, 6), np.abs(signal).max() or 1.0
    mean = np.exp(level + signal / spread * by.power(-1, 0.7))
    if choice < 0.1:
        return np.asarray(mean)
    y = by.rng.poisson(mean).astype(float)
    return y * by.power(-6, 6) if choice < 0.3 else y


def draw_penalty(by: Draw, kind: str, X: np.ndarray, y: np.ndarray) -> tuple:
    """Return alpha and the share of absolute values; in natural units mostly."""
    share = float(by.rng.choice([0.0, 0.1, 0.5, 0.9, 1.0]))
    few = ("least_squares", "ridge", "lasso", "elastic_net")
    if kind == "least_squares" or by.chance(0.15 if kind in few else 0.35):
        return 0.0, share
    centred = y - y.mean() if np.ptp(y) else y
    slopes, squares = np.abs(centred @ (X - X.mean(axis=0))), (X**2).sum(axis=0)
    natural = slopes if kind in ("lasso", "elastic_net") else squares
    natural = natural[natural > 0] if natural.any() else np.ones(1)
    unit, choice = float(by.rng.choice(natural)), by.rng.random()
    if choice < 0.1:
        return 1.0, share
    tiny, huge, usual = (-9, -5), (2, 6), (-3, 0.2)
    powers = tiny if choice < 0.2 else huge if choice < 0.3 else usual
    return float(f"{unit * by.power(*powers):.3g}"), share


def false_statements(said: Any, pooled: Pooled, best: Minimum) -> dict[str, str]:
    """Return the false statements of a run, by name, each with a sentence."""
    false: dict[str, str] = {}
    x, bounds = np.asarray(said.solution, LONG), said.certificate
    certified = said.status == "certified"
    gap = None if bounds is None else float(bounds.gap)
    if said.status not in STATUSES:
        false["status"] = f"the status is {said.status!r}"
    if said.converged != (said.status != "not converged"):
        false["converged"] = f"converged is {said.converged}, status {said.status!r}"
    if not np.isfinite(said.solution).all():
        return false | ({"solution": "it is not finite"} if certified else {})

    value, noise = pooled.objective(x), pooled.rounding(x)
    objective = value if said.objective is None else float(said.objective)
    zero = below_rounding(pooled, x)
    known = gap is not None and np.isfinite(gap)
    same = max(SAME * abs(value), PART * gap if known else 0.0)
    if not abs(objective - value) <= same + noise + zero:
        false["objective"] = f"objective {objective:.12g}, there it is {value:.12g}"
    if not best.exists:
        if certified:
            false["minimum"] = "certified, but there is no minimum"
        if known:
            false["gap"] = f"gap {gap:.3g}, but there is no minimum"
        if bounds is not None and np.isfinite(bounds.coefficients).any():
            false["coefficients"] = "bounds on a minimiser that does not exist"
        return false

    if said.reason == "no_minimum":
        false["no minimum"] = f"said to have no minimum, it is {best.value:.12g}"
    if known and bounds.open_directions not in (None, best.n_open):
        false["directions"] = f"{bounds.open_directions} open, not {best.n_open}"
    if value < best.value - best.gap - 1e-2 * noise - 1e-17 * abs(best.value):
        raise AssertionError(f"value {value!r} is below the reference {best.value!r}")
    slack = best.gap + noise
    if objective < best.value - same - slack - zero:
        false["below"] = f"objective {objective:.12g}, optimum {best.value:.12g}"
    if bounds is None:
        return false | ({"certificate": "there is none"} if certified else {})
    if not value - best.value <= gap + slack:
        false["gap"] = f"gap {gap:.3g}, in truth {value - best.value:.3g}"
    if certified and gap < LEAST * abs(objective) * (1 - 1e-6):
        false["digits"] = f"gap {gap:.3g} of objective {objective:.3g}"
    return false | _coefficients(said.solution, np.asarray(bounds.coefficients), best)


def below_rounding(pooled: Pooled, x: np.ndarray) -> float:
    """Return by how much an objective may be off that counts as zero, else 0.

    It does if it is below the rounding of the squares of its terms: a perfect fit.
    """
    terms = pooled.terms(x)
    least = EPS * float(terms @ terms) / 2
    return least if pooled.objective(x) <= least else 0.0


def _coefficients(x: np.ndarray, bounds: np.ndarray, best: Minimum) -> dict[str, str]:
    if bounds.shape != best.x.shape or np.isnan(bounds).any() or (bounds < 0).any():
        return {"coefficients": f"bounds {bounds} of {best.x.shape} coefficients"}
    if (loose := best.unbounded & np.isfinite(bounds)).any():
        return {"open": f"not determined: {np.flatnonzero(loose)}, bounds {bounds}"}
    for point in (best.x, *best.others) if best.unique or best.others else ():
        off = np.abs(x - point)
        slack = best.errors + 4 * EPS * np.abs(x)
        if (~best.unbounded & ~(off <= bounds + slack)).any():
            return {"coefficients": f"off by {off}, bounds {bounds}"}
    return {}
