"""Random tables for PPCA on random graphs, and which statements of a run are false."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import dadmm
from dadmm.problems import PPCA
from tests.campaigns.properties.cases import GRAPHS, SCHEMES, SENDING, graph
from tests.campaigns.properties.statements import STATUSES, command_line
from tests.support.pooled import EPS
from tests.support.runs import summary_of
from tests.support.subspaces import (
    Axes,
    expected_objective,
    largest_angle,
    principal_axes,
)

RIGHT_ANGLE, RIGHT_LENGTH = 1.0, 1e-2  # degrees; relative error of W W'
LITTLE = 0.1  # a smaller gap is told
SAME = 1e-8  # relative difference of two evaluations of an objective
WITHIN = re.compile(r"  angle +(\S+) degrees to the principal subspace of all rows")
NO_BOUND = "no bound on the angle to the subspace of all rows: "
DIFFER = re.compile(r"components \d+ and \d+ differ by (\S+)% in variance")


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


class Found(NamedTuple):
    """The result of a run, beside the pooled solution."""

    best: Axes
    angles: np.ndarray  # (n_nodes,) degrees
    lengths: np.ndarray  # (n_nodes,) relative errors of W W'
    objective: float  # at the solution
    slack: float  # of the objective


def compare(case: PPCACase, result: Any) -> Found:
    """Return how far each node is from the solution of all rows."""
    best, M = principal_axes(case.X, case.zero_mean), case.M
    W = result.layout.views(result.theta).W
    want = best.loadings(M)
    whole = (want @ want.T).astype(float)
    size = np.linalg.norm(whole)
    off = [np.linalg.norm(own @ own.T - whole) / (size or 1.0) for own in W]
    parts = result.layout.views(result.solution)
    value, terms = expected_objective(case.X, *parts)
    a, centred = float(parts.a), case.X - parts.mu
    error = len(case.X) * EPS * float(np.abs(case.X).max())  # of a row about its mean
    rounding = a * error * (np.sqrt(case.X.size * 2 * terms / a) + case.X.size * error)
    rounding += 64 * EPS * a * float(np.vdot(centred, centred))  # over the noise
    return Found(
        best, np.array([largest_angle(own, best.axes[:, :M]) for own in W]),
        np.array(off), value, SAME * terms + rounding,
    )  # fmt: skip


def is_right(case: PPCACase, found: Found) -> bool:
    """Return whether all nodes are right; a tolerance above 1e-3 allows for more."""
    more = max(1.0, case.tolerance / 1e-3)
    return bool(
        found.angles.max() <= RIGHT_ANGLE * more
        and found.lengths.max() <= RIGHT_LENGTH * more
    )


def false_statements(case: PPCACase, result: Any, found: Found) -> dict[str, str]:
    """Return the false statements of a result, by name, each with a sentence."""
    false: dict[str, str] = {}
    true, gap = float(found.angles.max()), found.best.gap(case.M)
    if result.status not in STATUSES or result.status == "certified":
        false["status"] = f"the status is {result.status!r}"
    unknown = result.status == "not converged" and np.isnan(result.objective)
    if not unknown and not abs(result.objective - found.objective) <= found.slack:
        false["objective"] = f"{result.objective:.12g}, there it is {found.objective}"
    bound = result.subspace_bound
    promised = case.coordinates != "raw"  # in any units
    if (bound is not None) != promised:
        false["bound"] = f"{case.scheme}, {case.coordinates}, bound {bound}"
    elif bound is not None and (bound.why == "") != (bound.angle <= 10.0):
        false["why"] = f"{bound}"
    elif bound is not None and not true <= bound.angle:
        false["angle"] = f"bound {bound.angle:.6g} degrees, in truth {true:.6g}"
    told = gap if result.start is None else result.start.gap
    if told >= LITTLE and gap < 0.5 * LITTLE:
        false["gap"] = f"the gap is said to be {told:.3g}, in truth {gap:.3g}"
    right = not promised or is_right(case, found)
    if result.status == "stationary" and told >= LITTLE and not right:
        false[f"stationary from {result.ending.init}"] = (
            f"{true:.3g} degrees off, W W' by {found.lengths.max():.3g}, gap {gap:.3g}"
        )
    return false


def arguments(case: PPCACase, folder: Path) -> list[str]:
    """Write the files of a case to a folder, and return its command line."""
    np.save(folder / "data.npy", case.X)
    flags = {"n-components": case.M, "seed": case.seed}
    flags |= {"init": case.init} if case.init else {}
    own = "--zero-mean" if case.zero_mean else "--no-zero-mean"
    return [*command_line(case, "ppca", folder / "data.npy", flags), own]


def false_lines(
    case: PPCACase, text: str, folder: Path, found: Found
) -> dict[str, str]:
    """Return the false lines of a report, by name, given the same run's result."""
    false: dict[str, str] = {}
    lines, summary = text.splitlines(), summary_of(folder)
    size = 1e-5 * abs(found.objective) + found.slack
    for line in lines:
        known = line.startswith("objective ")
        if known and abs(float(line.split()[1]) - found.objective) > size:
            false["report: objective"] = f"{line!r}, in truth {found.objective:.12g}"
    within = [match for line in lines if (match := WITHIN.match(line))]
    without = [line for line in lines if NO_BOUND in line]
    if len(within) + len(without) != 1:
        false["report: bound"] = "the angle is not in the report, or twice"
    for match in within:
        stated = summary["subspace"]["within_degrees"]
        if float(match[1]) < max(found.angles.max(), stated):
            false["report: angle"] = f"{match[0]!r}, in truth {found.angles.max()}"
    small = found.best.gap(case.M)
    told = any(DIFFER.search(line) for line in lines)
    if summary["start"]["init"] == "merged" and not told and small < 0.5 * LITTLE:
        false["report: gap"] = f"a gap of {small:.3g} is not told"
    return false
