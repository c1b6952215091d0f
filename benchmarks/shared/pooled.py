"""The pooled solution of a linear problem, from all rows, to more than ten digits.

All problems minimise a sum of losses plus ``l2/2 |coef|^2 + l1 |coef|_1``. They are
solved in columns with mean 0 and standard deviation 1, by Newton steps in float64 from
gradients in longdouble. `solve` raises `NoReference` if the optimality conditions do
not hold in the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

Long = np.longdouble
RANK = 1e-12  # singular values below this part of the largest are zero
DETERMINED = 1e-6  # directions below this part of the largest do not determine
ACCURATE = 1e-10  # Newton decrement over the root of the objective's scale


class NoReference(Exception):
    """The pooled solution was not found to the accuracy that a judge needs."""


class Model(NamedTuple):
    """A loss and the penalties of all rows together."""

    loss: str  # "square", "logistic" or "huber"
    l1: float = 0.0
    l2: float = 0.0
    delta: float = np.inf

    def losses(self, fit: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return the loss of each row; labels of logistic losses are 0 and 1."""
        if self.loss == "logistic":
            return np.logaddexp(Long(0), fit) - y * fit
        error = np.abs(fit - y)
        inside = np.minimum(error, self.delta)
        return inside * (error - inside / 2)

    def slopes(self, fit: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return the derivative of each row's loss."""
        if self.loss == "logistic":
            return 1 / (1 + np.exp(-fit)) - y
        return np.clip(fit - y, -self.delta, self.delta)

    def bends(self, fit: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return the second derivative of each row's loss."""
        if self.loss == "logistic":
            odds = np.exp(-np.abs(fit))
            return odds / (1 + odds) ** 2
        return (np.abs(fit - y) <= self.delta).astype(float)


@dataclass(frozen=True)
class Pooled:
    """The solution in the units of X, what it determines, and how to compare.

    Attributes
    ----------
    theta : ndarray of shape (p,)
        Coefficients, then the intercept.
    objective : longdouble
    fit : ndarray of shape (n,)
        ``X coef + intercept``; log-odds for logistic losses.
    determined : ndarray of bool of shape (p,)
        Whether the data determine the entry: no direction along which the curvature of
        the losses is below ``DETERMINED**2`` of the largest moves it (columns have
        length 1). Entries that l1 holds at zero are determined.
    scale : ndarray of shape (p,)
        What errors of the entry are compared with. For a coefficient: its absolute
        value, or the value for which its column alone has the spread of the fit, if
        that is larger. For the intercept: the largest of its absolute value, the terms
        ``coef_k mean_k`` that it cancels, and the spread of the fit.
    flat : int
        Directions that move the fit, and along which the losses are linear.
    """

    theta: np.ndarray
    objective: np.floating
    fit: np.ndarray
    determined: np.ndarray
    scale: np.ndarray
    flat: int


def objective(model: Model, X: np.ndarray, y: np.ndarray, theta: np.ndarray) -> Long:
    """Return the objective at theta (p,), in longdouble."""
    coef = theta[:-1].astype(Long)
    fit = X.astype(Long) @ coef + Long(theta[-1])
    penalty = model.l2 / Long(2) * (coef @ coef) + model.l1 * np.abs(coef).sum()
    return model.losses(fit, y).sum() + penalty


class _Standard:
    """A model in standardised columns, with a column of ones as the last."""

    def __init__(self, model: Model, X: np.ndarray, y: np.ndarray) -> None:
        exact = X.astype(Long)
        self.mean = exact.mean(axis=0)
        self.sd = np.sqrt(((exact - self.mean) ** 2).mean(axis=0))
        self.A = np.column_stack([(exact - self.mean) / self.sd, np.ones(len(X), Long)])
        self.rows = self.A.astype(float)
        self.model, self.y = model, y.astype(Long)
        self.l1 = np.append(model.l1 / self.sd, Long(0))
        self.l2 = np.append(model.l2 / self.sd**2, Long(0))

    def value(self, u: np.ndarray) -> Long:
        fit = self.A @ u
        return self.model.losses(fit, self.y).sum() + (self.l2 * u) @ u / 2

    def gradient(self, u: np.ndarray) -> np.ndarray:
        return self.model.slopes(self.A @ u, self.y) @ self.A + self.l2 * u

    def factor(self, u: np.ndarray, ease: float = 0.0, held: bool = True) -> np.ndarray:
        """Return F (p, p), F'F the Hessian at u.

        ``ease`` is a least bend of each row; ``held`` says whether l2 counts.
        """
        bends = self.model.bends((self.A @ u).astype(float), self.y.astype(float))
        rows = np.sqrt(np.maximum(bends, ease))[:, None] * self.rows
        penalty = np.diag(held * np.sqrt(self.l2.astype(float)))
        return np.linalg.qr(np.vstack([rows, penalty]), mode="r")

    def back(self, u: np.ndarray) -> np.ndarray:
        """Return the solution in the units of X, in longdouble."""
        coef = u[:-1] / self.sd
        return np.append(coef, u[-1] - coef @ self.mean)


def _axes(F: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the column lengths of F, and singular values and axes of F scaled."""
    lengths = np.sqrt((F**2).sum(axis=0))
    lengths[lengths == 0.0] = 1.0
    _, values, axes = np.linalg.svd(F / lengths, full_matrices=False)
    return lengths, values, axes


def _newton_step(F: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    lengths, values, axes = _axes(F)
    keep = values > RANK * values[0]
    slopes = axes[keep] @ (gradient.astype(float) / lengths)
    return -(slopes / values[keep] ** 2) @ axes[keep] / lengths


def _smooth(problem: _Standard) -> np.ndarray:
    """Return the minimum of a problem without l1, by Newton steps."""
    u = np.zeros(problem.A.shape[1], Long)
    huber, whole = problem.model.loss == "huber", _rank(problem.rows)
    value = problem.value(u)
    floor = ACCURATE**2 * value
    before = np.inf
    for count in range(300):
        gradient = problem.gradient(u)
        F = problem.factor(u)
        if huber and (count < 3 or _rank(F) < whole):  # too few rows within delta
            F = problem.factor(u, 1.0 if count < 3 else 1e-6)
        step = _newton_step(F, gradient).astype(Long)
        decrement = -(gradient @ step)
        if decrement <= 1e-8 * floor or (decrement <= floor and decrement >= before):
            return u
        before, length = decrement, Long(1)
        most = value * (1 + Long(1e-15))  # rounding
        while (new := problem.value(u + length * step)) > most and length > 1e-12:
            length /= 2
        u, value = u + length * step, new
    if decrement > floor:
        raise NoReference(f"Newton decrement {float(decrement):.1e}")
    return u


def _sparse(problem: _Standard) -> np.ndarray:
    """Return the minimum of a quadratic problem with l1, by an active-set method."""
    l1, u = problem.l1, np.zeros(problem.A.shape[1], Long)
    F, free = problem.factor(u), l1 == 0
    signs = free.astype(float)
    floor = ACCURATE**2 * problem.value(u)
    for _ in range(100 * len(u)):
        inside = np.flatnonzero(signs)
        gradient = problem.gradient(u)
        slope = (gradient + l1 * signs)[inside].astype(float)
        lengths, values, axes = _axes(F[:, inside])
        keep = values > RANK * values[0]
        along = axes @ (slope / lengths)
        noise = 1e-9 * float(np.abs(l1).max() / lengths.max())
        fall = np.abs(along[~keep]).max(initial=0.0) > noise
        if fall:  # a direction without curvature along which the l1 term falls
            step = -(along[~keep] @ axes[~keep]) / lengths
        else:
            step = -(along[keep] / values[keep] ** 2) @ axes[keep] / lengths
        decrement = -(slope @ step)
        falls = (step * signs[inside] < 0.0) & ~free[inside]
        reach = np.full(len(step), np.inf)
        reach[falls] = np.abs(u[inside][falls] / step[falls]).astype(float)
        length = min(reach.min(initial=np.inf), np.inf if fall else 1.0)
        if not np.isfinite(length):
            raise NoReference("the l1 problem falls without bound")
        u[inside] += length * step
        gone = inside[reach <= length]
        u[gone] = signs[gone] = 0.0
        if len(gone) or fall or decrement > 1e-4 * floor:
            continue
        excess = np.where(signs == 0.0, np.abs(gradient) - l1 * (1 + 1e-10), 0.0)
        best = int(np.argmax(excess / np.maximum(l1, np.finfo(float).tiny)))
        if excess[best] <= 0:
            return u
        signs[best] = -np.sign(gradient[best])
    raise NoReference("the active set does not settle")


def solve(model: Model, X: np.ndarray, y: np.ndarray) -> Pooled:
    """Return the minimum over coefficients and intercept for all rows."""
    problem = _Standard(model, X, y)
    u = _sparse(problem) if model.l1 else _smooth(problem)
    entries = problem.l1 == 0
    if model.l1:
        entries |= np.abs(problem.gradient(u)) >= problem.l1 * (1 - 1e-6)
    exact = problem.back(u)
    theta = exact.astype(float)
    fit = (problem.A @ u).astype(float)
    spread = float(fit.std())
    terms = np.abs(exact[:-1] * problem.mean).max()
    scale = np.append(
        np.maximum(np.abs(theta[:-1]), spread / problem.sd.astype(float)),
        max(abs(theta[-1]), float(terms), spread),
    )
    F, determined = problem.factor(u, held=False), np.ones(len(theta), bool)
    ratio = (problem.mean / problem.sd).astype(float)
    determined[entries] = ~_open(F[:, entries], ratio[entries[:-1]])
    flat = _rank(problem.rows) - _rank(F)
    best = objective(model, X, y, exact)
    return Pooled(theta, best, fit, determined, scale, flat)


def _rank(F: np.ndarray) -> int:
    values = _axes(F)[1]
    return int((values > RANK * values[0]).sum())


def _open(F: np.ndarray, ratio: np.ndarray) -> np.ndarray:
    """Return which entries a direction of hardly any curvature moves.

    The intercept moves by that of standardised columns minus the coefficients times
    ``ratio``, mean over standard deviation (p - 1,).
    """
    lengths, values, axes = _axes(F)
    weak = axes[values <= DETERMINED * values[0]]
    found = np.sqrt((weak**2).sum(axis=0)) > DETERMINED
    terms = weak / lengths * np.append(-ratio, 1.0)
    moved = np.abs(terms.sum(axis=1)) > DETERMINED * np.abs(terms).sum(axis=1)
    found[-1] = moved.any()
    return found
