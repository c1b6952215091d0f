"""Set-up of a run: graph, data, problems, and what estimates are compared with."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dadmm.comm import identity
from dadmm.comm.tree import TreeReduction
from dadmm.comm.world import Checks, World, collectively, from_rank_0
from dadmm.core.arguments import print_out
from dadmm.core.documents import Table
from dadmm.core.errors import ConfigError, ShardError, shown
from dadmm.core.layout import Layout, Matrix, Vector
from dadmm.data import agreement, datasets, shard
from dadmm.data.encoding import Encoding, Rows
from dadmm.data.files import READERS, Blocks, load_array, read_frame
from dadmm.data.frame import Frame
from dadmm.data.patterns import remove_entries
from dadmm.graphs.placement import assign, hosts_of
from dadmm.graphs.schedule import Schedule
from dadmm.graphs.topology import GRAPHS, Integers, Topology
from dadmm.models.scores import check_score_names
from dadmm.problems import PPCA, PROBLEMS, IncompletePPCA, builder, metrics
from dadmm.runs.config import RunConfig
from dadmm.runs.settings import FORMAT, column_names
from dadmm.solver.plan import abilities, make_plan
from dadmm.solver.result import Result

if TYPE_CHECKING:
    from dadmm.cli.job import Job

INTEGER = re.compile("[+-]?[0-9]+")
LARGE = 10**8  # bytes of a file of which the run says that it reads it


def build_graph(job: Job) -> None:
    """Build or read the graph and its schedule, and give each rank its nodes."""
    world, config = job.world, job.config
    count = config.nodes or (None if world.comm is None else world.size)
    names = {*config.topology.split(",")}
    is_named = names <= GRAPHS.keys() and not config.schedule.endswith(".csv")
    if world.comm is None or is_named:
        checks = Checks(world)
        built = checks.run(lambda: config.build_graph(count))
        checks.gather(lambda: {"graph": identity.of_graph(*built)})
    else:
        built = _share_graph(world, config, count)
    job.graph, job.schedule = built
    config.settle(job.graph.n_nodes)
    if world.comm is not None:
        one_host = len({*job.machines}) == 1 and config.placement in ("hosts", "blocks")
        if one_host and job.graph.n_nodes == world.size:
            world.hosts = np.arange(world.size)
        else:
            world.hosts = _place_nodes(job)


def _share_graph(
    world: World, config: RunConfig, count: int | None
) -> tuple[Topology, Schedule | None]:
    """Return the graph and schedule of files, which rank 0 reads for all."""

    def read() -> list[Any]:
        graph, schedule = config.build_graph(count)
        edges, turns = graph.edges, None if schedule is None else schedule.rows
        rounds = turns and [edges[rows].tolist() for rows in turns]
        places = None if graph.positions is None else graph.positions.tolist()
        return [graph.n_nodes, edges.tolist(), graph.names, places, rounds]

    n_nodes, edges, names, places, rounds = from_rank_0(world, read)
    positions = None if places is None else np.array(places)
    graph = Topology.from_edges(n_nodes, edges, names, positions)
    return graph, None if rounds is None else Schedule(n_nodes, rounds)


def _place_nodes(job: Job) -> Integers:
    """Return the rank of each node."""
    graph, machines, how = job.graph, job.machines, job.config.placement
    if how == "blocks":
        return assign(graph, machines, how)

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
        return list(map(int, hosts_of(nodes, ranks, graph.n_nodes, len(machines))))

    return np.array(from_rank_0(job.world, find))


def load_data(job: Job) -> None:
    """Load or draw the rows, make the problems, and compare them between ranks."""
    world, config, checks = job.world, job.config, Checks(job.world)
    source, n_nodes = str(config.data), job.graph.n_nodes
    if "{rank}" in source and world.comm is not None and world.size != n_nodes:
        raise ConfigError(
            f"data has {{rank}}, but {n_nodes} nodes are on {world.size} ranks; write "
            "{node}, the number of a node, in place of it"
        )
    file = shard.NODE.sub("0", source.partition("::")[0])
    size = os.path.getsize(file) if config.data and os.path.isfile(file) else 0
    if size >= LARGE and world.rank == 0 and not config.quiet:
        who = "rank 0 reads it, and sends each rank its rows"
        who = "each rank reads its own rows" if config.is_local else who
        more = "" if world.comm is None else f": {who}"
        print_out(f"reading {source}, {size / 1e6:,.0f} MB{more}\n")
    if config.data is None:
        hosted = world.hosted(n_nodes)
        job.data = checks.run(lambda: _synthetic(config, n_nodes, hosted))
    else:
        load = read_own if config.is_local else share_file
        job.data = load(world, config, job.graph, checks)
    about = checks.run(lambda: _make_problems(job)) or {}
    everyone = checks.gather(
        lambda: {"layout": repr(next(iter(job.problems.values())).layout)},
        process=[os.uname().nodename, os.getpid()],
        **about,
    )
    able = [each for own in everyone for each in own["able"]]
    merges = not config.options["scheme"].is_constant
    job.plan = make_plan(able, config.init, config.coordinates, merges)
    job.processes = [their["process"] for their in everyone]
    job.gaps = [row for their in everyone for row in their["gaps"]]
    if config.data is not None and world.comm is not None and not config.quiet:
        from dadmm.cli.privacy import warn

        warn(job)
    job.targets = find_targets(job, any(their["gappy"] for their in everyone))


class Shards(NamedTuple):
    """The data of the hosted nodes."""

    rows: dict[int, Rows]  # by node
    truth: Matrix | None = None  # the true W where it is known
    encoding: Encoding | None = None  # of the columns; None for tracks
    # rows dropped and filled, by node; of all nodes, on rank 0, if it reads the file
    gaps: dict[int, tuple[int, int]] = {}  # noqa: RUF012 (never changed)
    whole: Matrix | None = None  # X of all nodes, if each rank generates it


def read_own(
    world: World, config: RunConfig, graph: Topology, checks: Checks
) -> Shards:
    """Return the data of the hosted nodes, whose rows each rank reads by itself."""

    def read() -> tuple[agreement.Choice, agreement.Tables]:
        choice, how = _choose(config)
        how["whole"] = not config.traits.blocks
        hosted = world.hosted(graph.n_nodes)
        tables = shard.open_tables(str(config.data), graph.n_nodes, hosted, **how)
        return choice, tables

    choice, found = collectively(world, read)
    with world.tree(graph) as tree:
        encoding = agreement.agree(tree.reduce, found, choice)
    return checks.run(lambda: _encode(encoding, found))


def share_file(
    world: World, config: RunConfig, graph: Topology, checks: Checks
) -> Shards:
    """Return the data of the hosted nodes; rank 0 reads the file, and sends numbers."""
    whole = checks.run(lambda: Shards({}) if world.rank else _load_all(config, graph))
    columns = checks.run(lambda: whole.encoding and whole.encoding.to_json())
    described = checks.gather(columns=columns)[0]["columns"]
    if world.comm is None:
        return whole
    encoding = whole.encoding
    if world.rank and described is not None:
        encoding = Encoding.from_json(described)
    uses = encoding or Encoding({})  # of tracks: X only
    blocks = world.scatter([[*own.arrays()] for own in whole.rows.values()])
    found = {}
    for i, parts in zip(world.hosted(graph.n_nodes), blocks, strict=True):
        weight = None if uses.weight is None else parts.pop()
        y = None if uses.target is None else parts.pop()
        X = parts[0]
        if len(parts) > 1:
            from scipy.sparse import csr_array

            shape = len(parts[-1]) - 1, len(uses.feature_names)
            X = csr_array(tuple(parts), shape=shape)
        found[i] = Rows(X, y, weight)
    return Shards(found, None, encoding, whole.gaps)


def _load_all(config: RunConfig, graph: Topology) -> Shards:
    """Return the rows of all nodes, from one file."""
    if config.traits.tracks:
        tracks = datasets.load_tracks(str(config.data))
        cameras = enumerate(shard.split_frames(tracks, graph.n_nodes))
        return Shards({i: Rows(X) for i, X in cameras})
    frame, choice, labels = read_whole(config, str(config.data))
    encoding = agreement.conclude(agreement.describe(frame, choice), choice)
    parts = shard.split(frame, graph.n_nodes, labels)
    tables = {i: [part] for i, part in enumerate(parts)}
    if choice.on_missing == "mean" or choice.standardise:
        reduce = TreeReduction(graph).reduce
        encoding = agreement.with_moments(reduce, tables, encoding, choice)
    return _encode(encoding, tables)


def read_whole(config: RunConfig, file: str) -> tuple[Frame, agreement.Choice, Any]:
    """Return a table, the choice of its columns, and the label of each row, if any."""
    choice, how = _choose(config)
    frame, labels = read_frame(file, **how), config.labels
    if labels is None:
        return frame, choice, None
    if how["beside"] and how["beside"][-1] in frame.places:
        choice = choice._replace(target=how["beside"][-1])  # even if labels are its
    is_file = Path(labels.partition("::")[0]).suffix in READERS
    if is_file and labels not in frame.places:
        return frame, choice, load_array(labels).ravel()
    column = frame.find(labels, "labels")
    return frame, choice._replace(labels=column), frame.column(column)


def _choose(config: RunConfig) -> tuple[agreement.Choice, Table]:
    """Return which columns a run uses, and the arguments of `read_frame`."""
    intercept, supervised = config.fit_intercept, "y" in config.arguments
    if intercept is None:
        argument = config.arguments.get("fit_intercept")
        intercept = bool(argument and argument.default)
    features, left_out, categories = (
        column_names(text) if text else None
        for text in (config.features, config.leave_out, config.categories)
    )
    choice = agreement.Choice(
        features, config.target, config.weight,
        leave_out=left_out or [], supervised=supervised,
        n_classes=builder.n_classes(config.problem) if supervised else 0,
        categories=categories or [],
        max_categories=config.max_categories, on_missing=str(config.on_missing),
        unknown=config.unknown, standardise=config.standardise, intercept=intercept,
    )  # fmt: skip
    target, beside = config.target or "y", list[str]()
    by_name = not INTEGER.fullmatch(target)  # not a column of the only array
    if supervised and by_name and config.reader and config.reader.archive:
        beside = [target] if config.weight is None else [config.weight, target]
    return choice, {name: getattr(config, name) for name in FORMAT} | {"beside": beside}


def _encode(encoding: Encoding, given: agreement.Tables) -> Shards:
    rows, gaps = {}, {}
    for i, frames in given.items():
        try:
            if isinstance(frames, Blocks):
                found = encoding.encode_blocks(frames)
            else:
                found = encoding.encode(*frames, fit=True)
        except ShardError as error:
            raise ShardError(f"node {i}: {error}") from None
        n_dropped = int(len(found.kept) - found.kept.sum())
        if n_dropped == len(found.kept):
            raise ShardError(
                f"node {i}: all of its {n_dropped} rows have missing entries, and none "
                "is left; use --on-missing mean, or leave columns out of --features"
            )
        if n_dropped or found.n_filled:
            gaps[i] = (n_dropped, found.n_filled)
        rows[i] = found
    return Shards(rows, None, encoding, gaps)


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
    for i in hosted:
        part = slice(*shard.bounds(len(X), n_nodes, i))
        # in C order, since the bits of results depend on the order
        own = np.array(X[part], float, order="C")
        rows[i] = Rows(own, None if y is None else np.array(y[part], float))
    gaps = "keep" if target is None else "error"
    encoding = Encoding.plain(X.shape[1], target, classes=classes, on_missing=gaps)
    return Shards(rows, truth, encoding, whole=whole)


def _make_problems(job: Job) -> Table:
    """Make the problems, and name their columns; return facts for the other ranks."""
    config, data = job.config, job.data
    settings = config.problem_arguments(job.graph.n_nodes)
    if not config.is_plugin:  # one of yours may accept any rows
        for i, rows in data.rows.items():
            shard.check(rows, i, gaps=hasattr(PROBLEMS[config.problem], "with_gaps"))
    classes = None if data.encoding is None else data.encoding.classes
    if classes is not None and "n_classes" in config.arguments:
        given = settings.setdefault("n_classes", len(classes))
        if given != len(classes):
            raise ConfigError(
                f"n_classes is {shown(given)}, but the target has {len(classes)} "
                "classes; leave it out of the settings"
            )
    build = partial(builder.build, config.problem, settings=settings)
    job.problems = {i: build(rows) for i, rows in data.rows.items()}
    job.features = None
    if data.encoding is not None:
        names = data.encoding.feature_names
        shapes = next(iter(job.problems.values())).layout.shapes
        if config.traits.predicts == "subspace":
            check_score_names(names, shapes["W"][1])
        is_linear = shapes.get("coef", ())[-1:] == (len(names),)
        is_linear = is_linear and "y" in config.arguments
        if is_linear and "intercept" in names and "intercept" in shapes:
            raise ShardError(
                "a column is called 'intercept', which is also the name of the fitted "
                "intercept; rename the column, or use --no-fit-intercept"
            )
        if is_linear or data.encoding.named:
            job.features = names
    return {
        "able": abilities(job.problems),
        "gaps": [[i, *counts] for i, counts in data.gaps.items()],
        "gappy": any(isinstance(own, IncompletePPCA) for own in job.problems.values()),
    }


class Targets(NamedTuple):
    """The subspaces to compare estimates with, and facts about the problem."""

    layout: Layout
    W: dict[str, Matrix]  # by the name of the angle to it
    # the centralised solution and the statistics of all data, on ranks that have them
    best: metrics.MaximumLikelihood | None = None
    pooled: metrics.Pooled | None = None
    gaps: bool = False  # whether any node has missing entries
    adrift: bool = False  # whether structure is known up to a translation only

    def angles(self, name: str, theta: Vector | Matrix) -> Any:
        """Return the angle of theta (..., size) to a target in degrees, (...)."""
        W = self.layout.views(theta).W
        W = W - W.mean(axis=-2, keepdims=True) if self.adrift else W
        return metrics.subspace_angle(W, self.W[name])

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


def find_targets(job: Job, gaps: bool) -> Targets:
    """Return the true subspace, if known, and the centralised solution, if wanted.

    The latter has no closed form if nodes of any rank have ``gaps``, and is unknown.
    """
    world, config, data = job.world, job.config, job.data
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
    pooled, best = None, None
    if data.whole is not None:
        pooled = metrics.summarise(data.whole)
    else:
        counts = world.gather_nodes([np.array([[float(p.n_samples)]]) for p in own])
        means = world.gather_nodes([p.mean[None] for p in own])
        factors = world.gather_nodes([p.factor for p in own])
        if world.rank == 0:
            pooled = metrics.pool(counts[:, 0], means, factors)
    if pooled is not None:
        M, zero_mean = own[0].n_components, own[0].zero_mean
        best = metrics.ppca_reference(pooled, M, zero_mean=zero_mean)
    axes = None if best is None else best.W.tolist()
    if data.whole is None:
        axes = from_rank_0(world, lambda: axes)
    return Targets(layout, W | {"angle_to_centralised": np.array(axes)}, best, pooled)
