"""What figures and pages show of runs: labels, titles, and panels."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from dadmm.admm.clock import PHASES
from dadmm.admm.rule import CRITERIA
from dadmm.core.layout import Matrix, Vector
from dadmm.runs import settings
from dadmm.runs.stored import StoredRun
from dadmm.show import style
from dadmm.show.figure import (
    MOST_NODES,
    Axis,
    Bars,
    Bundle,
    Curve,
    Map,
    Panel,
    byte_unit,
    is_wide,
    quantiles,
    said,
    thinned,
)
from dadmm.show.graph import widest

ANGLES = {
    "angle_to_truth": "Angle to the true subspace (degrees)",
    "angle_to_centralised": "Angle to the centralised solution (degrees)",
}
DECIDE = settings.names("decides")
SEEDS = {"seed", "data_seed", "topology_seed", "drop_seed"}
OBJECTIVE = "Objective: distance to its final value"
CHANGE = "Relative change of the objective"
TITLES = {
    "primal": "Primal residual",
    "dual": "Dual residual",
    "disagreement": "Disagreement",
    "residual": "Residual",
}
# columns besides the objective that a stopping rule tests; "" for several rules
LENGTHS = {
    "optimality": ("disagreement", "residual"),
    "residuals": ("primal", "dual"),
    "objective": ("primal", "dual"),
    "": ("primal", "dual"),
}
SHARED = ("problem", "scheme", "topology", "nodes")  # settings of runs of any problem
ITERATION = Axis("Iteration")
LIMIT = (1.0, "limit of the stopping rule")
EVERY = 1 << 40  # points of a curve that is not thinned
FEW, MUCH = 0.7, 0.05  # factor of a lowered limit, and how far nodes differ in it
LONG = 50  # from so many iterations on, the axis of penalties is logarithmic


def labels(runs: Sequence[StoredRun], without: Collection[str] = ()) -> list[str]:
    """Return a label for each run: the settings that differ, or its folder.

    The settings ``without`` are left out, and then labels may be equal.
    """
    given = [asdict(run.config) for run in runs]
    telling = {*SHARED, *(name for run in runs for name in run.config.chosen())}
    differ = [
        name
        for name in given[0]
        if name in DECIDE & telling
        and name not in without
        and len({repr(own[name]) for own in given}) > 1
    ]
    if "problem" in differ:  # settings of a problem follow from it
        differ = [name for name in differ if name in SHARED]
    names = [", ".join(_word(name, chosen[name]) for name in differ
                       if chosen[name] is None or name in run.config.applied())
             for run, chosen in zip(runs, given, strict=True)]  # fmt: skip
    if without or len(set(names)) == len(names):
        return names if differ or without else [runs[0].folder.name]
    folders = [str(run.folder) for run in runs]
    return [f"{name} ({folder})" if name else folder
            for name, folder in zip(names, folders, strict=True)]  # fmt: skip


def looks(runs: Sequence[StoredRun]) -> list[style.Look]:
    """Return the look of each run; no two runs have the same."""
    return style.looks([run.config.scheme for run in runs], labels(runs, SEEDS))


def _word(name: str, value: Any) -> str:
    if name in ("scheme", "problem"):
        return str(value)
    if value is None:
        return f"default {name}"
    if name == "topology":
        return Path(value).stem
    value = f"{value:g}" if isinstance(value, float) else value
    return f"{value} nodes" if name == "nodes" else f"{name} = {value}"


def subject(runs: Sequence[StoredRun]) -> str:
    """Return what the runs have in common: problem, scheme, graph and nodes."""
    facts = [
        {
            "": run.config.traits.title or run.config.problem.replace("_", " "),
            "by ": run.config.scheme,
            "on ": Path(run.config.topology).stem,
        }
        for run in runs
    ]
    common = [f"{k}{v}" for k, v in facts[0].items() if all(s[k] == v for s in facts)]
    counts = {run.topology.n_nodes for run in runs}
    words = " ".join(common or ["runs of different problems"])
    if words.startswith(("by ", "on ")):
        words = f"different problems {words}"
    if len(counts) == 1:
        n = counts.pop()
        words += f", {n} node" + "s" * (n > 1)
    return words[0].upper() + words[1:]


def title(runs: Sequence[StoredRun]) -> str:
    """Return a title: what the runs have in common, and how a single run ended."""
    words = subject(runs)
    if len(runs) == 1:
        ending = runs[0].summary.get("status", "ended")
        count = runs[0].summary.get("iterations")
        count = len(runs[0].column("primal")) if count is None else count
        words += f", {ending} after {count} iterations"
    return words


def convergence(runs: Sequence[StoredRun], most: int = EVERY) -> list[Panel]:
    """Return the objective, the criteria of the stopping rule, and angles."""
    quantities = {OBJECTIVE: [_distance(run) for run in runs]} | criteria(runs)
    quantities |= {
        text: [run.column(name) for run in runs]
        for name, text in ANGLES.items()
        if all(name in run.history for run in runs)
    }
    limits = any(name.endswith("/ limit") for name in quantities)
    tolerances = {run.config.tolerance for run in runs}
    tolerance = tolerances.pop() if len(tolerances) == 1 and not limits else 0.0
    ends = endings(runs[0]) if len(runs) == 1 else {}
    found = []
    for name, values in quantities.items():
        level = LIMIT if name.endswith("/ limit") else None
        if name == CHANGE and tolerance > 0:
            level = (tolerance, f"tolerance {tolerance:g}")
        found.append(_over_time(name, values, runs, most, level, ends))
    return [panel for panel in found if panel.note != "unknown"]


def _over_time(
    name: str,
    values: Sequence[Matrix],
    runs: Sequence[StoredRun],
    most: int,
    level: tuple[float, str] | None = None,
    ends: dict[str, float] | None = None,
) -> Panel:
    """Return a quantity over the iterations, on a logarithmic axis."""
    every = np.concatenate([own.ravel() for own in values])
    axis = Axis(log=True, unit="°" if "degrees" in name else "")
    if not ((every > 0) & (every < np.inf)).any():
        note = "always zero" if (every == 0).any() else "unknown"
        return Panel(name, ITERATION, axis, note=note)
    curves = spreads(values, runs, most)
    return Panel(name, ITERATION, axis, curves, level, ends or {})


def spreads(
    values: Sequence[Matrix], runs: Sequence[StoredRun], most: int
) -> list[Curve]:
    """Return curves over the iterations: medians over the nodes, with their range.

    Numbers that are not positive are left out, unless all numbers are zero.
    """
    found: list[Curve] = []
    for own, run, name, look in zip(
        values, runs, labels(runs), looks(runs), strict=True
    ):
        rows = thinned(len(own), most)
        kept = np.where((own[rows] > 0) & (own[rows] < np.inf), own[rows], np.nan)
        low, middle, high = quantiles(kept, (0, 0.5, 1), 1)
        middle = np.where((own[rows] == 0).all(axis=1), 0.0, middle)
        x, has_band = run.iterations[rows], own.shape[1] > 1
        curve = Curve(name, x, middle, look, run=len(found))
        found.append(replace(curve, low=low, high=high) if has_band else curve)
    return found


def _distance(run: StoredRun) -> Matrix:
    """Return how far the objective, the sum over the nodes, is from its end, (T, 1)."""
    total = run.column("objective").sum(axis=1, keepdims=True)
    distance: Matrix = np.abs(total - total[-1:])
    return distance


def criteria(runs: Sequence[StoredRun]) -> dict[str, list[Matrix]]:
    """Return the criteria of the stopping rules, by title and run.

    A criterion is divided by its limit, if all runs have recorded it and have limits;
    else it is the quantity itself.
    """
    found: dict[str, list[Matrix]] = {}
    rules = {run.config.stopping for run in runs}
    rule = rules.pop() if len(rules) == 1 else ""
    known = all("objective_over_limit" in run.history for run in runs)
    if not known or any(run.config.tolerance == 0 for run in runs):
        found[CHANGE] = [_change(run.column("objective")) for run in runs]
        for name in LENGTHS["" if not known else rule]:
            found[TITLES[name]] = [run.column(name) for run in runs]
        return found
    found[f"{CHANGE} / limit"] = [_objective(run) for run in runs]
    for name, length in zip(CRITERIA[1:], LENGTHS[rule], strict=True):
        if rule == "objective":
            column, text = length, f"{TITLES[length]} (not a criterion)"
        else:
            column, text = f"{name}_over_limit", f"{TITLES[length]} / limit"
        found[text] = [run.column(column) for run in runs]
    return found


def _objective(run: StoredRun) -> Matrix:
    """Return the change of the objective, divided by its limit."""
    if run.config.stopping == "objective" and run.config.agreement == "global":
        total = run.column("objective").sum(axis=1, keepdims=True)
        return _change(total) / run.config.tolerance
    return run.column("objective_over_limit")


def _change(objective: Matrix) -> Matrix:
    """Return the relative change of the objective; NaN in the first iteration."""
    change = np.full_like(objective, np.nan)
    change[1:] = np.abs(np.diff(objective, axis=0))
    return change / np.maximum(np.abs(objective), 1.0)


def endings(run: StoredRun) -> dict[str, float]:
    """Return iterations to mark: a limit is lowered, all criteria met, the end."""
    found, end = lowered(run), int(run.iterations[-1])
    last = run.summary.get("stopping")
    if not last or not {"last_unmet", "in_a_row", "delay"} <= last.keys():
        return found  # a run of another version, or one that goes on
    if run.summary.get("reason") != "converged":
        return found | {f"ended: iteration {end}": end}
    met, wait = last["last_unmet"] + 1, last["in_a_row"] + last["delay"] - 1
    stopped = f"stopped: iteration {end}"
    if met + wait == end:
        stopped += f" ({last['in_a_row']} in a row, {last['delay']} until all know)"
    return found | {f"all criteria met: iteration {met}": met, stopped: end}


def lowered(run: StoredRun) -> dict[str, float]:
    """Return the iterations in which the limits of all nodes become lower.

    A run lowers its tolerance when its nodes meet a looser one. The limit of each node
    then falls by one factor.
    """
    names = {"disagreement", "disagreement_over_limit"}
    if not names <= run.history.keys() or run.config.stopping != "optimality":
        return {}
    with np.errstate(all="ignore"):
        limit = run.column("disagreement") / run.column("disagreement_over_limit")
        factor = limit[1:] / limit[:-1]
    alike = np.ptp(factor, axis=1) < MUCH * factor.min(axis=1)
    found = np.flatnonzero(alike & (factor.max(axis=1) < FEW))
    return {
        f"limit {1 / np.median(factor[k]):,.3g} times lower: from iteration {t}": t
        for k, t in zip(found, run.iterations[found + 1].tolist(), strict=True)
    }


def costs(runs: Sequence[StoredRun]) -> list[Panel]:
    """Return the largest criterion against bytes and against seconds."""
    quantities = criteria(runs)
    over = {k: v for k, v in quantities.items() if k.endswith("/ limit")}
    name = "Largest criterion / limit" if over else "Largest disagreement"
    used = over or {name: [run.column("disagreement") for run in runs]}
    panels, sizes = [], [cumulative(run) for run in runs]
    most = max(float(own["bytes"][-1]) for own in sizes)
    size, unit = byte_unit(most)
    for key, label, scale in (
        ("bytes", f"Sent by all nodes ({unit})", size),
        ("seconds", "Seconds of the loop, mean over the nodes", 1.0),
    ):
        curves = []
        for k, (text, look) in enumerate(zip(labels(runs), looks(runs), strict=True)):
            worst = np.array([values[k] for values in used.values()])
            worst = quantiles(worst.swapaxes(0, 1).reshape(worst.shape[1], -1), [1], 1)
            y = np.where((worst[0] > 0) & (worst[0] < np.inf), worst[0], np.nan)
            curves.append(Curve(text, sizes[k][key] / scale, y, look, run=k))
        axis = Axis(label, from_zero=True)
        level = LIMIT if over else None
        panels.append(Panel(name, axis, Axis(log=True), curves, level))
    return panels


def cumulative(run: StoredRun) -> dict[str, Vector]:
    """Return bytes and seconds from the start to the end of each iteration."""
    spent = sum(run.column(f"{phase}_seconds") for phase in PHASES)
    return {
        "bytes": run.column("bytes").sum(axis=1).cumsum(),
        "seconds": np.asarray(spent).mean(axis=1).cumsum(),
    }


def penalties(run: StoredRun, n_named: int = 4) -> Panel:
    """Return the penalty of every directed edge over the iterations."""
    names = {
        f"{i}→{j}": e
        for e in widest(run.eta, n_named)
        for i, j in [run.topology.edges[e].tolist()]
    }
    middle = Curve("median", run.iterations, np.median(run.eta, axis=1),
                   {"color": style.BLACK, "linewidth": 2}, steps=True)  # fmt: skip
    marks = [Bundle(run.iterations, run.eta, names), middle]
    return _of_penalties("Penalty of each directed edge", marks, [run])


def penalty_medians(runs: Sequence[StoredRun], most: int) -> Panel:
    """Return medians of the penalties of several runs, with their ranges."""
    curves = spreads([run.eta for run in runs], runs, most)
    found = [replace(curve, steps=True) for curve in curves]
    return _of_penalties("Penalty η of the edges", found, runs)


def _of_penalties(name: str, marks: Sequence[Any], runs: Sequence[StoredRun]) -> Panel:
    """Return a panel of penalties, with the axes that their ranges need."""
    longest = max(run.n_iterations for run in runs)
    every = np.concatenate([run.eta.ravel() for run in runs])
    given = (run.config.eta0 for run in runs)
    starts = {eta0 for eta0 in given if isinstance(eta0, float)}
    level = (starts.pop(), "eta0") if len(starts) == 1 else None
    x = Axis("Iteration", log=longest >= LONG)  # schemes adapt early
    return Panel(name, x, Axis("Penalty η", log=is_wide(every)), marks, level)


def edge_map(
    name: str, run: StoredRun, values: Vector | None, unit: str, ends: tuple[str, str]
) -> Panel:
    """Return a map of a number by directed edge, or a sentence if there is none."""
    x, y = (Axis(end) for end in ends)
    n, edges = run.topology.n_nodes, run.topology.edges
    if values is None or not len(values):
        return Panel(name, x, y, note="not known")
    if np.ptp(values) == 0:
        note = f"{values[0]:,.6g} {unit} on each of {len(values):,} directed edges"
        return Panel(name, x, y, note=note)
    if n > MOST_NODES:
        least, middle, largest = (f"{q:,.4g}" for q in np.quantile(values, (0, 0.5, 1)))
        note = f"{least} to {largest} {unit} by directed edge, median {middle}"
        return Panel(name, x, y, note=note)
    matrix = np.full((n, n), np.nan)
    matrix[tuple(edges.T)] = values
    return Panel(name, x, y, [Map(matrix, unit)])


def sent(run: StoredRun) -> Panel:
    """Return the bytes by directed edge."""
    values = run.edge_column("bytes").sum(axis=0) if run.by_edge else None
    if "edge_bytes" in run.arrays:
        values = run.array("edge_bytes", (len(run.topology.edges),)).astype(float)
    ends = ("Receiver", "Sender")
    return edge_map("Bytes by directed edge", run, values, "bytes", ends)


def phases(run: StoredRun) -> Panel:
    """Return the seconds of each node, by phase."""
    spent = {phase: run.column(f"{phase}_seconds").sum(axis=0) for phase in PHASES}
    total = np.sum(list(spent.values()), axis=0)
    shown = np.sort(np.argsort(-total, kind="stable")[:MOST_NODES])
    few = said(len(shown), len(total), "nodes, with the longest times,")
    name = f"Time by phase. {few}".rstrip(". ")
    names = tuple(map(str, shown.tolist()))
    bars = Bars({phase: values[shown] for phase, values in spent.items()})
    return Panel(name, Axis("Node", names=names), Axis("Seconds"), [bars])


def by_run(runs: Sequence[StoredRun]) -> list[Panel]:
    """Return bytes and seconds of several runs."""
    names = Axis(names=tuple(labels(runs)))
    total = [float(run.column("bytes").sum()) for run in runs]
    size, unit = byte_unit(max(total))
    spent = {
        phase: np.array([run.column(f"{phase}_seconds").sum(axis=0).mean()
                         for run in runs])
        for phase in PHASES
    }  # fmt: skip
    return [
        Panel("Sent by all nodes in all iterations", names, Axis(unit),
              [Bars({"sent": np.array(total) / size})]),
        Panel("Time by phase, mean over the nodes", names, Axis("Seconds"),
              [Bars(spent)]),
    ]  # fmt: skip


def structure_frame(run: StoredRun) -> str:
    """Return whether lengths and angles of a structure are known."""
    metric = bool(run.array("metric", ()))
    return "metric" if metric else "affine: too few different views"
