"""Rows with a target: X and y of a file, as one matrix whose last column is y."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dadmm.core.errors import ShardError
from dadmm.core.layout import Matrix
from dadmm.data import shard
from dadmm.data.datasets import load_array, open_matrix

ARCHIVES = (".npz", ".mat")  # files of several arrays, each with a name
Array = NDArray[Any]


def load(
    source: str, target: str | None, labels: str | None = None
) -> tuple[Matrix, Array | None]:
    """Return the rows of a whole file, y last, and which node holds each, if told.

    Parameters
    ----------
    source : str
    target : str or None
        Where y is: the number or name of a column, or the name of an array in a file
        of several. None is ``y`` there, and elsewhere the last column that does not
        hold labels.
    labels : str or None
        As in `shard.resolve_labels`; a column of X in a file of several arrays.

    Returns
    -------
    rows : ndarray of shape (n, d + 1)
    labels : ndarray of shape (n,) or None
    """
    matrix, column = open_table(source, target)
    if labels is None:
        return target_last(matrix, column), None
    samples, nodes = shard.resolve_labels(np.asarray(matrix), labels)
    if samples.shape[1] < matrix.shape[1]:  # labels are a column, which has gone
        gone = int(labels) % matrix.shape[1]
        if gone != column:
            column -= gone < column
        elif target is None and not _is_archive(source):
            column -= 1
        else:
            raise ShardError(f"column {labels} cannot be both labels and target")
    return target_last(samples, column), nodes


def read(
    source: str, target: str | None, n_nodes: int, nodes: Iterable[int]
) -> dict[int, Matrix]:
    """Return the rows of some nodes, y last, from a source that `shard.is_local`."""
    if "{rank}" not in source:
        blocks = shard.read(source, n_nodes, nodes)
        return {
            i: target_last(b, _column(b, source, target)) for i, b in blocks.items()
        }
    return {i: _read_part(source, i, target) for i in nodes}


def _read_part(pattern: str, node: int, target: str | None) -> Matrix:
    try:
        return load(pattern.replace("{rank}", str(node)), target)[0]
    except ShardError as error:
        raise ShardError(f"node {node}: {error}") from None


def open_table(source: str, target: str | None) -> tuple[Array, int]:
    """Return a file as a matrix, and which of its columns is y."""
    if not _is_archive(source) or _number(target) is not None:
        matrix = open_matrix(source)
        return matrix, _column(matrix, source, target)
    file, _, name = source.partition("::")
    X, y = open_matrix(file, name or "X"), load_array(file, target or "y")
    if y.size != len(X):
        raise ShardError(
            f"{file}: {target or 'y'} has shape {y.shape}, but {name or 'X'} has "
            f"{len(X)} rows; give one target per row"
        )
    return np.column_stack([X, y.ravel()]), X.shape[1]


def target_last(matrix: Array, column: int) -> Matrix:
    """Return the rows of a matrix (n, d + 1), its target moved to the last column."""
    order = [k for k in range(matrix.shape[1]) if k != column] + [column]
    return np.ascontiguousarray(matrix[:, order], dtype=np.float64)


def _column(matrix: Array, source: str, target: str | None) -> int:
    """Return the number, from 0, of the column that holds y."""
    width, number = matrix.shape[1], _number(target)
    if width < 2:
        raise ShardError(f"{source} has one column; a target needs others beside it")
    if target is None:
        return width - 1
    if number is not None and -width <= number < width:
        return number % width
    names = _names(source) if number is None else []
    if names.count(target) == 1:
        return names.index(target)
    what = f"called {', '.join(names)}" if names else f"0..{width - 1}, without names"
    raise ShardError(
        f"{source} has no column {target!r} for the target; its columns are {what}"
    )


def _names(source: str) -> list[str]:
    """Return the names of the columns of a text file; none without a header."""
    delimiter = {".csv": ",", ".txt": None}.get(Path(source).suffix, "")
    if delimiter == "":
        return []
    with open(source, encoding="utf-8-sig") as lines:
        words = [word.strip().strip('"') for word in lines.readline().split(delimiter)]
    return [] if any(_is_number(word) for word in words) else words


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _number(target: str | None) -> int | None:
    try:
        return int(target or "")
    except ValueError:
        return None


def _is_archive(source: str) -> bool:
    return Path(source.partition("::")[0]).suffix in ARCHIVES
