"""Random tables for PPCA on random graphs, and which statements of a run are false."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import dadmm
from benchmarks.shared.pooled import EPS
from dadmm.problems import PPCA
from tests.campaigns.draw import Draw
from tests.campaigns.properties import cases
from tests.support import subspaces

RIGHT_ANGLE, RIGHT_LENGTH = 1.0, 1e-2  # degrees; relative error of W W'
LITTLE = 0.1  # a smaller gap is told
SAME = 1e-8  # relative difference of two evaluations of an objective


@dataclass
class PPCACase(cases.Settings):
    """PPCA with M components."""

    M: int
    zero_mean: bool
    init: str | None

    def problems(self) -> list[Any]:
        return [PPCA(X, self.M, zero_mean=self.zero_mean) for X in self.own(self.X)]

    def solve(self, **more: Any) -> dadmm.Result:
        return super().solve(init=self.init, seed=self.seed, **more)


def draw(seed: int, max_iter: int = 1000) -> PPCACase:
    """Return the case of a seed."""
    by = Draw(17, seed)
    rng = by.rng
    D = int(rng.integers(2, 21 if by.chance(0.6) else 45))
    M = int(rng.integers(1, min(D, 6)))
    topology = cases.draw_graph(by)
    n_nodes = topology.n_nodes
    counts = draw_counts(by, D, n_nodes)
    X = rng.normal(size=(counts.sum(), D)) * draw_deviations(by, D, M)
    if by.chance(0.5):
        X = X @ np.linalg.qr(rng.normal(size=(D, D)))[0]
    if by.chance(0.1):
        X = X * rng.standard_t(2, (len(X), 1))
    X = change_columns(by, X)
    if by.chance(0.3):  # nodes differ
        X = X[np.argsort(X[:, rng.integers(D)], kind="stable")]
    nodes = np.repeat(np.arange(n_nodes), counts)
    if by.chance(0.15):
        X = X + X.std(axis=0) * rng.normal(size=(n_nodes, D))[nodes]
    zero_mean = by.chance(0.15)
    if by.chance(0.4) and not zero_mean:
        size = by.power(0, 5)
        X = X + X.std() * np.round(size * rng.normal(size=D))
    if by.chance(0.4):
        X = by.power(-6, 6) * X
    snap, raw = by.chance(0.8), by.chance(0.05)
    inits = [None, None, "shared", "independent"]
    init = by.pick(inits if snap or raw else [*inits, "merged"])
    return PPCACase(
        seed, X, nodes, topology,
        scheme="snap" if snap else by.pick(cases.SCHEMES),
        tolerance=cases.draw_tolerance(by, 0.4, -3),
        max_iter=by.integer(1, 29) if by.chance(0.15) else max_iter,
        sending=by.pick(cases.SENDING) if by.chance(0.1) else {},
        coordinates="raw" if raw else "auto",
        M=M, zero_mean=zero_mean, init=init,
    )  # fmt: skip


def draw_counts(by: Draw, D: int, n_nodes: int) -> np.ndarray:
    """Return the number of rows of each node."""
    rng, choice = by.rng, by.rng.random()
    if choice < 0.6:
        counts = rng.integers(D + 1, 4 * D + 10, n_nodes)
    elif choice < 0.8:
        counts = rng.integers(2, max(D, 3) + 1, n_nodes)
    else:
        counts = rng.integers(1, 4, n_nodes)
    if by.chance(0.15):
        counts[0] = 1
    counts[-1] += max(0, 3 - counts.sum())
    return counts


def draw_deviations(by: Draw, D: int, M: int) -> np.ndarray:
    """Return standard deviations (D,), with or without a gap after M of them."""
    choice, k = by.rng.random(), np.arange(D)
    if choice < 0.1:
        return np.ones(D)
    if choice < 0.4:
        ratio, noise = 1.0 + by.power(-2, 1), by.power(-1, 1)
        return noise * np.where(k < M, ratio, 1.0)
    if choice < 0.5:
        noise = by.power(-7, -2)
        return np.where(k < M, by.rng.uniform(0.5, 2.0, D), noise)
    if choice < 0.75:
        return by.rng.uniform(1.05, 3.0) ** -k
    return 10.0 ** by.rng.uniform(-2, 2, D)


def change_columns(by: Draw, X: np.ndarray) -> np.ndarray:
    """Make columns constant, nearly dependent, or of other units, sometimes."""
    rng, D, choice = by.rng, X.shape[1], by.rng.random()
    i, j = rng.permutation(D)[:2]
    if choice < 0.08:
        X[:, i] = rng.choice([0.0, 1.0, -3.0, 1024.0])
    elif choice < 0.16:
        X[:, i] = X[:, j]
    elif choice < 0.26:
        size = by.power(-7, -1)
        X[:, i] = X[:, j] + size * X[:, j].std() * rng.normal(size=len(X))
    elif choice < 0.36:
        X = X * 10.0 ** rng.uniform(-3, 3, D)
    elif choice < 0.44:
        X = np.round(3.0 * X)
    return X


class Found(NamedTuple):
    """The result of a run, beside the pooled solution."""

    gap: float  # after the last component, of all rows
    angle: float  # degrees, of the worst node
    length: float  # relative error of W W', of the worst node
    objective: float  # at the solution
    slack: float  # of the objective


def compare(case: PPCACase, result: Any) -> Found:
    """Return how far the nodes are from the solution of all rows."""
    best, M = subspaces.principal_axes(case.X, case.zero_mean), case.M
    W = result.layout.views(result.theta).W
    want = best.loadings(M)
    whole = (want @ want.T).astype(float)
    size = np.linalg.norm(whole) or 1.0
    off = [np.linalg.norm(own @ own.T - whole) / size for own in W]
    angles = [subspaces.largest_angle(own, best.axes[:, :M]) for own in W]
    parts = result.layout.views(result.solution)
    value, terms = subspaces.expected_objective(case.X, *parts)
    a, centred = float(parts.a), case.X - parts.mu
    error = len(case.X) * EPS * float(np.abs(case.X).max())  # of a row about its mean
    rounding = a * error * (np.sqrt(case.X.size * 2 * terms / a) + case.X.size * error)
    rounding += 64 * EPS * a * float(np.vdot(centred, centred))  # over the noise
    return Found(best.gap(M), max(angles), max(off), value, SAME * terms + rounding)


def is_right(case: PPCACase, found: Found) -> bool:
    """Return whether all nodes are right; a tolerance above 1e-3 allows for more."""
    more = max(1.0, case.tolerance / 1e-3)
    return found.angle <= RIGHT_ANGLE * more and found.length <= RIGHT_LENGTH * more


def false_statements(case: PPCACase, result: Any, found: Found) -> dict[str, str]:
    """Return the false statements of a result, by name, each with a sentence."""
    false: dict[str, str] = {}
    if result.status not in cases.STATUSES or result.status == "certified":
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
    elif bound is not None and not found.angle <= bound.angle:
        false["angle"] = f"bound {bound.angle:.6g} degrees, in truth {found.angle:.6g}"
    told = found.gap if result.start is None else result.start.gap
    if told >= LITTLE and found.gap < 0.5 * LITTLE:
        false["gap"] = f"the gap is said to be {told:.3g}, in truth {found.gap:.3g}"
    right = not promised or is_right(case, found)
    if result.status == "stationary" and told >= LITTLE and not right:
        false[f"stationary from {result.ending.init}"] = f"{found}"
    return false
