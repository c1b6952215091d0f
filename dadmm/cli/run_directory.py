"""The folder of a run: create or reopen it, and write the results into it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dadmm.cli.config import RunConfig
from dadmm.cli.tables import Shards
from dadmm.core import files
from dadmm.core.errors import CheckpointError, DadmmError, OutputError
from dadmm.core.interfaces import World
from dadmm.exchange import identity
from dadmm.exchange.world import collectively, from_rank_0, host
from dadmm.graphs.schedule import Schedule
from dadmm.graphs.topology import Topology
from dadmm.resilience.checkpoint import Checkpoints
from dadmm.results.folder import NO_RESUME, RunFolder, names_of_run
from dadmm.results.row_files import PARTS, RowFiles
from dadmm.results.rows import Observe
from dadmm.results.writing import write_text, writing
from dadmm.solver.result import Result


class RunDirectory(NamedTuple):
    """The folder of a run, and the open files in it."""

    folder: RunFolder
    checkpoints: Checkpoints
    parts: RowFiles


def begin(
    world: World,
    config: RunConfig,
    resume: Path | None,
    graph: Topology,
    schedule: Schedule | None,
    data: Shards,
    observe: Observe,
    processes: Sequence[tuple[int, str, int]],
) -> RunDirectory:
    """Create the folder of a run, or reopen it to resume the run.

    All checks come before the first change in an existing folder. ``processes`` has the
    number, host and process number of each rank.
    """
    observe = observe if config.record_angle else {}
    opened: list[RunFolder] = []  # on rank 0

    def enter() -> str:
        if resume is None:
            opened.append(_create(world, config, graph.n_nodes))
        else:
            opened.append(RunFolder.open(resume, NO_RESUME))
            with writing(resume):
                opened[0].lock(first=True)
            _check_unfinished(resume, config.max_iter)
        return str(opened[0].path)

    def join() -> RowFiles:
        if world.rank == 0:
            own.write_ranks(processes if world.comm is not None else [])
        seen = (folder / PARTS).is_dir()
        if not seen:
            check_unseen(config, folder, graph.n_nodes)
        parts = _open_parts(world, config, folder, graph, observe, start)
        if seen and world.rank:
            with writing(folder):  # other ranks may need the lock after rank 0 fails
                own.lock(first=False)
        return parts

    try:
        folder = Path(from_rank_0(world, enter))
        own = opened[0] if opened else RunFolder(folder)
        checkpoints = Checkpoints(
            folder,
            every=config.checkpoint_every,
            seconds=config.checkpoint_seconds,
            saves=config.checkpoint,
            resume=resume is not None,
            identity=identity.identity(config.deciding(), graph, schedule)
            | _columns(data),
            data={i: _checksum(data, i) for i in data.samples},
        )
        start = checkpoints.open(
            world, tuple(data.samples), graph.n_nodes, config.max_iter
        )
        if resume is not None:
            collectively(world, _reopen, world, config, own, graph, start, observe)
        parts = collectively(world, join)
    except DadmmError:
        for held in opened:
            held.release()
        raise
    checkpoints.sync = parts.sync
    return RunDirectory(own, checkpoints, parts)


def _columns(data: Shards) -> dict[str, str]:
    """Return a hash of what the nodes have agreed on about their columns."""
    if data.encoding is None:
        return {}
    text = json.dumps(data.encoding.to_json())
    return {"table": f"{identity.digest({'columns': text}):016x}"}


def _checksum(data: Shards, node: int) -> str:
    """Return a checksum of the rows of a node, and of their weights."""
    rows = data.samples[node]
    arrays = [rows] if isinstance(rows, np.ndarray) else [rows.data, rows.indices]
    if not isinstance(rows, np.ndarray):
        arrays.append(rows.indptr)
    arrays += [data.weights[node]] if node in data.weights else []
    return identity.of_data(arrays)


def check_unseen(config: RunConfig, folder: Path, n_nodes: int) -> None:
    """Raise if this rank, on a machine without the folder, would write files there.

    Only the files of imputed samples are written, into a new folder of this machine.
    """
    needed = {
        "--no-record": config.records(n_nodes),
        "--no-record-edges": config.record_edges,
        "--no-checkpoint": config.checkpoint,
        "--on-failure abort": config.on_failure != "abort",
    }
    if remedy := " ".join(flag for flag, needs in needed.items() if needs):
        raise OutputError(
            f"{folder}, made by rank 0, is not there on {host()}; --out must lie on a "
            f"file system that all ranks share, or use {remedy} (docs/sites.md)"
        )
    if folder.exists():
        raise OutputError(
            f"{folder} on {host()} is not that of this run; remove it there, or choose "
            "another --out"
        )


def _create(world: World, config: RunConfig, n_nodes: int) -> RunFolder:
    """Create the folder, and write config.toml."""
    graph = "-".join(Path(name).stem for name in config.topology.split(","))
    problem = config.problem.rpartition(":")[2]
    name = f"{problem}-{graph}-{config.scheme}"
    names = _names(world, config, n_nodes)
    folder = RunFolder.create(config.out, name, config.overwrite, names)
    _write_config(config, folder.path, n_nodes)
    return folder


def _names(world: World, config: RunConfig, n_nodes: int) -> set[str]:
    """Return the names of all files that the run can write."""
    over_mpi, edges = world.comm is not None, bool(config.record_edges)
    ranks = n_nodes if over_mpi else 1
    return names_of_run(n_nodes, ranks, edges, over_mpi, saves=config.checkpoint)


def _write_config(config: RunConfig, folder: Path, n_nodes: int) -> None:
    """Write config.toml, with which the run can be repeated elsewhere."""
    again = replace(config, nodes=n_nodes, out=None, overwrite=False)
    write_text(folder / "config.toml", again.to_toml())


def _check_unfinished(folder: Path, max_iter: int) -> None:
    """Raise if the run has ended and cannot continue."""
    summary = folder / "summary.json"
    if files.kind(summary) == "none":
        return
    from dadmm.results.stored import StoredRun, read_summary

    run = StoredRun(folder, read_summary(summary))
    if run.summary.get("lost_nodes"):
        raise CheckpointError(
            f"nodes failed in the run in {folder}, and it ended without them; start a "
            "new run with all nodes"
        )
    done = run.entry("iterations")
    ended = run.summary.get("reason") == "no_minimum"
    if run.entry("converged") or ended:
        status = "no minimum" if ended else run.summary.get("status", "converged")
        raise CheckpointError(
            f"the run in {folder} has ended ({status}) after {done} iterations; there "
            "is nothing to resume"
        )
    if done >= max_iter:
        raise CheckpointError(
            f"the run in {folder} has done {done} iterations, and "
            f"max_iter is {max_iter}; raise max_iter to continue"
        )


def _reopen(
    world: World,
    config: RunConfig,
    folder: RunFolder,
    graph: Topology,
    start: int,
    observe: Observe,
) -> None:
    """Prepare the folder of a resumed run, on rank 0."""
    if world.rank == 0:
        n_edges = len(graph.edges) if config.record_edges else None
        names = _names(world, config, graph.n_nodes)
        n_rows = graph.n_nodes if config.records(graph.n_nodes) else 0
        folder.resume(start, n_rows, n_edges, observe, names)
        _write_config(config, folder.path, graph.n_nodes)


def _open_parts(
    world: World,
    config: RunConfig,
    folder: Path,
    graph: Topology,
    observe: Observe,
    start: int,
) -> RowFiles:
    """Open the files for the rows of this rank."""
    nodes = range(graph.n_nodes) if world.comm is None else [world.rank]
    edges = None
    if config.record_edges:
        edges = [(i, j) for i in nodes for j in graph.neighbours[i]]
    return RowFiles(
        folder,
        world.rank,
        [(i,) for i in nodes] if config.records(graph.n_nodes) else [],
        edges,
        observe,
        start,
    )


def finish(
    world: World,
    run: RunDirectory,
    result: Result,
    summary: dict[str, Any],
    arrays: dict[str, np.ndarray],
    model: str | None,
) -> Path:
    """Write the results, on rank 0, and return their folder.

    ``model`` is the text of model.json, if the problem has a model.

    A part of the graph that failures disconnected has its own folder.
    """
    parts = run.parts
    if world.rank == 0:
        left = result.nodes.tolist() if result.lost else None
        is_over = result.converged or result.reason == "no_minimum"
        RunFolder.open(run.folder.path).finish(
            parts,
            summary,
            arrays,
            model,
            left,
            result.lost,
            is_over or left is not None,
        )
    return parts.home
