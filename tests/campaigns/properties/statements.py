"""What a run states about its result, and which of these statements are false."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import dadmm.run
from benchmarks.shared.pooled import EPS, LONG, Minimum, Pooled
from tests.campaigns.properties.cases import Case
from tests.support.runs import arrays_of, summary_of

STATUSES = ("certified", "stopped", "stationary", "not converged")
LEAST = 1e-8  # of the objective: the smallest gap that may be stated
SAME = 1e-8  # relative difference of two evaluations of an objective,
PART = 0.01  # or this part of the stated gap


def read_run(folder: Path) -> SimpleNamespace:
    """Return summary.json and result.npz of a run as a `dadmm.Result`.

    ``agreement`` says how far a node may be from the solution, by coefficient.
    """
    summary, arrays = summary_of(folder), arrays_of(folder)
    parts = [arrays["coef"]]
    if "intercept" in arrays:
        parts.append(arrays["intercept"][:, None])
    theta, found = np.hstack(parts), summary["certificate"]
    names, solution = zip(*summary["coefficients"].items(), strict=True)
    size, certificate = np.abs(theta).max(axis=0), None
    if found is not None:
        listed = [found["coefficients"][name] for name in names]
        bounds = np.array([np.inf if entry is None else entry for entry in listed])
        size = np.maximum(size, np.where(np.isfinite(bounds), bounds, 0.0))
        certificate = SimpleNamespace(**found | {"coefficients": bounds})
    return SimpleNamespace(
        status=summary["status"], converged=summary["converged"], theta=theta,
        solution=np.array(solution), objective=summary["objective"],
        certificate=certificate, agreement=summary["consensus"]["error"] * size,
        reason=summary["reason"],
    )  # fmt: skip


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
    if hasattr(said, "agreement"):
        false |= _disagreement(said, pooled)
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


def _disagreement(said: Any, pooled: Pooled) -> dict[str, str]:
    """Compare nodes by coefficient; what no fit shows does not count."""
    apart = np.abs(said.theta - said.solution).max(axis=0)
    column = np.abs(pooled.X).max(axis=0).astype(float)
    fits = float(np.abs(pooled.X @ said.solution).max())
    wrong = apart > said.agreement * (1 + 1e-6)
    if (wrong & (apart * column > 1e-3 * fits)).any():
        return {"agree": f"nodes differ by {apart}, said to by {said.agreement}"}
    return {}


def is_right(said: Any, pooled: Pooled, best: Minimum) -> bool:
    """Return whether fits are within 1e-2 of those of the minimum, in the mean."""
    if not best.exists or not np.isfinite(said.solution).all():
        return False
    want = pooled.X @ best.x
    off = pooled.X @ said.solution - want
    scale = want - want.mean()
    size = max(float(scale @ scale), 1e-12 * float(want @ want))
    return bool(float(off @ off) <= 1e-4 * size + 4 * EPS**2 * float(want @ want))


def accepts(case: Case) -> bool:
    """Return whether the command line runs a case; it refuses a single class."""
    if case.kind == "logistic":
        return len(np.unique(case.y)) > 1
    return case.kind != "multinomial"


def false_summary(case: Case, folder: Path, pooled: Pooled, best: Minimum) -> dict:
    """Run a case by the command line; return the false statements of its summary."""
    np.savez(folder / "data.npz", X=case.X, y=case.y)
    np.save(folder / "nodes.npy", case.nodes)
    case.topology.write(folder / "graph.edges")
    flags = case.settings | case.sending | {
        "problem": case.kind, "data": folder / "data.npz", "out": folder / "run",
        "labels": folder / "nodes.npy", "topology": folder / "graph.edges",
        "nodes": case.topology.n_nodes, "scheme": case.scheme, "alpha": case.alpha,
        "tolerance": case.tolerance, "max_iter": case.max_iter,
        "coordinates": case.coordinates,
    }  # fmt: skip
    if case.kind == "least_squares":
        del flags["alpha"]
    words = ["--fit-intercept" if flags.pop("fit_intercept") else "--no-fit-intercept"]
    for name, value in flags.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    code = dadmm.run.main([*words, "--quiet"])
    assert code == 0, f"exit code {code}"
    found = false_statements(read_run(folder / "run"), pooled, best)
    return {f"summary: {name}": text for name, text in found.items()}
