"""What a run states about its result, and which of these statements are false."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tests.properties.cases import Case
from tests.support.pooled import EPS, LONG, Minimum, Pooled

STATUSES = ("certified", "stopped", "stationary", "not converged")
LEAST = 1e-8  # of the objective: the smallest gap that may be stated
SAME = 1e-8  # relative difference of two evaluations of an objective,
PART = 0.01  # or this part of the stated gap


class Statements(NamedTuple):
    """The statements of one run."""

    status: str
    converged: bool
    theta: np.ndarray  # (n_nodes, p)
    solution: np.ndarray  # (p,)
    objective: float | None  # None if nothing is stated
    gap: float | None
    coefficients: np.ndarray | None  # (p,) bounds
    agreement: np.ndarray | None  # (p,) how far a node may be from the solution
    reason: str = ""
    open_directions: int | None = None


def of_result(result: Any) -> Statements:
    """Return the statements of a `dadmm.Result`."""
    bounds = result.certificate
    return Statements(
        result.status, result.converged, result.theta, result.solution,
        float(result.objective), None if bounds is None else float(bounds.gap),
        None if bounds is None else np.asarray(bounds.coefficients), None,
        result.reason, None if bounds is None else bounds.open_directions,
    )  # fmt: skip


def of_version_0_1(result: Any) -> Statements:
    """Return the statements of a result of version 0.1.0, as its report has them.

    It prints the sum of the objectives at the nodes' own parameters, an estimate of
    the distance of this sum from the optimum, and one relative distance between nodes.
    """
    mean, gap = result.theta.mean(axis=0), float(result.certificate.gap)
    objective = float(result.objectives.sum())
    stated = result.converged and np.isfinite(gap)
    apart = np.linalg.norm(result.theta - mean, axis=1).max()
    length = np.linalg.norm(mean)
    agreement = apart / length if length > 0 else apart
    return Statements(
        "certified" if result.converged else "not converged", result.converged,
        result.theta, mean, objective if stated else None, gap if stated else None,
        None, agreement * np.abs(result.theta).max(axis=0), result.reason,
    )  # fmt: skip


def false_statements(said: Statements, pooled: Pooled, best: Minimum) -> dict[str, str]:
    """Return the false statements of a run, by name, each with a sentence."""
    false: dict[str, str] = {}
    x = np.asarray(said.solution, LONG)
    finite = bool(np.isfinite(said.solution).all())
    certified = said.status == "certified"
    if said.status not in STATUSES:
        false["status"] = f"the status is {said.status!r}"
    if said.converged != (said.status != "not converged"):
        false["converged"] = f"converged is {said.converged}, status {said.status!r}"
    if certified and not finite:
        false["solution"] = "the solution is not finite"
    if not finite:
        return false

    value, noise = pooled.objective(x), pooled.rounding(x)
    objective = value if said.objective is None else said.objective
    zero = below_rounding(pooled, x)
    known = said.gap is not None and np.isfinite(said.gap)
    same = max(SAME * abs(value), PART * said.gap if known else 0.0)
    if not abs(objective - value) <= same + noise + zero:
        false["objective"] = f"objective {objective:.12g}, there it is {value:.12g}"
    if said.agreement is not None:
        false |= _disagreement(said, pooled)
    if not best.exists:
        if certified:
            false["minimum"] = "certified, but there is no minimum"
        if known:
            false["gap"] = f"gap {said.gap:.3g}, but there is no minimum"
        if said.coefficients is not None and np.isfinite(said.coefficients).any():
            false["coefficients"] = "bounds on a minimiser that does not exist"
        return false

    if said.reason == "no_minimum":
        false["no minimum"] = f"said to have no minimum, it is {best.value:.12g}"
    n_open = said.open_directions
    if known and n_open is not None and n_open != best.n_open:
        false["directions"] = f"{n_open} directions are open, in truth {best.n_open}"
    if value < best.value - best.gap - 1e-2 * noise - 1e-17 * abs(best.value):
        raise AssertionError(f"value {value!r} is below the reference {best.value!r}")
    slack = best.gap + noise
    if objective < best.value - same - slack - zero:
        false["below"] = f"objective {objective:.12g}, optimum {best.value:.12g}"
    if said.gap is not None:
        if not value - best.value <= said.gap + slack:
            false["gap"] = f"gap {said.gap:.3g}, in truth {value - best.value:.3g}"
        if certified and said.gap < LEAST * abs(objective) * (1 - 1e-6):
            false["digits"] = f"gap {said.gap:.3g} of objective {objective:.3g}"
    if certified and said.gap is None:
        false["certificate"] = "certified, without a gap"
    if said.coefficients is not None:
        false |= _coefficients(said, best)
    return false


def below_rounding(pooled: Pooled, x: np.ndarray) -> float:
    """Return by how much an objective may be off that counts as zero, else 0.

    It does if it is below the rounding of the squares of its terms: a perfect fit.
    """
    terms = pooled.terms(x)
    least = EPS * float(terms @ terms) / 2
    return least if pooled.objective(x) <= least else 0.0


def _coefficients(said: Statements, best: Minimum) -> dict[str, str]:
    bounds = np.asarray(said.coefficients)
    if bounds.shape != best.x.shape or np.isnan(bounds).any() or (bounds < 0).any():
        return {"coefficients": f"bounds {bounds} of {best.x.shape} coefficients"}
    for k in np.flatnonzero(best.unbounded & np.isfinite(bounds)):
        return {
            "open": f"coefficient {k} is not determined, its bound is {bounds[k]:.3g}"
        }
    points = (best.x, *best.others) if best.unique or best.others else ()
    for point in points:
        off = np.abs(said.solution - point)
        slack = best.errors + 4 * EPS * np.abs(said.solution)
        wrong = ~best.unbounded & ~(off <= bounds + slack)
        for k in np.flatnonzero(wrong):
            return {
                "coefficients": f"coefficient {k} is off by {off[k]:.3g}, "
                f"its bound is {bounds[k]:.3g}"
            }
    return {}


def _disagreement(said: Statements, pooled: Pooled) -> dict[str, str]:
    """Compare nodes by coefficient; what no fit shows does not count."""
    apart = np.abs(said.theta - said.solution).max(axis=0)
    column = np.abs(pooled.X).max(axis=0).astype(float)
    fits = float(np.abs(pooled.X @ said.solution).max())
    wrong = apart > said.agreement * (1 + 1e-6)
    wrong &= apart * column > 1e-3 * fits
    for k in np.flatnonzero(wrong):
        return {
            "agree": f"nodes differ in coefficient {k} by {apart[k]:.3g}, "
            f"said to agree to {said.agreement[k]:.3g}"
        }
    return {}


def is_right(said: Statements, pooled: Pooled, best: Minimum) -> bool:
    """Return whether fits are within 1e-2 of those of the minimum, in the mean."""
    if not best.exists or not np.isfinite(said.solution).all():
        return False
    want = pooled.X @ best.x
    off = pooled.X @ said.solution - want
    scale = want - want.mean()
    size = max(float(scale @ scale), 1e-12 * float(want @ want))
    return bool(float(off @ off) <= 1e-4 * size + 4 * EPS**2 * float(want @ want))


def repeat(case: Any, old: bool = False) -> str:
    """Return the command that repeats a case."""
    own = "" if isinstance(case, Case) else f" --{getattr(case, 'flag', 'ppca')}"
    more = " --old" if old else own
    return f"python -m tests.properties.campaign --only {case.seed}{more}"
