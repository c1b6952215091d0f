"""Set-up of a run: graph, data and problems."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dadmm.cli import tables
from dadmm.cli.tables import Shards, has_target
from dadmm.comm import identity
from dadmm.comm.world import Checks, World, collectively, from_rank_0
from dadmm.core.errors import ConfigError, ShardError, shown
from dadmm.core.interfaces import Problem
from dadmm.core.layout import Matrix
from dadmm.data import datasets, shard
from dadmm.data.encoding import Encoding, Rows
from dadmm.data.files import Names, read_frame
from dadmm.data.patterns import remove_entries
from dadmm.graphs.placement import assign, hosts_of
from dadmm.graphs.schedule import Schedule
from dadmm.graphs.topology import Integers, Topology
from dadmm.models.scores import check_score_names
from dadmm.problems import builder
from dadmm.runs.config import RunConfig
from dadmm.runs.graph import build_graph, is_named


def share_graph(world: World, config: RunConfig) -> tuple[Topology, Schedule | None]:
    """Return the graph, and the schedule of its edges unless all are always used.

    Each rank builds named graphs; rank 0 reads files for all.
    """
    count = config.nodes or (None if world.comm is None else world.size)
    if world.comm is None or is_named(config):
        checks = Checks(world)
        built = checks.run(lambda: build_graph(config, count))
        checks.compare(lambda: {"graph": identity.of_graph(*built)})
        checks.gather()
        return built

    def read() -> list[Any]:
        graph, schedule = build_graph(config, count)
        edges, turns = graph.edges, None if schedule is None else schedule.rows
        rounds = turns and [edges[rows].tolist() for rows in turns]
        places = None if graph.positions is None else graph.positions.tolist()
        return [len(graph), edges.tolist(), graph.names, places, rounds]

    n_nodes, edges, names, places, rounds = from_rank_0(world, read)
    positions = None if places is None else np.array(places)
    graph = Topology.from_edges(n_nodes, edges, names, positions)
    return graph, None if rounds is None else Schedule(n_nodes, rounds)


def share_placement(
    world: World, config: RunConfig, graph: Topology, machines: Sequence[str]
) -> Integers:
    """Return the rank of each node, given the host of each rank.

    Rank 0 finds it for all unless it is in order of number.
    """
    how = config.placement
    if how == "hosts" and len(graph) == world.size and len(set(machines)) == 1:
        how = "blocks"
    if how == "blocks":
        return assign(graph, machines, how)

    def find() -> Integers:
        if world.rank:
            return np.empty(0, np.int64)
        if how == "hosts":
            return assign(graph, machines)
        if not Path(config.placement).suffix:
            raise ConfigError(
                f"placement must be hosts, blocks, or the path of a table such as "
                f"ranks.csv, got {shown(config.placement)}"
            )
        table, pairs = read_frame(config.placement), dict[str, Integers]()
        for name in ("node", "rank"):
            numbers = table.numbers(table.find(name, "placement"))
            if (numbers % 1 != 0).any():
                raise ConfigError(
                    f"the column {name} of {config.placement} has entries that are not "
                    "whole numbers; give the number of a node and its rank in each row"
                )
            pairs[name] = numbers.astype(np.int64)
        return hosts_of(pairs["node"], pairs["rank"], len(graph), world.size)

    return world.share_array(collectively(world, find))


def shards(world: World, config: RunConfig, graph: Topology, checks: Checks) -> Shards:
    """Return the data of the hosted nodes.

    If each rank reads or draws its own, that is a step of ``checks``.
    """
    n_nodes, hosted = graph.n_nodes, world.hosted(graph.n_nodes)
    if config.data is None:
        return checks.run(lambda: _synthetic(config, n_nodes, hosted))
    if not config.traits.tracks:
        return tables.load(world, config, graph, checks)

    def load_tracks() -> list[Matrix]:
        if world.rank:
            return []
        return shard.split_frames(datasets.load_tracks(str(config.data)), n_nodes)

    blocks = world.scatter([[own] for own in collectively(world, load_tracks)])
    return Shards({i: Rows(X) for i, (X,) in zip(hosted, blocks, strict=True)})


def problems(config: RunConfig, data: Shards, n_nodes: int) -> dict[int, Problem]:
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


def features(config: RunConfig, data: Shards, problems: dict[int, Problem]) -> Names:
    """Return the names of the columns of X, or None.

    If the file has no names, coefficients are named ``x0``, ``x1`` and so on.
    """
    if data.encoding is None:
        return None
    names = data.encoding.feature_names
    shapes = next(iter(problems.values())).layout.shapes
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


def _synthetic(config: RunConfig, n_nodes: int, hosted: Sequence[int]) -> Shards:
    """Return synthetic rows for the problem, and the true W if there is one."""
    seed, truth, target, classes = config.data_seed, None, None, None
    assert config.n_samples is not None  # settled
    size = config.n_samples, config.dimension
    noise, traits = config.noise_variance, config.traits
    n_components = config.n_components or traits.components
    n_samples, dimension = size
    entries = 3 * n_samples * dimension + n_components * (n_samples + dimension)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if 8 * entries > memory:
        raise ShardError(
            f"n_samples must be smaller: {n_samples} samples of dimension {dimension} "
            f"need {8 * entries / 2**30:.3g} GiB, and this machine has "
            f"{memory / 2**30:.3g}"
        )
    if traits.tracks:
        tracks, W = datasets.turntable(seed=seed)
        tracks = remove_entries(tracks, config.missing_fraction, seed, together=2)
        blocks = shard.split_frames(tracks, n_nodes)
        whole = tracks - tracks.mean(axis=1, keepdims=True)  # as each camera does
        rows = {i: Rows(blocks[i]) for i in hosted}
        return Shards(rows, W - W.mean(axis=0), whole=whole)
    if has_target(config):
        X, y, _ = traits.draw(*size, noise, seed)
        whole = None
        target, classes = "y", (0.0, 1.0) if builder.n_classes(config.problem) else None
    else:
        X, truth = datasets.synthetic(*size, n_components, noise, seed)
        X = whole = remove_entries(X, config.missing_fraction, seed)
        y = None
    rows = {}
    for i, part in shard.shares(len(X), n_nodes, hosted).items():
        # in C order, since the bits of results depend on the order
        own = np.array(X[part], float, order="C")
        rows[i] = Rows(own, None if y is None else np.array(y[part], float))
    encoding = Encoding.plain(X.shape[1], target, classes=classes)
    return Shards(rows, truth, encoding, whole=whole)
