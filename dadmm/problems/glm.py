"""Generalised linear models, by Newton's method: logistic and Poisson regression.

All arrays inside have a leading axis of problems, of length one for a single problem.
So a single problem and a stack run the same code and give the same bits. A problem that
has converged does not move while others of its stack continue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dadmm.core.errors import ProblemError
from dadmm.core.layout import Matrix, Vector
from dadmm.core.linalg import EPS, TINY, row_lengths
from dadmm.core.schema import FINITE, entry
from dadmm.data.datasets import classification, counts
from dadmm.problems.base import Scalars, Traits, stack_attributes
from dadmm.problems.linear import Design, LinearProblem

MAX_STEPS, MAX_HALVINGS = 100, 200
TOLERANCE = 2e-13  # of the gradient, relative to its terms
MOST = 300.0  # derivatives are those at this fit beyond it; their squares are finite


class Anchor(NamedTuple):
    """The proximal terms ``weight/2 |theta - centre|^2`` of m problems."""

    weight: Matrix  # (m, 1, 1)
    centre: Matrix  # (m, 1, p)
    rounding: Matrix  # (m, 1) error of its gradient by rounding


class LocalModel(NamedTuple):
    """The proximal objectives of m problems, each near a point."""

    value: Matrix  # (m, 1)
    gradient: Matrix  # (m, 1, p)
    far: NDArray[np.bool_]  # (m, 1) whether the gradient exceeds its tolerance
    fits: Matrix  # (m, 1, n) x' theta of each row
    curvature: Matrix  # (m, 1, n) of each row's loss
    trace: Matrix  # (m, 1) of their hessian


class GeneralisedLinear(LinearProblem):
    """f = sum over rows of v loss(x' theta) + 1/2 |held theta|^2; v are weights."""

    stacked: ClassVar[tuple[str, ...]] = ("_rows", "_weights", "_held", "_is_free")
    mapped = ("_rows", "_held", "_free")
    _rows: Matrix  # (m, n, p)
    _weights: Matrix  # (m, 1, n)
    _held: Matrix  # (m, r, p)
    _is_free: NDArray[np.bool_]  # (m,) whether alpha is zero
    _data: Matrix  # (n, p) the rows in the units of the data
    _free: Matrix  # (p, k) theta without penalised entries

    def _adopt(self, given: Design) -> None:
        self._data, self._rows = given.rows, given.rows[None]
        self._held = padded(given.penalty_rows(self.alpha), self.layout.size)
        self._free = np.diag(1.0 * (self.alpha * given.penalised == 0.0))
        self._weigh(given)

    def _weigh(self, given: Design) -> None:
        self._weights = given.weights[None, None]
        self._is_free = np.array([self.alpha == 0.0])
        self._prepare()

    def _check_targets(self, what: str, y: Vector, bad: NDArray[np.bool_]) -> None:
        """Raise if a target is bad; its row is not known, as rows may be left out."""
        if bad.any():
            found = f"{y[bad][0]:g}; choose another target or problem"
            raise ProblemError(f"{type(self).__name__} needs {what}, got {found}")

    def _losses(self, fits: Matrix) -> Matrix:
        """Return the sum of losses (m, s) of fits (m, s, n)."""
        raise NotImplementedError

    def _derivatives(self, fits: Matrix) -> tuple[Matrix, Matrix]:
        """Return first and second derivatives (m, 1, n) of losses by fits."""
        raise NotImplementedError

    def _bend_roots(self, theta: Vector, radius: float) -> Vector:
        """Return roots (n,) of the least curvatures of the losses within a radius."""
        raise NotImplementedError

    def _margins(self, fits: Vector) -> Vector:
        """Return the margins of all rows, given the fits of theta."""
        raise NotImplementedError

    def _free_fits(self, theta: Vector) -> Vector:
        """Return x' theta (n,), where penalised entries of theta count as zero."""
        return np.asarray(self._data @ (self._free @ theta))

    def rows(self, theta: Vector, radius: float = 0.0) -> Matrix:
        """Return rows F (n + r, p) with F'F at most the Hessian within the radius.

        With radius 0, F'F is about the Hessian at ``theta``.
        """
        roots = self._bend_roots(theta, radius)
        return np.vstack([roots[:, None] * self._rows[0], self._held[0]])

    def margins(self, theta: Vector) -> tuple[float, float]:
        """Return the least and the largest margin of the rows along ``theta``.

        Penalised entries of ``theta`` count as zero. If the least margin of all nodes
        is positive, their sum has no minimum: f falls along ``theta`` for ever.
        """
        found = self._margins(self._free_fits(theta))
        return float(found.min()), float(found.max())

    def _fits(self, points: Matrix) -> Matrix:
        """Return x' theta of each row, (m, s, n), for points (m, s, p)."""
        return np.asarray(points @ self._rows.mT)

    def _pull(self, forces: Matrix) -> Matrix:
        """Return the gradient (m, 1, p) of forces (m, 1, n) on the fits."""
        return np.asarray(forces @ self._rows)

    def _hessian(self, model: LocalModel) -> Matrix:
        """Return the Hessian of the losses, (m, p, p)."""
        return np.asarray((self._rows * model.curvature.mT).mT @ self._rows)

    def _row_squares(self) -> Matrix:
        """Return the squared lengths of the rows, (m, 1, n)."""
        return np.asarray(np.vecdot(self._rows, self._rows)[:, None, :])

    def _span(self, k: int) -> Matrix:
        """Return rows (r, p) that span all directions that problem k determines."""
        return np.asarray(self._rows[k])

    def _prepare(self) -> None:
        self._penalty = self._held.mT @ self._held  # (m, p, p)
        self._squares = self._row_squares()
        self._lengths = np.sqrt(self._squares)
        self._least = EPS**2 * self._squares.sum(axis=2) + TINY  # (m, 1)
        self._penalty_trace = self._penalty.trace(axis1=1, axis2=2)[:, None]  # (m, 1)
        self._eye = np.eye(self.layout.size)
        self._at_zero = self._losses(np.zeros_like(self._lengths))  # (m, 1)

    @property
    def kind(self) -> tuple[object, ...]:
        """What problems must have in common to be stacked."""
        return *(getattr(self, name).shape for name in self.stacked), self.layout

    @classmethod
    def stack(cls, problems: Sequence[Self]) -> Self:
        """Return m problems of one kind as one problem, see `LeastSquares.stack`."""
        found = stack_attributes(cls, problems, cls.stacked, np.concatenate)
        found._prepare()
        return found

    def within(self, T: Matrix) -> LinearProblem:
        """Return f as a problem in z (k,), where theta = T z and T is (p, k)."""
        return self._mapped(type(self), T)

    def prox(
        self, theta: Vector, stats: None, centre: Vector, weight: Scalars
    ) -> Vector:
        """Return the argmin of ``f(x) + weight/2 |x - centre|^2``, shape (p,)."""
        here = theta.reshape(len(self._held), 1, -1)
        weight = np.reshape(weight, (-1, 1, 1))
        centre = centre.reshape(here.shape)
        anchor = Anchor(weight, centre, 4.0 * EPS * row_lengths(weight * centre))
        here = self._descend(here, anchor)
        for k in np.flatnonzero((weight[:, 0, 0] == 0.0) & self._is_free):
            span = self._span(int(k))  # of all points with this f, that of least norm
            here[k, 0] = np.linalg.lstsq(span, span @ here[k, 0])[0]
        return here.reshape(theta.shape)

    def objectives(self, thetas: Matrix, stats: None) -> Vector:
        """Return f of each row of ``thetas`` (k, p), shape (k,)."""
        points = thetas.reshape(len(self._held), -1, self.layout.size)
        held = points @ self._held.mT
        values: Vector = self._losses(self._fits(points))
        values = values + 0.5 * np.vecdot(held, held)
        return values.reshape(thetas.shape[:-1])

    def gradient(self, theta: Vector) -> Vector:
        """Return the gradient of f, shape (p,)."""
        forces, _ = self._derivatives(self._fits(theta[None, None]))
        return np.asarray((theta @ self._penalty + self._pull(forces))[0, 0])

    def _descend(self, here: Matrix, anchor: Anchor) -> Matrix:
        """Return the minimum of the proximal objective, (m, 1, p).

        The search starts from ``here``, or from zero if that is lower: Newton's method
        is slow where losses are almost linear, or grow exponentially.
        """
        here, model = here.copy(), self._evaluate(here, anchor)
        pull = 0.5 * np.vecdot(anchor.weight * anchor.centre, anchor.centre)
        high = ~(model.value <= self._at_zero + pull)
        if high.any():
            here[high] = 0.0
            model = self._evaluate(here, anchor)
        moving = model.far
        for _ in range(MAX_STEPS):
            if not moving.any():
                break
            step = self._newton(model, anchor)
            step *= moving[..., None]
            new = self._evaluate(here + step, anchor)
            enough = 1e-4 * np.vecdot(model.gradient, step) + 1e-14 * model.value
            worse = new.value > model.value + enough
            if worse.any():
                step *= self._length(here, step, anchor, worse)[..., None]
                new = self._evaluate(here + step, anchor)
            here += step
            model, moving = new, moving & new.far
        return here

    def _length(
        self, here: Matrix, step: Matrix, anchor: Anchor, worse: NDArray[np.bool_]
    ) -> Matrix:
        """Return the fraction of each step to take, (m, 1); 1 unless it is worse."""
        start, along = self._fits(here), self._fits(step)
        held, off = step @ self._penalty, here - anchor.centre
        slope = np.vecdot(held, here) + np.vecdot(anchor.weight * step, off)
        bend = np.vecdot(held + anchor.weight * step, step)
        length: Matrix = np.ones_like(slope)
        for _ in range(MAX_HALVINGS):
            forces, _ = self._derivatives(start + length[..., None] * along)
            rising = np.vecdot(forces, along) + slope + length * bend > 0.0
            worse = worse & rising
            if not worse.any():
                break
            length[worse] *= 0.5
        return length

    def _evaluate(self, here: Matrix, anchor: Anchor) -> LocalModel:
        fits = self._fits(here)
        forces, curvature = self._derivatives(fits)
        trace = np.vecdot(curvature, self._squares)
        off = here - anchor.centre
        held, pull = here @ self._penalty, anchor.weight * off
        gradient = (held + pull) + self._pull(forces)
        value = self._losses(fits)
        value = value + 0.5 * (np.vecdot(held, here) + np.vecdot(pull, off))
        terms = np.vecdot(np.abs(forces), self._lengths) + row_lengths(held + pull)
        # the rounding of the fits times the curvature, and of the penalty
        bend = trace + self._penalty_trace
        rounding = 4.0 * EPS * (bend * row_lengths(here)) + anchor.rounding
        far = row_lengths(gradient) > TOLERANCE * terms + rounding
        return LocalModel(value, gradient, far, fits, curvature, trace)

    def _newton(self, model: LocalModel, anchor: Anchor) -> Matrix:
        hessian = self._hessian(model)
        # an amount below rounding makes a singular system solvable
        least = 4.0 * EPS * model.trace + self._least
        hessian += self._penalty
        hessian += (anchor.weight + least[..., None]) * self._eye
        return np.asarray(-np.linalg.solve(hessian, model.gradient.mT).mT)


def padded(rows: Matrix, count: int) -> Matrix:
    """Return ``count`` rows (1, count, p): the given ones, and zeros."""
    more = np.zeros((count - len(rows), rows.shape[1]))
    return np.vstack([rows, more])[None]


@dataclass(eq=False, repr=False)
class LogisticRegression(GeneralisedLinear):
    """Logistic regression of two classes.

    ``f = sum over rows of v log(1 + exp(-s u)) + alpha/2 |coef|^2`` with
    ``u = x' coef + intercept``; v and ``theta`` are as in `LeastSquares`. A node may
    have rows of one class only. If the classes are separable, f has no minimiser.

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
    >>> kind = dadmm.problems.LogisticRegression
    >>> problems = [kind(X[i::4], y[i::4], alpha=0.25) for i in range(4)]
    >>> result = dadmm.solve(problems, dadmm.Topology.ring(4))
    >>> result.status, result.solution.round(2)
    ('certified', array([ 0.05, -0.09, -0.39]))
    """

    alpha: float = entry(1.0, FINITE)
    traits = Traits("classification", True, classification, "margins")

    def _adopt(self, given: Design) -> None:
        low = 0.0 if given.y.min() >= 0.0 else -1.0
        bad = (given.y != low) & (given.y != 1.0)
        self._check_targets("labels 0 and 1, or -1 and 1", given.y, bad)
        given.rows[:] *= np.where(given.y > 0.0, -1.0, 1.0)[:, None]
        super()._adopt(given)

    def _bend_roots(self, theta: Vector, radius: float) -> Vector:
        half = 0.5 * (np.abs(self._rows[0] @ theta) + self._lengths[0, 0] * radius)
        roots = np.exp(-half) / (1.0 + np.exp(-2.0 * half))
        return np.asarray(roots * np.sqrt(self._weights[0, 0]))

    def _margins(self, fits: Vector) -> Vector:
        return -fits  # s x' theta

    def _losses(self, fits: Matrix) -> Matrix:
        return np.asarray((self._weights * np.logaddexp(0.0, fits)).sum(axis=2))

    def _derivatives(self, fits: Matrix) -> tuple[Matrix, Matrix]:
        # 1 / (1 + exp(-fit)), accurate also where it is tiny
        chances = 1.0 / (1.0 + np.exp(-np.maximum(fits, -700.0)))
        forces = self._weights * chances
        return forces, forces * (1.0 - chances)


@dataclass(eq=False, repr=False)
class PoissonRegression(GeneralisedLinear):
    """Poisson regression of counts.

    ``f = sum over rows of v (m - y log m + y log y - y) + alpha/2 |coef|^2``. Here m is
    ``exp(x' coef + intercept)``, the expected count; v and ``theta`` are as in
    `LeastSquares`. The sum is half of the deviance. With y = 0 in all rows and an
    intercept, f has no minimiser.

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
    >>> problem = PoissonRegression(np.zeros((3, 1)), [1.0, 2.0, 3.0])
    >>> np.exp(problem.prox(np.zeros(2), None, np.zeros(2), 0.0)[1]).round(6)
    np.float64(2.0)
    """

    alpha: float = entry(1.0, FINITE)
    stacked = (*GeneralisedLinear.stacked, "_y", "_unit")
    separated = "the rows with y = 0"
    traits = Traits("counts", True, counts, "margins")

    def _adopt(self, given: Design) -> None:
        self._check_targets("y of at least 0", given.y, given.y < 0.0)
        self._y = given.y[None, None]  # (m, 1, n)
        self._unit = np.where(self._y > 0.0, self._y, 1.0)
        super()._adopt(given)

    def _bend_roots(self, theta: Vector, radius: float) -> Vector:
        least = self._rows[0] @ theta - self._lengths[0, 0] * radius
        expected = np.exp(np.minimum(least, MOST))
        if radius == 0.0:  # far from the minimum, the mean of m and y is better than m
            expected = 0.5 * (expected + self._y[0, 0])
        return np.asarray(np.sqrt(self._weights[0, 0] * expected))

    def _margins(self, fits: Vector) -> Vector:
        return -np.where(self._y[0, 0] > 0.0, np.abs(fits), fits)

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
