"""Data files as tables: rows with named columns, the target last."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dadmm.core.errors import ShardError
from dadmm.core.layout import Matrix
from dadmm.data import shard
from dadmm.data.datasets import ARCHIVES, load_array, open_named
from dadmm.data.textfiles import Names

MOST_NAMES = 5  # in the error that no column has the name of the target
Array = NDArray[Any]


class Table(NamedTuple):
    """The rows of a file, or those of one node."""

    rows: Matrix  # (n, d), or (n, d + 1) with y as the last column
    names: Names  # of all columns, in the same order
    nodes: Array | None = None  # (n,) node of each row, if there are labels


def load(
    source: str,
    target: str | None,
    labels: str | None = None,
    *,
    supervised: bool = True,
) -> Table:
    """Return the rows of a whole file.

    Parameters
    ----------
    source : str
    target : str or None
        The target: the number or name of a column, or the name of an array in a file
        of several arrays. By default the array ``y``, or the last column that does not
        hold labels.
    labels : str or None
        As in `shard.resolve_labels`; in a file of several arrays, a column of X.
    supervised : bool
        Whether there is a target.
    """
    if supervised:
        matrix, names, column = open_table(source, target)
    else:
        (matrix, names), column = open_named(source), None
    if labels is None:
        return _target_last(matrix, names, column)
    samples, nodes = shard.resolve_labels(np.asarray(matrix), labels)
    if samples.shape[1] < matrix.shape[1]:  # labels are a column, which is removed
        removed = int(labels) % matrix.shape[1]
        names = None if names is None else names[:removed] + names[removed + 1 :]
        if column is not None and removed != column:
            column -= removed < column
        elif column is not None and target is None and not _is_archive(source):
            column -= 1
        elif column is not None:
            raise ShardError(f"column {labels} cannot be both labels and target")
    return _target_last(samples, names, column)._replace(nodes=nodes)


def read(
    source: str,
    target: str | None,
    n_nodes: int,
    nodes: Iterable[int],
    *,
    supervised: bool = True,
) -> dict[int, Table]:
    """Return the rows of some nodes, from a source for which `shard.is_local` holds."""
    if "{rank}" in source:
        return {i: _read_part(source, i, target, supervised) for i in nodes}
    blocks = shard.read(source, n_nodes, nodes)  # a .npy file, which has no names
    return {
        i: _target_last(
            block, None, _column(block, None, source, target) if supervised else None
        )
        for i, block in blocks.items()
    }


def _read_part(pattern: str, node: int, target: str | None, supervised: bool) -> Table:
    try:
        own = pattern.replace("{rank}", str(node))
        return load(own, target, supervised=supervised)
    except ShardError as error:
        raise ShardError(f"node {node}: {error}") from None


def open_table(source: str, target: str | None) -> tuple[Array, Names, int]:
    """Return a file as a matrix, the names of its columns, and the target's column."""
    if not _is_archive(source) or _number(target) is not None:
        matrix, names = open_named(source)
        return matrix, names, _column(matrix, names, source, target)
    file, _, name = source.partition("::")
    (X, names), y = open_named(file, name or "X"), load_array(file, target or "y")
    if y.size != len(X):
        raise ShardError(
            f"{file}: {target or 'y'} has shape {y.shape}, but {name or 'X'} has "
            f"{len(X)} rows; give one target per row"
        )
    if names is not None:
        names = (*names, target or "y")
    return np.column_stack([X, y.ravel()]), names, X.shape[1]


def _target_last(matrix: Array, names: Names, column: int | None) -> Table:
    """Return a table with the target, if any, as the last column."""
    if column is None:
        return Table(np.asarray(matrix, dtype=np.float64), names)
    order = [k for k in range(matrix.shape[1]) if k != column] + [column]
    rows = np.ascontiguousarray(matrix[:, order], dtype=np.float64)
    return Table(rows, None if names is None else tuple(names[k] for k in order))


def _column(matrix: Array, names: Names, source: str, target: str | None) -> int:
    """Return the number of the target's column, from 0."""
    width, number = int(matrix.shape[1]), _number(target)
    if width < 2:
        raise ShardError(
            f"{source} has one column; a target needs at least one other column"
        )
    if target is None:
        return width - 1
    if names is not None and target in names:
        return names.index(target)
    if number is not None and -width <= number < width:
        return number % width
    what = f"0..{width - 1}, without names"
    if names is not None:
        what = _column_names(target, names)
    raise ShardError(
        f"{source} has no column {target!r} for the target; its columns are {what}"
    )


def _column_names(target: str, names: tuple[str, ...]) -> str:
    """Return the names of columns for an error: if many, those most like a target."""
    if len(names) <= MOST_NAMES:
        return f"called {', '.join(map(repr, names))}"
    import difflib  # only for errors

    close = difflib.get_close_matches(target, names, MOST_NAMES, 0.4)
    close = close or list(names[:MOST_NAMES])
    return f"called {', '.join(map(repr, close))} and {len(names) - len(close)} others"


def _number(target: str | None) -> int | None:
    try:
        return int(target or "")
    except ValueError:
        return None


def _is_archive(source: str) -> bool:
    return Path(source.partition("::")[0]).suffix in ARCHIVES
