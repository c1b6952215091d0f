"""Whether a gradient belongs to a function, by finite differences.

The check is independent of the units. Each entry k of a direction is +-1 / |g_k|, so
that all entries change the function equally, and one wrong entry is seen. Step sizes
span many decades: with one of them a right gradient agrees with the differences. A
gradient is called wrong only where the differences of two successive step sizes agree
with each other and not with it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dadmm.core.layout import Vector
from dadmm.core.linalg import EPS, TINY

ValueAndGradient = Callable[[Vector], tuple[float, Vector]]

TOLERANCE = 1e-3  # of a slope, relative to the difference
NOISE = 1e4 * EPS  # of a difference, relative to the values
DECADES = 12  # of step sizes, on each side of the first
POINTS, DIRECTIONS = 3, 2


def find_wrong_slope(function: ValueAndGradient, start: Vector) -> str:
    """Return a wrong slope of a gradient, in words; "" if none is found.

    The function takes a point (p,) to a value and a gradient (p,), which are finite at
    ``start``. The other points are at the distance from it at which it bends.
    """
    rng = np.random.default_rng(0)
    for k in range(POINTS):
        point = start if k == 0 else _move(function, start, rng)
        gradient = function(point)[1]
        signs = rng.choice([-1.0, 1.0], (DIRECTIONS, len(start)))
        zeros = np.where(gradient == 0.0, signs[0], 0.0)
        steepest = gradient / max(float(gradient @ gradient), TINY)
        for way in (steepest, *signs * _units(gradient), zeros):
            wrong = _mismatch(function, point, way)
            if wrong is None:
                continue
            what = "slope in some direction"
            for entry in np.flatnonzero(way):
                alone = np.zeros_like(way)
                alone[entry] = way[entry]
                if (found := _mismatch(function, point, alone)) is not None:
                    what, wrong = f"entry {entry}", found / way[entry]
                    break
            return (
                f"its {what} is {wrong[0]:.4g}, but differences give {wrong[1]:.4g}, "
                f"at theta = {shown_point(point)}"
            )
    return ""


def shown_point(theta: Vector) -> str:
    """Return a point in a few words."""
    numbers = ", ".join(f"{x:.3g}" for x in theta[:4])
    return f"[{numbers}{', ...' if len(theta) > 4 else ''}]"


def _units(gradient: Vector) -> Vector:
    """Return 1 / |g_k|, and where that is infinite a typical one of the others."""
    size = np.abs(gradient)
    used = size > 1e-14 * size.max()
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
    slope, step, reached = float(way @ gradient), _first_step(value), start
    for _ in range(DECADES):
        ahead, slopes = function(start + step * way)
        if not np.isfinite([ahead, *slopes]).all():
            break
        reached = start + step * way
        if abs(ahead - value - step * slope) > 0.5 * step * abs(slope):
            break
        step *= 10.0
    return reached


def _mismatch(function: ValueAndGradient, point: Vector, way: Vector) -> Vector | None:
    """Return the slope along ``way`` and the difference, (2,); None if they agree.

    The change of f from one side to the other is compared with the integral of the
    slopes by Simpson's rule, which is also accurate for long steps.
    """
    value, gradient = function(point)
    slope = float(gradient @ way)
    typical = float(np.linalg.norm(gradient * way))
    found: dict[int, float] = {}
    for k in sorted(range(-DECADES, DECADES + 1), key=abs):
        step = _first_step(value) * 10.0**k
        ahead, slopes_ahead = function(point + step * way)
        behind, slopes_behind = function(point - step * way)
        ends = float(slopes_ahead @ way), float(slopes_behind @ way)
        change, size = ahead - behind, max(abs(ahead), abs(behind))
        if not np.isfinite([change, *ends]).all() or abs(change) <= NOISE * size:
            continue
        difference, mean = change / (2.0 * step), (4.0 * slope + sum(ends)) / 6.0
        scale = max(abs(difference), typical)
        if abs(difference - mean) <= TOLERANCE * scale:
            return None
        if abs(ends[0] - ends[1]) <= 0.1 * scale:  # f is nearly linear here
            found[k] = difference
    for k in sorted(found):
        apart = abs(found.get(k + 1, np.inf) - found[k])
        if apart <= 0.02 * min(abs(found[k] - slope), abs(found[k])):
            return np.array([slope, found[k]])
    return None
