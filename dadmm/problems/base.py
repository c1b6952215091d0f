"""What problems share: facts about a class, checks of arrays, and stacking."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dadmm.core.errors import ProblemError
from dadmm.core.interfaces import Problem
from dadmm.core.layout import Matrix, Vector
from dadmm.data.datasets import regression

T = TypeVar("T")
Shape = tuple[int, ...] | None
Mask = NDArray[np.bool_]
Places = NDArray[np.intp]
Reals = Any  # a float of one problem, or an array (n,) of a stack


class Traits(NamedTuple):
    """Facts about a problem class; a class of `PROBLEMS` has them as ``traits``."""

    predicts: str | None = None  # "regression", "classification", "counts", "subspace"
    has_errors: bool = False  # whether coefficients have standard errors if alpha is 0
    draw: Callable[..., tuple[Matrix, ...]] = regression  # synthetic X and y
    adds: str = ""  # what it sends at checks, beside parameters, gradients, objectives
    sends: str = "the parameters"  # the words for theta
    title: str = ""  # in figures; else the name of the problem
    blocks: bool = False  # whether X may be `RowBlocks`, of which factors are kept
    tracks: bool = False  # whether the data are tracks of cameras, and not a table
    components: int = 5  # usual dimension of a subspace
    nodes: int = 20  # usual number of nodes, as in the paper


class WithStart(Problem):
    """A problem with ``_start`` and ``_value``, and without latent variables."""

    _start: Vector
    _value: Callable[[Vector], float]

    def init(self, rng: np.random.Generator) -> Vector:
        return self._start.copy()

    def objectives(self, thetas: Matrix, stats: None) -> Vector:
        """Return f of each row of ``thetas`` (k, size), shape (k,); inf for NaN."""
        values = np.array([self._value(theta) for theta in thetas])
        return np.where(np.isnan(values), np.inf, values)


def as_floats(problem: str, name: str, values: Any, dense: bool = True) -> Any:
    """Return an argument as floats, dense or in CSR format; NaN where it is masked."""
    try:
        if hasattr(values, "tocsr"):
            values = values.toarray() if dense else values.tocsr()
        elif isinstance(values, np.ma.MaskedArray):
            values = np.ma.filled(values.astype(np.float64), np.nan)
        else:
            values = np.asarray(values)
        if values.dtype.kind in "cmM":  # numpy would only warn
            raise TypeError(f"got {values.dtype}")
        return values.astype(np.float64, copy=False)
    except (TypeError, ValueError) as error:
        raise ProblemError(f"{problem} needs {name} of numbers: {error}") from None


def checked_array(
    problem: str, name: str, values: Any, shape: Shape = None, finite: bool = True
) -> Any:
    """Return a copy of an argument, dense or in CSR format; raise if not valid."""
    found = as_floats(problem, name, values, dense=False)
    if shape is not None and found.shape != shape:
        shapes = f"{shape}, got {found.shape}"
        raise ProblemError(f"{problem} needs {name} of shape {shapes}")
    if isinstance(found, np.ndarray):
        numbers, places, found = found, None, np.array(found, order="C")
    else:
        entries = found.tocoo()
        numbers, places = entries.data, np.column_stack([entries.row, entries.col])
    if finite:
        check_entries(problem, f"finite {name}", numbers, ~np.isfinite(numbers), places)
    return found


def check_entries(
    problem: str, what: str, values: Matrix, bad: Mask, places: Places | None = None
) -> None:
    """Raise if an entry is bad, and name the first; ``places`` are its indices."""
    if bad.any():
        place = (np.argwhere(bad) if places is None else places[bad])[0]
        where = zip(("row", "column"), place, strict=False)
        found = f"{', '.join(f'{word} {k}' for word, k in where)} is {values[bad][0]}"
        raise ProblemError(f"{problem} needs {what}, but {found}")


def stacked(
    problems: Sequence[T], names: Iterable[str] = (), join: Any = np.array
) -> T:
    """Return the first problem with the named attributes of all, joined to arrays."""
    whole = copy(problems[0])
    for name in names:
        setattr(whole, name, join([getattr(p, name) for p in problems]))
    return whole
