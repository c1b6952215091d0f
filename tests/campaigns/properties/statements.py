"""What a run states about its result, and which of these statements are false."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import dadmm.run
from tests.campaigns.properties.cases import Case
from tests.support.pooled import EPS, LONG, Minimum, Pooled
from tests.support.runs import arrays_of, summary_of

STATUSES = ("certified", "stopped", "stationary", "not converged")
LEAST = 1e-8  # of the objective: the smallest gap that may be stated
SAME = 1e-8  # relative difference of two evaluations of an objective,
PART = 0.01  # or this part of the stated gap
OBJECTIVE = re.compile(
    r"  objective +(\S+?)(?:, at most (\S+) above the minimum"
    r"|; no point within (\S+) of the solution is lower by more than (\S+))?$"
)
ENTRY = re.compile(r" {15}\S+ +([-\d.e+]+)(?: \((open)\))?(?: +([\d.e+-]+))?$")
ERROR = re.compile(
    r"  error +of the computation: "
    r"(?:below (\S+) % of every (\S+)|at most (\S+) in any)"
)
AGREE = re.compile(r"nodes differ by at most (\S+) of the size of any coefficient")


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


def accepts(case: Case) -> bool:
    """Return whether the command line runs a case; it refuses a single class."""
    if case.kind == "logistic":
        return len(np.unique(case.y)) > 1
    return case.kind != "multinomial"


def command_line(
    case: Any, problem: str, data: Path, flags: dict[str, Any]
) -> list[str]:
    """Write the nodes and the graph of a case beside its data; return its flags."""
    folder = data.parent
    np.save(folder / "nodes.npy", case.nodes)
    case.topology.write(folder / "graph.edges")
    flags = {
        "problem": problem, "data": data, "labels": folder / "nodes.npy",
        "topology": folder / "graph.edges", "nodes": case.topology.n_nodes,
        "scheme": case.scheme, "tolerance": case.tolerance, "max-iter": case.max_iter,
        "coordinates": case.coordinates, "out": folder / "run", **flags, **case.sending,
    }  # fmt: skip
    named = [(f"--{name.replace('_', '-')}", value) for name, value in flags.items()]
    return [str(word) for pair in named for word in pair]


def arguments(case: Case, folder: Path) -> list[str]:
    """Write the files of a case to a folder, and return its command line."""
    np.savez(folder / "data.npz", X=case.X, y=case.y)
    flags = case.settings
    free = flags.pop("fit_intercept")
    if case.kind != "least_squares":
        flags["alpha"] = case.alpha
    words = command_line(case, case.kind, folder / "data.npz", flags)
    return [*words, "--fit-intercept" if free else "--no-fit-intercept"]


def run(flags: list[str]) -> str:
    """Run a case in this process, and return what is printed."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = dadmm.run.main(flags)
    assert code == 0, f"exit code {code}"
    return out.getvalue()


def of_run(folder: Path) -> Statements:
    """Return the statements in summary.json of a run."""
    summary, arrays = summary_of(folder), arrays_of(folder)
    parts = [arrays["coef"]]
    if "intercept" in arrays:
        parts.append(arrays["intercept"][:, None])
    theta, found = np.hstack(parts), summary["certificate"]
    names, solution = zip(*summary["coefficients"].items(), strict=True)
    gap = bounds = n_open = None
    if found is not None:
        gap, n_open = found["gap"], found["open_directions"]
        listed = [found["coefficients"][name] for name in names]
        bounds = np.array([np.inf if entry is None else entry for entry in listed])
    size = np.abs(theta).max(axis=0)
    if bounds is not None:
        size = np.maximum(size, np.where(np.isfinite(bounds), bounds, 0.0))
    return Statements(
        summary["status"], summary["converged"], theta, np.array(solution),
        summary["objective"], gap, bounds, summary["consensus"]["error"] * size,
        summary["reason"], n_open,
    )  # fmt: skip


def false_lines(
    text: str, said: Statements, pooled: Pooled, best: Minimum
) -> dict[str, str]:
    """Return the false lines of a report, by name; ``said`` is from its summary."""
    false: dict[str, str] = {}
    lines = text.splitlines()
    ending = "NOT converged" if said.status == "not converged" else said.status
    if not lines[0].startswith((f"{ending}:", f"{ending} after")):
        false["report: status"] = f"{said.status} is printed as {lines[0]!r}"
    value = pooled.objective(said.solution)
    least = pooled.rounding(said.solution)
    zero = below_rounding(pooled, said.solution)
    slack = least + best.gap + zero + SAME * abs(value)
    objectives = [found for line in lines if (found := OBJECTIVE.match(line))]
    for found in objectives:
        printed, gap, within, lower = found.groups()
        if abs(float(printed) - value) > 1e-5 * abs(value) + least + zero:
            false["report: objective"] = f"{found[0]!r}, in truth {value:.12g}"
        if not best.exists:
            continue
        if gap and not -slack <= float(printed) - best.value + float(gap) * 0.02:
            false["report: below"] = f"{found[0]!r}, minimum {best.value:.12g}"
        if gap and not float(printed) - best.value <= float(gap) + least + best.gap:
            false["report: gap"] = f"{found[0]!r}, minimum {best.value:.12g}"
        if within:
            away = best.x - said.solution
            share = min(1.0, float(within) / max(np.sqrt(away @ away), 1e-300))
            there = pooled.objective(said.solution + share * away)
            if value - there > float(lower) + least:
                false["report: within"] = f"{found[0]!r}, there is {there:.12g}"
    if said.status == "certified" and not (objectives and objectives[0][2]):
        false["report: certificate"] = "certified, without a gap"
    for k, found in enumerate(found for line in lines if (found := ENTRY.match(line))):
        printed, is_open, error = found.groups()
        bound = None if is_open else _bound(lines, float(said.solution[k]), error)
        if abs(float(printed) - said.solution[k]) > 1e-5 * abs(said.solution[k]):
            false["report: solution"] = f"{found[0]!r} of {said.solution[k]:.12g}"
        if bound and best.exists and best.unique and not best.unbounded[k]:
            off = abs(said.solution[k] - best.x[k])
            if off > bound + best.errors[k] + 4 * EPS * abs(best.x[k]):
                false["report: bound"] = f"{found[0]!r}, minimum {best.x[k]:.12g}"
        if bound and best.exists and best.unbounded[k]:
            false["report: open"] = f"{found[0]!r} is not determined"
    (agreed,) = (found for line in lines if (found := AGREE.search(line)))
    if float(agreed[1]) < largest_distance(said) * (1 - 1e-12):
        false["report: agree"] = f"{agreed[0]!r}, in truth {largest_distance(said):.3g}"
    return false


def _bound(lines: list[str], value: float, error: str | None) -> float | None:
    """Return the bound that the line on errors states for a coefficient, if any.

    ``error`` is the standard error as it is printed, in three digits.
    """
    found = next(filter(None, map(ERROR.match, lines)), None)
    if found is None:
        return None
    percent, what, most = found.groups()
    if most:
        return float(most)
    size = abs(value) if what == "coefficient," else 1.01 * float(error or "nan")
    return float(percent) / 100 * size


def largest_distance(said: Statements) -> float:
    """Return the largest distance of a node from the solution, in any coefficient.

    It is relative to the largest value of any node, or to the bound if it is larger.
    """
    size = np.abs(said.theta).max(axis=0)
    if said.coefficients is not None:
        known = np.isfinite(said.coefficients)
        size = np.maximum(size, np.where(known, said.coefficients, 0.0))
    apart = np.abs(said.theta - said.solution).max(axis=0)
    return float((apart / np.where(size > 0, size, 1.0)).max())
