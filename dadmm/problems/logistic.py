"""Logistic regression of one node's rows, by Newton's method.

All arrays inside have a leading axis of problems, of length one for a single problem.
So a single problem and a stack run the same code and give the same bits. A problem that
has converged does not move while others of its stack continue.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dadmm.core.errors import ProblemError
from dadmm.core.layout import Layout, Matrix, Vector
from dadmm.core.threads import with_one_blas_thread
from dadmm.problems.checks import checked_number
from dadmm.problems.linear import LinearProblem, design

MAX_STEPS, MAX_HALVINGS = 100, 200
TOLERANCE = 2e-13  # of the gradient, relative to its terms
EPS, TINY = float(np.finfo(float).eps), float(np.finfo(float).tiny)


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
    curvature: Matrix  # (m, 1, n) of each row's loss
    trace: Matrix  # (m, 1) of their hessian


class LogisticRegression(LinearProblem):
    """f = sum over rows of log(1 + exp(-s (x' coef + intercept))) + alpha/2 |coef|^2.

    ``theta`` holds ``coef`` (d,) and, with ``fit_intercept``, ``intercept`` (). A node
    may have rows of one class only. With weight 0 and alpha 0, `prox` returns the
    minimiser of least norm. If the classes are separable, f has no minimiser, and the
    result is the last of `MAX_STEPS` Newton steps.

    Parameters
    ----------
    X, fit_intercept : as in `LeastSquares`
    y : ndarray of shape (n,)
        Labels, 0 and 1 or -1 and 1; s is -1 for the lower and 1 for the upper.
    alpha : float
        This node's own share of the penalty; not negative.
    """

    @with_one_blas_thread
    def __init__(
        self, X: Matrix, y: Vector, alpha: float = 1.0, *, fit_intercept: bool = True
    ) -> None:
        given = design(self, X, y, fit_intercept)
        self.layout = given.layout
        self.alpha = checked_number("alpha", alpha)
        given.rows[:] *= -_signs(given.y)[:, None]
        held = given.penalty_rows(self.alpha)  # (r, p)
        p = given.rows.shape[1]
        self._prepare(given.rows[None], np.vstack([held, np.zeros((p, p))])[None, :p])
        # `margins` uses rows in the units of the data, and the entries without penalty
        self._signed = given.rows  # (n, p)
        self._free = np.diag(1.0 * (self.alpha * given.penalised == 0.0))  # (p, k)

    def _prepare(self, rows: Matrix, held: Matrix) -> None:
        self._rows, self._held = rows, held  # (m, n, p) and (m, r, p)
        self._penalty = penalty = held.mT @ held  # (m, p, p)
        self._squares = np.vecdot(rows, rows)[:, None, :]  # (m, 1, n)
        self._lengths = np.sqrt(self._squares)
        self._least = EPS**2 * self._squares.sum(axis=2) + TINY  # (m, 1)
        self._penalty_trace = penalty.trace(axis1=1, axis2=2)[:, None]  # (m, 1)
        self._eye = np.eye(self.layout.size)

    @property
    def kind(self) -> tuple[object, ...]:
        """What problems must have in common to be stacked."""
        return self._rows.shape, self.layout

    @classmethod
    def stack(cls, problems: Sequence[LogisticRegression]) -> LogisticRegression:
        """Return m problems of one kind as one problem.

        Its `prox` and `objectives` take and return arrays with a leading axis of m,
        and give the same bits as each problem alone.
        """
        stacked = object.__new__(LogisticRegression)
        stacked.layout = problems[0].layout
        rows = np.concatenate([p._rows for p in problems])
        stacked._prepare(rows, np.concatenate([p._held for p in problems]))
        return stacked

    def rows(self, theta: Vector, radius: float = 0.0) -> Matrix:
        """Return rows F (n + r, p) with F'F at most the Hessian within the radius.

        With radius 0, F'F is the Hessian at ``theta``.
        """
        rows = self._rows[0]
        half = 0.5 * (np.abs(rows @ theta) + self._lengths[0, 0] * radius)
        root = np.exp(-half) / (1.0 + np.exp(-2.0 * half))
        return np.vstack([root[:, None] * rows, self._held[0]])

    @with_one_blas_thread
    def within(self, T: Matrix) -> LogisticRegression:
        """Return f as a problem in z (k,), where theta = T z and T is (p, k)."""
        found = object.__new__(LogisticRegression)
        found.layout, found.alpha = Layout.of(z=T.shape[1:]), self.alpha
        found._prepare(self._rows @ T, self._held @ T)
        found._signed, found._free = self._signed, self._free @ T
        return found

    def margins(self, theta: Vector) -> tuple[float, float]:
        """Return the least and the largest ``s x' theta`` of the rows.

        Penalised entries of ``theta`` count as zero. If the least margin of all nodes
        is positive, their sum has no minimum: f falls along ``theta`` for ever.
        """
        found = -(self._signed @ (self._free @ theta))
        return float(found.min()), float(found.max())

    def prox(self, theta: Vector, stats: None, centre: Vector, weight: Any) -> Vector:
        """Return the argmin of ``f(x) + weight/2 |x - centre|^2``, shape (p,)."""
        here = theta.reshape(len(self._rows), 1, -1)
        weight = np.reshape(weight, (-1, 1, 1))
        centre = centre.reshape(here.shape)
        anchor = Anchor(weight, centre, 4.0 * EPS * _norm(weight * centre))
        here = self._descend(here, anchor)
        here = here if weight.all() else self._least_norm(here, weight)
        return here.reshape(theta.shape)

    def objectives(self, thetas: Matrix, stats: None) -> Vector:
        """Return f of each row of ``thetas`` (k, p), shape (k,)."""
        rows = thetas.reshape(len(self._rows), -1, self.layout.size)
        losses = np.logaddexp(0.0, rows @ self._rows.mT).sum(axis=2)
        held = rows @ self._held.mT
        values: Vector = losses + 0.5 * np.vecdot(held, held)
        return values.reshape(thetas.shape[:-1])

    def _descend(self, here: Matrix, anchor: Anchor) -> Matrix:
        """Return the minimum of the proximal objective near ``here`` (m, 1, p)."""
        here, model = here.copy(), self._evaluate(here, anchor)
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
        start, along = here @ self._rows.mT, step @ self._rows.mT
        held, off = step @ self._penalty, here - anchor.centre
        slope = np.vecdot(held, here) + np.vecdot(anchor.weight * step, off)
        bend = np.vecdot(held + anchor.weight * step, step)
        length: Matrix = np.ones_like(slope)
        for _ in range(MAX_HALVINGS):
            probabilities = _sigmoid(start + length[..., None] * along)
            rising = np.vecdot(probabilities, along) + slope + length * bend > 0.0
            worse = worse & rising
            if not worse.any():
                break
            length[worse] *= 0.5
        return length

    def _evaluate(self, here: Matrix, anchor: Anchor) -> LocalModel:
        logits = here @ self._rows.mT
        probabilities = _sigmoid(logits)
        curvature = probabilities * (1.0 - probabilities)
        trace = np.vecdot(curvature, self._squares)
        off = here - anchor.centre
        held, pull = here @ self._penalty, anchor.weight * off
        gradient = (held + pull) + probabilities @ self._rows
        value = np.logaddexp(0.0, logits).sum(axis=2)
        value += 0.5 * (np.vecdot(held, here) + np.vecdot(pull, off))
        terms = np.vecdot(probabilities, self._lengths) + _norm(held + pull)
        # the rounding of the logits times the curvature, and that of the penalty
        bend = trace + self._penalty_trace
        rounding = 4.0 * EPS * (bend * _norm(here)) + anchor.rounding
        far = _norm(gradient) > TOLERANCE * terms + rounding
        return LocalModel(value, gradient, far, curvature, trace)

    def _newton(self, model: LocalModel, anchor: Anchor) -> Matrix:
        hessian = (self._rows * model.curvature.mT).mT @ self._rows
        # an amount below rounding makes a singular system solvable
        least = 4.0 * EPS * model.trace + self._least
        hessian += self._penalty
        hessian += (anchor.weight + least[..., None]) * self._eye
        return np.asarray(-np.linalg.solve(hessian, model.gradient.mT).mT)

    def _least_norm(self, here: Matrix, weight: Matrix) -> Matrix:
        """Return points of least norm with the same f, where nothing is penalised."""
        here = here.copy()
        free = (weight[:, 0, 0] == 0.0) & ~self._penalty.any(axis=(1, 2))
        for k in np.flatnonzero(free):
            rows = self._rows[k]
            here[k, 0] = np.linalg.lstsq(rows, rows @ here[k, 0])[0]
        return here


def _norm(rows: Matrix) -> Matrix:
    """Return the norm of each vector (m, 1, p), shape (m, 1)."""
    return np.asarray(np.sqrt(np.vecdot(rows, rows)))


def _sigmoid(logits: Matrix) -> Matrix:
    """Return ``1 / (1 + exp(-logit))``, accurate also where it is tiny."""
    return np.asarray(1.0 / (1.0 + np.exp(-np.maximum(logits, -700.0))))


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
