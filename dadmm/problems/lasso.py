"""Lasso and elastic net of one node's rows, solved exactly.

A minimum is known by its signs: given those, it is a linear system in the entries that
are not zero. Entries without a penalty, such as the intercept, always belong to the
system. From the signs of the last iterate, `_guess` corrects all entries at once
until they repeat, which is when they are right; that takes one system in most
iterations of a run. Where it fails, `_search` corrects one at a time, never uphill.
"""

from __future__ import annotations

import math

import numpy as np

from dadmm.core.layout import Matrix, Vector
from dadmm.core.linalg import with_one_thread
from dadmm.problems.least_squares import LeastSquares
from dadmm.problems.linear import checked_number, design

GUESSES = 20
ROUNDING = 1e-14  # of a gradient, relative to its terms


class ElasticNet:
    """f = 1/2 |X coef + intercept - y|^2 + alpha (r |coef|_1 + (1 - r)/2 |coef|^2).

    r is ``l1_ratio``; ``theta`` holds ``coef`` (d,), whose zeros are exact, and, with
    ``fit_intercept``, ``intercept`` (). At weight 0, where several points minimise f,
    `prox` returns one of them, and that of least norm if absolute values have no share
    in f.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        This node's rows.
    y : ndarray of shape (n,)
    alpha : float
        This node's own share of the penalty; not negative.
    l1_ratio : float
        Share of the absolute values in the penalty, from 0 to 1.
    fit_intercept : bool
        Whether there is an intercept; it is not penalised.
    """

    convex = True

    @with_one_thread
    def __init__(
        self,
        X: Matrix,
        y: Vector,
        alpha: float = 1.0,
        l1_ratio: float = 0.5,
        *,
        fit_intercept: bool = True,
    ) -> None:
        self.alpha = checked_number("alpha", alpha)
        self.l1_ratio = checked_number("l1_ratio", l1_ratio, most=1.0)
        given = design(self, X, y, fit_intercept).compressed()
        rows, y, self.layout, penalised = given
        l1, l2 = self.alpha * self.l1_ratio, self.alpha * (1.0 - self.l1_ratio)
        self._smooth = LeastSquares.of(given, l2)
        self._eye = np.eye(rows.shape[1])
        self._gram, self._moment = rows.T @ rows + np.diag(l2 * penalised), y @ rows
        self._l1 = l1 * penalised  # (p,)

    def init(self, rng: np.random.Generator) -> Vector:
        """Return zeros (p,)."""
        return np.zeros(self.layout.size)

    def expect(self, theta: Vector) -> None:
        """Return None: nothing is latent here."""

    def prox(self, theta: Vector, stats: None, centre: Vector, weight: float) -> Vector:
        """Return the argmin of ``f(x) + weight/2 |x - centre|^2``, shape (p,)."""
        if not self._l1.any():
            return self._smooth.prox(theta, None, centre, weight)
        gram = self._gram + weight * self._eye
        pull = self._moment + weight * centre
        found = _guess(gram, pull, self._l1, theta)
        return _search(gram, pull, self._l1, theta) if found is None else found

    def objectives(self, thetas: Matrix, stats: None) -> Vector:
        """Return f of each row of ``thetas`` (k, p), shape (k,)."""
        return self._smooth.objectives(thetas, None) + np.abs(thetas) @ self._l1


class Lasso(ElasticNet):
    """f = 1/2 |X coef + intercept - y|^2 + alpha |coef|_1.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        This node's rows.
    y : ndarray of shape (n,)
    alpha : float
        This node's own share of the penalty; not negative.
    fit_intercept : bool
        Whether there is an intercept; it is not penalised.
    """

    def __init__(
        self, X: Matrix, y: Vector, alpha: float = 1.0, *, fit_intercept: bool = True
    ) -> None:
        super().__init__(X, y, alpha, 1.0, fit_intercept=fit_intercept)


def _guess(gram: Matrix, pull: Vector, l1: Vector, theta: Vector) -> Vector | None:
    """Return the argmin of ``1/2 x' gram x - pull' x + l1' |x|``, or None.

    Notes
    -----
    The new sign of an entry is that which minimising over this entry alone would give
    it, for all entries at once. Signs that repeat are the optimality conditions. From
    any start they mostly do after a few rounds, but they may also cycle.
    """
    curvature, signs, free = gram.diagonal(), np.sign(theta), l1 == 0.0
    for _ in range(GUESSES):
        signs[free] = 1.0
        inside = signs.nonzero()[0]
        theta = np.zeros(len(pull))
        try:
            theta[inside] = np.linalg.solve(
                gram[inside[:, None], inside], (pull - l1 * signs)[inside]
            )
        except np.linalg.LinAlgError:
            return None
        downhill = pull - gram @ theta
        alone = downhill + curvature * theta
        previous, signs = signs, np.sign(alone) * (np.abs(alone) > l1)
        if (signs == previous)[~free].all():
            # unless the system was singular, and its solution means nothing
            error = np.abs(downhill - l1 * signs)[inside].max(initial=0.0)
            return theta if error <= 1e-12 * np.abs(pull).max() else None
    return None


def _search(gram: Matrix, pull: Vector, l1: Vector, theta: Vector) -> Vector:
    """Return the same argmin by steps that change one sign each, never uphill.

    Each step goes to the minimum for the present signs, or to where the first entry
    becomes zero, which then leaves; once there, the zero entry that would gain most
    comes in. No choice of signs recurs, and the number of steps is bounded.
    """
    theta, signs, free = theta.copy(), np.sign(theta), l1 == 0.0
    signs[free] = 1.0
    size, push = np.abs(gram), np.abs(pull)
    for _ in range(100 + 10 * len(theta)):
        inside = signs.nonzero()[0]
        now, force = theta[inside], (pull - l1 * signs)[inside]
        aim, most = _aim(gram[inside[:, None], inside], force, now)
        falling = (aim * signs[inside] < 0.0) & ~free[inside]
        reach = np.full(len(now), math.inf)
        reach[falling] = -now[falling] / aim[falling]
        length = reach.min(initial=most)
        gone = inside[(reach == length) & (length < most)]
        theta[inside] = now + length * aim
        theta[gone] = signs[gone] = 0.0
        if len(gone):
            continue
        gradient = gram @ theta - pull
        gain = np.abs(gradient) - l1 - ROUNDING * (size @ np.abs(theta) + push)
        gain[inside] = 0.0
        best = int(gain.argmax())
        if gain[best] <= 0.0:
            break
        signs[best] = -np.sign(gradient[best])
    return theta


def _aim(gram: Matrix, pull: Vector, now: Vector) -> tuple[Vector, float]:
    """Return a direction from ``now`` to the least of a parabola, and how far it goes.

    Without curvature in some direction there may be no least point; then it is downhill
    along the floor of the valley, until a sign changes.
    """
    least, _, rank, _ = np.linalg.lstsq(gram, pull)
    if rank < len(pull):
        slope = pull - gram @ least
        noise = ROUNDING * (np.abs(gram) @ np.abs(least) + np.abs(pull))
        if (np.abs(slope) > noise).any():
            return slope, math.inf
    return least - now, 1.0
