"""The methods of `Result` for a notebook, which use rooms above `solver`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dadmm.comm.world import World
from dadmm.core.classes import place_of, require
from dadmm.core.documents import to_toml, write_text, writing
from dadmm.core.errors import ConfigError, ProblemError
from dadmm.core.schema import choice
from dadmm.data.encoding import Encoding
from dadmm.graphs.topology import GRAPHS, RANDOM
from dadmm.models.model import Model
from dadmm.models.scores import KINDS
from dadmm.problems import PROBLEMS
from dadmm.solver.result import ACTIONS, Result
from dadmm.solver.rows import NODE_COLUMNS
from dadmm.solver.solve import MOST_RECORDED

if TYPE_CHECKING:
    from dadmm.runs.config import RunConfig
    from dadmm.runs.stored import StoredRun


def to_frame(result: Result, what: str) -> Any:
    choice(("history", "edges", "traffic")).check("what", what)
    require("pandas", "to_frame", "notebook")
    import pandas as pd  # type: ignore[import-untyped,import-not-found,unused-ignore]

    graph, history = result.topology, result.history
    nodes = np.array(graph.names) if graph.names else result.nodes
    ends = dict(zip(("i", "j"), nodes[graph.edges].T, strict=True))
    if what == "traffic":
        counts = {
            name.removeprefix("edge_"): each
            for name, each in result.traffic._asdict().items()
            if np.shape(each) == (len(graph.edges),)
        }
        return pd.DataFrame(ends | counts)
    rows = history if what == "history" else history.edges
    keys = {"node": nodes} if what == "history" else ends
    if rows is None or not len(rows):
        raise ConfigError(
            f"the {what} is not recorded; pass record=dadmm.Record(nodes=True, "
            "edges=True) to dadmm.solve"
        )
    n_iterations, n_rows, width = rows.rows.shape
    times = np.arange(result.iterations - n_iterations, result.iterations) + 1
    found = {"iteration": np.repeat(times, n_rows)}
    found |= {name: np.tile(own, n_iterations) for name, own in keys.items()}
    columns = rows.rows.reshape(-1, width).T
    return pd.DataFrame(found | dict(zip(rows.columns, columns, strict=True)))


def html(result: Result) -> str:
    traffic, graph, why = result.traffic, result.topology, result.why
    sums = int(traffic.tree_bytes.sum()) + traffic.collective_bytes
    rows = {
        "status": f"{result.status}: {why}" if why else result.status,
        "iterations": f"{result.iterations:,} ({result.reason})",
        "objective": f"{result.objective:.6g}",
        "nodes": f"{graph.n_nodes:,}, {len(graph.edges) // 2:,} edges",
        "scheme": str(result.settings.get("scheme", "")),
        "sent": f"{traffic.messages:,} messages, {traffic.bytes:,} bytes; "
        f"{sums:,} bytes of sums",
    }
    for name, part in result.layout.views(result.solution)._asdict().items():
        if np.size(part) <= 8:
            rows[name] = ", ".join(f"{value:.6g}" for value in np.ravel(part))
    cells = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th>"
        f"<td style='text-align:left'>{escape(value)}</td></tr>"
        for name, value in rows.items()
    )
    return f"<table>{cells}</table>"


def save(
    result: Result, folder: str | Path, encoding: Encoding | None, overwrite: bool
) -> Path:
    """Write the folder of a run, on rank 0, and return its path."""
    from dadmm.cli import results
    from dadmm.runs import row_files
    from dadmm.runs.folder import Results, RunFolder
    from dadmm.runs.summary import Summary

    path, graph, world = Path(folder), result.topology, World(result.comm)
    if len(result.theta) < graph.n_nodes:
        raise ConfigError(
            "a result without all nodes cannot be saved; pass gather='all' to solve"
        )
    if world.rank:
        return path
    config, model = _config(result), None
    if config.problem in KINDS:
        with suppress(ProblemError):  # the solution is not finite
            tolerance = config.tolerance
            model = Model.of(result, config.problem, encoding, tolerance=tolerance)
    features = None if model is None else model.feature_names
    named = results.names_of(result, features, model)
    summary = Summary.of(result, named, result.spent)
    summary |= {"seeds": {"seed": config.seed}, "mpi_library": world.library}
    arrays = results.arrays(result, features, None, False)
    content = None if model is None else model.to_json()
    header = (*row_files.HISTORY, *result.history.columns[len(NODE_COLUMNS) :])
    tables = [("history.csv", header, result.nodes[:, None], result.history)]
    if (by_edge := result.history.edges) is not None:
        ends = result.nodes[graph.edges]
        tables.append(("edges.csv", row_files.EDGES, ends, by_edge))
    home = RunFolder.create(str(path), "", overwrite, graph.n_nodes)
    try:
        home.clear_earlier()
        with writing(path):
            write_text(path / "config.toml", to_toml(config.applied()))
            for name, columns, keys, rows in tables:
                start = result.iterations - len(rows) + 1
                lines = (
                    row_files.row_of(t, key, row) + b"\n"
                    for t, block in enumerate(rows.rows.tolist(), start)
                    for key, row in zip(keys.tolist(), block, strict=True)
                )
                row_files.write_rows(path / name, columns, lines)
            Results(summary, arrays, content).write(path)
    finally:
        home.release()
    return path


def _config(result: Result) -> RunConfig:
    """Return the settings of a result as `dadmm run` has them."""
    from dadmm.runs.config import RunConfig
    from dadmm.runs.settings import IN_MEMORY, names

    given, n = dict(result.settings), result.topology.n_nodes
    given["stopping"] = given["rule"]
    given["payload"] = str(given["payload"])
    if not isinstance(given["init"], str) or given["init"] == "warm":
        given["init"] = None
    own = {name: given[name] for name in names("solver") if name in given}
    for name, kind in PROBLEMS.items():
        places = {place_of(each) for each in (kind, getattr(kind, "with_gaps", kind))}
        if given["problem"] in places:
            given["problem"] = name
    shapes = result.layout.shapes
    if "W" in shapes and len(shapes["W"]) == 2 and given["problem"] in PROBLEMS:
        own["n_components"] = shapes["W"][1]
    graph = "own-graph"
    if n <= MOST_RECORDED and not result.topology.names:
        found = {name: GRAPHS[name](n, 0) for name in GRAPHS if name not in RANDOM}
        graph = next((k for k in found if found[k] == result.topology), graph)
    own |= {"data": IN_MEMORY, "nodes": n, "topology": graph}
    by_edge = result.history.edges is not None
    return RunConfig(problem=given["problem"], record_edges=by_edge, **own)


@contextmanager
def _stored(result: Result) -> Iterator[StoredRun]:
    """Write a result to a temporary folder, and yield its run."""
    from tempfile import TemporaryDirectory

    from dadmm.runs.stored import StoredRun

    with TemporaryDirectory(prefix="dadmm-") as place:
        save(result, Path(place, "result"), None, False)
        yield StoredRun.read(Path(place, "result"))


def plot(result: Result, kind: str) -> Any:
    from dadmm.show.plot import KINDS, draw_figure

    choice(KINDS).check("kind", kind)
    with _stored(result) as run:
        return draw_figure(kind, [run])


def replay(result: Result, network: str) -> Any:
    from dadmm.timing.network import Network
    from dadmm.timing.replay import Replay, Trace

    with _stored(result) as run:
        return Replay(Trace.of(run), Network.read(network))


ACTIONS.update(html=html, to_frame=to_frame, save=save, plot=plot, replay=replay)
