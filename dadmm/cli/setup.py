"""Set-up of a run: graph, placement of nodes, data and problems."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import starmap
from typing import Any

import numpy as np

from dadmm.cli import tables
from dadmm.cli.tables import Shards, has_target
from dadmm.comm import identity
from dadmm.comm.world import Checks, World, collectively
from dadmm.core.errors import ConfigError, ShardError, shown
from dadmm.core.layout import Matrix
from dadmm.data import datasets, shard
from dadmm.data.encoding import Encoding, Rows
from dadmm.data.files import Names
from dadmm.data.patterns import remove_entries
from dadmm.graphs import placement, topology
from dadmm.graphs.schedule import Schedule
from dadmm.models.predictions import check_score_names
from dadmm.problems import builder
from dadmm.runs.config import RunConfig
from dadmm.solver.plan import Kind
from dadmm.solver.subspace import n_axes

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
    usual = config.traits.nodes
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


def shards(
    world: World, config: RunConfig, graph: topology.Topology, checks: Checks
) -> Shards:
    """Return the data of the hosted nodes.

    If each rank reads or draws its own, that is a step of ``checks``.
    """
    n_nodes = graph.n_nodes
    hosted = range(n_nodes) if world.comm is None else (world.rank,)
    if config.data is None:
        return checks.run(lambda: _synthetic(config, n_nodes, hosted))
    if not config.traits.tracks:
        return tables.load(world, config, graph, checks)
    blocks = collectively(world, _load_tracks, config, n_nodes, world.rank)
    if world.comm is None:
        return Shards({i: Rows(block) for i, block in enumerate(blocks)})
    return Shards({world.rank: Rows(world.scatter(blocks or None))})


def _load_tracks(config: RunConfig, n_nodes: int, rank: int) -> list[Matrix]:
    """Return the tracks of all cameras on rank 0, and none elsewhere."""
    if rank:
        return []
    if config.labels is not None:
        raise ShardError("labels go neither with one file per rank nor with sfm")
    return shard.split_frames(datasets.load_tracks(str(config.data)), n_nodes)


def problems(config: RunConfig, data: Shards, n_nodes: int) -> dict[int, Any]:
    """Return the local problems of the hosted nodes."""
    flags, settings = config.problem_flags(n_nodes), config.settings
    if config.is_plugin:  # must accept all settings, and may accept any rows
        flags, settings = {}, flags | settings
    else:
        gaps = hasattr(builder.find(config.problem), "with_gaps")
        for i, rows in data.rows.items():
            shard.check(rows, i, gaps=gaps)
    if data.encoding is not None and data.encoding.classes is not None:
        count = len(data.encoding.classes)
        if settings.get("n_classes", count) != count:
            raise ConfigError(
                f"n_classes is {shown(settings['n_classes'])}, but the target has "
                f"{count} classes; leave it out of the settings"
            )
        flags = flags | {"n_classes": count}
    return {
        i: builder.build(config.problem, rows, flags, settings)
        for i, rows in data.rows.items()
    }


def few_rows(
    config: RunConfig, rows: Mapping[int, Rows], problems: dict[int, Any]
) -> int:
    """Return how many nodes send a summary that is as good as their rows.

    These have no more rows than parameters, or than principal axes that are merged.
    Raise if the run cannot have the coordinates that the settings ask for.
    """
    kind = config.plan(problems.values()).kind
    if kind is Kind.MERGED or (kind is Kind.UNITS and config.bound_angle):
        return sum(rows[i].X.shape[0] <= n_axes(own) for i, own in problems.items())
    if kind is not Kind.METRIC:
        return 0
    return sum(rows[i].X.shape[0] <= own.layout.size for i, own in problems.items())


def features(config: RunConfig, data: Shards, problems: dict[int, Any]) -> Names:
    """Return the names of the columns of X, or None.

    If the file has no names, coefficients are named ``x0``, ``x1`` and so on.
    """
    if data.encoding is None:
        return None
    names, shapes = (
        data.encoding.feature_names,
        next(iter(problems.values())).layout.shapes,
    )
    if config.traits.predicts == "subspace":
        check_score_names(names, shapes["W"][1])
    if not has_target(config) or shapes.get("coef", ())[-1:] != (len(names),):
        return names if data.encoding.named else None
    if "intercept" in names and "intercept" in shapes:
        raise ShardError(
            "a column is called 'intercept', which is also the name of the fitted "
            "intercept; rename the column, or use --no-fit-intercept"
        )
    return names


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


def _synthetic(config: RunConfig, n_nodes: int, hosted: Sequence[int]) -> Shards:
    """Return synthetic rows for the problem, and the true W if there is one."""
    seed, truth, target, classes = config.data_seed, None, None, None
    assert config.n_samples is not None  # settled
    size = config.n_samples, config.dimension
    noise, traits = config.noise_variance, config.traits
    n_components = config.n_components or traits.components
    _check_memory(*size, n_components)
    if traits.tracks:
        tracks, W = datasets.turntable(seed=seed)
        tracks = remove_entries(tracks, config.missing_fraction, seed, together=2)
        blocks = shard.split_frames(tracks, n_nodes)
        whole = tracks - tracks.mean(axis=1, keepdims=True)  # as each camera does
        rows = {i: Rows(blocks[i]) for i in hosted}
        return Shards(rows, W - W.mean(axis=0), whole=whole)
    if has_target(config):
        X, y, _ = traits.draw(*size, noise, seed)
        parts = zip(shard.split(X, n_nodes), shard.split(y, n_nodes), strict=True)
        every, whole = list(starmap(Rows, parts)), None
        target, classes = "y", (0.0, 1.0) if builder.n_classes(config.problem) else None
    else:
        X, truth = datasets.synthetic(*size, n_components, noise, seed)
        whole = remove_entries(X, config.missing_fraction, seed)
        every = list(map(Rows, shard.split(whole, n_nodes)))
    encoding = Encoding.plain(X.shape[1], target, classes=classes)
    return Shards({i: every[i] for i in hosted}, truth, encoding, whole=whole)
