"""Set-up of a run: graph, data, problems, and what estimates are compared with."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dadmm.cli import tables
from dadmm.cli.tables import Shards
from dadmm.comm import identity
from dadmm.comm.world import Checks, Record, World, collectively, from_rank_0
from dadmm.core.errors import ConfigError, ShardError, shown
from dadmm.core.interfaces import Problem
from dadmm.core.layout import Layout, Matrix, Vector
from dadmm.data import datasets, shard
from dadmm.data.encoding import Encoding, Rows
from dadmm.data.files import Names, read_frame
from dadmm.data.patterns import remove_entries
from dadmm.graphs.placement import assign, hosts_of
from dadmm.graphs.schedule import Schedule
from dadmm.graphs.topology import GRAPHS, Integers, Topology
from dadmm.models.scores import check_score_names
from dadmm.problems import PPCA, PROBLEMS, IncompletePPCA, builder, metrics
from dadmm.runs.config import RunConfig
from dadmm.solver.result import Result
from dadmm.solver.rows import Observe

if TYPE_CHECKING:
    from dadmm.cli.job import Job


def share_graph(world: World, config: RunConfig) -> tuple[Topology, Schedule | None]:
    """Return the graph, and the schedule of its edges unless all are always used."""
    count = config.nodes or (None if world.comm is None else world.size)
    names = {*config.topology.split(",")}
    is_named = names <= GRAPHS.keys() and not config.schedule.endswith(".csv")
    if world.comm is None or is_named:  # else rank 0 reads a file for all
        checks = Checks(world)
        built = checks.run(lambda: config.build_graph(count))
        checks.compare(lambda: {"graph": identity.of_graph(*built)})
        checks.gather()
        return built

    def read() -> list[Any]:
        graph, schedule = config.build_graph(count)
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
    """Return the rank of each node, given the host of each rank."""
    how = config.placement
    one_host = len(graph) == world.size and len(set(machines)) == 1
    if how == "blocks" or (how == "hosts" and one_host):
        return assign(graph, machines, "blocks")

    def find() -> list[int]:
        if how == "hosts":
            return list(map(int, assign(graph, machines)))
        if not Path(how).suffix:
            raise ConfigError(
                f"placement must be hosts, blocks, or the path of a table such as "
                f"ranks.csv, got {shown(how)}"
            )
        table, columns = read_frame(how), list[Integers]()
        for name in ("node", "rank"):
            numbers = table.numbers(table.find(name, "placement"))
            if (numbers % 1 != 0).any():
                raise ConfigError(
                    f"the column {name} of {how} has entries that are not whole "
                    "numbers; give the number of a node and its rank in each row"
                )
            columns.append(numbers.astype(np.int64))
        nodes, ranks = columns
        return list(map(int, hosts_of(nodes, ranks, len(graph), world.size)))

    return np.array(from_rank_0(world, find))


def shards(world: World, config: RunConfig, graph: Topology, checks: Checks) -> Shards:
    """Return the data of the hosted nodes, in a step of ``checks`` or for all."""
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
    settings = config.problem_arguments(n_nodes)
    if not config.is_plugin:  # one of yours may accept any rows
        gaps = hasattr(PROBLEMS[config.problem], "with_gaps")
        for i, rows in data.rows.items():
            shard.check(rows, i, gaps=gaps)
    classes = None if data.encoding is None else data.encoding.classes
    if classes is not None and "n_classes" in config.arguments:
        given = settings.setdefault("n_classes", len(classes))
        if given != len(classes):
            raise ConfigError(
                f"n_classes is {shown(given)}, but the target has {len(classes)} "
                "classes; leave it out of the settings"
            )
    build = partial(builder.build, config.problem, settings=settings)
    return {i: build(rows) for i, rows in data.rows.items()}


def have_gaps(problems: dict[int, Problem]) -> bool:
    return any(isinstance(own, IncompletePPCA) for own in problems.values())


def features(config: RunConfig, data: Shards, problems: dict[int, Problem]) -> Names:
    """Return the names of the columns of X, or None if nothing is named after them."""
    if data.encoding is None:
        return None
    names = data.encoding.feature_names
    shapes = next(iter(problems.values())).layout.shapes
    if config.traits.predicts == "subspace":
        check_score_names(names, shapes["W"][1])
    if "y" not in config.arguments or shapes.get("coef", ())[-1:] != (len(names),):
        return names if data.encoding.named else None
    if "intercept" in names and "intercept" in shapes:
        raise ShardError(
            "a column is called 'intercept', which is also the name of the fitted "
            "intercept; rename the column, or use --no-fit-intercept"
        )
    return names


def _synthetic(config: RunConfig, n_nodes: int, hosted: Sequence[int]) -> Shards:
    """Return synthetic rows for the problem, and the true W if there is one."""
    seed, noise, traits = config.data_seed, config.noise_variance, config.traits
    n_samples, dimension = config.n_samples, config.dimension
    assert n_samples is not None  # settled
    n_components = config.n_components or traits.components
    entries = 3 * n_samples * dimension + n_components * (n_samples + dimension)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    if (needed := 8 * entries / 2**30) > memory:
        raise ShardError(
            f"n_samples must be smaller: {n_samples} samples of dimension {dimension} "
            f"need {needed:.3g} GiB, and this machine has {memory:.3g}"
        )
    if traits.tracks:
        tracks, W = datasets.turntable(seed=seed)
        tracks = remove_entries(tracks, config.missing_fraction, seed, together=2)
        blocks = shard.split_frames(tracks, n_nodes)
        whole = tracks - tracks.mean(axis=1, keepdims=True)  # as each camera does
        rows = {i: Rows(blocks[i]) for i in hosted}
        return Shards(rows, W - W.mean(axis=0), whole=whole)
    truth = whole = y = target = classes = None
    if "y" in config.arguments:
        X, y, _ = traits.draw(n_samples, dimension, noise, seed)
        target, classes = "y", (0.0, 1.0) if builder.n_classes(config.problem) else None
    else:
        X, truth = datasets.synthetic(n_samples, dimension, n_components, noise, seed)
        X = whole = remove_entries(X, config.missing_fraction, seed)
    rows = {}
    for i, part in shard.shares(len(X), n_nodes, hosted).items():
        # in C order, since the bits of results depend on the order
        own = np.array(X[part], float, order="C")
        rows[i] = Rows(own, None if y is None else np.array(y[part], float))
    gaps = "keep" if target is None else "error"
    encoding = Encoding.plain(X.shape[1], target, classes=classes, on_missing=gaps)
    return Shards(rows, truth, encoding, whole=whole)


class Targets(NamedTuple):
    """The subspaces to compare estimates with, and facts about the problem."""

    layout: Layout
    W: dict[str, Matrix]  # by the name of the angle to it
    best: metrics.MaximumLikelihood | None = None  # the centralised solution
    pooled: metrics.Pooled | None = None  # the statistics of all data
    gaps: bool = False  # whether any node has missing entries
    adrift: bool = False  # whether structure is known up to a translation only

    def angles(self, name: str, theta: Vector | Matrix) -> Any:
        """Return the angle of theta (..., size) to a target in degrees, (...)."""
        W = self.layout.views(theta).W
        W = W - W.mean(axis=-2, keepdims=True) if self.adrift else W
        return metrics.subspace_angle(W, self.W[name])

    @property
    def observe(self) -> Observe:
        """The angles as functions of one node's theta (size,)."""
        return {name: partial(self.angles, name) for name in self.W}

    def metrics(
        self, world: World, result: Result, own: Sequence[Rows]
    ) -> dict[str, float]:
        """Return how far a result is from the targets, on rank 0; all ranks call it."""
        found: dict[str, float] = {}
        if self.gaps:
            parts = result.layout.views(result.solution)

            def measure(x: Matrix) -> Vector:
                likelihood = metrics.ppca_log_likelihood(x, *parts)
                return np.array([np.isnan(x).sum(), x.size, likelihood])

            counted = [sum(measure(p.X) for p in rows.blocks()) for rows in own]
            sums = world.reduce(result.topology, counted)
            missing, entries, likelihood = sums.tolist()
            found = {"missing": missing / entries}
            found |= {} if self.adrift else {"log_likelihood": likelihood}
        if world.rank:
            return {}
        for name in self.W:
            found[f"{name}_degrees"] = float(self.angles(name, result.theta).max())
        found["disagreement"] = float(result.residuals.disagreement.max())
        residual = float(result.residuals.residual.max())
        if math.isfinite(residual):  # unknown if payloads are lost
            found["residual"] = residual
        best = self.best  # without noise the likelihood is unbounded
        if self.pooled is not None and best is not None and best.a < math.inf:
            mean = result.layout.views(result.theta.mean(axis=0))
            most = metrics.ppca_log_likelihood(self.pooled, *best)
            reached = metrics.ppca_log_likelihood(self.pooled, *mean)
            found |= {"log_likelihood": reached, "log_likelihood_gap": most - reached}
        return found


def find_targets(job: Job, everyone: Sequence[Record]) -> Targets:
    """Return the true subspace, if known, and the centralised solution, if wanted.

    The latter has no closed form if the nodes of any rank are "gappy", and is unknown.
    """
    world, config, data = job.world, job.config, job.data
    gaps = any(their["gappy"] for their in everyone)
    own = [p for p in job.problems.values() if isinstance(p, PPCA)]
    layout = next(iter(job.problems.values())).layout
    if not own:
        return Targets(layout, {})
    if gaps:
        seen = [getattr(p, "observed_counts", np.ones(p.dimension)) for p in own]
        lost = np.flatnonzero(world.reduce(job.graph, seen) == 0)
        if len(lost):
            raise ShardError(
                f"column {lost[0]} is missing in all samples of all nodes; drop it "
                "from the data"
            )
    W = {} if data.truth is None else {"angle_to_truth": data.truth}
    if gaps or not config.compare_centralised:
        return Targets(layout, W, gaps=gaps, adrift=gaps and config.traits.tracks)
    D, M, zero_mean = own[0].dimension, own[0].n_components, own[0].zero_mean
    pooled: metrics.Pooled | None = None
    if data.whole is not None:
        pooled = metrics.summarise(data.whole)
        best = metrics.ppca_reference(pooled, M, zero_mean=zero_mean)
    else:
        counts = world.gather_nodes([np.array([[float(p.n_samples)]]) for p in own])
        means = world.gather_nodes([p.mean[None] for p in own])
        factors, found = world.gather_nodes([p.factor for p in own]), None
        if world.rank == 0:
            pooled = metrics.pool(counts[:, 0], means, factors)
            best = metrics.ppca_reference(pooled, M, zero_mean=zero_mean)
            found = [*best.W.ravel(), *best.mu, best.a]
        flat, mu, (a,) = np.split(world.share(found), [D * M, D * M + D])
        best = metrics.MaximumLikelihood(flat.reshape(D, M), mu, float(a))
    return Targets(layout, W | {"angle_to_centralised": best.W}, best, pooled)
