"""Lasso and elastic net, solved exactly.

Given the signs of its entries, the minimum is the solution of a linear system in the
entries that are not zero or have no penalty. `_iterate_signs` corrects all signs at
once until they repeat. Where this fails, `_active_set` corrects one sign at a time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from dadmm.core.layout import Matrix, Vector
from dadmm.core.linalg import EPS, TINY, row_lengths
from dadmm.core.schema import FINITE, entry, number
from dadmm.problems.base import Traits
from dadmm.problems.linear import Design, LeastSquares, LinearProblem

MAX_ROUNDS, MAX_REFINEMENTS = 20, 8
ROUNDING = 1e-14  # of a gradient, relative to its terms
SNAP = 1e-13  # of a coefficient T z, relative to its terms


@dataclass(eq=False, repr=False)
class ElasticNet(LeastSquares):
    """Least squares with absolute values and squares of the coefficients as penalty.

    ``f = 1/2 |X coef + intercept - y|^2 + alpha (r |coef|_1 + (1 - r)/2 |coef|^2)``,
    where r is ``l1_ratio``; each square also has the weight of its row. ``theta`` is as
    in `LeastSquares`, and zeros of ``coef`` are exact.

    Parameters
    ----------
    X, y, alpha, fit_intercept, sample_weight : as in `Ridge`
    l1_ratio : float, the share of the absolute values, from 0 to 1

    Examples
    --------
    >>> X, y = np.eye(2), np.array([0.2, 3.5])
    >>> ElasticNet(X, y, 1.0, l1_ratio=0.5, fit_intercept=False).prox(y, None, y, 0.0)
    array([0., 2.])
    """

    alpha: float = entry(1.0, FINITE)
    l1_ratio: float = entry(0.5, number("from 0 to 1", lambda x: 0.0 <= x <= 1.0))
    traits = Traits("regression", adds="weights of the l1 penalty", blocks=True)

    def _adopt(self, given: Design) -> None:
        super()._adopt(given)
        l1 = self.alpha * self.l1_ratio
        self.l1 = l1 * given.penalised  # (p,) weights of |theta|
        self.needs_inverse = l1 > 0.0

    def _prepare(self) -> None:
        super()._prepare()
        self._gram, self._moment = self._rows.T @ self._rows, self._target @ self._rows
        self._eye = np.eye(len(self._gram))

    def within(self, T: Matrix) -> LinearProblem:
        if not self.needs_inverse:
            return super().within(T)
        found = self._mapped(_Transformed, T)
        found.set_original(self, T)
        return found

    def theta_of(self, T: Matrix, z: Vector) -> Vector:
        """Return theta = T z; a coefficient within the rounding of its sum is zero."""
        theta = super().theta_of(T, z)
        terms = super().theta_of(np.abs(T), np.abs(z))
        theta[(np.abs(theta) <= SNAP * terms) & (self.l1 > 0.0)] = 0.0
        return theta

    def prox(self, theta: Vector, stats: None, centre: Vector, weight: float) -> Vector:
        if not self.needs_inverse:
            return super().prox(theta, None, centre, weight)
        gram = self._gram + weight * self._eye
        return _minimise(gram, self._moment + weight * centre, self.l1, theta)

    def objectives(self, thetas: Matrix, stats: None) -> Vector:
        return super().objectives(thetas, None) + np.abs(thetas) @ self.l1


@dataclass(eq=False, repr=False)
class Lasso(ElasticNet):
    """Least squares with absolute values of the coefficients as penalty.

    ``f = 1/2 |X coef + intercept - y|^2 + alpha |coef|_1``. Zeros of ``coef`` are
    exact, and the arguments are those of `Ridge`.

    Examples
    --------
    >>> X, y = np.eye(2), np.array([0.2, 3.5])
    >>> Lasso(X, y, alpha=1.0, fit_intercept=False).prox(y, None, y, 0.0)
    array([0. , 2.5])
    """

    l1_ratio: float = field(default=1.0, init=False)


class _Transformed(LeastSquares):
    """An elastic net as a function of z, where theta = T z."""

    def set_original(self, original: ElasticNet, T: Matrix) -> None:
        self._original = original
        units = row_lengths(T)
        self._T, self._units, self._forward = T, units, T / units[:, None]
        self._inverse = np.linalg.inv(self._forward)
        self._l1 = original.l1 * units  # `l1`, a copy, is in units of theta
        rows, target = original.equations
        rows = rows * units
        self._gram, self._moment = rows.T @ rows, target @ rows
        self._metric = self._inverse.T @ self._inverse

    def prox(self, theta: Vector, stats: None, centre: Vector, weight: float) -> Vector:
        """Return the argmin: find signs of theta, solve for z, correct the signs."""
        gram = self._gram + weight * self._metric
        # this makes a singular system solvable; `_refined` removes its effect
        gram += np.diag(2.0 * EPS * len(gram) ** 2 * gram.diagonal())
        pull = self._moment + weight * (centre @ self._inverse)
        start = self._original.theta_of(self._T, theta) / self._units
        found = _minimise(gram, pull, self._l1, start)
        z, signs, sizes = self._inverse @ found, np.sign(found), np.abs(self._inverse)
        tried = [z]
        for _ in range(MAX_ROUNDS):
            z, slope = self._refined(z, signs, gram, centre, weight)
            tried.append(z)
            push, noise = slope @ self._inverse, np.abs(slope) @ sizes
            gain = np.abs(push) - self._l1 - ROUNDING * noise
            gain[(signs != 0.0) | (self._l1 == 0.0)] = 0.0
            wrong = self._original.theta_of(self._T, z) * signs * self._l1 < 0.0
            signs = np.where(wrong, 0.0, signs)
            if not wrong.any():
                best = int(gain.argmax())
                if gain[best] <= 0.0:
                    return z
                signs[best] = np.sign(push[best])
        # signs recur, by rounding
        off = np.array(tried) - centre
        values = self.objectives(np.array(tried), None)
        values += 0.5 * weight * np.vecdot(off, off)
        return tried[int(np.nan_to_num(values, nan=math.inf).argmin())]

    def _refined(
        self, z: Vector, signs: Vector, gram: Matrix, centre: Vector, weight: float
    ) -> tuple[Vector, Vector]:
        """Return the minimum for these signs of theta, and minus its smooth slope."""
        rows, target = self.equations
        inside = (signs != 0.0) | (self._l1 == 0.0)
        into, out = self._inverse[:, inside], self._inverse[:, ~inside]
        inner, zeros = gram[inside][:, inside], self._forward[~inside]
        force, unit = (self._l1 * signs)[inside], np.sqrt(inner.diagonal()) + TINY
        least = math.inf
        for _ in range(MAX_REFINEMENTS):
            z = z - out @ (zeros @ z)
            slope = (target - rows @ z) @ rows + weight * (centre - z)
            slack = slope @ into - force
            error, before = np.abs(slack / unit).max(initial=0.0), least
            if not error >= least:
                best, least = (z, slope), error
            if not error < 0.5 * before:
                break
            try:
                z = z + into @ np.linalg.solve(inner, slack)
            except np.linalg.LinAlgError:
                break
        return best

    def subgradient(self, theta: Vector, near: Vector) -> Vector:
        """Return a subgradient at ``theta``, about that nearest to ``near``."""
        smooth = self.gradient(theta)
        wanted = (near - smooth) @ self._inverse
        sides = np.sign(self._original.theta_of(self._T, theta))
        within = np.clip(wanted, -self._l1, self._l1)
        force = np.where(sides == 0.0, within, sides * self._l1)
        return np.asarray(smooth + force @ self._forward)

    def objectives(self, thetas: Matrix, stats: None) -> Vector:
        points = self._original.theta_of(self._T, thetas)
        return super().objectives(thetas, None) + np.abs(points) @ self._original.l1


def _minimise(gram: Matrix, pull: Vector, l1: Vector, x: Vector) -> Vector:
    """Return the argmin of ``1/2 x' gram x - pull' x + l1' |x|``."""
    unit = np.sqrt(gram.diagonal())
    unit = 1.0 / np.where(unit > 0.0, unit, 1.0)  # the diagonal of gram becomes one
    scaled = gram * unit * unit[:, None], pull * unit, l1 * unit, x / unit
    found = _iterate_signs(*scaled)
    return unit * (_active_set(*scaled) if found is None else found)


def _iterate_signs(gram: Matrix, pull: Vector, l1: Vector, x: Vector) -> Vector | None:
    """Return the argmin of `_minimise`, or None if the signs cycle.

    The new sign of an entry is its sign after minimising over this entry alone. If no
    sign changes, the optimality conditions hold.
    """
    curvature, signs, free = gram.diagonal(), np.sign(x), l1 == 0.0
    for _ in range(MAX_ROUNDS):
        signs[free] = 1.0
        inside = signs.nonzero()[0]
        x = np.zeros(len(pull))
        try:
            inner, force = gram[inside[:, None], inside], (pull - l1 * signs)[inside]
            x[inside] = np.linalg.solve(inner, force)
        except np.linalg.LinAlgError:
            return None
        downhill = pull - gram @ x
        alone = downhill + curvature * x
        previous, signs = signs, np.sign(alone) * (np.abs(alone) > l1)
        if (signs == previous)[~free].all():
            # the solution of a singular system may be wrong
            error = np.abs(downhill - l1 * signs)[inside].max(initial=0.0)
            return x if error <= 1e-12 * np.abs(pull).max() else None
    return None


def _active_set(gram: Matrix, pull: Vector, l1: Vector, x: Vector) -> Vector:
    """Return the same argmin by an active-set method.

    A step goes to the minimum for the present signs, or to where a first entry is zero,
    which leaves the active set. At the minimum, the zero of the largest gain enters.
    """
    x, signs, free = x.copy(), np.sign(x), l1 == 0.0
    signs[free] = 1.0
    size, push = np.abs(gram), np.abs(pull)
    for _ in range(100 + 10 * len(x)):
        inside = signs.nonzero()[0]
        now, force = x[inside], (pull - l1 * signs)[inside]
        inner = gram[inside[:, None], inside]
        least, _, rank, _ = np.linalg.lstsq(inner, force)
        direction, most = least - now, 1.0
        if rank < len(force):  # it may fall for ever, without a minimum
            slope = force - inner @ least
            noise = ROUNDING * (np.abs(inner) @ np.abs(least) + np.abs(force))
            if (np.abs(slope) > noise).any():
                direction, most = slope, math.inf
        falling = (direction * signs[inside] < 0.0) & ~free[inside]
        reach = np.full(len(now), math.inf)
        reach[falling] = -now[falling] / direction[falling]
        length = reach.min(initial=most)
        gone = inside[(reach == length) & (length < most)]
        x[inside] = now + length * direction
        x[gone] = signs[gone] = 0.0
        if len(gone):
            continue
        gradient = gram @ x - pull
        gain = np.abs(gradient) - l1 - ROUNDING * (size @ np.abs(x) + push)
        gain[inside] = 0.0
        best = int(gain.argmax())
        if gain[best] <= 0.0:
            break
        signs[best] = -np.sign(gradient[best])
    return x
