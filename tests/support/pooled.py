"""The minimum of a linear problem over the rows of all nodes, in extended precision.

It is found without the package, by Newton's method or an active set in orthonormal
coordinates. Bounds on its own error come from its optimality conditions. Where these
are not small, `Pooled.minimum` raises `NotProved`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog

LONG = np.longdouble
TINY = float(np.finfo(LONG).eps)  # 1e-19 on x86
EPS = float(np.finfo(float).eps)
OPEN, CLOSED = 1e-15, 1e-9  # relative singular values: of rounding, of data


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


NONE = Minimum(
    False, np.empty(0), LONG(-np.inf), 0.0, np.empty(0), np.empty(0), False, 0
)


class Pooled:
    """f = sum of losses of rows + sum_k l1_k |x_k| + l2_k/2 x_k^2.

    Parameters
    ----------
    loss : {"squared", "logistic", "huber", "poisson", "softmax"}
    X : ndarray of shape (n, p)
        With the column of ones, if there is an intercept. For softmax, `class_rows`:
        a row for each logit.
    y : ndarray of shape (n,)
        For logistic, positive for one class. For softmax, the class of each row.
    l1, l2 : ndarray of shape (p,)
    delta : float
        For huber.
    """

    def __init__(self, loss, X, y, l1, l2, delta=np.inf):
        self.loss, self.X, self.y = loss, np.asarray(X, LONG), np.asarray(y, LONG)
        self.l1, self.l2 = np.asarray(l1, LONG), np.asarray(l2, LONG)
        self.delta = LONG(delta if loss == "huber" else np.inf)
        if loss == "logistic":
            self.X = self.X * np.where(self.y > 0, 1, -1)[:, None]
            self.y = np.zeros_like(self.y)
        if loss == "softmax":
            self.own = np.arange(len(self.X) // len(self.y)) == self.y[:, None]
            self.y = np.zeros(len(self.X), LONG)
        self.targets = np.log(np.where(self.y > 0, self.y, 1))  # of Poisson's fits
        if loss != "poisson":
            self.targets = self.y

    def objective(self, x):
        """Return f, in extended precision."""
        x = np.asarray(x, LONG)
        off = self.X @ x - self.y
        if self.loss == "logistic":
            losses = np.maximum(-off, 0) + np.log1p(np.exp(-np.abs(off)))
        elif self.loss == "poisson":
            off = np.minimum(self.X @ x, 11000) - self.targets
            losses = np.where(self.y > 0, self.y * (np.expm1(off) - off), np.exp(off))
        elif self.loss == "softmax":
            u = off.reshape(self.own.shape)
            v = u - u[self.own][:, None]
            peak = v.max(axis=1)
            rest = np.sum(np.exp(v - peak[:, None]), axis=1, where=~self.own)
            losses = peak + np.log(np.exp(-peak) + rest)
            losses = np.where(peak == 0, np.log1p(rest), losses)
            losses = losses + u.mean(axis=1) ** 2 / 2
        else:
            near = np.minimum(np.abs(off), self.delta)
            losses = near * (np.abs(off) - near / 2)
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
        """Return the derivative of each row's loss."""
        if self.loss == "logistic":
            return -1 / (1 + np.exp(np.clip(fit, -11000, 11000)))
        if self.loss == "poisson":
            off = np.minimum(fit, 11000) - self.targets
            return np.where(self.y > 0, self.y * np.expm1(off), np.exp(off))
        if self.loss == "softmax":
            p = self.chances(fit)
            rest = np.sum(p, axis=1, where=~self.own)
            u = fit.reshape(p.shape)
            forces = np.where(self.own, -rest[:, None], p)
            return (forces + u.mean(axis=1, keepdims=True) / p.shape[1]).ravel()
        return np.clip(fit - self.y, -self.delta, self.delta)

    def curvatures(self, fit):
        """Return the second derivative of each row's loss."""
        if self.loss == "logistic":
            force = self.forces(fit)
            return -force * (1 + force)
        if self.loss == "poisson":
            return np.exp(np.minimum(fit, 11000))
        return (np.abs(fit - self.y) <= self.delta).astype(LONG)

    def chances(self, fit):
        """Return the probability of each class, (n, K), for softmax."""
        u = fit.reshape(self.own.shape)
        sizes = np.exp(u - u.max(axis=1, keepdims=True))
        return sizes / sizes.sum(axis=1, keepdims=True)

    def minimum(self) -> Minimum:
        """Return the minimum, or `NONE` if there is none.

        Raises
        ------
        NotProved
            If the conditions of optimality do not hold to rounding, or if a singular
            value is neither that of data nor of rounding.
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
        T, null = coordinates(self.X, self.l2)
        U, held = self.X @ T, self.l2[:, None] * T
        if self.loss in ("logistic", "poisson", "softmax") and self._separable(U):
            return NONE
        z = U.T @ self.y  # minimum of squared losses without a penalty
        if self.loss == "poisson":
            z = 0 * z
        if self.loss == "squared":
            z = solve(U.T @ U + T.T @ held, z)
        gradient, hessian = self._derivatives(T, U, held, z)
        lowest, idle = LONG(np.inf), 0
        for _ in range(400):
            step = -solve(hessian, gradient)
            decrement = -(gradient @ step)  # about twice what the step gains
            size = self.objective(T @ z)
            terms = self.terms(T @ z)
            least = 1e-36 * size + 1e2 * TINY**2 * (terms @ terms)
            idle = 0 if decrement < lowest / 4 else idle + 1
            lowest = min(lowest, decrement)
            if decrement <= least or (idle > 2 and decrement <= 1e-20 * size):
                break
            z = z + self._length(T, U, held, z, step, decrement) * step
            gradient, hessian = self._derivatives(T, U, held, z)
        x, fit = T @ z, U @ z
        size = np.sqrt(gradient @ gradient)
        noise = np.abs(self.forces(fit)) @ np.abs(self.X) @ np.abs(T)
        size += 2 * TINY * np.sqrt(noise @ noise)
        if self.loss == "huber":
            inside = np.abs(fit - self.y) <= (1 - 1e-6) * self.delta
            hessian = (U * inside[:, None]).T @ U + T.T @ held
        mu = 0.5 * np.linalg.eigvalsh(hessian.astype(float)).min(initial=1.0)
        unique = bool(mu > 1e-12)
        reach = size / mu if unique else 100 * np.sqrt(z @ z + self.y @ self.y)
        errors = np.sqrt(np.sum(T**2, axis=1)) * reach
        value, gap = self.objective(x), float(size * reach)
        return Minimum(
            True, x, value, gap, errors.astype(float), undetermined(null), unique,
            null.shape[1],
        )  # fmt: skip

    def _derivatives(self, T, U, held, z):
        fit = U @ z
        gradient = U.T @ self.forces(fit) + held.T @ (T @ z)
        if self.loss == "softmax":
            p = self.chances(fit)
            rows = U.reshape(*p.shape, -1)
            mean = (p[:, :, None] * rows).sum(axis=1)
            off = (rows - mean[:, None]).reshape(U.shape)
            level = rows.mean(axis=1)
            hessian = (off * p.reshape(-1, 1)).T @ off + level.T @ level
        else:
            hessian = (U * self.curvatures(fit)[:, None]).T @ U
        return gradient, hessian + T.T @ held

    def _length(self, T, U, held, z, step, decrement):
        """Return where the slope along a step is zero."""
        fit, move = U @ z, U @ step
        x, turn = T @ z, held @ step

        def slope(t):
            return self.forces(fit + t * move) @ move + (x + t * (T @ step)) @ turn

        if abs(slope(1)) <= 1e-3 * decrement:
            return LONG(1)
        low, high = LONG(0), LONG(1)
        while slope(high) < 0 and high < 1e12:
            low, high = high, 2 * high
        for _ in range(70):
            middle = (low + high) / 2
            low, high = (middle, high) if slope(middle) < 0 else (low, middle)
        return (low + high) / 2

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
            fixed = rows[self.y > 0]
            _, s, V = np.linalg.svd(fixed, full_matrices=True)
            s = np.append(s, np.zeros(len(V) - len(s)))
            rows = -rows[self.y == 0] @ V[s <= 1e-10 * s.max(initial=0)].T
        if not rows.size or not rows.any():
            return False
        n, r = rows.shape
        rows = rows / np.abs(rows).max()
        limits = [(None, None)] * r + [(0, 1)] * n
        found = linprog(
            np.repeat([0.0, -1.0], [r, n]), np.hstack([-rows, np.eye(n)]), np.zeros(n),
            bounds=limits,
        )  # fmt: skip
        if found.status:  # it is feasible and bounded
            raise NotProved(f"linear programme: {found.message}")
        return bool(-found.fun > 0.5)

    def _with_l1(self):
        """Return the minimum of squared losses and absolute values."""
        p = len(self.l1)
        unit = lengths(self.X, self.l2)
        X, l1, l2 = self.X / unit, self.l1 / unit, self.l2 / unit**2
        b = active_set(X, self.y, l1, l2)
        x = b / unit
        force = X @ b - self.y
        gradient = force @ X + l2 * b
        least = np.where(
            b == 0, np.sign(gradient) * np.maximum(np.abs(gradient) - l1, 0),
            gradient + l1 * np.sign(b),
        )  # fmt: skip
        s, V, null = factor(np.vstack([X, np.diag(np.sqrt(l2))]))
        along = V.T @ least / s
        rest = least - V @ (V.T @ least)
        value = self.objective(x)
        size = np.sqrt(along @ along) + 8 * TINY * np.sqrt(force @ force) / s.min(
            initial=1
        )
        # l1' |b| is at most the value, at the optimum, too
        far = np.abs(b) + np.where(l1 > 0, value / l1, 100 * np.sqrt(self.y @ self.y))
        gap = min(size**2 / 2 + np.abs(rest) @ far, np.abs(least) @ far)
        # All minimisers have the same fits, so the same gradient. Those entries may
        # differ from zero whose gradient is on its boundary.
        edge = np.flatnonzero((l1 == 0) | (np.abs(gradient) >= l1 * (1 - 1e-9)))
        E = np.vstack([X[:, edge], np.diag(np.sqrt(l2))[:, edge]])
        inside, Q, loose = factor(E)
        others, unbounded = [], np.zeros(p, bool)
        for d in loose.T:
            whole = np.zeros(p, LONG)
            whole[edge] = np.where(np.abs(d) > 1e-9, d, 0)
            for direction in (whole, -whole):
                ends = stretch(b, direction, l1, -np.sign(gradient))
                if np.isinf(ends):
                    unbounded |= direction != 0
                elif ends > 0:
                    others.append((b + ends * direction) / unit)
        errors = np.zeros(p, LONG)
        if len(inside):
            errors[edge] = np.sqrt(np.sum((Q / inside) ** 2, axis=1)) * size * 2
        return Minimum(
            True, x, value, float(gap), (errors / unit).astype(float), unbounded,
            not loose.size, null.shape[1], tuple(others),
        )  # fmt: skip


def class_rows(X, n_classes, fit_intercept):
    """Return rows (n K, p) of the logits of each row, in the order of theta.

    theta has the coefficients of class 0, 1, and so on, and then the intercepts.
    """
    n, d = X.shape
    found = np.zeros((n, n_classes, n_classes * (d + fit_intercept)))
    for k in range(n_classes):
        found[:, k, k * d : (k + 1) * d] = X
        if fit_intercept:
            found[:, k, n_classes * d + k] = 1
    return found.reshape(n * n_classes, -1)


def lengths(X, l2):
    """Return the length of each column over its penalty, 1 for a column of zeros."""
    unit = np.sqrt(np.sum(X**2, axis=0) + l2)
    return np.where(unit > 0, unit, 1)


def coordinates(X, l2):
    """Return T (p, r) and a basis (p, p - r) of the directions that are open.

    T has orthonormal columns in the metric of X over the penalty.
    """
    unit = lengths(X, l2)
    s, V, null = factor(np.vstack([X, np.diag(np.sqrt(l2))]) / unit)
    return V / s / unit[:, None], null


def factor(F):
    """Return singular values (r,), right vectors (p, r) and the others (p, p - r)."""
    s, V = rotate(F)
    most = s.max(initial=0)
    if ((s > OPEN * most) & (s < CLOSED * most)).any():
        raise NotProved(f"relative singular values {np.sort(s / most)}")
    kept = s > CLOSED * most
    return s[kept], V[kept].T, V[~kept].T


def rotate(F):
    """Return singular values (p,) and right vectors, the rows of V (p, p), unsorted.

    One-sided Jacobi rotations, in extended precision.
    """
    A, p = np.asarray(F, LONG).T.copy(), F.shape[1]
    V = np.eye(p, dtype=LONG)
    whole = np.sum(A**2)
    for _ in range(40):
        turned = False
        for i in range(p):
            for j in range(i + 1, p):
                a, b, c = A[i] @ A[i], A[j] @ A[j], A[i] @ A[j]
                if abs(c) <= 4 * TINY * np.sqrt(a * b) or abs(c) <= TINY**2 * whole:
                    continue
                turned = True
                ratio = (b - a) / (2 * c)
                t = (1 if ratio >= 0 else -1) / (abs(ratio) + np.sqrt(1 + ratio**2))
                cosine = 1 / np.sqrt(1 + t**2)
                turn = np.array([[cosine, -t * cosine], [t * cosine, cosine]])
                A[[i, j]], V[[i, j]] = turn @ A[[i, j]], turn @ V[[i, j]]
        if not turned:
            break
    return np.sqrt(np.sum(A**2, axis=1)), V


def undetermined(null):
    """Return which entries (p,) differ along the open directions (p, k), in units."""
    return np.abs(null).max(axis=1, initial=0) > 1e-9


def solve(A, b):
    """Return the solution of A x = b, A positive semidefinite, by Cholesky's method."""
    p = len(b)
    scale = np.sqrt(np.maximum(A.diagonal(), np.finfo(float).tiny))
    L = A / scale / scale[:, None]
    L = L + 1e-17 * np.eye(p, dtype=LONG)
    x = b / scale
    for k in range(p):
        L[k, k] = np.sqrt(max(L[k, k], LONG(1e-17)))
        L[k + 1 :, k] /= L[k, k]
        L[k + 1 :, k + 1 :] -= np.outer(L[k + 1 :, k], L[k + 1 :, k])
    for k in range(p):
        x[k] = (x[k] - L[k, :k] @ x[:k]) / L[k, k]
    for k in reversed(range(p)):
        x[k] = (x[k] - L[k + 1 :, k] @ x[k + 1 :]) / L[k, k]
    return x / scale


def active_set(X, y, l1, l2):
    """Return the argmin of 1/2 |X b - y|^2 + l1' |b| + 1/2 b' l2 b; X in unit columns.

    Each step goes to the minimum for the present signs, or to where the first entry
    becomes zero and leaves. At the minimum, the zero entry with the largest gain
    enters.
    """
    p = len(l1)
    b, free = np.zeros(p, LONG), l1 == 0
    signs = np.where(free, LONG(1), LONG(0))
    held = np.diag(np.sqrt(l2))
    for _ in range(20 * p + 20):
        inside = np.flatnonzero(signs)
        F = np.vstack([X[:, inside], held[:, inside]])
        s, V, null = factor(F)
        goal, most = b[inside], LONG(1)
        for _ in range(3):
            now = b.copy()
            now[inside] = goal
            rest = -(X @ now - y) @ X[:, inside] - (l2 * now + l1 * signs)[inside]
            goal = goal + V @ (V.T @ rest / s**2)
        direction = goal - b[inside]
        if null.size:
            fall = null @ (null.T @ (l1 * signs)[inside])
            if np.abs(fall).max() > 1e-15 * l1.max():
                direction, most = -fall, LONG(np.inf)
        ahead = np.where(
            (direction * signs[inside] < 0) & ~free[inside],
            -b[inside] / np.where(direction == 0, 1, direction), np.inf,
        )  # fmt: skip
        length = min(ahead.min(initial=np.inf), most)
        if np.isinf(length):
            raise NotProved("an l1 term without a minimum")
        gone = inside[(ahead == length) & (length < most)]
        b[inside] += length * direction
        b[gone] = signs[gone] = 0
        if len(gone):
            continue
        force = X @ b - y
        gradient = force @ X + l2 * b
        terms = np.sqrt(force @ force) + np.sqrt(y @ y) * 1e-3 + l1
        gain = np.where(signs == 0, np.abs(gradient) - l1 - 1e-17 * terms, 0)
        best = int(gain.argmax())
        if gain[best] <= 0:
            return b
        signs[best] = -np.sign(gradient[best])
    raise NotProved("the active set does not settle")


def stretch(b, direction, l1, signs):
    """Return how far b may go without leaving the orthant of these signs."""
    held = (l1 > 0) & (direction * signs < 0)
    room = np.abs(b[held]) / np.abs(direction[held])
    return room.min(initial=np.inf)
