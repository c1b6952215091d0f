"""Random tables for PPCA on random graphs, and which statements of a run are false."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import dadmm
from dadmm.problems import PPCA
from tests.campaigns.properties.cases import SCHEMES, SENDING, Draw, Settings
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
class PPCACase(Settings):
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
    topology = by.graph()
    n_nodes = topology.n_nodes
    counts = row_counts(by, D, n_nodes)
    X = rng.normal(size=(counts.sum(), D)) * deviations(by, D, M)
    if by.chance(0.5):
        X = X @ np.linalg.qr(rng.normal(size=(D, D)))[0]
        by.note("turned")
    if by.chance(0.1):
        X = X * rng.standard_t(2, (len(X), 1))
        by.note("heavy tails")
    X = columns(by, X)
    if by.chance(0.3):  # nodes differ
        X = X[np.argsort(X[:, rng.integers(D)], kind="stable")]
        by.note("sorted rows")
    nodes = np.repeat(np.arange(n_nodes), counts)
    if by.chance(0.15):
        X = X + X.std(axis=0) * rng.normal(size=(n_nodes, D))[nodes]
        by.note("nodes with means of their own")
    zero_mean = by.chance(0.15)
    if by.chance(0.4) and not zero_mean:
        size = by.power(0, 5)
        X = X + X.std() * np.round(size * rng.normal(size=D))
        by.note(f"shifted by {size:.0e}")
    if by.chance(0.4):
        unit = by.power(-6, 6)
        X = unit * X
        by.note(f"in units of {unit:.0e}")
    snap, raw = by.chance(0.8), by.chance(0.05)
    inits = [None, None, "shared", "independent"]
    inits += ["merged"] if not snap and not raw else []
    init = by.pick(inits)
    by.note(f"{M} components, init {init}, zero mean {zero_mean}")
    return PPCACase(
        seed, X, nodes, topology,
        scheme="snap" if snap else by.pick(SCHEMES),
        tolerance=by.tolerance(0.4, -3),
        max_iter=int(rng.integers(1, 30)) if by.chance(0.15) else max_iter,
        sending=by.pick(SENDING) if by.chance(0.1) else {},
        coordinates="raw" if raw else "auto",
        words=by.words, M=M, zero_mean=zero_mean, init=init,
    )  # fmt: skip


def row_counts(by: Draw, D: int, n_nodes: int) -> np.ndarray:
    """Return the number of rows of each node."""
    rng, choice = by.rng, by.rng.random()
    if choice < 0.6:
        counts = rng.integers(D + 1, 4 * D + 10, n_nodes)
    elif choice < 0.8:
        by.note("at most D rows at each node")
        counts = rng.integers(2, max(D, 3) + 1, n_nodes)
    else:
        by.note("few rows at each node")
        counts = rng.integers(1, 4, n_nodes)
    if by.chance(0.15):
        by.note("one row at node 0")
        counts[0] = 1
    counts[-1] += max(0, 3 - counts.sum())
    return np.asarray(counts)


def deviations(by: Draw, D: int, M: int) -> np.ndarray:
    """Return standard deviations (D,), with or without a gap after M of them."""
    choice, k = by.rng.random(), np.arange(D)
    if choice < 0.1:
        by.note("no gap")
        return np.ones(D)
    if choice < 0.4:
        ratio, noise = 1.0 + by.power(-2, 1), by.power(-1, 1)
        by.note(f"a gap of {ratio:.3g}")
        return noise * np.where(k < M, ratio, 1.0)
    if choice < 0.5:
        noise = by.power(-7, -2)
        by.note(f"noise {noise:.0e}")
        return np.where(k < M, by.rng.uniform(0.5, 2.0, D), noise)
    if choice < 0.75:
        ratio = by.rng.uniform(1.05, 3.0)
        by.note(f"deviations fall by {ratio:.3g}")
        return np.asarray(ratio**-k)
    by.note("deviations of all sizes")
    return np.asarray(10.0 ** by.rng.uniform(-2, 2, D))


def columns(by: Draw, X: np.ndarray) -> np.ndarray:
    """Make columns constant, nearly dependent, or of other units, sometimes."""
    rng, D, choice = by.rng, X.shape[1], by.rng.random()
    i, j = rng.permutation(D)[:2]
    if choice < 0.08:
        X[:, i] = rng.choice([0.0, 1.0, -3.0, 1024.0])
        by.note("a constant column")
    elif choice < 0.16:
        X[:, i] = X[:, j]
        by.note("a duplicate column")
    elif choice < 0.26:
        size = by.power(-7, -1)
        X[:, i] = X[:, j] + size * X[:, j].std() * rng.normal(size=len(X))
        by.note(f"a column within {size:.0e} of another")
    elif choice < 0.36:
        X = X * 10.0 ** rng.uniform(-3, 3, D)
        by.note("columns in mixed units")
    elif choice < 0.44:
        X = np.round(3.0 * X)
        by.note("integers")
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
