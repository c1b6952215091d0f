"""Set-up of a run: graph, placement of nodes, data and problems."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dadmm.cli.config import RunConfig
from dadmm.core.errors import ConfigError, ShardError
from dadmm.core.interfaces import World
from dadmm.core.layout import Matrix
from dadmm.data import datasets, shard, tables
from dadmm.data.patterns import remove_entries
from dadmm.data.textfiles import Names
from dadmm.exchange import identity
from dadmm.exchange.world import Checks, collectively
from dadmm.graphs import placement, topology
from dadmm.graphs.schedule import Schedule
from dadmm.problems import builder
from dadmm.solver.metric import why_none

USUAL_NODES, USUAL_CAMERAS = 20, 5  # as in the paper


Graph = Schedule | topology.Topology


def build_graph(world: World, config: RunConfig) -> Graph | None:
    """Return the graph, or the schedule of several; None on ranks that get it later.

    Each rank builds named graphs; rank 0 reads files for all.
    """
    n_nodes = world.size if world.comm is not None else config.nodes
    names = config.topology.split(",")
    if world.comm is not None and config.nodes not in (None, world.size):
        raise ConfigError(
            f"nodes is {config.nodes} but MPI started {world.size} processes; one "
            f"rank is one node, so run mpiexec -n {config.nodes}"
        )
    if len(names) > 1 and config.schedule != "static":
        raise ConfigError(
            f"several graphs ({config.topology}) are a schedule already; leave "
            "schedule at static"
        )
    if world.rank and not _is_named(config):
        return None
    usual = USUAL_CAMERAS if config.problem == "sfm" else USUAL_NODES
    if len(names) > 1:
        count = n_nodes or (usual if any(map(topology.is_named, names)) else None)
        return Schedule.build(names, count, config.topology_seed)
    count = (n_nodes or usual) if _is_named(config) else n_nodes
    return topology.build(config.topology, count, config.topology_seed)


def _is_named(config: RunConfig) -> bool:
    """Return whether all graphs are known by name, and none is a file."""
    return all(map(topology.is_named, config.topology.split(",")))


def graph_facts(config: RunConfig, built: Graph | None) -> identity.Facts:
    """Return a hash of the graph if each rank has built it, to compare ranks."""
    if built is None or not _is_named(config):
        return {}
    parts = (built.union, built) if isinstance(built, Schedule) else (built,)
    return {"graph": identity.of_graph(*parts)}


def share_graph(
    world: World, config: RunConfig, built: Graph | None
) -> tuple[topology.Topology, Schedule | None]:
    """Return the graph, and the schedule of its edges unless all are always used."""
    if world.comm is not None and not _is_named(config):
        built = _from_rank_0(world, built, len(config.topology.split(",")))
    if isinstance(built, Schedule):
        return built.union, built
    assert built is not None
    turns = config.schedule == "matchings"
    return built, Schedule.matchings(built) if turns else None


def _from_rank_0(world: World, built: Graph | None, n_rounds: int) -> Graph:
    """Return the graph or schedule of rank 0 on every rank."""
    rows = np.empty((0, 3), np.int64)
    if isinstance(built, Schedule):
        turns = enumerate(built.union.edges[k] for k in built.rows)
        rows = np.concatenate([np.insert(edges, 0, k, axis=1) for k, edges in turns])
    elif built is not None:
        rows = np.insert(built.edges, 0, 0, axis=1)
    rows = world.share_array(rows.astype(np.int64).ravel()).reshape(-1, 3)
    if n_rounds > 1:
        rounds = [rows[rows[:, 0] == k, 1:] for k in range(n_rounds)]
        return Schedule(world.size, rounds)
    return topology.Topology.from_edges(world.size, rows[:, 1:])


def place(
    world: World, config: RunConfig, graph: topology.Topology, hosts: list[str]
) -> list[str]:
    """Assign nodes to ranks; return the host of each rank by its new number.

    Afterwards ``world.rank`` is the number of the node.
    """
    if config.placement == "ranks" or len(set(hosts)) == 1:
        return hosts
    found = placement.place(graph, hosts) if world.rank == 0 else np.empty(0, np.int64)
    nodes = world.share_array(found)
    if (nodes != np.arange(world.size)).any():
        world.renumber(int(nodes[world.rank]))
    return [hosts[rank] for rank in np.argsort(nodes)]


class Shards(NamedTuple):
    """The data of the hosted nodes."""

    samples: dict[int, Matrix]  # by node; y, if there is one, is the last column
    truth: Matrix | None = None  # the true W where it is known
    names: Names = None  # of the columns, the same on all ranks, where a file has any


def shards(world: World, config: RunConfig, n_nodes: int, checks: Checks) -> Shards:
    """Return the data of the hosted nodes.

    If each rank reads or draws its own, that is a step of ``checks``.
    """
    hosted = range(n_nodes) if world.comm is None else (world.rank,)
    if config.data is None:
        return checks.run(lambda: Shards(*_synthetic(config, n_nodes, hosted)))
    sfm = config.problem == "sfm"
    if shard.is_local(config.data) and config.labels is None and not sfm:
        own = checks.run(lambda: _read(config, n_nodes, hosted))
        checks.compare(lambda: {"columns": json.dumps(own.names)})
        return own
    load = _load if world.rank == 0 else lambda config, n_nodes: ([], None)
    blocks, names = collectively(world, load, config, n_nodes)
    if world.comm is None:
        return Shards(dict(enumerate(blocks)), names=names)
    told = json.loads(world.share(json.dumps(names)))
    names = None if told is None else tuple(told)
    return Shards({world.rank: world.scatter(blocks or None)}, names=names)


def _read(config: RunConfig, n_nodes: int, hosted: Sequence[int]) -> Shards:
    """Return the rows of the hosted nodes, reading no others."""
    source, supervised = str(config.data), has_target(config)
    found = tables.read(source, config.target, n_nodes, hosted, supervised=supervised)
    names = next(iter(found.values())).names
    for i, table in found.items():
        if table.names != names:
            raise identity.other_columns(f"node {i} has", table.names, "node 0", names)
    return Shards({i: table.rows for i, table in found.items()}, names=names)


def _load(config: RunConfig, n_nodes: int) -> tuple[list[Matrix], Names]:
    """Return the rows of all nodes, and the names of their columns."""
    source, sfm = str(config.data), config.problem == "sfm"
    if config.labels is not None and (sfm or "{rank}" in source):
        raise ShardError("labels go neither with one file per rank nor with sfm")
    if sfm:
        return shard.split_frames(datasets.load_tracks(source), n_nodes), None
    supervised = has_target(config)
    rows, names, nodes = tables.load(
        source, config.target, config.labels, supervised=supervised
    )
    return shard.split(rows, n_nodes, nodes), names


def has_target(config: RunConfig) -> bool:
    """Return whether the problem has a target y."""
    takes = builder.arguments(builder.find(config.problem)).takes("y")
    if config.target is not None and not takes:
        raise ConfigError(
            f"target does not go with {config.problem}, whose constructor has no "
            "argument y"
        )
    return takes


def problems(
    config: RunConfig, samples: dict[int, Matrix], n_nodes: int
) -> dict[int, Any]:
    """Return the local problems of the hosted nodes."""
    flags, settings = config.problem_flags(n_nodes), config.settings
    if config.is_plugin:  # must accept all settings, and may accept any rows
        flags, settings = {}, flags | settings
    else:
        gaps = hasattr(builder.find(config.problem), "with_gaps")
        for i, block in samples.items():
            shard.check(block, i, gaps=gaps)
    name, rows = config.problem, samples.items()
    return {i: builder.build(name, x, flags, settings) for i, x in rows}


def few_rows(
    config: RunConfig, samples: dict[int, Matrix], problems: dict[int, Any]
) -> int:
    """Return how many nodes have no more rows than parameters, and send a summary.

    Raise if the run cannot have the metric that the settings ask for.
    """
    scheme = config.options()["scheme"]
    why = why_none(config.metric, scheme, problems.values())
    if why and config.metric == "full":
        raise ConfigError(f"the metric full is not possible: {why}")
    if why:
        return 0
    return sum(len(samples[i]) <= own.layout.size for i, own in problems.items())


def features(config: RunConfig, data: Shards, problems: dict[int, Any]) -> Names:
    """Return the names of the columns of X, or None.

    If the file has no names, coefficients are named ``x0``, ``x1`` and so on.
    """
    (rows, *_), (problem, *_) = data.samples.values(), problems.values()
    supervised = has_target(config)
    width = rows.shape[1] - supervised
    names = None if data.names is None else data.names[:width]
    if not supervised or problem.layout.shapes.get("coef") != (width,):
        return names
    if (
        names is not None
        and "intercept" in names
        and "intercept" in problem.layout.shapes
    ):
        raise ShardError(
            "a column is called 'intercept', which is also the name of the fitted "
            "intercept; rename the column, or use --no-fit-intercept"
        )
    return names or tuple(f"x{k}" for k in range(width))


def _check_memory(n_samples: int, dimension: int, n_components: int) -> None:
    """Raise if synthetic data do not fit into the memory of this machine."""
    entries = 3 * n_samples * dimension + n_components * (n_samples + dimension)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if 8 * entries > memory:
        raise ShardError(
            f"{n_samples} samples of dimension {dimension} need "
            f"{8 * entries / 2**30:.3g} GiB, and this machine has "
            f"{memory / 2**30:.3g}; use a smaller n_samples, dimension or n_components"
        )


def _synthetic(
    config: RunConfig, n_nodes: int, hosted: Sequence[int]
) -> tuple[dict[int, Matrix], Matrix | None]:
    """Return synthetic rows for the problem, and the true W if there is one."""
    seed, truth = config.data_seed, None
    size = config.n_samples, config.dimension
    noise, n_components = config.noise_variance, config.n_components or 5
    _check_memory(*size, n_components)
    if config.problem == "sfm":
        tracks, W = datasets.turntable(seed=seed)
        tracks = remove_entries(tracks, config.missing_fraction, seed, together=2)
        blocks = shard.split_frames(tracks, n_nodes)
        return {i: blocks[i] for i in hosted}, W - W.mean(axis=0)
    if has_target(config):
        binary = config.problem == "logistic"
        draw = datasets.classification if binary else datasets.regression
        rows = np.column_stack(draw(*size, noise, seed)[:2])
    else:
        rows, truth = datasets.synthetic(*size, n_components, noise, seed)
        rows = remove_entries(rows, config.missing_fraction, seed)
    blocks = shard.split(rows, n_nodes)
    return {i: blocks[i] for i in hosted}, truth
