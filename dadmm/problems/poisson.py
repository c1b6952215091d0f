"""Poisson regression of one node's rows, with a logarithmic link."""

from __future__ import annotations

import numpy as np

from dadmm.core.errors import ProblemError
from dadmm.core.layout import Matrix, Vector
from dadmm.data.datasets import counts
from dadmm.problems.glm import GeneralisedLinear
from dadmm.problems.linear import Design
from dadmm.problems.traits import Traits

MOST = 300.0  # derivatives are those at this fit beyond it; their squares are finite


class PoissonRegression(GeneralisedLinear):
    """Poisson regression of counts.

    ``f = sum over rows of v (m - y log m + y log y - y) + alpha/2 |coef|^2``. Here m is
    ``exp(x' coef + intercept)``, the expected count, and v the weight of a row, 1 by
    default. The sum is half of the deviance. ``theta`` holds ``coef`` (d,) and, with
    ``fit_intercept``, ``intercept`` (). With weight 0 and alpha 0, `prox` returns the
    minimiser of least norm. If f has no minimiser, as for y = 0 with an intercept, the
    result is the last of `MAX_STEPS` Newton steps.

    Parameters
    ----------
    X, fit_intercept, sample_weight : as in `LeastSquares`
        A copy of all rows is kept, dense also if X is sparse.
    y : ndarray of shape (n,)
        Counts, or other numbers that are not negative.
    alpha : float
        This node's own share of the penalty; not negative.

    Examples
    --------
    >>> import dadmm
    >>> X, y, coef = dadmm.datasets.counts(400, 3)
    >>> problems = [
    ...     dadmm.problems.PoissonRegression(X[i::4], y[i::4], alpha=0.0)
    ...     for i in range(4)
    ... ]
    >>> result = dadmm.solve(problems, dadmm.Topology.ring(4))
    >>> result.parts(0).coef.round(1), coef.round(1)
    (array([0.1, 0. , 0.5]), array([0.1, 0. , 0.4]))
    """

    stacked = (*GeneralisedLinear.stacked, "_y", "_unit")
    separated = "the rows with y = 0"
    traits = Traits("counts", True, counts, "margins")

    def _adopt(self, given: Design) -> None:
        if given.y.min() < 0.0:
            raise ProblemError(
                "PoissonRegression needs y of at least 0, got "
                f"{given.y[given.y < 0.0][0]:g}; choose another target or problem"
            )
        self._y = given.y[None, None]  # (m, 1, n)
        self._unit = np.where(self._y > 0.0, self._y, 1.0)
        super()._adopt(given)

    def rows(self, theta: Vector, radius: float = 0.0) -> Matrix:
        """Return rows F (n + r, p) with F'F at most the Hessian within the radius.

        With radius 0, it is the Hessian for the mean of m and y. Near the minimum this
        is close to the Hessian, and far from it a better metric.
        """
        rows = self._rows[0]
        least = rows @ theta - self._lengths[0, 0] * radius
        expected = np.exp(np.minimum(least, MOST))
        if radius == 0.0:
            expected = 0.5 * (expected + self._y[0, 0])
        root = np.sqrt(self._weights[0, 0] * expected)
        return np.vstack([root[:, None] * rows, self._held[0]])

    def margins(self, theta: Vector) -> tuple[float, float]:
        """Return the least and the largest margin of the rows.

        It is ``-x' theta`` if y is 0, and ``-|x' theta|`` otherwise. Penalised entries
        of ``theta`` count as zero. If the least margin of all nodes is positive, their
        sum has no minimum: f falls along ``theta`` for ever.
        """
        fits = self._free_fits(theta)
        found = -np.where(self._y[0, 0] > 0.0, np.abs(fits), fits)
        return float(found.min()), float(found.max())

    def _losses(self, fits: Matrix) -> Matrix:
        off = fits - np.log(self._unit)
        with np.errstate(over="ignore"):
            losses = self._unit * np.expm1(off) - self._y * off + (self._y == 0.0)
            return np.asarray((self._weights * losses).sum(axis=2))

    def _derivatives(self, fits: Matrix) -> tuple[Matrix, Matrix]:
        off = np.minimum(fits, MOST) - np.log(self._unit)
        unit = self._weights * self._unit
        forces = unit * np.expm1(off) + self._weights * (self._y == 0.0)
        return forces, unit * np.exp(off)
