"""Whether a gradient is that of a function, by finite differences.

The check is independent of the units. Each entry k of a direction is +-1 / |g_k|, so
that all entries change the function equally, and one wrong entry is seen. Step sizes
span many decades: with one of them a right gradient agrees with the differences,
whatever the length on which the function changes. A gradient is called wrong only where
the differences of two successive step sizes agree with each other and not with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dadmm.core.layout import Vector

ValueAndGradient = Callable[[Vector], tuple[float, Vector]]

TOLERANCE = 1e-3  # of a slope, relative to the difference
NOISE = 1e4 * float(np.finfo(float).eps)  # of a difference, relative to the values
DECADES = 12  # of step sizes, on each side of the first
POINTS, DIRECTIONS = 3, 2


class WrongEntry(NamedTuple):
    """Where a gradient is wrong."""

    entry: int
    claimed: float  # the entry of the gradient
    found: float  # the finite difference
    point: Vector


def find_wrong_entry(function: ValueAndGradient, start: Vector) -> WrongEntry | None:
    """Return a wrong entry of a gradient, or None if it has none.

    Parameters
    ----------
    function : callable
        From a point (p,) to a value and a gradient (p,). They may be infinite or NaN,
        except at ``start``.
    start : ndarray of shape (p,)
        Where the check begins. The other points are at the distance from it at which
        the function bends.
    """
    rng = np.random.default_rng(0)
    for k in range(POINTS):
        point = start if k == 0 else _move(function, start, rng)
        for _ in range(DIRECTIONS):
            units = _units(function(point)[1])
            way = rng.choice([-1.0, 1.0], len(start)) * units
            if _mismatch(function, point, way) is not None:
                return _narrow(function, point, way)
    return None


def _units(gradient: Vector) -> Vector:
    """Return 1 / |g_k|, and where that is infinite a typical one of the others."""
    size = np.abs(gradient)
    used = size > 1e-12 * size.max()
    typical = float(np.median(size[used])) if used.any() else 1.0
    return np.asarray(1.0 / np.where(used, size, typical))


def _first_step(value: float) -> float:
    return 1e-4 * abs(value) if value else 1e-4


def _move(
    function: ValueAndGradient, start: Vector, rng: np.random.Generator
) -> Vector:
    """Return a random point at the distance at which the function bends."""
    value, gradient = function(start)
    way = rng.choice([-1.0, 1.0], len(start)) * rng.uniform(0.5, 1.0, len(start))
    way *= _units(gradient)
    slope, step = float(way @ gradient), _first_step(value)
    reached = start + step * way
    for _ in range(DECADES):
        ahead, slopes = function(start + step * way)
        if not (np.isfinite(ahead) and np.isfinite(slopes).all()):
            break
        reached = start + step * way
        if abs(ahead - value - step * slope) > 0.5 * step * abs(slope):
            break
        step *= 10.0
    return reached


def _mismatch(
    function: ValueAndGradient, point: Vector, way: Vector
) -> tuple[float, float] | None:
    """Return the slope along ``way`` and the difference; None if they agree.

    They also count as equal if no difference is reliable.
    """
    value, gradient = function(point)
    slope = float(gradient @ way)
    typical = float(np.linalg.norm(gradient * way))
    found: dict[int, float] = {}
    for k in sorted(range(-DECADES, DECADES + 1), key=abs):
        step = _first_step(value) * 10.0**k
        ahead, behind = function(point + step * way)[0], function(point - step * way)[0]
        change = ahead - behind
        if not np.isfinite(change):
            continue
        difference = change / (2.0 * step)
        if abs(difference - slope) <= TOLERANCE * max(
            abs(difference), abs(slope), typical
        ):
            return None
        if abs(change) > NOISE * max(abs(ahead), abs(behind)):
            found[k] = difference
    for k in sorted(found):
        near = found.get(k + 1, np.inf)
        if abs(near - found[k]) <= 0.1 * min(abs(found[k] - slope), abs(found[k])):
            return slope, found[k]
    return None


def _narrow(function: ValueAndGradient, point: Vector, way: Vector) -> WrongEntry:
    """Return one wrong entry, given a direction along which the slope is wrong."""
    entries = np.arange(len(way))
    while len(entries) > 1:
        half = entries[: len(entries) // 2]
        part = np.zeros_like(way)
        part[half] = way[half]
        wrong = _mismatch(function, point, part) is not None
        entries = half if wrong else entries[len(half) :]
    (entry,) = entries.tolist()
    unit = np.zeros_like(way)
    unit[entry] = way[entry]
    slope, found = _mismatch(function, point, unit) or (np.nan, np.nan)
    scale = float(way[entry])
    return WrongEntry(entry, slope / scale, found / scale, point)
