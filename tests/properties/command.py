"""A case on the command line: its summary.json and what it prints."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import numpy as np

import dadmm.run
from tests.properties.cases import Case
from tests.properties.statements import SAME, Statements, below_rounding
from tests.support.pooled import EPS, Minimum, Pooled
from tests.support.runs import arrays_of, summary_of

OBJECTIVE = re.compile(
    r"objective (\S+?)(?:, at most (\S+) above the minimum"
    r"|; no point within (\S+) of the solution is lower by more than (\S+))?$"
)
ENTRY = re.compile(r"  \S+ +([-\d.e+]+)(?: \+- (\S+)| \(open\))?$")
AGREE = re.compile(r"nodes agree to (\S+) in every coefficient, relative to its size")


def accepts(case: Case) -> bool:
    """Return whether the command line runs a case; it refuses a single class."""
    if case.kind == "logistic":
        return len(np.unique(case.y)) > 1
    return case.kind != "multinomial"


def arguments(case: Case, folder: Path) -> list[str]:
    """Write the files of a case to a folder, and return its command line."""
    np.savez(folder / "data.npz", X=case.X, y=case.y)
    np.save(folder / "nodes.npy", case.nodes)
    case.topology.write(folder / "graph.edges")
    flags: dict[str, Any] = {
        "problem": case.kind, "data": folder / "data.npz",
        "labels": folder / "nodes.npy", "topology": folder / "graph.edges",
        "nodes": case.topology.n_nodes, "scheme": case.scheme,
        "tolerance": case.tolerance, "max-iter": case.max_iter, "out": folder / "run",
        "coordinates": case.coordinates,
    }  # fmt: skip
    if case.kind != "least_squares":
        flags["alpha"] = case.alpha
    flags |= {k.replace("_", "-"): v for k, v in case.sending.items()}
    flags |= {k.replace("_", "-"): v for k, v in case.settings.items()}
    free = flags.pop("fit-intercept")
    words = [word for name, value in flags.items() for word in (f"--{name}", value)]
    return [*map(str, words), "--fit-intercept" if free else "--no-fit-intercept"]


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
    if not lines[1].startswith((f"{ending}:", f"{ending} (")):
        false["report: status"] = f"{said.status} is printed as {lines[1]!r}"
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
        printed, bound = found.groups()
        if abs(float(printed) - said.solution[k]) > 1e-5 * abs(said.solution[k]):
            false["report: solution"] = f"{found[0]!r} of {said.solution[k]:.12g}"
        if bound and best.exists and best.unique and not best.unbounded[k]:
            off = abs(float(printed) - best.x[k])
            if off > float(bound) + best.errors[k] + 4 * EPS * abs(best.x[k]):
                false["report: bound"] = f"{found[0]!r}, minimum {best.x[k]:.12g}"
        if bound and best.exists and best.unbounded[k]:
            false["report: open"] = f"{found[0]!r} is not determined"
    (agreed,) = (found for line in lines if (found := AGREE.match(line)))
    if float(agreed[1]) < largest_distance(said) * (1 - 1e-12):
        false["report: agree"] = f"{agreed[0]!r}, in truth {largest_distance(said):.3g}"
    return false


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
