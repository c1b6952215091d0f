"""Huber regression of one node's rows, solved exactly.

The objective is a parabola wherever the rows keep their sides: within delta of their
target, above, or below. A Newton step that changes no side ends at the minimum.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dadmm.core.layout import Matrix, Vector
from dadmm.core.linalg import with_one_thread
from dadmm.problems.linear import checked_number, design

MAX_STEPS = 100
TOLERANCE = 1e-14  # of the gradient, relative to its terms
EPS = float(np.finfo(float).eps)


class Look(NamedTuple):
    """The proximal objective around a point."""

    misfit: Vector  # (n,) X theta - y
    force: Vector  # (n,) the same, cut off at delta
    inside: NDArray[np.bool_]  # (n,) which rows are within delta
    pull: Vector  # (p,) gradient of what is not in the rows
    gradient: Vector  # (p,)


class Huber:
    """f = sum over rows of h(x' coef + intercept - y) + alpha/2 |coef|^2.

    h(r) is ``r^2 / 2`` up to delta, and ``delta (|r| - delta / 2)`` beyond. ``theta``
    holds ``coef`` (d,) and, with ``fit_intercept``, ``intercept`` (). With weight 0 and
    alpha 0, where several points minimise f, `prox` returns one of them, without any
    part that the rows do not see.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        This node's rows.
    y : ndarray of shape (n,)
    delta : float
        From where on errors count linearly; positive, in the unit of y.
    alpha : float
        This node's own share of the penalty; not negative.
    fit_intercept : bool
        Whether there is an intercept; it is not penalised.
    """

    convex = True

    @with_one_thread
    def __init__(
        self,
        X: Matrix,
        y: Vector,
        delta: float = 1.35,
        alpha: float = 0.0,
        *,
        fit_intercept: bool = True,
    ) -> None:
        self._X, self._y, self.layout, penalised = design(self, X, y, fit_intercept)
        self.delta = checked_number("delta", delta, positive=True)
        self.alpha = checked_number("alpha", alpha)
        self._penalty = self.alpha * penalised
        self._eye = np.eye(self.layout.size)
        self._lengths = np.sqrt(np.vecdot(self._X, self._X))
        # what rounding of the misfits leaves in a gradient is EPS of these
        self._terms = self._lengths @ np.abs(self._y), self._lengths @ self._lengths

    def init(self, rng: np.random.Generator) -> Vector:
        """Return zeros (p,)."""
        return np.zeros(self.layout.size)

    def expect(self, theta: Vector) -> None:
        """Return None: nothing is latent here."""

    def prox(self, theta: Vector, stats: None, centre: Vector, weight: float) -> Vector:
        """Return the argmin of ``f(x) + weight/2 |x - centre|^2``, shape (p,)."""
        here, stiffness = theta.copy(), self._penalty + weight
        now, reach = self._look(here, centre, weight), weight * centre
        kept = 0  # steps in a row that changed no side: a second only mends rounding
        for _ in range(MAX_STEPS):
            if kept == 2 or self._settled(here, now, reach):
                break
            step, whole = self._step(now, stiffness)
            new = self._look(here + step, centre, weight)
            if not whole or new.gradient @ step > 0.0:
                step *= self._length(now, step, stiffness)
                new = self._look(here + step, centre, weight)
            same = (now.force == new.force)[~(now.inside & new.inside)].all()
            kept = kept + 1 if same and whole else 0
            here, now = here + step, new
        if not stiffness.any():
            return np.asarray(np.linalg.lstsq(self._X, self._X @ here)[0])
        return here

    def objectives(self, thetas: Matrix, stats: None) -> Vector:
        """Return f of each row of ``thetas`` (k, d), shape (k,)."""
        errors = np.abs(thetas @ self._X.T - self._y)
        counted = np.minimum(errors, self.delta)
        losses = np.vecdot(counted, errors - 0.5 * counted)
        return np.asarray(losses + 0.5 * np.vecdot(self._penalty * thetas, thetas))

    def _look(self, here: Vector, centre: Vector, weight: float) -> Look:
        misfit = self._X @ here - self._y
        force = np.clip(misfit, -self.delta, self.delta)
        pull = self._penalty * here + weight * (here - centre)
        return Look(misfit, force, force == misfit, pull, force @ self._X + pull)

    def _step(self, now: Look, stiffness: Vector) -> tuple[Vector, bool]:
        """Return a step downhill, and whether it ends at the least of the parabola."""
        rows = self._X[now.inside]
        hessian = rows.T @ rows
        trace = float(hessian.trace())
        hessian += stiffness * self._eye
        if stiffness.min() > EPS * len(hessian) * trace:
            return np.asarray(-np.linalg.solve(hessian, now.gradient)), True
        values, axes = np.linalg.eigh(hessian)
        slopes = now.gradient @ axes
        flat = values <= EPS * len(values) * values[-1]
        noise = 1e-12 * (np.abs(now.force) @ self._lengths)
        if (np.abs(slopes[flat]) > noise).any():  # a slope without a bottom
            return -axes[:, flat] @ slopes[flat], False
        slopes[~flat] /= values[~flat]
        return -axes[:, ~flat] @ slopes[~flat], True

    def _length(self, now: Look, step: Vector, stiffness: Vector) -> float:
        """Return which multiple of a step leads to the least f along it.

        The slope along the step rises in straight pieces, from corner to corner, where
        a row comes within delta or leaves it; the length is where it crosses zero.
        """
        drift = self._X @ step
        moving = drift != 0.0
        drift, misfit = drift[moving], now.misfit[moving]
        ends = (np.array([[-self.delta], [self.delta]]) - misfit) / drift
        bend = drift**2
        enters, leaves = ends.min(axis=0), ends.max(axis=0)
        corners = np.concatenate([np.maximum(enters, 0.0), np.maximum(leaves, 0.0)])
        order = np.argsort(corners, kind="stable")
        corners = np.concatenate([[0.0], corners[order]])
        changes = np.concatenate([bend, -bend])[order]
        bends = np.concatenate([[0.0], changes.cumsum()]) + (stiffness * step) @ step
        rises = np.concatenate([[0.0], (bends[:-1] * np.diff(corners)).cumsum()])
        slopes = now.gradient @ step + rises
        last = max(int(np.searchsorted(slopes, 0.0)) - 1, 0)
        if bends[last] <= 0.0:  # level from here on
            return float(corners[last])
        return float(corners[last] - slopes[last] / bends[last])

    def _settled(self, here: Vector, now: Look, reach: Vector) -> bool:
        """Return whether the gradient is zero, but for rounding."""
        terms = np.abs(now.force) @ self._lengths + np.abs(now.pull).max()
        fixed, slope = self._terms
        grain = fixed + slope * np.abs(here).max() + np.abs(reach).max()
        noise = TOLERANCE * terms + 2.0 * EPS * grain
        return bool(np.abs(now.gradient).max() <= noise)
