"""The description of a figure: panels with axes, curves, bars, maps and graphs.

It knows no library: `to_matplotlib` and `html` draw what is here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from dadmm.core.layout import Matrix, Vector
from dadmm.graphs.topology import Integers
from dadmm.show.style import Look

MOST_POINTS = 400  # of a curve on a page
MOST_NODES = 100  # bars, and rows of a map
WIDE = 5.0  # ratio of the largest to the least value that is drawn on a log axis


@dataclass(frozen=True)
class Axis:
    label: str = ""
    log: bool = False
    from_zero: bool = False
    unit: str = ""  # after the number of a tick
    names: tuple[str, ...] = ()  # of the places 0, 1, ... instead of numbers


@dataclass(frozen=True)
class Curve:
    """A line with a band and a marker at its end; or many lines, the columns of y."""

    name: str
    x: Vector | Integers
    y: Vector | Matrix
    look: Look
    low: Vector | None = None  # of the band
    high: Vector | None = None
    steps: bool = False  # a value holds until the next one
    end: int | None = None  # place of the marker; by default the last
    band: str = "smallest to largest node"
    run: int = 0  # number of the run, on a page

    @property
    def last(self) -> int:
        """The place of the marker."""
        known = np.flatnonzero(np.isfinite(self.y) & (self.y != 0))
        last = int(known[-1]) if len(known) else 0
        return last if self.end is None else self.end


@dataclass(frozen=True)
class Bars:
    """Bars over the places of an axis, stacked by what they are made of."""

    parts: dict[str, Vector]  # by name


@dataclass(frozen=True)
class Map:
    """A matrix with a colour per cell; NaN has none."""

    values: Matrix
    unit: str


@dataclass(frozen=True)
class Graph:
    """A graph; the width and the colour of an edge show its value."""

    places: Matrix  # (n_nodes, 2)
    pairs: Integers  # (n_pairs, 2), each edge once
    values: Vector  # of the pairs
    scale: tuple[float, float]  # smallest and largest value of all graphs of a figure
    names: Sequence[str] = ()  # of the nodes


@dataclass(frozen=True)
class Points:
    """Points with a colour by depth."""

    x: Vector
    y: Vector
    depth: Vector


Mark = Curve | Bars | Map | Graph | Points


@dataclass(frozen=True)
class Panel:
    """One plot of a figure."""

    title: str
    x: Axis = Axis()
    y: Axis = Axis()
    marks: Sequence[Mark] = ()
    level: tuple[float, str] | None = None  # a limit to mark, and its name
    moments: dict[str, float] = field(default_factory=dict)  # values of x, by name
    note: str = ""  # said instead of a plot

    @property
    def curves(self) -> list[Curve]:
        return [mark for mark in self.marks if isinstance(mark, Curve)]

    def lines(self) -> Iterator[tuple[str, str, float, str]]:
        """Yield lines over the whole plot: name, axis, value and dash of each."""
        if self.level is not None:
            yield self.level[1], "y", self.level[0], "dot"
        for k, (name, x) in enumerate(reversed(self.moments.items())):
            yield name, "x", x, ("solid", "dash", "dot")[min(k, 2)]

    def limits(self) -> tuple[float, float] | None:
        """Return the ends of a logarithmic y axis, with room; None if it is not one."""
        found = [own for mark in self.curves for own in (mark.y, mark.low, mark.high)]
        level = np.array([] if self.level is None else [self.level[0]])
        every = np.concatenate([level, *(v.ravel() for v in found if v is not None)])
        every = every[np.isfinite(every) & (every > 0)]
        if not self.y.log or not len(every):
            return None
        low, high = float(every.min()), float(every.max())
        room = max((high / low) ** 0.05, 1.05)
        return low / room, high * room


def byte_unit(most: float) -> tuple[float, str]:
    """Return the unit for numbers of bytes up to ``most``: its size and its name."""
    units = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes"))
    return next((unit for unit in units if most >= unit[0]), units[-1])


def log_ticks(low: float, high: float) -> list[float]:
    """Return at least three ticks of a logarithmic axis over a ratio above `WIDE`.

    They also cover a decade on both sides, for a reader who moves the axis.
    """
    decades = float(np.log10(high / low))
    first, last = int(np.floor(np.log10(low))) - 1, int(np.ceil(np.log10(high))) + 1
    if decades > 3:
        step = max(1, round(decades / 6))
        return [float(f"1e{k}") for k in range(first - first % step, last + 1, step)]
    steps: tuple[float, ...] = (1, 2, 5) if decades > 1.3 else (1, 1.5, 2, 3, 5, 7)
    return [float(f"{s}e{k}") for k in range(first, last + 1) for s in steps]


def quantiles(values: Matrix, levels: Sequence[float]) -> Matrix:
    """Return quantiles (levels, n) of rows (n, ...) without NaN; NaN if all are."""
    none = np.isnan(values).all(axis=1, keepdims=True)
    filled = np.where(none, 0.0, values)
    return np.where(none.T, np.nan, np.nanquantile(filled, levels, axis=1))


def thinned(n: int, most: int) -> Integers:
    """Return up to ``most`` of the places 0 to n - 1, more of the early ones.

    The first and the last are among them.
    """
    if n <= most:
        return np.arange(n)
    places = (n - 1) * np.linspace(0, 1, most) ** 2
    return np.unique(places.round().astype(np.int64))


def said(shown: int, total: int, what: str) -> str:
    """Return a sentence if not all are shown, else an empty text."""
    return "" if shown >= total else f"{shown:,} of {total:,} {what} are shown. "
