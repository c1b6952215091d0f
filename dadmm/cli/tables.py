"""The tables of a run: read them, agree on their columns, and encode them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from dadmm.comm.tree import TreeReduction
from dadmm.comm.world import Checks, World, collectively
from dadmm.core.errors import ConfigError, ShardError, printable
from dadmm.core.layout import Matrix
from dadmm.data import shard
from dadmm.data.agreement import agree, describe
from dadmm.data.choice import Choice, select
from dadmm.data.encoding import Encoding, Rows
from dadmm.data.files import ARCHIVES, read_frame
from dadmm.data.frame import Frame
from dadmm.graphs.topology import Topology
from dadmm.problems import builder
from dadmm.runs.config import RunConfig

Gaps = tuple[int, int]


class Shards(NamedTuple):
    """The data of the hosted nodes."""

    rows: dict[int, Rows]  # by node
    truth: Matrix | None = None  # the true W where it is known
    encoding: Encoding | None = None  # of the columns; None for tracks
    gaps: Mapping[int, Gaps] = MappingProxyType({})
    """Rows dropped, and rows filled, by node where there are any. If rank 0 reads the
    file, it has those of all nodes."""
    whole: Matrix | None = None  # X of all nodes, if each rank generates it


def has_target(config: RunConfig) -> bool:
    """Return whether the problem has a target y."""
    takes = builder.arguments(builder.find(config.problem)).takes("y")
    if config.target is not None and not takes:
        raise ConfigError(
            f"target does not go with {config.problem}, whose constructor has no "
            "argument y"
        )
    return takes


def choice_of(config: RunConfig) -> Choice:
    """Return which columns a run uses, and how."""
    takes = builder.arguments(builder.find(config.problem))
    intercept = config.fit_intercept
    if intercept is None:
        intercept = bool(takes.defaults.get("fit_intercept", False))
    supervised = has_target(config)
    return Choice(
        config.columns("features"),
        config.target,
        config.weight,
        supervised=supervised,
        n_classes=builder.n_classes(config.problem) if supervised else 0,
        categories=config.columns("categories") or (),
        max_categories=config.max_categories,
        on_missing=str(config.on_missing),
        unknown=config.unknown,
        standardise=config.standardise,
        intercept=intercept,
    )


def load(world: World, config: RunConfig, graph: Topology, checks: Checks) -> Shards:
    """Return the encoded tables of the hosted nodes.

    Each rank reads its own rows if the files allow it. Otherwise rank 0 reads the file
    and sends each rank the numbers of its rows.
    """
    n_nodes = graph.n_nodes
    if shard.is_local(str(config.data)) and config.labels is None:
        hosted = range(n_nodes) if world.comm is None else (world.rank,)
        choice, frames = collectively(world, _read, config, n_nodes, hosted)

        def reduce(values: Mapping[int, Any], merge: Any) -> Any:
            return world.reduce(graph, list(values.values()), merge)

        encoding = agree(reduce, frames, choice)
        return checks.run(lambda: _encode(encoding, frames))
    whole = collectively(world, _load, config, graph, world.rank)
    if world.comm is None:
        return whole
    return _scatter(world, whole)


def _how(config: RunConfig) -> dict[str, Any]:
    """Return how files are read: the arguments of `read_frame`."""
    file = Path(str(config.data).partition("::")[0])
    beside: list[str] = []
    if file.suffix in ARCHIVES and has_target(config):
        target = config.target or "y"
        wanted = [target] if config.weight is None else [config.weight, target]
        if not re.fullmatch("[+-]?[0-9]+", target):  # not a column of the only array
            beside = wanted
    return {
        "separator": config.separator,
        "decimal": config.decimal,
        "encoding": config.encoding,
        "beside": beside,
    }


def _read(
    config: RunConfig, n_nodes: int, hosted: Sequence[int]
) -> tuple[Choice, dict[int, Frame]]:
    """Return the tables of the hosted nodes, reading no others."""
    choice, how = choice_of(config), _how(config)
    return choice, shard.read_tables(str(config.data), n_nodes, hosted, **how)


def _load(config: RunConfig, graph: Topology, rank: int) -> Shards:
    """Return the rows of all nodes on rank 0, and nothing elsewhere."""
    if rank:
        return Shards({})
    if config.labels is not None and "{rank}" in str(config.data):
        raise ShardError("labels go neither with one file per rank nor with sfm")
    choice, how = choice_of(config), _how(config)
    frame, nodes = read_frame(str(config.data), **how), None
    if config.labels is not None:
        frame, choice, nodes = _take_labels(frame, choice, config.labels)
    if error := describe(frame, choice)["error"]:  # of the file, without a node
        raise ShardError(error[1])
    frames = dict(enumerate(shard.split_table(frame, graph.n_nodes, nodes)))
    return _encode(agree(TreeReduction(graph).reduce, frames, choice), frames)


def _take_labels(
    frame: Frame, choice: Choice, labels: str
) -> tuple[Frame, Choice, Any]:
    """Return a table without the column of labels, and the labels.

    The choice then has names: numbers of columns count before labels are removed.
    """
    target = choice.target
    if target is None and "y" in frame.columns and not frame.named:
        target = "y"  # an array beside X
    if target is not None:
        choice = choice._replace(target=frame.find(target, "target"))
    if choice.weight is not None:
        choice = choice._replace(weight=frame.find(choice.weight, "weight"))
    if choice.features is not None:
        words = choice.features
        choice = choice._replace(features=[frame.find(w, "features") for w in words])
    words = choice.categories
    choice = choice._replace(categories=[frame.find(w, "categories") for w in words])
    rest, nodes = shard.resolve_labels(frame, labels)
    removed = set(frame.names) - set(rest.names)
    for what in ("target", "weight"):
        if getattr(choice, what) in removed:
            raise ShardError(f"column {labels} cannot be both labels and {what}")
    if removed & {*(choice.features or ())}:
        raise ShardError(f"column {labels} cannot be both labels and a feature")
    return rest, choice, nodes


def _encode(encoding: Encoding, frames: Mapping[int, Frame]) -> Shards:
    """Return the numbers of tables."""
    rows, gaps = {}, {}
    for i, frame in frames.items():
        try:
            rows[i] = found = encoding.encode(frame, fit=True)
        except ShardError as error:
            raise ShardError(f"node {i}: {error}") from None
        n_dropped = int(len(found.kept) - found.kept.sum())
        if n_dropped == frame.n_rows:
            raise ShardError(
                f"node {i}: all of its {n_dropped} rows have missing entries, and none "
                "is left; use --on-missing mean, or leave columns out of --features"
            )
        if n_dropped or found.n_filled:
            gaps[i] = (n_dropped, found.n_filled)
    return Shards(rows, None, encoding, gaps)


def _scatter(world: World, whole: Shards) -> Shards:
    """Return this rank's part of the data of rank 0."""
    every, text = list(whole.rows.values()), ""
    if whole.encoding is not None:
        sparse = not isinstance(every[0].X, np.ndarray)
        text = json.dumps([whole.encoding.to_json(), sparse])
    described, sparse = json.loads(world.share(text))
    encoding = Encoding.from_json(described)

    def scatter(blocks: list[Any]) -> Any:
        return world.scatter(blocks or None)

    X = scatter([_pack(rows.X) if sparse else rows.X for rows in every])
    own = Rows(_unpack(X) if sparse else X)
    if encoding.target is not None:
        own = own._replace(y=scatter([np.array([rows.y]) for rows in every])[0])
    if encoding.weight is not None:
        weights = [np.array([rows.weight]) for rows in every]
        own = own._replace(weight=scatter(weights)[0])
    return Shards({world.rank: own}, None, encoding, whole.gaps)


def _pack(rows: Any) -> Matrix:
    """Return a sparse array as a row of numbers."""
    sizes = [*rows.shape, rows.nnz]
    parts = [sizes, rows.indptr, rows.indices, rows.data]
    return np.concatenate(parts).astype(np.float64)[None]


def _unpack(packed: Matrix) -> Any:
    from scipy import sparse

    n_rows, width, n_entries = packed[0, :3].astype(np.int64)
    ends = np.cumsum([3, n_rows + 1, n_entries])
    _, starts, columns, entries = np.split(packed[0], ends)
    parts = (entries, columns.astype(np.int64), starts.astype(np.int64))
    return sparse.csr_array(parts, shape=(n_rows, width))


def shared_names(config: RunConfig) -> list[str]:
    """Return the names that this process would send, from the files it can see."""
    source = str(config.data)
    nodes = {i: source.replace("{rank}", str(i)) for i in _numbers(source)}
    if "{rank}" not in source and os.path.exists(source.partition("::")[0]):
        nodes = {0: source}
    if not nodes:
        return [f"names: unknown, since {source} is not here"]
    choice, how, lines = choice_of(config), _how(config), []
    for i, file in nodes.items():
        frame = read_frame(file, **how)
        if config.labels is not None:
            frame, choice, _ = _take_labels(frame, choice, config.labels)
        found = describe(frame, choice, i)
        if found["error"]:
            raise ShardError(f"{file}: {found['error'][1]}")
        used = select(frame, choice)
        names = [n for n in (*used.features, used.target, used.weight) if n is not None]
        if frame.named:
            lines.append(f"names of columns in {file}: {_quoted(names)}")
        else:
            lines.append(f"number of columns in {file}: {len(names)}")
        for name, facts in found["texts"].items():
            values = facts["values"]
            what = "classes" if name == used.target else "categories"
            if values is None:
                more = "more than --max-categories, which ends the run; none is sent"
                lines.append(f"{what} of {name!r} in {file}: {more}")
            elif values:
                lines.append(f"{what} of {name!r} in {file}: {_quoted(values)}")
    return lines


def _numbers(source: str) -> list[int]:
    """Return the numbers i for which the file of rank i exists."""
    file = source.partition("::")[0]
    if "{rank}" not in file:
        return []
    pattern = Path(file.replace("{rank}", "0"))
    matches = re.compile(re.escape(str(Path(file))).replace(r"\{rank\}", r"(\d+)"))
    if not os.path.isdir(pattern.parent):
        return []
    found = (matches.fullmatch(str(path)) for path in pattern.parent.iterdir())
    numbers = sorted(int(match[1]) for match in found if match)
    return [i for i in numbers if os.path.exists(file.replace("{rank}", str(i)))]


def _quoted(values: Sequence[Any]) -> str:
    return printable(", ".join(json.dumps(x, ensure_ascii=False) for x in values))
