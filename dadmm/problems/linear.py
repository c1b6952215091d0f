"""Linear problems: what all of them share, squared errors, and the Huber loss.

The intercept is the coefficient of a column of ones, the last one. It is not penalised:
each problem multiplies its penalty by `Design.penalised`, which is zero there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dadmm.core.errors import ProblemError
from dadmm.core.interfaces import TransformableProblem
from dadmm.core.layout import Layout, Matrix, Vector
from dadmm.core.linalg import EPS, TINY, row_lengths, triangular, with_one_blas_thread
from dadmm.core.schema import FINITE, FLAG, check_fields, entry, number
from dadmm.data.encoding import RowBlocks, row_blocks
from dadmm.problems.base import Reals, Traits, check_entries, checked_array, stacked

P = TypeVar("P", bound="LinearProblem")
BLOCK = 1000  # rows of a sparse X that are dense at a time, or as many as columns
MAX_STEPS = 100  # of Newton's method for the Huber loss
TOLERANCE = 1e-14  # of its gradient, relative to its terms


class Design(NamedTuple):
    """The rows of a linear problem, with a column of ones if it has an intercept."""

    rows: Matrix  # (n, p), p = d, or d + 1 with an intercept
    y: Vector  # (n,)
    penalised: Vector  # (p,) 1 for a coefficient, 0 for the intercept
    weights: Vector  # (n,) positive factors of the losses

    def weighted(self) -> Design:
        """Return rows and targets times the roots of their weights."""
        root = np.sqrt(self.weights)
        return self._replace(rows=root[:, None] * self.rows, y=root * self.y)

    def penalty_rows(self, alpha: float) -> Matrix:
        """Return rows F (r, p) with ``|F theta|^2 = alpha |coef|^2``."""
        kept = self.penalised * alpha > 0.0
        return np.asarray(np.sqrt(alpha) * np.diag(self.penalised)[kept])

    def largest(self) -> Vector:
        """Return the largest size of the entries of each column, (p,)."""
        return np.asarray(np.abs(self.rows).max(axis=0, initial=0.0))

    def lightest(self, largest: Vector) -> float:
        """Return the least size of a row, at most 1, in units of ``largest``."""
        entries = np.abs(self.rows)
        entries /= np.maximum(largest, TINY)
        sizes = entries.max(axis=1, initial=0.0)
        return float(sizes[sizes > 0.0].min(initial=1.0))


@dataclass(eq=False, repr=False)
class LinearProblem(TransformableProblem):
    """A convex problem of rows and targets, without latent variables.

    A subclass has its settings as fields, `_adopt`, which takes the design, and
    `_prepare`, which computes what depends on the ``mapped`` arrays.
    """

    X: InitVar[ArrayLike]
    y: InitVar[ArrayLike]
    _: KW_ONLY
    fit_intercept: bool = entry(True, FLAG)
    sample_weight: InitVar[ArrayLike | None] = None

    alpha = 0.0  # this node's share of the penalty
    convex = True
    exact = True  # prox returns the minimum to rounding
    quadratic = False  # whether the Hessian is the same everywhere
    needs_inverse = False  # whether T of `within` must be invertible
    lightest = 1.0  # size of the least row over the largest row, if it is known
    mapped: ClassVar[tuple[str, ...]] = ()  # arrays (..., p), in z times T
    traits = Traits("regression")
    _adopt: ClassVar[Callable[[Any, Design], None]]
    _prepare: ClassVar[Callable[[Any], None]]

    @with_one_blas_thread
    def __post_init__(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None
    ) -> None:
        check_fields(self, error=ProblemError)
        self.alpha = float(self.alpha)
        given = self._design(X, y, sample_weight)
        self.layout = self._layout(int(given.penalised.sum()))
        self._adopt(given)
        self._prepare()

    def _layout(self, d: int, *classes: int) -> Layout:
        free = {"intercept": classes} if self.fit_intercept else {}
        return Layout.of(coef=(*classes, d), **free)

    def init(self, rng: np.random.Generator) -> Vector:
        return np.zeros(self.layout.size)

    @with_one_blas_thread
    def _mapped(self, kind: type[P], T: Matrix) -> P:
        """Return an object of a class with the attributes of this one, but in z."""
        found = object.__new__(kind)
        vars(found).update(vars(self), layout=Layout.of(z=T.shape[1:]))
        for name in self.mapped:
            setattr(found, name, getattr(self, name) @ T)
        found._prepare()
        return found

    def _design(self, X: Any, y: Any, sample_weight: ArrayLike | None) -> Design:
        """Return the design of X (n, d) and y (n,), as copies; raise if not valid.

        Rows of weight zero are left out. If X may come in blocks (`Traits`), only the
        squared errors matter: rows are multiplied by the roots of their weights, and
        those of a sparse X or a file compressed to at most p + 1. Else X becomes dense.
        """
        name = type(self).__name__
        if not isinstance(X, RowBlocks):
            X = checked_array(name, "X", X)
        if X.ndim != 2 or 0 in X.shape:
            raise ProblemError(
                f"{name} needs X of shape (n, d) with n, d >= 1, got {X.shape}"
            )
        n, d = X.shape
        self._n_rows = n
        y, weights = checked_array(name, "y", y, (n,)), np.ones(n)
        if sample_weight is not None:
            weights = checked_array(name, "sample_weight", sample_weight, (n,))
            rule = "sample_weight of at least 0, and one that is positive"
            check_entries(name, rule, weights, (weights < 0.0) | (not weights.any()))
        if not weights.all() and not isinstance(X, RowBlocks):
            kept = weights > 0.0
            X, y, weights = X[kept], y[kept], weights[kept]
        if not isinstance(X, np.ndarray) and not self.traits.blocks:
            X = X.toarray()
        if hasattr(X, "tocsr"):
            X = dense_blocks(X)
        penalised = np.append(np.ones(d), np.zeros(int(self.fit_intercept)))

        def parts() -> Iterator[Design]:
            start = 0
            for rows in row_blocks(X):
                own = slice(start, start + len(rows))
                if self.fit_intercept:
                    rows = np.hstack([rows, np.ones((len(rows), 1))])
                yield Design(rows, y[own], penalised, weights[own])
                start = own.stop

        if isinstance(X, np.ndarray):
            (found,) = parts()
            heavy = found.weighted()
            self.lightest = heavy.lightest(heavy.largest())
            return heavy if self.traits.blocks else found
        both, largest = np.empty((0, len(penalised) + 1)), np.zeros(len(penalised))
        for own in map(Design.weighted, parts()):
            both = triangular(np.vstack([both, np.column_stack([own.rows, own.y])]))
            largest = np.maximum(largest, own.largest())
        self.lightest = min(own.weighted().lightest(largest) for own in parts())
        return Design(both[:, :-1], both[:, -1], penalised, weights)


def dense_blocks(X: Any) -> RowBlocks:
    """Return the rows of a sparse X, of which few are dense at a time."""
    n, d = X.shape
    starts = range(0, n, step := max(BLOCK, d))
    return RowBlocks(lambda: (X[k : k + step].toarray() for k in starts), n, d)


class LeastSquares(LinearProblem):
    """Linear regression: half of the sum of squared errors.

    ``f = 1/2 sum over rows of v (x' coef + intercept - y)^2``, where v is the weight of
    a row, 1 by default. ``theta`` holds ``coef`` (d,) and, with ``fit_intercept``,
    ``intercept`` (). Where several points minimise f, `prox` with weight 0 returns the
    one of least norm.

    Parameters
    ----------
    X : ndarray or sparse matrix of shape (n, d), which is not made dense
    y : ndarray of shape (n,)
    fit_intercept : bool, whether there is an intercept, which is not penalised
    sample_weight : ndarray of shape (n,), optional, not negative

    Notes
    -----
    A QR decomposition leaves at most p + 1 rows with the same squared error. In their
    singular axes f is a sum of parabolas, so a proximal step is two small products.

    Examples
    --------
    >>> import dadmm
    >>> X, y, coef = dadmm.datasets.regression(60, 3)
    >>> problems = [dadmm.problems.LeastSquares(X[i::4], y[i::4]) for i in range(4)]
    >>> result = dadmm.solve(problems, dadmm.Topology.ring(4))
    >>> result.status, result.parts(0).coef.round(1), coef.round(1)
    ('certified', array([ 0.1, -0.1,  0.6]), array([0.1, 0. , 0.6]))
    """

    quadratic = True
    mapped = ("_rows",)
    l1_ratio = 0.0  # share of the penalty that is not of squares
    traits = Traits("regression", has_errors=True, blocks=True)

    def _adopt(self, given: Design) -> None:
        held = given.penalty_rows(self.alpha * (1.0 - self.l1_ratio))
        self._rows = np.vstack([given.rows, held])
        self._target = np.append(given.y, np.zeros(len(held)))

    def _prepare(self) -> None:
        rows = triangular(np.column_stack([self._rows, self._target]))
        self._rows, self._target = rows[:, :-1], rows[:, -1]
        self._rounding = EPS * max(self._n_rows, self._rows.shape[1])
        self._n_rows = len(rows)  # in other coordinates, the rows are these
        vars(self).pop("_parabolas", None)

    @cached_property
    def _parabolas(self) -> Parabolas:
        return Parabolas(*(part[0] for part in parabolas([self])))

    @property
    def equations(self) -> tuple[Matrix, Vector]:
        """Rows (r, p) and targets (r,), at most p + 1, with this sum of squares."""
        return self._rows, self._target

    @property
    def kind(self) -> Layout:
        """What problems must have in common to be stacked; not the number of rows."""
        return self.layout

    @classmethod
    def stack(cls, problems: Sequence[LeastSquares]) -> LeastSquares:
        """Return n problems as one with the same bits; arrays get a first axis of n."""
        whole = stacked(problems)
        whole._parabolas = parabolas(problems)
        return whole

    def rows(self, theta: Vector, radius: float = 0.0) -> Matrix:
        return self._rows

    def within(self, T: Matrix) -> LinearProblem:
        return self._mapped(LeastSquares, T)

    def prox(self, theta: Vector, stats: None, centre: Vector, weight: Reals) -> Vector:
        axes, curvature, pull, *_ = self._parabolas
        weight = np.asarray(weight)[..., None, None]
        row = centre[..., None, :] @ axes
        row *= weight
        row += pull
        row /= curvature + weight
        return np.asarray((row @ axes.mT)[..., 0, :])

    def objectives(self, thetas: Matrix, stats: None) -> Vector:
        off = thetas @ self._parabolas.rows.mT
        off -= self._parabolas.target
        return np.asarray(0.5 * np.vecdot(off, off))

    def gradient(self, theta: Vector) -> Vector:
        """Return the gradient of f without absolute values, shape (p,)."""
        return np.asarray((self._rows @ theta - self._target) @ self._rows)


class Parabolas(NamedTuple):
    """Sums of squares, each as a sum of parabolas along its own axes."""

    axes: Matrix  # (..., p, p)
    curvature: Matrix  # (..., 1, p)
    pull: Matrix  # (..., 1, p)
    rows: Matrix  # (..., p + 1, p) with rows of zeros at the end
    target: Matrix  # (..., 1, p + 1)


@with_one_blas_thread
def parabolas(problems: Sequence[LeastSquares]) -> Parabolas:
    """Return the parabolas of n problems of p parameters, with a leading axis of n."""
    groups: dict[tuple[int, float], list[int]] = {}
    for k, own in enumerate(problems):
        groups.setdefault((len(own._rows), own._rounding), []).append(k)
    n, p = len(problems), problems[0].layout.size
    shapes = (p, p), (1, p), (1, p), (p + 1, p), (1, p + 1)
    found = Parabolas(*(np.zeros((n, *shape)) for shape in shapes))
    for (r, rounding), group in groups.items():
        rows = np.array([problems[k]._rows for k in group])
        target = np.array([problems[k]._target for k in group])[:, None]
        left, values, right = np.linalg.svd(rows)
        values[values <= rounding * values[:, :1]] = 0.0
        singular, turned = np.zeros((2, len(group), 1, p + 1))
        singular[:, 0, : values.shape[1]], turned[..., :r] = values, target @ left
        # A curvature of zero is replaced by the least positive number: added to a
        # positive weight it is lost, and with weight 0 it avoids 0 / 0.
        found.curvature[group] = np.maximum(singular[..., :p] ** 2, TINY)
        found.pull[group] = (singular * turned)[..., :p]
        found.axes[group] = right.mT
        found.rows[group, :r], found.target[group, :, :r] = rows, target
    return found


@dataclass(eq=False, repr=False)
class Ridge(LeastSquares):
    """Least squares with a squared penalty of the coefficients.

    ``f = 1/2 sum over rows of v (x' coef + intercept - y)^2 + alpha/2 |coef|^2``.

    Parameters
    ----------
    X, y, fit_intercept, sample_weight : as in `LeastSquares`
    alpha : float, this node's own share of the penalty; not negative

    Examples
    --------
    >>> X, y = np.eye(2), np.array([1.0, 3.0])
    >>> Ridge(X, y, alpha=1.0, fit_intercept=False).prox(y, None, y, 0.0)
    array([0.5, 1.5])
    """

    alpha: float = entry(1.0, FINITE)


class HuberModel(NamedTuple):
    """The proximal objective near a point: a parabola until a row crosses delta."""

    misfit: Vector  # (n,) X theta - y, times the roots of the weights
    force: Vector  # (n,) the misfit, clipped at delta
    inside: NDArray[np.bool_]  # (n,) whether the row is within delta
    pull: Vector  # (p,) gradient of the penalty and the proximal term
    gradient: Vector  # (p,)


@dataclass(eq=False, repr=False)
class Huber(LinearProblem):
    """Robust regression: the Huber loss.

    ``f = sum over rows of v h(x' coef + intercept - y) + alpha/2 |coef|^2``. Here h(r)
    is ``r^2 / 2`` up to delta, and ``delta (|r| - delta / 2)`` beyond; v and ``theta``
    are as in `LeastSquares`.

    Parameters
    ----------
    X, y, fit_intercept, sample_weight : as in `LeastSquares`; X is kept as dense rows
    delta : float, the error from which the loss is linear, in the unit of y
    alpha : float, this node's own share of the penalty; not negative

    Examples
    --------
    >>> problem = Huber(np.ones((3, 1)), [0.0, 1.0, 50.0], 1.0, fit_intercept=False)
    >>> problem.prox(np.zeros(1), None, np.zeros(1), 0.0)  # 50 counts as an outlier
    array([1.])
    """

    delta: float = entry(1.35, number("above 0 and finite", lambda x: 0 < x < math.inf))
    alpha: float = entry(0.0, FINITE)
    mapped = ("_X", "_held")

    def _adopt(self, given: Design) -> None:
        # v h(r) is h of r times the root of v, with a delta times the root of v
        self._reach = self.delta * np.sqrt(given.weights)  # (n,)
        self._X, self._y, *_ = given.weighted()
        self._held = given.penalty_rows(self.alpha)  # (r, p)

    def _prepare(self) -> None:
        self._penalty = self._held.T @ self._held
        self._least = max(float(np.linalg.eigvalsh(self._penalty)[0]), 0.0)
        self._eye = np.eye(self.layout.size)
        self._lengths = row_lengths(self._X)
        # rounding of the misfits changes a gradient by EPS of these
        self._fixed = self._lengths @ np.abs(self._y)
        self._bend = self._lengths @ self._lengths + self._penalty.trace()

    def rows(self, theta: Vector, radius: float = 0.0) -> Matrix:
        errors = np.abs(self._X @ theta - self._y)
        if radius > 0.0:  # rows that stay within delta
            kept = self._X[errors + self._lengths * radius <= self._reach]
        else:  # as in reweighted least squares
            share = self._reach / np.maximum(errors, self._reach)
            kept = np.sqrt(share)[:, None] * self._X
        return np.vstack([kept, self._held])

    def within(self, T: Matrix) -> LinearProblem:
        return self._mapped(Huber, T)

    def prox(self, theta: Vector, stats: None, centre: Vector, weight: float) -> Vector:
        here, stiffness = theta.copy(), self._penalty + weight * self._eye
        least = self._least + weight
        model, aim = self._evaluate(here, centre, weight), np.abs(weight * centre).max()
        kept = 0  # steps in which no row crosses delta: one ends at the minimum
        for _ in range(MAX_STEPS):
            terms = np.abs(model.force) @ self._lengths + np.abs(model.pull).max()
            rounding = self._fixed + self._bend * np.abs(here).max() + aim
            noise = TOLERANCE * terms + 2.0 * EPS * rounding
            if kept == 2 or np.abs(model.gradient).max() <= noise:
                break  # the second step has reduced the rounding of the first
            step, whole = self._step(model, stiffness, least)
            new = self._evaluate(here + step, centre, weight)
            if not whole or new.gradient @ step > 0.0:
                step *= self._length(model, step, stiffness)
                new = self._evaluate(here + step, centre, weight)
            same = (model.force == new.force)[~(model.inside & new.inside)].all()
            kept = kept + 1 if same and whole else 0
            here, model = here + step, new
        if not stiffness.any():
            return np.asarray(np.linalg.lstsq(self._X, self._X @ here)[0])
        return here

    def objectives(self, thetas: Matrix, stats: None) -> Vector:
        errors = np.abs(thetas @ self._X.T - self._y)
        counted = np.minimum(errors, self._reach)
        losses = np.vecdot(counted, errors - 0.5 * counted)
        held = thetas @ self._held.T
        return np.asarray(losses + 0.5 * np.vecdot(held, held))

    def gradient(self, theta: Vector) -> Vector:
        return self._evaluate(theta, theta, 0.0).gradient

    def _evaluate(self, here: Vector, centre: Vector, weight: float) -> HuberModel:
        misfit = self._X @ here - self._y
        force = np.clip(misfit, -self._reach, self._reach)
        pull = self._penalty @ here + weight * (here - centre)
        return HuberModel(misfit, force, force == misfit, pull, force @ self._X + pull)

    def _step(
        self, model: HuberModel, stiffness: Matrix, least: float
    ) -> tuple[Vector, bool]:
        """Return a descent step, and whether it ends at the minimum of the parabola."""
        rows = self._X[model.inside]
        hessian = rows.T @ rows
        hessian += stiffness
        if least > EPS * len(hessian) * float(hessian.trace()):
            return np.asarray(-np.linalg.solve(hessian, model.gradient)), True
        values, axes = np.linalg.eigh(hessian)
        slopes = model.gradient @ axes
        flat = values <= EPS * len(values) * values[-1]
        noise = 1e-12 * (np.abs(model.force) @ self._lengths)
        if (np.abs(slopes[flat]) > noise).any():  # f falls without bound
            return -axes[:, flat] @ slopes[flat], False
        slopes[~flat] /= values[~flat]
        return -axes[:, ~flat] @ slopes[~flat], True

    def _length(self, model: HuberModel, step: Vector, stiffness: Matrix) -> float:
        """Return the multiple of a step at which the slope along it is zero."""
        drift = self._X @ step
        moving = drift != 0.0
        drift, misfit, reach = drift[moving], model.misfit[moving], self._reach[moving]
        # the slope is piecewise linear, with corners where a row crosses delta
        ends = (np.stack([-reach, reach]) - misfit) / drift
        bend = drift**2
        corners = np.maximum(np.sort(ends, axis=0), 0.0).ravel()  # enters, then leaves
        order = np.argsort(corners, kind="stable")
        corners = np.concatenate([[0.0], corners[order]])
        changes = np.concatenate([bend, -bend])[order]
        bends = np.concatenate([[0.0], changes.cumsum()]) + (stiffness @ step) @ step
        rises = np.concatenate([[0.0], (bends[:-1] * np.diff(corners)).cumsum()])
        slopes = model.gradient @ step + rises
        last = max(int(np.searchsorted(slopes, 0.0)) - 1, 0)
        if bends[last] <= 0.0:  # f is constant from here on
            return float(corners[last])
        return float(corners[last] - slopes[last] / bends[last])
