"""What a run of PPCA states about its result, and which of it is false."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.properties.ppca_cases import PPCACase
from tests.properties.statements import STATUSES
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
WITHIN = re.compile(
    r"every node's subspace is within (\S+) degrees of the principal su"
)
NO_BOUND = "no bound on the angle to the subspace of all rows: "
DIFFER = re.compile(r"components \d+ and \d+ differ by (\S+)% in variance")


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
    np.save(folder / "nodes.npy", case.nodes)
    case.topology.write(folder / "graph.edges")
    flags: dict[str, Any] = {
        "problem": "ppca", "data": folder / "data.npy", "labels": folder / "nodes.npy",
        "topology": folder / "graph.edges", "nodes": case.topology.n_nodes,
        "n-components": case.M, "scheme": case.scheme, "tolerance": case.tolerance,
        "max-iter": case.max_iter, "out": folder / "run", "seed": case.seed,
    }  # fmt: skip
    flags |= {"init": case.init} if case.init else {}
    flags |= {k.replace("_", "-"): v for k, v in case.sending.items()}
    words = [word for name, value in flags.items() for word in (f"--{name}", value)]
    return [*map(str, words), "--zero-mean" if case.zero_mean else "--no-zero-mean"]


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
    without = [line for line in lines if line.startswith(NO_BOUND)]
    if len(within) + len(without) != 1:
        false["report: bound"] = "the angle is not in the report, or twice"
    for match in within:
        stated = summary["subspace"]["within_degrees"]
        if float(match[1]) < max(found.angles.max(), stated):
            false["report: angle"] = f"{match[0]!r}, in truth {found.angles.max()}"
    small = found.best.gap(case.M)
    told = any(DIFFER.match(line) for line in lines)
    if summary["start"]["init"] == "merged" and not told and small < 0.5 * LITTLE:
        false["report: gap"] = f"a gap of {small:.3g} is not told"
    return false
