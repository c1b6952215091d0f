"""Division of samples among nodes; each process loads only its own."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dadmm.core.errors import ShardError
from dadmm.core.layout import Matrix
from dadmm.data.encoding import Rows, row_blocks
from dadmm.data.files import extent, open_blocks
from dadmm.data.frame import Frame

__all__ = ["split", "split_frames"]

NODE = re.compile(r"\{(node|rank)\}")  # in a source with one file per node
LARGEST = 1e70  # allowed entry: sums of fourth powers are finite


def bounds(n_samples: int, n_nodes: int, i: int) -> tuple[int, int]:
    """Return the start and stop of the samples of node i; raise if they are too few.

    Shares are contiguous and differ by at most one sample; the larger come first.
    """
    if n_samples < n_nodes:
        raise ShardError(
            f"{n_nodes} nodes are too many for the data, which can be divided among "
            f"{n_samples} at most; use fewer nodes"
        )
    share, rest = divmod(n_samples, n_nodes)
    return i * share + min(i, rest), (i + 1) * share + min(i + 1, rest)


def split(samples: Any, n_nodes: int, labels: ArrayLike | None = None) -> list[Any]:
    """Return the samples of each node: even contiguous shares, or by label.

    Parameters
    ----------
    samples : ndarray of shape (n_samples, dimension), or Frame
    labels : array_like of int, shape (n_samples,), optional
        Node of each sample. Every node needs at least one.

    Examples
    --------
    >>> import dadmm
    >>> table = dadmm.Frame.of({"age": [34, 71, 52], "ward": ["A", "B", "B"]})
    >>> parts = dadmm.shard.split(table, 2, labels=[1, 0, 1])
    >>> [part.column("age").tolist() for part in parts]
    [[71.0], [34.0, 52.0]]
    """
    n = np.shape(samples.matrix if isinstance(samples, Frame) else samples)[0]
    if labels is None:
        own: list[Any] = [slice(*bounds(n, n_nodes, i)) for i in range(n_nodes)]
    else:
        numbers, nodes, wrong = np.asarray(labels), np.arange(n_nodes), ""
        if numbers.shape != (n,):
            wrong = f"labels have shape {numbers.shape} for {n} samples"
        elif not (known := np.isin(numbers, nodes)).all():
            wrong = f"the label of sample {known.argmin()} is {numbers[known.argmin()]}"
        elif len(empty := np.setdiff1d(nodes, numbers)):
            wrong = f"node {empty[0]} has no samples"
        if wrong:
            raise ShardError(
                f"{wrong}; give each sample the number of its node, 0..{n_nodes - 1}, "
                "and each node a sample"
            )
        own = [np.flatnonzero(numbers == i) for i in nodes]
    if isinstance(samples, Frame):
        return [samples.take(rows) for rows in own]
    # in C order, since the bits of results depend on the order
    return [np.array(samples[rows], np.float64, order="C") for rows in own]


def split_frames(tracks: Matrix, n_nodes: int) -> list[Matrix]:
    """Return the rows of each camera: whole frames, split as evenly as possible.

    Parameters
    ----------
    tracks : ndarray of shape (2 F, N), x and y of one frame after the other

    Examples
    --------
    >>> import dadmm
    >>> tracks, _ = dadmm.datasets.turntable(n_frames=11, n_points=8)
    >>> [rows.shape for rows in dadmm.shard.split_frames(tracks, 3)]
    [(8, 8), (8, 8), (6, 8)]
    """
    cuts = [bounds(len(tracks) // 2, n_nodes, i) for i in range(n_nodes)]
    return [np.ascontiguousarray(tracks[2 * a : 2 * b]) for a, b in cuts]


def open_tables(
    source: str, n_nodes: int, nodes: Iterable[int], **how: Any
) -> dict[int, Iterable[Frame]]:
    """Return the frames of some nodes, which are read from their own files or rows.

    There is one file per node, such as ``part-{node}.csv``, or the file has an extent
    and is divided evenly.
    """
    size = None if NODE.search(source) else extent(source)
    tables: dict[int, Iterable[Frame]] = {}
    for i in nodes:
        if size is not None:
            rows = slice(*bounds(size.n_rows, n_nodes, i))
            tables[i] = open_blocks(source, rows, **how)
            continue
        try:
            tables[i] = open_blocks(NODE.sub(str(i), source), **how)
        except ShardError as error:
            raise ShardError(f"node {i}: {error}") from None
    return tables


def check(rows: Rows, node: int, *, gaps: bool = False) -> None:
    """Raise if an entry of a node's rows is infinite, very large, or a gap."""
    targets = [] if rows.y is None else [("the target", rows.y)]
    for what, whole in [("column", rows.X), *targets]:
        first = 0
        for values in row_blocks(whole):
            if not isinstance(values, np.ndarray):
                return  # the problem checks sparse entries
            good = (np.abs(values) <= LARGEST) | (gaps & np.isnan(values))
            for place in map(tuple, np.argwhere(~good)):
                column = "".join(f" {k}" for k in place[1:])
                raise ShardError(
                    f"node {node}: row {first + place[0]}, {what}{column} is "
                    f"{values[place]:g}; entries must be numbers of at most "
                    f"{LARGEST:g}{', or NaN where they are missing' * gaps}; fill, "
                    "drop or rescale it"
                )
            if np.isnan(values).all():
                raise ShardError(
                    f"node {node}: all entries of its {len(values)} samples are "
                    "missing; give it at least one entry, or leave the node out"
                )
            first += len(values)
