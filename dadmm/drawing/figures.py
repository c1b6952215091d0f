"""The figures of ``python -m dadmm.plot``, from one run or several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from dadmm.admm.clock import PHASES
from dadmm.admm.rule import CRITERIA
from dadmm.core.errors import ConfigError
from dadmm.core.layout import Matrix
from dadmm.drawing.graph import Network, moments, network, places
from dadmm.drawing.paper import points3d
from dadmm.drawing.runs import Load, Penalties, convergence, penalties, traffic
from dadmm.drawing.style import CYCLE, SCHEME_STYLE
from dadmm.runs import settings
from dadmm.runs.stored import StoredRun

ANGLES = {
    "angle_to_truth": "Angle to the true subspace (degrees)",
    "angle_to_centralised": "Angle to the centralised solution (degrees)",
}
DECIDE = settings.names("decides")
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


def labels(runs: Sequence[StoredRun]) -> list[str]:
    """Return a label for each run: the settings that differ, or its folder."""
    given = [asdict(run.config) for run in runs]
    telling = {*SHARED, *(name for run in runs for name in run.config.chosen())}
    differ = [
        name
        for name in given[0]
        if name in DECIDE & telling and len({repr(own[name]) for own in given}) > 1
    ]
    if "problem" in differ:  # settings of a problem follow from it
        differ = [name for name in differ if name in SHARED]
    names = [", ".join(_word(name, chosen[name]) for name in differ
                       if chosen[name] is None or name in run.config.applied())
             for run, chosen in zip(runs, given, strict=True)]  # fmt: skip
    if len(set(names)) == len(names):
        return names if differ else [runs[0].folder.name]
    folders = [str(run.folder) for run in runs]
    return [f"{name} ({folder})" if name else folder
            for name, folder in zip(names, folders, strict=True)]  # fmt: skip


def _plain(text: str) -> str:
    """Return a text in which matplotlib finds no formula."""
    return text.replace("$", r"\$")


def _word(name: str, value: Any) -> str:
    if name in ("scheme", "problem"):
        return str(value)
    if value is None:
        return f"default {name}"
    if name == "topology":
        return Path(value).stem
    value = f"{value:g}" if isinstance(value, float) else value
    return f"{value} nodes" if name == "nodes" else f"{name} = {value}"


def title(runs: Sequence[StoredRun]) -> str:
    """Return a title: what the runs have in common, and how a single run ended."""
    said = [
        {
            "": run.config.traits.title or run.config.problem.replace("_", " "),
            "by ": run.config.scheme,
            "on ": Path(run.config.topology).stem,
        }
        for run in runs
    ]
    common = [f"{k}{v}" for k, v in said[0].items() if all(s[k] == v for s in said)]
    counts = {run.topology.n_nodes for run in runs}
    words = " ".join(common or ["runs of different problems"])
    if words.startswith(("by ", "on ")):
        words = f"different problems {words}"
    if len(counts) == 1:
        n = counts.pop()
        words += f", {n} node" + "s" * (n > 1)
    if len(runs) == 1:
        ending = runs[0].summary.get("status", "ended")
        count = runs[0].summary.get("iterations")
        count = len(runs[0].column("primal")) if count is None else count
        words += f", {ending} after {count} iterations"
    return words[0].upper() + words[1:]


def draw_convergence(runs: Sequence[StoredRun], at: Sequence[int]) -> Figure:
    """Draw objective, residuals and angles."""
    names = [*map(_plain, labels(runs))]
    panels, levels = criteria(runs)
    panels |= {text: [run.column(name) for run in runs] for name, text in ANGLES.items()
               if all(name in run.history for run in runs)}  # fmt: skip
    return convergence(
        {text: dict(zip(names, each, strict=True)) for text, each in panels.items()},
        dict(zip(names, looks(runs), strict=True)),
        _plain(title(runs)),
        levels,
        stops(runs[0]) if len(runs) == 1 else {},
    )


def looks(runs: Sequence[StoredRun]) -> list[dict[str, Any]]:
    """Return the style of each run: its scheme's style, if no two are the same."""
    schemes = [run.config.scheme for run in runs]
    own = len(set(schemes)) == len(schemes)
    return [
        SCHEME_STYLE[scheme] if own else CYCLE[k % len(CYCLE)]
        for k, scheme in enumerate(schemes)
    ]


def criteria(
    runs: Sequence[StoredRun],
) -> tuple[dict[str, list[Matrix]], dict[str, tuple[float, str]]]:
    """Return the criteria of the stopping rules by panel, and the levels to mark.

    A criterion is shown divided by its limit, if all runs have recorded it and have
    limits; else the quantity itself is shown.
    """
    panels: dict[str, list[Matrix]] = {}
    rules = {run.config.stopping for run in runs}
    rule = rules.pop() if len(rules) == 1 else ""
    known = all("objective_over_limit" in run.history for run in runs)
    if not known or any(run.config.tolerance == 0 for run in runs):
        panels[CHANGE] = [_change(run.column("objective")) for run in runs]
        for name in LENGTHS["" if not known else rule]:
            panels[TITLES[name]] = [run.column(name) for run in runs]
        tolerances = {run.config.tolerance for run in runs}
        level = tolerances.pop() if len(tolerances) == 1 else 0.0
        return panels, {CHANGE: (level, f"tolerance {level:g}")} if level > 0 else {}
    panels[f"{CHANGE} / limit"] = [_objective(run) for run in runs]
    for name, length in zip(CRITERIA[1:], LENGTHS[rule], strict=True):
        if rule == "objective":
            panels[f"{TITLES[length]} (not a criterion)"] = [run.column(length)
                                                        for run in runs]  # fmt: skip
        else:
            column = f"{name}_over_limit"
            panels[f"{TITLES[length]} / limit"] = [run.column(column) for run in runs]
    limited = [text for text in panels if text.endswith("/ limit")]
    return panels, dict.fromkeys(limited, (1.0, "limit of the stopping rule"))


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


def stops(run: StoredRun) -> dict[str, int]:
    """Return the iterations to mark by label: all criteria met, and the end."""
    found, end = run.summary.get("stopping"), len(run.column("objective"))
    if not found or not {"last_unmet", "in_a_row", "delay"} <= found.keys():
        return {}  # a run of another version
    if run.summary.get("reason") != "converged":
        return {f"ended: iteration {end}": end}
    met, wait = found["last_unmet"] + 1, found["in_a_row"] + found["delay"] - 1
    stopped = f"stopped: iteration {end}"
    if met + wait == end:
        stopped += f" ({found['in_a_row']} in a row, {found['delay']} until all know)"
    return {f"all criteria met: iteration {met}": met, stopped: end}


def draw_eta(runs: Sequence[StoredRun], at: Sequence[int]) -> Figure:
    """Draw the penalty of each directed edge over time."""
    found = [Penalties(run.topology.edges, run.eta, reference(run), has_eta0(run))
             for run in runs]  # fmt: skip
    named = dict(zip(map(_plain, labels(runs)), found, strict=True))
    return penalties(named, f"Penalty of each directed edge\n{_plain(title(runs))}")


def draw_network(runs: Sequence[StoredRun], at: Sequence[int]) -> Figure:
    """Draw the graph with its penalties at some iterations."""
    names = map(_plain, labels(runs))
    return network(
        {name: _network(run, at) for name, run in zip(names, runs, strict=True)},
        f"Effective network\n{_plain(title(runs))}",
    )


def _network(run: StoredRun, at: Sequence[int]) -> Any:
    """Return the graph of a run: each edge once, with the mean of its two ends."""
    graph, eta = run.topology, run.eta
    once = graph.edges[:, 0] < graph.edges[:, 1]
    mean = (0.5 * (eta + eta[:, graph.reverse]))[:, once]
    for t in at:
        if not 1 <= t <= len(mean):
            raise ConfigError(
                f"the run in {run.folder} has iterations 1 to {len(mean)}, not {t}; "
                "choose others with --at"
            )
    frames = {t: mean[t - 1] for t in at or moments(mean)}
    return Network(positions(run), graph.edges[once], frames, reference(run))


def positions(run: StoredRun) -> Matrix:
    """Return where to draw the nodes of a run, (n_nodes, 2)."""
    if run.config.topology == "random-geometric":  # its nodes have positions
        rng = np.random.default_rng(run.config.topology_seed)
        return rng.random((2, run.topology.n_nodes)).T
    return places(run.topology)


def has_eta0(run: StoredRun) -> bool:
    return isinstance(run.config.eta0, float)


def reference(run: StoredRun) -> float:
    """Return the reference penalty: eta0, or the median of the first iteration."""
    eta0 = run.config.eta0
    return eta0 if isinstance(eta0, float) else float(f"{np.median(run.eta[0]):.1g}")


def draw_traffic(runs: Sequence[StoredRun], at: Sequence[int]) -> Figure:
    """Draw bytes by edge, and seconds by phase."""
    loads = [
        Load(
            bytes_sent(run),
            {phase: run.column(f"{phase}_seconds").sum(axis=0) for phase in PHASES},
        )
        for run in runs
    ]
    named = dict(zip(map(_plain, labels(runs)), loads, strict=True))
    return traffic(named, f"Traffic and time\n{_plain(title(runs))}")


def bytes_sent(run: StoredRun) -> Matrix | None:
    """Return the bytes from node i to node j, if the run has recorded them."""
    if "edge_bytes" not in run.arrays:
        return None
    sent = np.full((run.topology.n_nodes,) * 2, np.nan)
    edges = run.topology.edges
    sent[tuple(edges.T)] = run.array("edge_bytes", (len(edges),))
    return sent


def draw_structure(runs: Sequence[StoredRun], at: Sequence[int]) -> Figure:
    """Draw the points of structure from motion."""
    if len(runs) > 1:
        raise ConfigError("structures are drawn one at a time; give one run")
    run = runs[0]
    if "structure" not in run.arrays:
        raise ConfigError(
            f"the run in {run.folder} has no structure; use one with --problem sfm"
        )
    metric = run.array("metric", ())
    frame = "metric" if metric else "affine: too few different views"
    structure = run.array("structure", (None, 3))
    return points3d(structure, f"Structure ({frame})")


DRAW = {
    "convergence": draw_convergence,
    "eta": draw_eta,
    "network": draw_network,
    "traffic": draw_traffic,
    "structure": draw_structure,
}
