"""What figures and pages show of runs: labels, titles, panels, and drawn graphs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from dadmm.admm.rule import CRITERIA
from dadmm.admm.state import PHASES
from dadmm.core.errors import ConfigError
from dadmm.core.layout import Matrix, Vector
from dadmm.graphs.topology import Topology
from dadmm.runs import settings
from dadmm.runs.stored import StoredRun
from dadmm.runs.summary import ANGLES
from dadmm.show import figure, style
from dadmm.show.figure import Axis, Bars, Curve, Graph, Map, Panel, Points

DECIDE = settings.names("decides")
SEEDS = {name for name in DECIDE if name.endswith("seed")}
OBJECTIVE = "Objective: distance to its final value"
TITLES = {"primal": "Primal residual", "dual": "Dual residual",
          "disagreement": "Disagreement", "residual": "Residual"}  # fmt: skip
SHARED = ("problem", "scheme", "topology", "nodes")  # settings of runs of any problem
ITERATION = Axis("Iteration")
LIMIT = (1.0, "limit of the stopping rule")
EVERY = 1 << 40  # points of a curve that is not thinned
FEW, MUCH = 0.7, 0.05  # factor of a lowered limit, and how far nodes differ in it
LONG = 50  # from so many iterations on, the axis of penalties is logarithmic
MOST_EXACT = 300  # nodes of a graph whose layout is by Kamada and Kawai
MOST_DRAWN = 3000, 200_000  # nodes and edges; a larger graph is drawn as a circle


def labels(runs: Sequence[StoredRun], without: Collection[str] = ()) -> list[str]:
    """Return a label for each run: the settings that differ, or its folder.

    The settings ``without`` are left out, and then labels may be equal.
    """
    given = [asdict(run.config) for run in runs]
    telling = {*SHARED, *(name for run in runs for name in run.config.chosen())}
    telling = (telling & DECIDE) - set(without)
    values = {k: {repr(own[k]) for own in given} for k in given[0] if k in telling}
    differ = [name for name, seen in values.items() if len(seen) > 1]
    if "problem" in differ:  # settings of a problem follow from it
        differ = [name for name in differ if name in SHARED]
    names = []
    for run, own in zip(runs, given, strict=True):
        known = [k for k in differ if own[k] is None or k in run.config.applied()]
        names.append(", ".join(_word(name, own[name]) for name in known))
    if without or len(set(names)) == len(names) > 1:
        return names
    if len(runs) == 1:
        return [runs[0].folder.name]
    folders = [str(run.folder) for run in runs]
    pairs = zip(names, folders, strict=True)
    return [f"{name} ({folder})" if name else folder for name, folder in pairs]


def named(
    runs: Sequence[StoredRun], among: Sequence[StoredRun] = ()
) -> list[tuple[str, style.Look]]:
    """Return the label and the look of each run; no two looks are equal."""
    every = among or runs
    looks = style.looks([run.config.scheme for run in every], labels(every, SEEDS))
    known = list(zip(labels(every), looks, strict=True))
    return [known[every.index(run)] for run in runs]


def _word(name: str, value: object) -> str:
    if value is None:
        return f"default {name}"
    if name in ("scheme", "problem"):
        return str(value)
    if name == "topology":
        return Path(str(value)).stem
    value = f"{value:g}" if isinstance(value, float) else value
    return f"{value} nodes" if name == "nodes" else f"{name} = {value}"


def subject(runs: Sequence[StoredRun]) -> str:
    """Return what the runs have in common: problem, scheme, graph and nodes."""
    facts = []
    for run in runs:
        config, n = run.config, run.topology.n_nodes
        problem = config.traits.title or config.problem.replace("_", " ")
        by, on = f" by {config.scheme}", f" on {Path(config.topology).stem}"
        facts.append((problem, by, on, f", {n} node" + "s" * (n > 1)))
    alike = (set(own) for own in zip(*facts, strict=True))
    first, *more = (own.pop() if len(own) == 1 else "" for own in alike)
    words = "".join([first or "different problems", *more])
    return words[0].upper() + words[1:]


def title(runs: Sequence[StoredRun]) -> str:
    """Return a title: what the runs have in common, and how a single run ended."""
    words = subject(runs)
    if len(runs) == 1:
        ending = runs[0].summary.get("status", "ended")
        count = runs[0].summary.get("iterations", runs[0].n_iterations)
        words += f", {ending} after {count} iterations"
    return words


def convergence(
    runs: Sequence[StoredRun], most: int = EVERY, among: Sequence[StoredRun] = ()
) -> list[Panel]:
    """Return the objective, the criteria of the stopping rule, and angles.

    Curves have up to ``most`` points, and the names and looks of the runs ``among``
    others, by default alone.
    """
    totals = [run.column("objective").sum(axis=1, keepdims=True) for run in runs]
    quantities = {OBJECTIVE: [np.abs(own - own[-1:]) for own in totals]}
    quantities |= criteria(runs)
    quantities |= {
        f"Angle to {what} (degrees)": [run.column(name) for run in runs]
        for name, what in ANGLES.items()
        if all(name in run.history for run in runs)
    }
    ends = endings(runs[0]) if len(runs) == 1 else {}
    found = []
    for name, values in quantities.items():
        every = np.concatenate([own.ravel() for own in values])
        if ((every > 0) & (every < np.inf)).any():
            axis = Axis(log=True, unit="°" if "degrees" in name else "")
            level = LIMIT if name.endswith("/ limit") else None
            curves = spreads(values, runs, most, among)
            found.append(Panel(name, ITERATION, axis, curves, level, ends))
        elif (every == 0).any():
            found.append(Panel(name, note="always zero"))
    return found


def spreads(
    values: Sequence[Matrix],
    runs: Sequence[StoredRun],
    most: int,
    among: Sequence[StoredRun] = (),
    steps: bool = False,
) -> list[Curve]:
    """Return curves over the iterations: medians over the nodes, with their range.

    Numbers that are not positive are left out, unless all numbers are zero.
    """
    found: list[Curve] = []
    each = zip(values, runs, named(runs, among), strict=True)
    for k, (own, run, (name, look)) in enumerate(each):
        rows = figure.thinned(len(own), most)
        own, t = own[rows], run.iterations[rows]
        kept = np.where((own > 0) & (own < np.inf), own, np.nan)
        low, middle, high = figure.quantiles(kept, (0, 0.5, 1))
        middle = np.where((own == 0).all(axis=1), 0.0, middle)
        band = {"low": low, "high": high} if own.shape[1] > 1 else {}
        found.append(Curve(name, t, middle, look, steps=steps, run=k, **band))
    return found


def criteria(runs: Sequence[StoredRun]) -> dict[str, list[Matrix]]:
    """Return criteria of the stopping rules, over their limits if all runs have any."""
    rules = {run.config.stopping for run in runs}
    lengths = ("primal", "dual")
    if rules == {"optimality"}:
        lengths = ("disagreement", "residual")
    if any(run.config.tolerance == 0 for run in runs):
        return {TITLES[name]: [run.column(name) for run in runs] for name in lengths}
    changes = "Relative change of the objective / limit"
    found = {changes: [_objective(run) for run in runs]}
    for name, length in zip(CRITERIA[1:], lengths, strict=True):
        column, text = f"{name}_over_limit", f"{TITLES[length]} / limit"
        if rules == {"objective"}:
            column, text = length, f"{TITLES[length]} (not a criterion)"
        found[text] = [run.column(column) for run in runs]
    return found


def _objective(run: StoredRun) -> Matrix:
    if run.config.stopping != "objective" or run.config.agreement != "global":
        return run.column("objective_over_limit")
    total = run.column("objective").sum(axis=1, keepdims=True)
    change = np.abs(np.diff(total, axis=0, prepend=np.nan))
    over: Matrix = change / np.maximum(np.abs(total), 1.0) / run.config.tolerance
    return over


def endings(run: StoredRun) -> dict[str, float]:
    """Return iterations to mark: a limit is lowered, all criteria met, the end."""
    found, end = lowered(run), int(run.iterations[-1])
    last = run.summary.get("stopping")
    if not last or not {"last_unmet", "in_a_row", "delay"} <= last.keys():
        return found  # of a run that goes on, or whose summary is damaged
    if run.summary.get("reason") != "converged":
        return found | {f"ended: iteration {end}": end}
    met, wait = last["last_unmet"] + 1, last["in_a_row"] + last["delay"] - 1
    stopped = f"stopped: iteration {end}"
    if met + wait == end:
        stopped += f" (met {last['in_a_row']} times, all know {last['delay']} later)"
    return found | {f"all criteria met: iteration {met}": met, stopped: end}


def lowered(run: StoredRun) -> dict[str, float]:
    """Return the iterations in which the limits of all nodes become lower.

    A run lowers its tolerance when its nodes meet a looser one. The limit of each node
    then falls by one factor.
    """
    if run.config.stopping != "optimality":
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
    over = [v for name, v in criteria(runs).items() if name.endswith("/ limit")]
    what = "Largest criterion / limit" if over else "Largest disagreement"
    used = over or [[run.column("disagreement") for run in runs]]
    sizes = [cumulative(run) for run in runs]
    size, unit = figure.byte_unit(max(float(own["bytes"][-1]) for own in sizes))
    worst = [np.fmax.reduce(np.hstack(own), axis=1) for own in zip(*used, strict=True)]
    drawn = [np.where((own > 0) & (own < np.inf), own, np.nan) for own in worst]
    each = [*zip(named(runs), sizes, drawn, strict=True)]
    panels = []
    for key, label, scale in (
        ("bytes", f"Sent by all nodes ({unit})", size),
        ("seconds", "Seconds of the loop, mean over the nodes", 1.0),
    ):
        curves = [Curve(name, x[key] / scale, y, look) for (name, look), x, y in each]
        axis, level = Axis(label, from_zero=True), LIMIT if over else None
        panels.append(Panel(what, axis, Axis(log=True), curves, level))
    return panels


def cumulative(run: StoredRun) -> dict[str, Vector]:
    """Return bytes and seconds from the start to the end of each iteration."""
    return {
        "bytes": run.column("bytes").sum(axis=1).cumsum(),
        "seconds": np.sum([*seconds(run).values()], axis=0).mean(axis=1).cumsum(),
    }


def seconds(run: StoredRun) -> dict[str, Matrix]:
    """Return the seconds of each phase, (iterations, n_nodes)."""
    return {phase: run.column(f"{phase}_seconds") for phase in PHASES}


def penalties(
    runs: Sequence[StoredRun], most: int = EVERY, among: Sequence[StoredRun] = ()
) -> Panel:
    """Return medians of the penalties over the iterations, with their ranges."""
    curves = spreads([run.eta for run in runs], runs, most, among, steps=True)
    curves = [replace(curve, band="smallest to largest edge") for curve in curves]
    every = np.concatenate([run.eta.ravel() for run in runs])
    longest = max(run.n_iterations for run in runs)
    x = Axis("Iteration", log=longest >= LONG)  # schemes adapt early
    y = Axis("Penalty η", log=bool(every.max() > figure.WIDE * every.min()))
    starts = {run.config.eta0 for run in runs}
    eta0 = starts.pop() if len(starts) == 1 else None
    level = (eta0, "eta0") if isinstance(eta0, float) else None
    return Panel("Penalty η of the edges", x, y, curves, level)


def each_penalty(run: StoredRun, n_named: int = 4) -> Panel:
    """Return the penalty of every directed edge; those that change most have names."""
    panel, t = penalties([run]), run.iterations
    grey = {"color": "0.5", "linewidth": 0.5, "alpha": min(0.8, 50 / run.eta.shape[1])}
    curves = [Curve("one directed edge", t, run.eta, grey, steps=True)]
    _, distinct = np.unique(run.eta, axis=1, return_index=True)  # of equal edges one
    spread = (run.eta.max(axis=0) / run.eta.min(axis=0))[distinct]
    order = np.argsort(-spread, kind="stable")[:n_named]
    widest = distinct[order[spread[order] > 1]].tolist()
    for look, e in zip(style.CYCLE, widest, strict=False):
        i, j = run.topology.edges[e]
        thin = look | {"marker": "", "linewidth": 1.0}
        curves.append(Curve(f"{i}→{j}", t, run.eta[:, e], thin, steps=True))
    thick = {"color": style.BLACK, "linewidth": 2}
    for median in panel.curves:
        curves.append(replace(median, name="median", look=thick, low=None))
    return replace(panel, marks=curves)


def networks(runs: Sequence[StoredRun], at: Sequence[int] = ()) -> list[list[Panel]]:
    """Return the graph of each run at some iterations, with the penalties."""
    frames: list[dict[int, Vector]] = []
    for run in runs:
        mean, known = pair_means(run), run.iterations.tolist()
        if unknown := [t for t in at if t not in known]:
            raise ConfigError(
                f"the run in {run.folder} has rows of {len(known)} iterations up to "
                f"{known[-1]}, and none of {unknown[0]}; choose others with --at"
            )
        rows = [known.index(t) for t in at] or [k - 1 for k in moments(mean)]
        frames.append({known[k]: mean[k] for k in rows})
    every = np.concatenate([values for own in frames for values in own.values()])
    scale = float(every.min()), float(every.max())
    found = []
    for run, name, own in zip(runs, labels(runs), frames, strict=True):
        drawn = positions(run), run.topology.edges[run.pairs]
        row: list[Panel] = []
        for t, values in own.items():
            least, most = (f"{value:.3g}" for value in (values.min(), values.max()))
            words = f"η = {least}" if least == most else f"η {least} to {most}"
            first = f"{name}\n" if len(runs) > 1 and not row else ""
            mark = Graph(*drawn, values, scale, run.topology.names)
            row.append(Panel(f"{first}Iteration {t}", Axis(words), marks=[mark]))
        found.append(row)
    return found


def edge_map(
    name: str, run: StoredRun, values: Vector | None, unit: str, ends: tuple[str, str]
) -> Panel:
    """Return a map of a number by directed edge, or a sentence if there is none."""
    n, note = run.topology.n_nodes, ""
    if values is None or not len(values):
        note = "not known"
    elif np.ptp(values) == 0:
        note = f"{values[0]:,.6g} {unit} on each of {len(values):,} directed edges"
    elif n > figure.MOST_NODES:
        least, middle, largest = (f"{q:,.4g}" for q in np.quantile(values, (0, 0.5, 1)))
        note = f"{least} to {largest} {unit} by directed edge, median {middle}"
    if note:
        return Panel(name, note=note)
    matrix = np.full((n, n), np.nan)
    matrix[tuple(run.topology.edges.T)] = values
    return Panel(name, Axis(ends[0]), Axis(ends[1]), [Map(matrix, unit)])


def phases(run: StoredRun) -> Panel:
    """Return the seconds of each node, by phase."""
    spent = {phase: own.sum(axis=0) for phase, own in seconds(run).items()}
    total = np.sum(list(spent.values()), axis=0)
    shown = np.sort(np.argsort(-total, kind="stable")[: figure.MOST_NODES])
    few = figure.said(len(shown), len(total), "nodes, with the longest times,")
    name = f"Time by phase. {few}".rstrip(". ")
    names = tuple(map(str, shown.tolist()))
    bars = Bars({phase: values[shown] for phase, values in spent.items()})
    return Panel(name, Axis("Node", names=names), Axis("Seconds"), [bars])


def traffic(
    runs: Sequence[StoredRun], by_run: bool, among: Sequence[StoredRun] = ()
) -> list[Panel]:
    """Return bytes and seconds: by run, or those of one run by edge and by node."""
    if not by_run:
        (run,) = runs
        sent = run.edge_column("bytes").sum(axis=0) if run.by_edge else None
        if "edge_bytes" in run.arrays:
            sent = run.array("edge_bytes", (len(run.topology.edges),)).astype(float)
        name, ends = "Bytes by directed edge", ("Receiver", "Sender")
        return [edge_map(name, run, sent, "bytes", ends), phases(run)]
    names = Axis(names=tuple(name for name, _ in named(runs, among)))
    total = np.array([run.column("bytes").sum() for run in runs])
    size, unit = figure.byte_unit(float(total.max()))
    spent = [seconds(run) for run in runs]
    means = {k: np.array([own[k].sum(axis=0).mean() for own in spent]) for k in PHASES}
    sums = "Sent by all nodes in all iterations", "Time by phase, mean over the nodes"
    return [
        Panel(sums[0], names, Axis(unit), [Bars({"sent": total / size})]),
        Panel(sums[1], names, Axis("Seconds"), [Bars(means)]),
    ]


def structure(run: StoredRun) -> tuple[str, Matrix]:
    """Return the title and the centred points (N, 3) of structure from motion."""
    if "structure" not in run.arrays:
        raise ConfigError(
            f"the run in {run.folder} has no structure; use --problem sfm"
        )
    metric = run.array("metric", ())
    frame = "metric" if metric else "affine: too few different views"
    points = run.array("structure", (None, 3))
    return f"Structure ({frame})", points - points.mean(axis=0)


def views(run: StoredRun) -> list[Panel]:
    """Return the points of structure from motion from the front and from above."""
    name, points = structure(run)
    x, y, depth = points[np.argsort(-points[:, 2], kind="stable")].T  # near ones on top
    front, above = Points(x, y, depth), Points(x, depth, depth)
    return [
        Panel(f"{name}, from the front", Axis("x"), Axis("y"), [front]),
        Panel("From above", Axis("x"), Axis("depth z"), [above]),
    ]


def positions(run: StoredRun) -> Matrix:
    """Return where to draw the nodes of a run, (n_nodes, 2)."""
    if run.topology.positions is not None:
        return run.topology.positions
    if run.config.topology == "random-geometric":  # its nodes have positions
        rng = np.random.default_rng(run.config.topology_seed)
        return rng.random((2, run.topology.n_nodes)).T
    return places(run.topology)


def pair_means(run: StoredRun) -> Matrix:
    """Return the mean penalty of both directions of each edge, (iterations, E / 2)."""
    back = run.topology.reverse[run.pairs]
    return np.asarray(0.5 * (run.eta[:, run.pairs] + run.eta[:, back]))


def moments(eta: Matrix) -> list[int]:
    """Return up to four iterations (from 1) to show, given penalties (iterations, E).

    These are the first, the last, the one in which the edges differ most, and one
    halfway between it and the farther end; the last alone if nothing changes.
    """
    n, peak = len(eta), int(np.log(eta).std(axis=1).argmax()) + 1
    if np.allclose(eta, eta[-1], rtol=1e-9, atol=0.0):
        return [n]
    half = (peak + (1 if peak > n / 2 else n)) // 2
    return sorted({1, half, peak, n})


def places(graph: Topology) -> Matrix:
    """Return the position of each node, (n_nodes, 2); known graphs have fixed ones."""
    n = graph.n_nodes
    all_pairs = len(graph.edges) == n * (n - 1)  # a complete graph
    if all_pairs or graph == Topology.ring(n):
        start = 0.5 if n == 2 else 0.25  # two nodes are side by side
        return _arc(n, start, start - 1)
    if graph == Topology.star(n):
        return np.vstack([[0.0, 0.0], _arc(n - 1, 0.25, -0.75)])
    if graph == Topology.chain(n):
        return _arc(n + 1, -0.3, -1.2)[:n]
    if graph == Topology.grid(n):
        width = int(n**0.5)
        return np.array([[i % width, -(i // width)] for i in range(n)], dtype=float)
    if n <= MOST_DRAWN[0] and graph == Topology.cluster(n):
        # The two nodes of the bridge face each other.
        left = _arc(n // 2, 0.0, 1.0)[::-1]
        right = np.array([-1, 1]) * _arc(n - n // 2, 0.0, -1.0)
        apart = np.array([1.35, 0])
        return np.vstack([left - apart, right + apart])
    if n > MOST_DRAWN[0] or len(graph.edges) > MOST_DRAWN[1]:
        return _arc(n, 0.25, -0.75)
    import networkx as nx

    if n > MOST_EXACT:  # the time of the other layout grows with n^3
        found = nx.spring_layout(graph.to_graph(), iterations=30, seed=0)
    else:
        found = nx.kamada_kawai_layout(graph.to_graph())
    return np.array([found[i] for i in range(n)])


def _arc(n: int, start: float, stop: float) -> Matrix:
    """Return n points of the unit circle; angles are in turns, without the stop."""
    angle = 2 * np.pi * np.linspace(start, stop, n, endpoint=False)
    return np.column_stack([np.cos(angle), np.sin(angle)])
