"""Logistic (of two or more classes) and Poisson regression, by Newton's method.

All arrays have a leading axis of problems, of length one for a single problem: a single
problem and a stack run the same code and give the same bits. A problem that has
converged does not move while others of its stack continue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dadmm.core.errors import ProblemError
from dadmm.core.layout import Matrix, Vector
from dadmm.core.linalg import EPS, TINY, row_lengths, triangular
from dadmm.core.schema import FINITE, entry, integer
from dadmm.data.datasets import classification, counts
from dadmm.problems.base import Reals, Traits, stacked
from dadmm.problems.linear import BLOCK, Design, LinearProblem

MAX_STEPS, MAX_HALVINGS = 100, 200
TOLERANCE = 2e-13  # of the gradient, relative to its terms
MOST = 300.0  # derivatives are those at this fit beyond it; their squares are finite
MOST_CLASSES = 1000


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

    arrays: ClassVar[tuple[str, ...]] = ("_rows", "_weights", "_held", "_is_free")
    mapped = ("_rows", "_held", "_free")
    # what a subclass has: sums of losses (m, s), given fits (m, s, n)
    _losses: ClassVar[Callable[[Any, Matrix], Matrix]]
    # first and second derivatives of the losses (m, 1, n), given fits
    _derivatives: ClassVar[Callable[[Any, Matrix], tuple[Matrix, Matrix]]]
    # roots (n,) of the least curvatures of the losses within a radius of theta
    _bend_roots: ClassVar[Callable[[Any, Vector, float], Vector]]
    # margins of all rows, where penalised entries of theta count as zero
    _margins: ClassVar[Callable[[Any, Vector], Vector]]

    def _adopt(self, given: Design) -> None:
        self._rows = given.rows[None]  # (m, n, p)
        self._data = given.rows  # (n, p) in the units of the data
        # (p, k) theta without penalised entries
        self._free = np.diag(1.0 * (self.alpha * given.penalised == 0.0))
        self._keep(given, np.empty((0, self.layout.size)))

    def _keep(self, given: Design, more: Matrix) -> None:
        """Keep the weights, and the rows of the penalty with more rows below them."""
        held = np.vstack([given.penalty_rows(self.alpha), more])
        self._held = np.zeros((1, self.layout.size + len(more), held.shape[1]))
        self._held[0, : len(held)] = held  # (m, r, p); the penalty may have no rows
        self._weights = given.weights[None, None]  # (m, 1, n)
        self._is_free = np.array([self.alpha == 0.0])  # (m,)

    def _check_targets(self, what: str, y: Vector, bad: NDArray[np.bool_]) -> None:
        """Raise if a target is bad; its row is not known, as rows may be left out."""
        if bad.any():
            found = f"{y[bad][0]:g}; choose another target or problem"
            raise ProblemError(f"{type(self).__name__} needs {what}, got {found}")

    def rows(self, theta: Vector, radius: float = 0.0) -> Matrix:
        roots = self._bend_roots(theta, radius)
        return np.vstack([roots[:, None] * self._rows[0], self._held[0]])

    def margins(self, theta: Vector) -> tuple[float, float]:
        """Return the least and the largest margin of the rows along ``theta``."""
        found = self._margins(theta)
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
        return *(getattr(self, name).shape for name in self.arrays), self.layout

    @classmethod
    def stack(cls, problems: Sequence[Self]) -> Self:
        found = stacked(problems, cls.arrays, join=np.concatenate)
        found._prepare()
        return found

    def within(self, T: Matrix) -> LinearProblem:
        return self._mapped(type(self), T)

    def prox(self, theta: Vector, stats: None, centre: Vector, weight: Reals) -> Vector:
        here = theta.reshape(len(self._held), 1, -1)
        weight = np.reshape(weight, (-1, 1, 1))  # of each problem
        here = self._descend(here, centre.reshape(here.shape), weight)
        for k in np.flatnonzero((weight[:, 0, 0] == 0.0) & self._is_free):
            rows = self._rows[k]  # of all minimisers, that of least norm
            here[k, 0] = np.linalg.lstsq(rows, rows @ here[k, 0])[0]
        return here.reshape(theta.shape)

    def objectives(self, thetas: Matrix, stats: None) -> Vector:
        points = thetas.reshape(len(self._held), -1, self.layout.size)
        held = points @ self._held.mT
        values: Vector = self._losses(self._fits(points)) + 0.5 * np.vecdot(held, held)
        return values.reshape(thetas.shape[:-1])

    def gradient(self, theta: Vector) -> Vector:
        forces, _ = self._derivatives(self._fits(theta[None, None]))
        return np.asarray((theta @ self._penalty + self._pull(forces))[0, 0])

    def _descend(self, here: Matrix, centre: Matrix, weight: Matrix) -> Matrix:
        """Return the minimum of the proximal objective, (m, 1, p)."""
        here, model = here.copy(), self._evaluate(here, centre, weight)
        pull = 0.5 * np.vecdot(weight * centre, centre)
        high = ~(model.value <= self._at_zero + pull)
        if high.any():  # Newton's method is slow where losses are linear or grow fast
            here[high] = 0.0
            model = self._evaluate(here, centre, weight)
        moving = model.far
        for _ in range(MAX_STEPS):
            if not moving.any():
                break
            hessian = self._hessian(model)
            hessian += self._penalty
            # an amount below rounding, which mostly makes a singular system solvable
            least = 4.0 * EPS * model.trace + self._least
            hessian += (weight + least[..., None]) * self._eye
            step = -solve_systems(hessian, model.gradient)
            step *= moving[..., None]
            new = self._evaluate(here + step, centre, weight)
            enough = 1e-4 * np.vecdot(model.gradient, step) + 1e-14 * model.value
            worse = new.value > model.value + enough
            if worse.any():
                length = self._length(here, step, here - centre, weight, worse)
                step *= length[..., None]
                new = self._evaluate(here + step, centre, weight)
            here += step
            model, moving = new, moving & new.far
        return here

    def _length(
        self, here: Matrix, step: Matrix, off: Matrix, weight: Matrix,
        worse: NDArray[np.bool_],
    ) -> Matrix:  # fmt: skip
        """Return the fraction of each step to take, (m, 1); 1 unless it is worse."""
        start, along = self._fits(here), self._fits(step)
        held = step @ self._penalty
        slope = np.vecdot(held, here) + np.vecdot(weight * step, off)
        bend = np.vecdot(held + weight * step, step)
        length: Matrix = np.ones_like(slope)
        for _ in range(MAX_HALVINGS):
            forces, _ = self._derivatives(start + length[..., None] * along)
            rising = np.vecdot(forces, along) + slope + length * bend > 0.0
            worse = worse & rising
            if not worse.any():
                break
            length[worse] *= 0.5
        return length

    def _evaluate(self, here: Matrix, centre: Matrix, weight: Matrix) -> LocalModel:
        fits = self._fits(here)
        forces, curvature = self._derivatives(fits)
        trace = np.vecdot(curvature, self._squares)
        off = here - centre
        held, pull = here @ self._penalty, weight * off
        gradient = (held + pull) + self._pull(forces)
        near = 0.5 * (np.vecdot(held, here) + np.vecdot(pull, off))
        value = self._losses(fits) + near
        terms = np.vecdot(np.abs(forces), self._lengths) + row_lengths(held + pull)
        # the rounding of the fits times the curvature, of the penalty, and the centre
        bend = trace + self._penalty_trace
        rounding = 4.0 * EPS * (bend * row_lengths(here))
        rounding += 4.0 * EPS * row_lengths(weight * centre)
        far = row_lengths(gradient) > TOLERANCE * terms + rounding
        return LocalModel(value, gradient, far, fits, curvature, trace)


def solve_systems(matrices: Matrix, rows: Matrix) -> Matrix:
    """Return the solutions (m, 1, p) of symmetric systems, whose right sides are rows.

    A singular system, which some processors solve and others do not, gets the solution
    of least norm. The bits of a solution do not depend on the other systems.
    """
    try:
        return np.asarray(np.linalg.solve(matrices, rows.mT).mT)
    except np.linalg.LinAlgError:
        if len(matrices) > 1:
            pairs = zip(matrices[:, None], rows[:, None], strict=True)
            return np.concatenate([solve_systems(*pair) for pair in pairs])
        least = 8.0 * EPS * rows.shape[-1]  # smaller eigenvalues count as zero
        inverse = np.linalg.pinv(matrices, rcond=least, hermitian=True)
        return np.asarray(rows @ inverse.mT)


@dataclass(eq=False, repr=False)
class LogisticRegression(GeneralisedLinear):
    """Logistic regression of two classes.

    ``f = sum over rows of v log(1 + exp(-s u)) + alpha/2 |coef|^2`` with
    ``u = x' coef + intercept``. Here s is -1 for the lower label and 1 for the upper; v
    and ``theta`` are as in `LeastSquares`. A node may have rows of one class only. If
    the classes are separable, f has no minimiser.

    Parameters
    ----------
    X, fit_intercept, sample_weight : as in `LeastSquares`; X is kept as dense rows
    y : ndarray of shape (n,), labels 0 and 1, or -1 and 1
    alpha : float, this node's own share of the penalty; not negative

    Examples
    --------
    >>> import dadmm
    >>> X, y, _ = dadmm.datasets.classification(80, 2, noise_variance=2.0)
    >>> problems = [LogisticRegression(X[i::4], y[i::4], 0.25) for i in range(4)]
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

    def _margins(self, theta: Vector) -> Vector:
        return np.asarray(-(self._data @ (self._free @ theta)))  # s x' theta

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
    X, fit_intercept, sample_weight : as in `LeastSquares`; X is kept as dense rows
    y : ndarray of shape (n,), counts or other numbers that are not negative
    alpha : float, this node's own share of the penalty; not negative

    Examples
    --------
    >>> problem = PoissonRegression(np.zeros((3, 1)), [1.0, 2.0, 3.0])
    >>> np.exp(problem.prox(np.zeros(2), None, np.zeros(2), 0.0)[1]).round(6)
    np.float64(2.0)
    """

    alpha: float = entry(1.0, FINITE)
    arrays = (*GeneralisedLinear.arrays, "_y", "_unit")
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

    def _margins(self, theta: Vector) -> Vector:
        fits = self._data @ (self._free @ theta)
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


@dataclass(eq=False, repr=False)
class MultinomialLogistic(GeneralisedLinear):
    """Logistic regression of several classes (softmax).

    ``f = sum over rows of v (-log p_y + c^2 / 2) + alpha/2 |coef|^2``. Here p_k is
    ``exp(u_k) / sum exp(u)`` with the logits ``u_k = coef_k' x + intercept_k``, c is
    the mean of the row's logits and v its weight, 1 by default. Because of c,
    coefficients and intercepts sum to zero over the classes at the minimiser, where c
    is zero. ``theta`` holds ``coef`` (K, d) and, with ``fit_intercept``, ``intercept``
    (K,). A node may lack classes.

    Parameters
    ----------
    X, fit_intercept, sample_weight : as in `LeastSquares`; X is kept as dense rows
    y : ndarray of shape (n,), integers from 0 to ``n_classes - 1``
    n_classes : int, the number of classes of all nodes together, from 2 to 1000
    alpha : float, this node's own share of the penalty; not negative

    Examples
    --------
    >>> X, y = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), [0, 1, 2]
    >>> problem = MultinomialLogistic(X, y, 3)
    >>> theta = problem.prox(np.zeros(9), None, np.zeros(9), 0.0)
    >>> problem.layout.views(theta).coef.round(1)  # a row by class; they sum to zero
    array([[-0.3, -0.3],
           [ 0.5, -0.2],
           [-0.2,  0.5]])
    """

    n_classes: int = entry(MISSING, integer(2, MOST_CLASSES))
    alpha: float = entry(1.0, FINITE)
    arrays = (*GeneralisedLinear.arrays, "_basis", "_is_own")
    separated = "some classes"
    traits = Traits("classification", True, classification, "margins")

    def _adopt(self, given: Design) -> None:
        # X = Q R, logits Q (R_k theta): a change of coordinates concerns R only
        y, K, p = given.y, int(self.n_classes), given.rows.shape[1]
        rule = f"integer labels from 0 to {K - 1}, because n_classes is {K}"
        self._check_targets(rule, y, (y != np.round(y)) | (y < 0.0) | (y >= K))
        d = p - self.fit_intercept
        self.layout = self._layout(d, K)
        penalised = 1.0 * (np.arange(K * p) < K * d)
        basis, factor = np.linalg.qr(given.rows)  # (n, q) and (q, p)
        parts = np.split(factor, [d], axis=1)  # of the coefficients, and the intercept
        maps = np.hstack([np.kron(np.eye(K), part) for part in parts])
        mean = maps.reshape(K, -1, K * p).mean(axis=0)
        maps -= np.tile(mean, (K, 1))
        centring = triangular(np.sqrt(given.weights)[:, None] * basis) @ mean
        self._basis, self._rows = basis[None], maps[None]  # (m, n, q), (m, K q, k)
        self._is_own = (np.arange(K)[:, None] == y)[None, None]  # (m, 1, K, n)
        self._free = maps * (self.alpha * penalised == 0.0)
        self._keep(given._replace(penalised=penalised), centring)

    def rows(self, theta: Vector, radius: float = 0.0) -> Matrix:
        """Return F (r, p), where F'F is at most the Hessian within the radius.

        If no logit of a row changes by more than a_k, p_k is at least q_k = ``p_k
        exp(-a_k - max a)``. The Hessian of the loss, the sum over j < k of ``p_j p_k
        (e_j - e_k) (e_j - e_k)'``, is at least that with q instead of p.
        """
        K, n = self._is_own.shape[2:]
        _, chances, _ = self._chances(self._fits(theta[None, None]))
        moves = radius * self._lengths.reshape(K, n)
        chance = chances[0, 0] * np.exp(-moves - moves.max(axis=0))  # (K, n)
        total = np.maximum(chance.sum(axis=0), TINY)
        unit = np.sqrt(chance / total).T  # (n, K)
        # G'G = total diag(chance) - chance chance'
        G = np.eye(K) - unit[:, :, None] * unit[:, None, :]
        others = np.where(np.eye(K, dtype=bool), 0.0, (unit**2)[:, None, :])
        G[:, range(K), range(K)] = others.sum(axis=2)
        G *= (total * np.sqrt(self._weights[0, 0]))[:, None, None] * unit[:, None, :]
        maps = self._rows[0].reshape(K, -1, len(theta))
        held: Matrix = self._held[0]
        for first in range(0, n, BLOCK):
            part = slice(first, first + BLOCK)
            logits = (self._basis[0, part] @ maps).transpose(1, 0, 2)  # (b, K, k)
            more = (G[part] @ logits).reshape(-1, len(theta))
            held = triangular(np.vstack([held, more]))
        return held

    def _margins(self, theta: Vector) -> Vector:
        own = self._is_own[0, 0]  # u_y - u_k of all rows and k other than y
        fits = (self._free @ theta).reshape(len(own), -1) @ self._basis[0].T  # (K, n)
        return np.asarray(((fits * own).sum(axis=0) - fits)[~own])

    def _chances(self, fits: Matrix) -> tuple[Matrix, Matrix, Matrix]:
        """Return losses (m, s, n), and p_k and 1 - p_k (m, s, K, n), also if tiny."""
        own = self._is_own
        u = fits.reshape(*fits.shape[:2], *own.shape[2:])
        u = u - (u * own).sum(axis=2, keepdims=True)
        top = u.argmax(axis=2, keepdims=True)
        is_top = np.arange(u.shape[2])[:, None] == top
        peak = u.max(axis=2, keepdims=True)
        sizes = np.exp(u - peak)
        others = np.where(is_top, 0.0, sizes).sum(axis=2, keepdims=True)
        rest = np.where(is_top, others, (1.0 + others) - sizes)
        loss = (peak + np.log1p(others))[:, :, 0]
        return loss, sizes / (1.0 + others), rest / (1.0 + others)

    def _losses(self, fits: Matrix) -> Matrix:
        return np.asarray((self._weights * self._chances(fits)[0]).sum(axis=2))

    def _derivatives(self, fits: Matrix) -> tuple[Matrix, Matrix]:
        _, chance, rest = self._chances(fits)
        weights = self._weights[:, :, None]
        forces = weights * np.where(self._is_own, -rest, chance)
        curvature = weights * (chance * rest)
        return forces.reshape(fits.shape), curvature.reshape(fits.shape)

    def _fits(self, points: Matrix) -> Matrix:
        m, s, _ = points.shape
        parts = (points @ self._rows.mT).reshape(m, s, self._is_own.shape[2], -1)
        return np.asarray((parts @ self._basis.mT[:, None]).reshape(m, s, -1))

    def _pull(self, forces: Matrix) -> Matrix:
        m, s, _ = forces.shape
        parts = forces.reshape(m, s, self._is_own.shape[2], -1)
        pulls = (parts @ self._basis[:, None]).reshape(m, s, -1)
        return np.asarray(pulls @ self._rows)

    def _hessian(self, model: LocalModel) -> Matrix:
        chance = self._chances(model.fits)[1][:, 0]  # (m, K, n)
        m, K, n = chance.shape
        basis, q = self._basis, self._basis.shape[2]
        curvature = model.curvature.reshape(m, K, n)
        inner = np.empty((m, K, q, K, q))
        for j in range(K):
            for k in range(j + 1):
                both = -self._weights[:, 0] * chance[:, j] * chance[:, k]
                bend = curvature[:, k] if j == k else both
                block = (basis * bend[..., None]).mT @ basis
                inner[:, j, :, k], inner[:, k, :, j] = block, block
        return np.asarray(self._rows.mT @ inner.reshape(m, K * q, -1) @ self._rows)

    def _row_squares(self) -> Matrix:
        m, K = len(self._rows), self._is_own.shape[2]
        maps = self._rows.reshape(m, K, -1, self._rows.shape[2])
        factors: Matrix = np.asarray(np.linalg.qr(maps.mT, mode="r"))  # (m, K, r, q)
        logits = self._basis[:, None] @ factors.mT
        return np.asarray(np.vecdot(logits, logits).reshape(m, 1, -1))
