"""What a run needs before its first iteration: graph, shards, problems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dadmm import datasets, shard, topology
from dadmm.config import RunConfig
from dadmm.errors import ConfigError, ShardError
from dadmm.layout import Matrix
from dadmm.problems import PPCA, StructureFromMotion
from dadmm.world import together

DEFAULT_NODES = {"ppca": 20, "sfm": 5}  # as in the paper


def graph(world: Any, config: RunConfig) -> topology.Topology:
    """Return the graph: a named one built by each rank, others read once by rank 0."""
    n_nodes = world.size if world.comm is not None else config.nodes
    named = topology.is_named(config.topology)

    def build() -> topology.Topology | None:
        if world.comm is not None and config.nodes not in (None, world.size):
            raise ConfigError(
                f"nodes is {config.nodes} but MPI started {world.size} processes; one "
                f"rank is one node, so run mpiexec -n {config.nodes}"
            )
        if world.rank and not named:
            return None
        count = (n_nodes or DEFAULT_NODES[config.problem]) if named else n_nodes
        return topology.build(config.topology, count, config.topology_seed)

    built = together(world, build)
    if world.comm is None or named:
        assert built is not None
        return built
    edges = np.empty(0, np.int64) if built is None else built.edges.ravel()
    edges = world.share_array(edges).reshape(-1, 2)
    return topology.Topology.from_edges(world.size, edges)


def shards(
    world: Any, config: RunConfig, n_nodes: int
) -> tuple[dict[int, Matrix], Matrix | None]:
    """Return the samples of the hosted nodes, and the true W where it is known."""
    hosted = range(n_nodes) if world.comm is None else (world.rank,)
    if config.data is None:
        return together(world, _synthetic, config, n_nodes, hosted)
    sfm = config.problem == "sfm"
    if shard.is_local(config.data) and config.labels is None and not sfm:
        return together(world, shard.read, config.data, n_nodes, hosted), None

    def load() -> list[Matrix] | None:
        if world.rank:
            return None
        if config.labels is not None and (sfm or "{rank}" in str(config.data)):
            raise ShardError("labels go neither with one file per rank nor with sfm")
        if sfm:
            return shard.split_frames(datasets.load_tracks(str(config.data)), n_nodes)
        samples = datasets.load_matrix(str(config.data))
        if config.labels is None:
            return shard.split(samples, n_nodes)
        samples, labels = shard.resolve_labels(samples, config.labels)
        return shard.split(samples, n_nodes, labels)

    blocks = together(world, load)
    if world.comm is None:
        assert blocks is not None
        return dict(enumerate(blocks)), None
    return {world.rank: world.scatter(blocks)}, None


def problems(config: RunConfig, samples: dict[int, Matrix]) -> dict[int, PPCA]:
    """Return the local problems of the hosted nodes."""
    if config.problem == "sfm":
        made = (
            (i, StructureFromMotion(x, start=config.start)) for i, x in samples.items()
        )
        return dict(made)
    for i, block in samples.items():
        shard.check(block, i)
    return {
        i: PPCA(block, config.n_components, zero_mean=config.zero_mean)
        for i, block in samples.items()
    }


def _synthetic(
    config: RunConfig, n_nodes: int, hosted: Sequence[int]
) -> tuple[dict[int, Matrix], Matrix]:
    if config.problem == "sfm":
        tracks, W = datasets.turntable(seed=config.data_seed)
        blocks = shard.split_frames(tracks, n_nodes)
        return {i: blocks[i] for i in hosted}, W - W.mean(axis=0)
    samples, W = datasets.synthetic(
        config.n_samples,
        config.dimension,
        config.n_components,
        config.noise_variance,
        config.data_seed,
    )
    blocks = shard.split(samples, n_nodes)
    return {i: blocks[i] for i in hosted}, W
