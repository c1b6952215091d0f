"""Logistic regression of one node's rows, for two classes."""

from __future__ import annotations

import numpy as np

from dadmm.core.errors import ProblemError
from dadmm.core.layout import Matrix, Vector
from dadmm.data.datasets import classification
from dadmm.problems.glm import GeneralisedLinear
from dadmm.problems.linear import Design
from dadmm.problems.traits import Traits


class LogisticRegression(GeneralisedLinear):
    """Logistic regression of two classes.

    ``f = sum over rows of v log(1 + exp(-s u)) + alpha/2 |coef|^2`` with
    ``u = x' coef + intercept``. Here v is the weight of a row, 1 by default. ``theta``
    holds ``coef`` (d,) and, with ``fit_intercept``, ``intercept`` (). A node may have
    rows of one class only. With weight 0 and alpha 0, `prox` returns the minimiser of
    least norm. If the classes are separable, f has no minimiser, and the result is the
    last of `MAX_STEPS` Newton steps.

    Parameters
    ----------
    X, fit_intercept, sample_weight : as in `LeastSquares`
        A copy of all rows is kept, dense also if X is sparse.
    y : ndarray of shape (n,)
        Labels, 0 and 1 or -1 and 1; s is -1 for the lower and 1 for the upper.
    alpha : float
        This node's own share of the penalty; not negative.

    Examples
    --------
    >>> import dadmm
    >>> X, y, _ = dadmm.datasets.classification(80, 2, noise_variance=2.0)
    >>> problems = [
    ...     dadmm.problems.LogisticRegression(X[i::4], y[i::4], alpha=0.25)
    ...     for i in range(4)
    ... ]
    >>> result = dadmm.solve(problems, dadmm.Topology.ring(4))
    >>> result.status, result.solution.round(2)
    ('certified', array([ 0.05, -0.09, -0.39]))
    """

    traits = Traits("classification", True, classification, "margins")

    def _adopt(self, given: Design) -> None:
        given.rows[:] *= -_signs(given.y)[:, None]
        super()._adopt(given)

    def rows(self, theta: Vector, radius: float = 0.0) -> Matrix:
        """Return rows F (n + r, p) with F'F at most the Hessian within the radius.

        With radius 0, F'F is the Hessian at ``theta``.
        """
        rows = self._rows[0]
        half = 0.5 * (np.abs(rows @ theta) + self._lengths[0, 0] * radius)
        root = np.exp(-half) / (1.0 + np.exp(-2.0 * half))
        root *= np.sqrt(self._weights[0, 0])
        return np.vstack([root[:, None] * rows, self._held[0]])

    def margins(self, theta: Vector) -> tuple[float, float]:
        """Return the least and the largest ``s x' theta`` of the rows.

        Penalised entries of ``theta`` count as zero. If the least margin of all nodes
        is positive, their sum has no minimum: f falls along ``theta`` for ever.
        """
        found = -self._free_fits(theta)
        return float(found.min()), float(found.max())

    def _losses(self, fits: Matrix) -> Matrix:
        return np.asarray((self._weights * np.logaddexp(0.0, fits)).sum(axis=2))

    def _derivatives(self, fits: Matrix) -> tuple[Matrix, Matrix]:
        # 1 / (1 + exp(-fit)), accurate also where it is tiny
        chances = 1.0 / (1.0 + np.exp(-np.maximum(fits, -700.0)))
        forces = self._weights * chances
        return forces, forces * (1.0 - chances)


def _signs(y: Vector) -> Vector:
    """Return labels as -1 and 1; raise if they are not of two classes."""
    found = np.unique(y)
    if not (np.isin(found, (0.0, 1.0)).all() or np.isin(found, (-1.0, 1.0)).all()):
        shown = ", ".join(f"{label:g}" for label in found[:5])
        raise ProblemError(
            "LogisticRegression needs labels 0 and 1 or -1 and 1, got "
            f"{shown}{', ...' if len(found) > 5 else ''}"
        )
    return np.where(y > 0.0, 1.0, -1.0)
