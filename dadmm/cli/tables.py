"""The tables of a run: read them, agree on their columns, and encode them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from glob import escape, glob
from types import MappingProxyType
from typing import Any, NamedTuple

from dadmm.comm.tree import TreeReduction
from dadmm.comm.world import Checks, World, collectively
from dadmm.core.arguments import print_out
from dadmm.core.documents import Table
from dadmm.core.errors import ConfigError, ShardError, printable
from dadmm.core.layout import Matrix
from dadmm.data import agreement, shard
from dadmm.data.agreement import Choice, Tables
from dadmm.data.encoding import Encoding, Rows
from dadmm.data.files import load_array, read_frame, reader_of
from dadmm.data.frame import Frame
from dadmm.graphs.topology import Topology
from dadmm.problems import builder
from dadmm.runs.config import RunConfig
from dadmm.runs.settings import FORMAT, column_names

INTEGER = re.compile("[+-]?[0-9]+")
RANK = "{rank}"  # a node, if each rank has one
LARGE = 10**8  # bytes of a file of which the run says that it reads it


class Shards(NamedTuple):
    """The data of the hosted nodes."""

    rows: dict[int, Rows]  # by node
    truth: Matrix | None = None  # the true W where it is known
    encoding: Encoding | None = None  # of the columns; None for tracks
    # rows dropped and filled, by node; of all nodes, on rank 0, if it reads the file
    gaps: Mapping[int, tuple[int, int]] = MappingProxyType({})
    whole: Matrix | None = None  # X of all nodes, if each rank generates it


def _asked(config: RunConfig) -> tuple[Choice, Table]:
    """Return which columns a run uses, and the arguments of `read_frame`."""
    intercept, supervised = config.fit_intercept, "y" in config.arguments
    if intercept is None:
        argument = config.arguments.get("fit_intercept")
        intercept = bool(argument and argument.default)
    features = None if config.features is None else column_names(config.features)
    choice = Choice(
        features, config.target, config.weight,
        leave_out=column_names(config.leave_out or ""), supervised=supervised,
        n_classes=builder.n_classes(config.problem) if supervised else 0,
        categories=column_names(config.categories or ""),
        max_categories=config.max_categories, on_missing=str(config.on_missing),
        unknown=config.unknown, standardise=config.standardise, intercept=intercept,
    )  # fmt: skip
    target, beside = config.target or "y", list[str]()
    by_name = not INTEGER.fullmatch(target)  # not a column of the only array
    reader = reader_of(str(config.data))
    if supervised and by_name and reader and reader.archive:
        beside = [target] if config.weight is None else [config.weight, target]
    how = {name: getattr(config, name) for name in FORMAT}
    return choice, how | {"beside": beside}


def load(world: World, config: RunConfig, graph: Topology, checks: Checks) -> Shards:
    """Return the data of the hosted nodes, from tables in files."""
    source, n_nodes = str(config.data), graph.n_nodes
    is_local = shard.is_local(source) and config.labels is None
    if RANK in source and world.comm is not None and world.size != n_nodes:
        raise ConfigError(
            f"data has {RANK}, but {n_nodes} nodes are on {world.size} ranks; write "
            "{node}, the number of a node, in place of it"
        )
    file = shard.source_of(source.partition("::")[0], 0)
    size = os.path.getsize(file) if os.path.isfile(file) else 0
    if size >= LARGE and world.rank == 0 and not config.quiet:
        who = ": rank 0 reads it, and sends each rank its rows"
        who = ": each rank reads its own rows" if is_local else who
        more = "" if world.comm is None else who
        print_out(f"reading {source}, {size / 1e6:,.0f} MB{more}\n")
    if not is_local:  # rank 0 reads the file, and sends each rank numbers of its rows
        whole = collectively(world, _load_all, config, graph, world.rank)
        return whole if world.comm is None else _scatter(world, whole, n_nodes)

    def read() -> tuple[Choice, Tables]:
        choice, how = _asked(config)
        how["whole"] = not config.traits.blocks
        return choice, shard.open_tables(source, n_nodes, world.hosted(n_nodes), **how)

    def reduce(values: Mapping[int, Any], merge: Any) -> Any:
        return world.reduce(graph, list(values.values()), merge)

    choice, found = collectively(world, read)
    encoding = agreement.agree(reduce, found, choice)
    return checks.run(lambda: _encode(encoding, found))


def _load_all(config: RunConfig, graph: Topology, rank: int) -> Shards:
    """Return the rows of all nodes on rank 0, and nothing elsewhere."""
    if rank:
        return Shards({})
    frame, choice, labels = _read(config, str(config.data))
    encoding = agreement.conclude(agreement.describe(frame, choice), choice)
    parts = enumerate(shard.split(frame, graph.n_nodes, labels))
    found, reduce = {i: [part] for i, part in parts}, TreeReduction(graph).reduce
    return _encode(agreement.with_moments(reduce, found, encoding, choice), found)


def _read(config: RunConfig, file: str) -> tuple[Frame, Choice, Any]:
    """Return a table, the choice of its columns, and the label of each row, if any."""
    choice, how = _asked(config)
    frame, labels = read_frame(file, **how), config.labels
    if labels is None:
        return frame, choice, None
    if how["beside"] and frame.sparse is None:
        choice = choice._replace(target=how["beside"][-1])  # even if labels are its
    if labels not in frame.names and reader_of(labels) is not None:
        return frame, choice, load_array(labels).ravel()
    column = frame.find(labels, "labels")
    return frame, choice._replace(labels=column), frame.column(column)


def _encode(encoding: Encoding, given: Tables) -> Shards:
    rows, gaps = {}, {}
    for i, frames in given.items():
        try:
            rows[i] = found = encoding.encode_all(frames)
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
    return Shards(rows, None, encoding, gaps)


def _scatter(world: World, whole: Shards, n_nodes: int) -> Shards:
    """Return the data of the hosted nodes, which are on rank 0."""
    given = whole.encoding
    encoding = Encoding.from_json(world.share(given and given.to_json()))

    blocks = world.scatter([[*own.arrays()] for own in whole.rows.values()])
    found = {}
    for i, parts in zip(world.hosted(n_nodes), blocks, strict=True):
        weight = None if encoding.weight is None else parts.pop()
        y = None if encoding.target is None else parts.pop()
        X = parts[0]
        if len(parts) > 1:
            from scipy.sparse import csr_array

            shape = len(parts[-1]) - 1, len(encoding.feature_names)
            X = csr_array(tuple(parts), shape=shape)
        found[i] = Rows(X, y, weight)
    return Shards(found, None, encoding, whole.gaps)


def shared_names(config: RunConfig) -> list[str]:
    """Return the names that this process would send, from the files it can see."""
    files = _visible(str(config.data))
    if not files:
        return [f"names: unknown, since {config.data} is not here"]
    lines = []
    for i, file in files.items():
        frame, choice, _ = _read(config, file)
        found = agreement.describe(frame, choice, i)
        if found["error"]:
            raise ShardError(f"{file}: {found['error'][1]}")
        features, target, weight = agreement.select(frame, choice)
        names = [n for n in (*features, target, weight) if n is not None]
        if frame.named:
            lines.append(f"names of columns in {file}: {_quoted(names)}")
        else:
            lines.append(f"number of columns in {file}: {len(names)}")
        for name, facts in found["texts"].items():
            what = "classes" if name == target else "categories"
            values = "more than --max-categories, which ends the run; none is sent"
            if facts["values"] is not None:
                values = _quoted(facts["values"])
            lines += [f"{what} of {name!r} in {file}: {values}"] * bool(values)
    return lines


def _visible(source: str) -> dict[int, str]:
    """Return the sources of the nodes whose files exist, by node."""
    file = source.partition("::")[0]
    if not shard.has_node(file):
        return {0: source} if os.path.exists(file) else {}
    file = file.replace(RANK, "{node}")
    words = re.compile(re.escape(file).replace(r"\{node\}", r"(\d+)"))
    found = map(words.fullmatch, glob(escape(file).replace("{node}", "*")))
    nodes = sorted({int(match[1]) for match in found if match})
    there = [i for i in nodes if os.path.exists(shard.source_of(file, i))]
    return {i: shard.source_of(source, i) for i in there}


def _quoted(values: Sequence[Any]) -> str:
    return printable(", ".join(json.dumps(x, ensure_ascii=False) for x in values))
