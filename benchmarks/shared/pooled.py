"""The minimum of a linear problem over the rows of all nodes, in extended precision.

It is found without the package, by Newton's method or as a projection, in orthonormal
coordinates. Bounds on its own error come from its optimality conditions. Tests use it,
too.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq, linprog, nnls

LONG = np.longdouble
TINY = float(np.finfo(LONG).eps)  # 1e-19 on x86
EPS = float(np.finfo(float).eps)
RANKS = (1e-15, 1e-9)  # relative singular values: of rounding at most, of data at least
RANK = 1e-12  # such values of tables are zero
DETERMINED = 1e-6  # directions below this part of the largest do not determine
MOST = 11000  # logarithm of about the largest number


class NotProved(Exception):
    """The optimality conditions do not show that a point is the minimum."""


class Minimum(NamedTuple):
    """A minimiser, and how far from the optimum it may be."""

    exists: bool
    x: np.ndarray  # (p,) a minimiser
    value: np.longdouble
    gap: float  # bound on value minus the optimum
    errors: np.ndarray  # (p,) bound on the error of each entry, if it is unique
    unbounded: np.ndarray  # (p,) whether minimisers with any value of the entry exist
    unique: bool  # whether all other entries are the same in all minimisers
    n_open: int  # directions in which neither rows nor squares of the penalty differ
    others: tuple[np.ndarray, ...] = ()  # further minimisers


EMPTY = np.empty(0)
NONE = Minimum(False, EMPTY, LONG(-np.inf), 0.0, EMPTY, EMPTY, False, 0)


class Pooled:
    """f = sum of losses of rows + sum_k l1_k |x_k| + l2_k/2 x_k^2.

    The loss is squared, logistic (y is positive for one class), huber (with delta),
    poisson, or softmax (y is the class, and X has `class_rows`: a row for each logit).
    """

    def __init__(self, loss, X, y, l1, l2, delta=np.inf, ranks=RANKS):
        self.ranks = ranks
        self.loss, self.X, self.y = loss, np.asarray(X, LONG), np.asarray(y, LONG)
        self.l1, self.l2 = np.asarray(l1, LONG), np.asarray(l2, LONG)
        self.delta = LONG(delta if loss == "huber" else np.inf)
        if loss == "logistic":
            self.X = self.X * np.where(self.y > 0, 1, -1)[:, None]
            self.y = np.zeros_like(self.y)
        if loss == "softmax":
            self.own = np.arange(len(self.X) // len(self.y)) == self.y[:, None]
            self.y = np.zeros(len(self.X), LONG)
        self.targets = self.y  # of the fits
        if loss == "poisson":
            self.targets = np.log(np.where(self.y > 0, self.y, 1))

    def objective(self, x):
        x = np.asarray(x, LONG)
        off = np.minimum(self.X @ x, MOST) - self.targets
        if self.loss == "logistic":
            losses = np.maximum(-off, 0) + np.log1p(np.exp(-np.abs(off)))
        elif self.loss == "poisson":
            losses = np.where(self.y > 0, self.y * (np.expm1(off) - off), np.exp(off))
        elif self.loss == "softmax":
            u = (self.X @ x).reshape(self.own.shape)
            v = u - u[self.own][:, None]
            peak = v.max(axis=1)
            rest = np.sum(np.exp(v - peak[:, None]), axis=1, where=~self.own)
            large = peak + np.log(np.exp(-peak) + rest)
            losses = (
                np.where(peak == 0, np.log1p(rest), large) + u.mean(axis=1) ** 2 / 2
            )
        else:
            off = np.abs(self.X @ x - self.y)
            near = np.minimum(off, self.delta)
            losses = near * (off - near / 2)
        return losses.sum() + self.l1 @ np.abs(x) + self.l2 @ x**2 / 2

    def rounding(self, x):
        """Return by how much f may change if fits are computed in double precision."""
        x = np.asarray(x, LONG)
        fits = 4 * EPS * self.terms(x)
        bend = self.curvatures(self.X @ x) if self.loss == "poisson" else 1
        return float(np.abs(self.forces(self.X @ x)) @ fits + fits @ (bend * fits) / 2)

    def terms(self, x):
        """Return the sum of the absolute values of what is added up to each misfit."""
        return np.abs(self.X) @ np.abs(x) + np.abs(self.targets)

    def forces(self, fit):
        if self.loss == "logistic":
            return -1 / (1 + np.exp(np.clip(fit, -MOST, MOST)))
        if self.loss == "poisson":
            off = np.minimum(fit, MOST) - self.targets
            return np.where(self.y > 0, self.y * np.expm1(off), np.exp(off))
        if self.loss == "softmax":
            p = self.chances(fit)
            rest = np.sum(p, axis=1, where=~self.own)
            level = fit.reshape(p.shape).mean(axis=1, keepdims=True) / p.shape[1]
            return (np.where(self.own, -rest[:, None], p) + level).ravel()
        return np.clip(fit - self.y, -self.delta, self.delta)

    def curvatures(self, fit):
        if self.loss == "logistic":
            force = self.forces(fit)
            return -force * (1 + force)
        if self.loss == "poisson":
            return np.exp(np.minimum(fit, MOST))
        return (np.abs(fit - self.y) <= self.delta).astype(LONG)

    def chances(self, fit):
        """Return the probability of each class, (n, K), for softmax."""
        u = fit.reshape(self.own.shape)
        sizes = np.exp(u - u.max(axis=1, keepdims=True))
        return sizes / sizes.sum(axis=1, keepdims=True)

    def derivatives(self, T, z):
        """Return gradient and Hessian at x = T z, without absolute values."""
        U, held = self.X @ T, self.l2[:, None] * T
        fit = U @ z
        if self.loss == "softmax":
            p = self.chances(fit)
            rows = U.reshape(*p.shape, -1)
            mean = (p[:, :, None] * rows).sum(axis=1)
            off = (rows - mean[:, None]).reshape(U.shape)
            level = rows.mean(axis=1)
            hessian = (off * p.reshape(-1, 1)).T @ off + level.T @ level
        else:
            hessian = (U * self.curvatures(fit)[:, None]).T @ U
        return U.T @ self.forces(fit) + held.T @ (T @ z), hessian + T.T @ held

    def minimum(self) -> Minimum:
        """Return the minimum, or `NONE` if there is none.

        `NotProved` is raised if conditions of optimality do not hold to rounding, or if
        a singular value is neither that of data nor of rounding.
        """
        with np.errstate(all="ignore"):
            found = self._with_l1() if self.l1.any() else self._smooth()
        if not found.exists:
            return found
        slack = 1e-9 * abs(found.value) + self.rounding(found.x)
        if not found.gap <= slack:
            raise NotProved(f"value {found.value:.3g}, error up to {found.gap:.1e}")
        return found

    def _smooth(self):
        unit = lengths(self.X, self.l2)
        F = np.vstack([self.X, np.diag(np.sqrt(self.l2))]) / unit
        s, V, null = factor(F, self.ranks)
        T = V / s / unit[:, None]  # orthonormal in the metric of X over the penalty
        U = self.X @ T
        if self.loss in ("logistic", "poisson", "softmax") and self._separable(U):
            return NONE
        z = np.zeros(len(s), LONG)
        lowest, idle = LONG(np.inf), 0
        for count in range(400):
            gradient, hessian = self.derivatives(T, z)
            if self.loss == "huber":  # few rows may be within delta
                least = np.linalg.eigvalsh(hessian.astype(float)).min(initial=1.0)
                ease = 1.0 if count < 3 else 1e-6 if least < 1e-8 else 0.0
                hessian = hessian + ease * np.eye(len(z))
            scale = np.sqrt(np.maximum(hessian.diagonal(), np.finfo(float).tiny))
            double = (hessian / scale / scale[:, None]).astype(float)
            bends, axes = np.linalg.eigh(double)
            step = -axes @ (axes.T @ (gradient / scale) / np.maximum(bends, 1e-15))
            step = step / scale
            decrement = -(gradient @ step)  # about twice what the step gains
            size, terms = self.objective(T @ z), self.terms(T @ z)
            idle = 0 if decrement < lowest / 4 else idle + 1
            lowest = min(lowest, decrement)
            if decrement <= 1e-36 * size + 1e2 * TINY**2 * (terms @ terms) or (
                idle > 2 and decrement <= 1e-20 * size
            ):
                break
            z = z + self._length(T, z, step, decrement) * step
        noise = np.abs(self.forces(U @ z)) @ np.abs(self.X) @ np.abs(T)
        size = np.sqrt(gradient @ gradient) + 2 * TINY * np.sqrt(noise @ noise)
        if self.loss == "huber":
            inside = np.abs(U @ z - self.y) <= (1 - 1e-6) * self.delta
            hessian = (U * inside[:, None]).T @ U + T.T @ (self.l2[:, None] * T)
        mu = 0.5 * np.linalg.eigvalsh(hessian.astype(float)).min(initial=1.0)
        unique = bool(mu > 1e-12)
        reach = size / mu if unique else 100 * np.sqrt(z @ z + self.y @ self.y)
        errors = (np.sqrt(np.sum(T**2, axis=1)) * reach).astype(float)
        loose = np.abs(null).max(axis=1, initial=0) > 1e-9
        value, gap = self.objective(T @ z), float(size * reach)
        return Minimum(True, T @ z, value, gap, errors, loose, unique, null.shape[1])

    def _length(self, T, z, step, decrement):
        x, move = T @ z, T @ step

        def slope(t):
            there = x + LONG(t) * move
            rise = self.forces(self.X @ there) @ (self.X @ move)
            return float((rise + there @ (self.l2 * move)) / decrement)

        high = 1.0
        if abs(slope(1)) <= 1e-3:
            return high
        while slope(high) < 0 and high < 1e12:
            high = 2 * high
        if not slope(0) < 0 < slope(high):
            return high
        return brentq(slope, 0, high, xtol=1e-100, maxiter=1000)

    def _separable(self, U):
        """Return whether f has no minimum, by a linear programme.

        That is so if a direction without penalty has all rows on their side, and some
        of them not on the boundary. A row of softmax has a side for each other class.
        For Poisson, rows of y = 0 must not rise, and others must not change.
        """
        rows = U.astype(float)
        if self.l2.any():
            rows = self.X[:, self.l2 == 0].astype(float)
        if self.loss == "softmax":
            logits = rows.reshape(*self.own.shape, -1)
            rows = (logits[self.own][:, None] - logits)[~self.own]
        if self.loss == "poisson":
            _, s, V = np.linalg.svd(rows[self.y > 0], full_matrices=True)
            s = np.append(s, np.zeros(len(V) - len(s)))
            rows = -rows[self.y == 0] @ V[s <= 1e-10 * s.max(initial=0)].T
        if not rows.size or not rows.any():
            return False
        n, r = rows.shape
        rows = rows / np.abs(rows).max()
        found = linprog(
            np.repeat([0.0, -1.0], [r, n]), np.hstack([-rows, np.eye(n)]), np.zeros(n),
            bounds=[(None, None)] * r + [(0, 1)] * n,
        )  # fmt: skip
        if found.status:  # it is feasible and bounded
            raise NotProved(f"linear programme: {found.message}")
        return bool(-found.fun > 0.5)

    def _with_l1(self):
        p = len(self.l1)
        unit = lengths(self.X, self.l2)
        X, l1, l2 = self.X / unit, self.l1 / unit, self.l2 / unit**2
        F = np.vstack([X, np.diag(np.sqrt(l2))])
        y = np.append(self.y, 0 * l2)
        b = self._polished(F, y, l1, lasso(F, y, l1))
        force = X @ b - self.y
        gradient = force @ X + l2 * b
        least = np.where(
            b == 0, np.sign(gradient) * np.maximum(np.abs(gradient) - l1, 0),
            gradient + l1 * np.sign(b),
        )  # fmt: skip
        s, V, null = factor(F, self.ranks)
        along = V.T @ least / s
        rest = least - V @ (V.T @ least)
        value = self.objective(b / unit)
        size = np.sqrt(along @ along)
        size += 8 * TINY * np.sqrt(force @ force) / s.min(initial=1)
        # l1' |b| is at most the value, at the optimum, too
        far = np.abs(b) + np.where(l1 > 0, value / l1, 100 * np.sqrt(self.y @ self.y))
        gap = min(size**2 / 2 + np.abs(rest) @ far, np.abs(least) @ far)
        # All minimisers have the same fits, so the same gradient. Those entries may
        # differ from zero whose gradient is on its boundary.
        bound = (l1 == 0) | (b != 0) | (np.abs(gradient) >= l1 * (1 - 1e-9))
        edge = np.flatnonzero(bound)
        inside, Q, loose = factor(F[:, edge], self.ranks)
        others, unbounded = [], np.zeros(p, bool)
        for d in np.hstack([loose, -loose]).T:
            way = np.zeros(p, LONG)
            way[edge] = np.where(np.abs(d) > 1e-9, d, 0)
            held = (l1 > 0) & (way * gradient > 0)  # until they are zero
            end = (np.abs(b[held]) / np.abs(way[held])).min(initial=np.inf)
            if np.isinf(end):
                unbounded |= way != 0
            elif end > 0:
                others.append((b + end * way) / unit)
        errors = np.zeros(p, LONG)
        if len(inside):
            errors[edge] = np.sqrt(np.sum((Q / inside) ** 2, axis=1)) * size * 2
        return Minimum(
            True, b / unit, value, float(gap), (errors / unit).astype(float), unbounded,
            not loose.size, null.shape[1], tuple(others),
        )  # fmt: skip

    def _polished(self, F, y, l1, b):
        """Return the argmin of the same signs in longdouble; F in unit columns."""
        signs = np.sign(np.where(np.abs(b) > 1e-14 * np.abs(b).max(), b, 0))
        signs = np.where(l1 == 0, 1, signs)
        inside, b = np.flatnonzero(signs), np.zeros(len(l1), LONG)
        s, V, _ = factor(F[:, inside], self.ranks)
        for _ in range(4):
            rest = -(F @ b - y) @ F[:, inside] - (l1 * signs)[inside]
            b[inside] += V @ (V.T @ rest / s**2)
        return b


def class_rows(X, n_classes, fit_intercept):
    """Return rows (n K, p) of logits; theta is coef of class 0, 1, ..., intercepts."""
    eye = np.eye(n_classes)
    found = [np.einsum("nd,kl->nkld", X, eye).reshape(len(X), n_classes, -1)]
    found += [np.broadcast_to(eye, (len(X), *eye.shape))] * fit_intercept
    return np.concatenate(found, axis=2).reshape(len(X) * n_classes, -1)


def lengths(X, l2):
    unit = np.sqrt(np.sum(X**2, axis=0) + l2)
    return np.where(unit > 0, unit, 1)


def factor(F, ranks):
    """Return singular values (r,), right vectors (p, r) and the others (p, p - r)."""
    s, V = rotate(F)
    most = s.max(initial=0)
    if ((s > ranks[0] * most) & (s < ranks[1] * most)).any():
        raise NotProved(f"relative singular values {np.sort(s / most)}")
    kept = s > ranks[1] * most
    return s[kept], V[kept].T, V[~kept].T


def rotate(F):
    """Return singular values (p,) and right vectors, the rows of V (p, p), unsorted."""
    # one-sided Jacobi rotations, in extended precision
    A, p = np.asarray(F, LONG).T.copy(), F.shape[1]
    V, whole, turned = np.eye(p, dtype=LONG), np.sum(A**2), True
    for _ in range(40):
        turned = False
        for i, j in zip(*np.triu_indices(p, 1), strict=True):
            a, b, c = A[i] @ A[i], A[j] @ A[j], A[i] @ A[j]
            if abs(c) <= 4 * TINY * np.sqrt(a * b) or abs(c) <= TINY**2 * whole:
                continue
            turned = True
            ratio = (b - a) / (2 * c)
            t = (1 if ratio >= 0 else -1) / (abs(ratio) + np.sqrt(1 + ratio**2))
            turn = np.array([[1, -t], [t, 1]]) / np.sqrt(1 + t**2)
            A[[i, j]], V[[i, j]] = turn @ A[[i, j]], turn @ V[[i, j]]
        if not turned:
            break
    return np.sqrt(np.sum(A**2, axis=1)), V


def lasso(F, y, l1):
    """Return an argmin of 1/2 |F b - y|^2 + l1' |b|, in double precision.

    Its misfit r is the nearest to y of those with |F' r| <= l1, a projection that
    Lawson and Hanson reduce to non-negative least squares.
    """
    whole = max(np.sqrt(y @ y), l1.max())
    pull = F.T @ (y / whole)
    G = np.vstack([np.hstack([-F, F]), np.append(pull, -pull) - np.tile(l1 / whole, 2)])
    goal = np.append(np.zeros(len(y)), 1.0)
    try:
        both, _ = nnls(G.astype(float), goal)
    except RuntimeError as error:
        raise NotProved(str(error)) from None
    return whole * (np.array([1, -1]) @ both.reshape(2, -1)) / (1 - G[-1] @ both)


class Model(NamedTuple):
    """A loss with an intercept, and penalties of the coefficients of all rows."""

    loss: str  # "squared", "logistic" or "huber"
    l1: float = 0.0
    l2: float = 0.0
    delta: float = np.inf

    def over(self, X, y, units=1.0, ranks=RANKS) -> Pooled:
        """Return the problem of these rows, whose columns have units."""
        held = np.append(np.ones(X.shape[1]) / units, 0.0)
        rows = np.column_stack([X, np.ones(len(X))])
        penalties = self.l1 * held, self.l2 * held**2
        return Pooled(self.loss, rows, y, *penalties, self.delta, ranks)


class Solution(NamedTuple):
    """The solution in the units of X, what it determines, and how to compare.

    An entry is determined if no direction along which the curvature of the losses is
    below ``DETERMINED**2`` of the largest moves it (columns have length 1), or if l1
    holds it at zero. Its scale is the larger of its absolute value and of the value for
    which its column alone has the spread of the fit; that of the intercept is also at
    least each term ``coef_k mean_k`` that it cancels.
    """

    theta: np.ndarray  # (p,) coefficients, then the intercept
    objective: np.longdouble
    fit: np.ndarray  # (n,) X coef + intercept; log-odds for logistic losses
    determined: np.ndarray  # (p,) bool
    scale: np.ndarray  # (p,) what errors of an entry are compared with
    flat: int  # directions that move the fit, and along which the losses are linear


def solve(model: Model, X: np.ndarray, y: np.ndarray) -> Solution:
    exact = X.astype(LONG)
    mean, sd = exact.mean(axis=0), exact.std(axis=0)
    standard = (exact - mean) / sd
    problem = model.over(standard, y, sd, ranks=(RANK, RANK))
    u = problem.minimum().x
    coef, fit, rows = u[:-1] / sd, standard @ u[:-1] + u[-1], problem.X.astype(float)
    theta = np.append(coef, u[-1] - coef @ mean)
    spread, terms = fit.std(), np.abs(coef * mean)
    least = np.append(spread / sd, np.append(terms, spread).max())
    scale = np.maximum(np.abs(theta), least).astype(float)
    slopes = np.abs(problem.forces(problem.X @ u) @ problem.X + problem.l2 * u)
    entries = slopes >= problem.l1 * (1 - 1e-6)
    bent = np.sqrt(problem.curvatures(problem.X @ u).astype(float))[:, None] * rows
    lengths, weak = weak_directions(bent[:, entries], DETERMINED)
    moved = np.sqrt((weak**2).sum(axis=0)) > DETERMINED
    by_column = weak / lengths * np.append(-(mean / sd), 1.0)[entries].astype(float)
    together = np.abs(by_column.sum(axis=1))  # of the intercept, in the units of X
    moved[-1] = (together > DETERMINED * np.abs(by_column).sum(axis=1)).any()
    determined = np.ones(len(theta), bool)
    determined[entries] = ~moved
    linear, unseen = (len(weak_directions(F, RANK)[1]) for F in (bent, rows))
    best, (theta, fit) = (
        model.over(X, y).objective(theta),
        map(np.float64, (theta, fit)),
    )
    return Solution(theta, best, fit, determined, scale, linear - unseen)


def weak_directions(F, least):
    """Return the lengths of columns, and directions (k, p) that hardly move F."""
    lengths = np.sqrt((F**2).sum(axis=0))
    lengths[lengths == 0.0] = 1.0
    _, values, axes = np.linalg.svd(F / lengths, full_matrices=False)
    return lengths, axes[values <= least * values[0]]
