"""Any smooth objective, given by a function that returns its value and gradient."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dadmm.core.errors import ProblemError
from dadmm.core.interfaces import TransformableProblem
from dadmm.core.layout import Layout, Matrix, Vector
from dadmm.core.linalg import EPS
from dadmm.core.schema import FLAG, integer
from dadmm.problems.base import WithStart, checked_array

ACCURACY = 1e-3  # of a proximal step: its gradient, relative to that at theta
FLOOR = 1e-13  # of this gradient, relative to its two terms
MEMORY, MAX_STEPS, MAX_RESTARTS = 20, 500, 30
NEGATIVE = 1e-8  # of an eigenvalue that counts as zero, relative to a unit diagonal
# Of the check of a gradient
TOLERANCE = 1e-3  # of a slope, relative to the difference
NOISE = 1e4 * EPS  # of a difference, relative to the values
DECADES = 12  # of step sizes, on each side of the first
POINTS, DIRECTIONS = 3, 2

ValueAndGradient = Callable[[Vector], tuple[float, Vector]]
_array = partial(checked_array, "Smooth", finite=False)


class Smooth(WithStart):
    """f is a smooth function, given by its value and gradient.

    ``theta`` holds ``theta`` (size,). A proximal step is a run of L-BFGS that reduces
    the gradient of ``f(x) + weight/2 |x - centre|^2`` to 1/1000 of its start.

    Parameters
    ----------
    value_and_gradient : callable
        From ``theta`` (size,) to f, which may be infinite or NaN outside its domain,
        and its gradient (size,), which is compared with finite differences.
    size : int
    hessian : callable, optional
        From ``theta`` to the Hessian (size, size). With it, a run can choose good
        coordinates and certify its solution. It needs ``convex=True``.
    convex : bool, whether f is convex; only ``hessian`` is checked for it
    start : ndarray of shape (size,), optional, where f is finite; zero if not given

    Examples
    --------
    >>> X, y = np.eye(3), np.array([1.0, 2.0, 3.0])
    >>> def poisson(w):
    ...     rate = np.exp(X @ w)
    ...     return rate.sum() - y @ (X @ w), X.T @ (rate - y)
    >>> problem = Smooth(poisson, 3, convex=True)
    >>> theta = problem.prox(np.zeros(3), None, np.zeros(3), 1e-6)
    >>> np.exp(theta).round(2)
    array([1., 2., 3.])
    """

    def __init__(
        self,
        value_and_gradient: Callable[[Vector], tuple[ArrayLike, ArrayLike]],
        size: int,
        *,
        hessian: Callable[[Vector], ArrayLike] | None = None,
        convex: bool = False,
        start: ArrayLike | None = None,
    ) -> None:
        if hessian is not None and type(self) is Smooth:
            self.__class__ = TwiceSmooth  # it has `rows` and `within`
        integer(1).check("size", size, ProblemError)
        FLAG.check("convex", convex, ProblemError)
        self.layout, self.convex = Layout.of(theta=(int(size),)), convex
        self._function, self._hessian = value_and_gradient, hessian
        first = np.zeros(size) if start is None else start
        self._start = checked_array("Smooth", "start", first, (size,))
        found = np.hstack(self._evaluate(self._start))
        for k in np.flatnonzero(~np.isfinite(found)):
            what = f"entry {k - 1} of the gradient" if k else "the value"
            raise ProblemError(
                f"value_and_gradient of Smooth: {what} is {found[k]} at the start; "
                "pass a start where f is finite"
            )
        _check_slopes("value_and_gradient: the gradient", self._evaluate, self._start)
        if isinstance(self, TwiceSmooth):
            self._check_hessian()

    def subgradient(self, theta: Vector, near: Vector | None = None) -> Vector:
        """Return the gradient of f, shape (size,)."""
        return self._evaluate(theta)[1]

    def prox(self, theta: Vector, stats: None, centre: Vector, weight: float) -> Vector:
        """Return the argmin of ``f(x) + weight/2 |x - centre|^2``, shape (size,).

        The unknown of L-BFGS is ``(x - theta) / length``, and its objective is divided
        by ``length |g|``, with g the gradient at theta: its first step has length 1 in
        any units. The length is ``|g| / weight``, which a step of a convex f does not
        exceed; it is reduced if f is not finite at a point.
        """
        from scipy.optimize import minimize

        best, least = centre, math.inf  # of all points that were evaluated

        def proximal(x: Vector) -> tuple[float, Vector]:
            nonlocal best, least
            value, gradient = self._evaluate(x)
            pull = weight * (x - centre)
            value, slopes = value + 0.5 * float(pull @ (x - centre)), gradient + pull
            if not (math.isfinite(value) and np.isfinite(slopes).all()):
                raise FloatingPointError
            if value < least:
                best, least = x, value
            return value, slopes

        with np.errstate(all="ignore"):  # f may be tried outside its domain
            try:
                slopes = proximal(theta.copy())[1]
            except FloatingPointError:
                raise np.linalg.LinAlgError(
                    "value_and_gradient is not finite at the start of a proximal step"
                ) from None
            first = float(np.abs(slopes).max())
            pull = weight * float(np.abs(theta - centre).max())
            goal = max(ACCURACY * first, FLOOR * (first + pull))
            norm, length = float(np.linalg.norm(slopes)), float(np.abs(theta).max())
            length = norm / weight if weight > 0.0 else max(1.0, length)
            options = {"maxcor": MEMORY, "gtol": goal / norm if norm else 0.0}
            options |= {"ftol": 0.0, "maxiter": MAX_STEPS, "maxfun": 10 * MAX_STEPS}

            def scaled(
                u: Vector, origin: Vector, value: float, length: float
            ) -> tuple[float, Vector]:
                found, slopes = proximal(origin + length * u)
                return (found - value) / (length * norm), slopes / norm

            zero, how = np.zeros_like(theta), {"jac": True, "method": "L-BFGS-B"}
            for _ in range(MAX_RESTARTS if first > goal else 0):
                given = best, least, length
                try:
                    step = minimize(scaled, zero, given, options=options, **how).x
                    return np.asarray(given[0] + length * step)
                except FloatingPointError:
                    length *= 0.1
        return best

    def _value(self, theta: Vector) -> float:
        return self._evaluate(theta)[0]

    def _evaluate(self, theta: Vector) -> tuple[float, Vector]:
        """Return f and its gradient, possibly not finite."""
        found = _call("value_and_gradient", self._function, theta)
        try:
            value, gradient = found
        except (TypeError, ValueError):
            raise ProblemError(
                "value_and_gradient of Smooth must return two things, the value and "
                f"the gradient, got {type(found).__name__}"
            ) from None
        value = np.ravel(value)[0] if np.shape(value) == (1,) else value
        value = _array("value_and_gradient with a value", value, ())
        gradient = _array("value_and_gradient with a gradient", gradient, theta.shape)
        return float(value), gradient


class TwiceSmooth(Smooth, TransformableProblem):
    """A convex `Smooth` problem with a Hessian; `Smooth` makes it."""

    assumed = "within the bound the Hessian is at least half of that at the solution"
    quadratic = False
    needs_inverse = True  # the Hessian at the start does not show what is open

    def _check_hessian(self) -> None:
        if not self.convex:
            raise ProblemError(
                "Smooth uses a Hessian for convex problems only; pass convex=True if "
                "f is convex, or leave hessian out"
            )
        self._scaled_hessian(self._start)
        rng = np.random.default_rng(1)
        typical = np.abs(self.subgradient(self._start))
        way = rng.choice([-1.0, 1.0], len(typical)) / np.where(typical, typical, 1.0)

        def slope(theta: Vector) -> tuple[float, Vector]:
            return float(self.subgradient(theta) @ way), self._hessian_at(theta) @ way

        _check_slopes("hessian(theta) @ v", slope, self._start)

    def rows(self, theta: Vector, radius: float = 0.0) -> Matrix:
        """Return F (r, size) with F'F the Hessian at ``theta``, or half in a ball."""
        values, axes, scale = self._scaled_hessian(theta)
        kept = values > 0.0
        rows = np.sqrt(values[kept])[:, None] * axes[:, kept].T * scale
        return np.asarray(rows / math.sqrt(2.0) if radius > 0.0 else rows)

    def within(self, T: Matrix) -> Smooth:
        def function(z: Vector) -> tuple[float, Vector]:
            value, gradient = self._evaluate(T @ z)
            return value, gradient @ T

        problem = object.__new__(TwiceSmooth)
        problem.layout, problem.convex = Layout.of(z=T.shape[1:]), True
        problem._function = function
        problem._hessian = lambda z: T.T @ self._hessian_at(T @ z) @ T
        problem._start = np.asarray(np.linalg.lstsq(T, self._start)[0])
        return problem

    def _hessian_at(self, theta: Vector) -> Matrix:
        assert self._hessian is not None
        found = _call("hessian", self._hessian, theta)
        return np.asarray(_array("hessian(theta)", found, theta.shape * 2))

    def _scaled_hessian(self, theta: Vector) -> tuple[Vector, Matrix, Vector]:
        """Return eigenvalues, axes and scales of the Hessian, if it is a valid one."""
        found, fault = self._hessian_at(theta), ""
        if not np.isfinite(found).all():
            found, fault = np.eye(len(found)), "it is not finite"
        diagonal = found.diagonal()
        scale = np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
        unit = found / scale / scale[:, None]
        values, axes = np.linalg.eigh(0.5 * (unit + unit.T))
        if not fault and np.abs(unit - unit.T).max() > NEGATIVE:
            fault = "it is not symmetric"
        elif values[0] < -NEGATIVE * len(values):
            fault = f"scaled to diagonal 1, it has the eigenvalue {values[0]:.3g}"
        if fault:
            raise ProblemError(
                f"hessian of Smooth does not fit a convex f: {fault}, at theta = "
                f"{_shown_point(theta)}; correct it, or leave hessian and convex out"
            )
        return values, axes, scale


def _call(name: str, function: Callable[[Vector], Any], theta: Vector) -> Any:
    try:
        return function(theta.copy())  # which it may change
    except Exception as error:
        text = " ".join(str(error).split())
        raise ProblemError(
            f"{name} of Smooth raised {type(error).__name__}: {text}, at theta = "
            f"{_shown_point(theta)}"
        ) from error


@np.errstate(all="ignore")
def _check_slopes(name: str, function: ValueAndGradient, start: Vector) -> None:
    """Raise if finite differences refute a slope.

    Each entry k of a direction is +-1 / |g_k|, so that all entries change the function
    equally in any units, and one wrong entry is seen. Step sizes span many decades:
    with one of them a right gradient agrees with the differences. It is wrong only if
    differences of two successive step sizes agree with each other and not with it.
    """
    rng = np.random.default_rng(0)
    for k in range(POINTS):
        point = start if k == 0 else _move(function, start, rng)
        gradient = function(point)[1]
        signs = rng.choice([-1.0, 1.0], (DIRECTIONS, len(start)))
        zeros = np.where(gradient == 0.0, signs[0], 0.0)
        for way in (*signs * _units(gradient), zeros):
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
            raise ProblemError(
                f"{name} is wrong: its {what} is {wrong[0]:.4g}, but differences give "
                f"{wrong[1]:.4g}, at theta = {_shown_point(point)}"
            )


def _shown_point(theta: Vector) -> str:
    numbers = ", ".join(f"{x:.3g}" for x in theta[:4])
    return f"[{numbers}{', ...' if len(theta) > 4 else ''}]"


def _units(gradient: Vector) -> Vector:
    """Return 1 / |g_k|, and where that is infinite a typical one of the others."""
    size = np.abs(gradient)
    used = size > 1e-14 * size.max()
    typical = float(np.median(size[used])) if used.any() else 1.0
    return np.asarray(1.0 / np.where(used, size, typical))


def _move(
    function: ValueAndGradient, start: Vector, rng: np.random.Generator
) -> Vector:
    """Return a random point at the distance from start at which the function bends."""
    value, gradient = function(start)
    way = rng.choice([-1.0, 1.0], len(start)) * rng.uniform(0.5, 1.0, len(start))
    way *= _units(gradient)
    slope, step, reached = float(way @ gradient), 1e-4 * (abs(value) or 1.0), start
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
        step = 1e-4 * (abs(value) or 1.0) * 10.0**k
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
