"""PPCA in coordinates in which the lengths of long components are logarithms.

The rows are in the unit of the noise. Let l be the length of a component, and N the
number of rows. The likelihood has a curvature of about N along changes of W that turn
the component out of the column space of W, but of about 2 N / l^2 along those that
change its length. With one penalty for both, lengths are found slowly. The coordinates
are ``V = U g(l) R'``, where ``W = U l R'`` is the singular value decomposition, with

    g(l) = l for l <= k,    g(l) = k + sqrt(2) log(l / k) for l > k

for the knee k. If k is near the lengths, both curvatures are about N. A rotation of the
columns of W is the same rotation of the columns of V.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from dadmm.core.layout import Layout, Matrix, Vector
from dadmm.problems.base import Scalars, inner_product, with_axes

if TYPE_CHECKING:
    from dadmm.problems.ppca import PPCA, Expected

ROOT = math.sqrt(2.0)
STEPS = 5  # of the proximal step
SHORTER = 4.0  # factor of the curvature after a step that does not descend
ROUNDING = 1e-13  # of the objective, by entry of the rows
ALIKE = 1e-6  # relative difference of lengths that count as equal
LEAST = 1e-150  # length, so that quotients exist


class Axes(NamedTuple):
    """The singular value decompositions of V and W, which differ in lengths only."""

    left: Matrix  # (..., D, M)
    right: Matrix  # (..., M, M)
    short: Vector  # (..., M) of V
    long: Vector  # (..., M) of W

    @property
    def W(self) -> Matrix:
        """The components (..., D, M)."""
        return np.asarray((self.left * self.long[..., None, :]) @ self.right)

    @property
    def V(self) -> Matrix:
        """Their coordinates (..., D, M)."""
        return np.asarray((self.left * self.short[..., None, :]) @ self.right)


class LogLengthPPCA:
    """Centred PPCA with ``theta`` = (V, mu = 0, a); methods are those of `PPCA`.

    ``plain`` is a PPCA with zero mean in the unit of the noise, and ``knee`` the length
    k of a component, at least sqrt(2). No step makes a component longer than
    ``longest``, at least the knee. ``a_scale`` is the layout's scale of the part a.
    """

    def __init__(
        self, plain: PPCA, knee: float, longest: float, a_scale: float
    ) -> None:
        self.plain, self.knee, self.longest = plain, knee, longest
        self.a_scale = a_scale
        self._most = knee + ROOT * math.log(longest / knee)  # of the lengths of V
        self.layout = Layout(plain.layout.shapes, scales={"a": a_scale})

    @property
    def kind(self) -> tuple[object, ...]:
        return self.plain.kind, self.knee, self.longest, self.a_scale

    @classmethod
    def stack(cls, problems: Sequence[Self]) -> LogLengthPPCA:
        first = problems[0]
        plain = type(first.plain).stack([each.plain for each in problems])
        return cls(plain, first.knee, first.longest, first.a_scale)

    def axes(self, theta: Vector, most: Scalars = math.inf) -> Axes:
        """Return the decomposition of V and W; lengths of V are at most ``most``."""
        V = self.layout.views(theta).W
        left, short, right = np.linalg.svd(V, full_matrices=False)
        short, knee = np.minimum(np.maximum(short, LEAST), most), self.knee
        growth = np.exp(np.maximum(short - knee, 0.0) / ROOT)
        return Axes(left, right, short, np.minimum(short, knee) * growth)

    def outside(self, theta: Vector) -> Vector:
        """Return (W, mu, a), given theta (..., size)."""
        return self._with(theta, self.axes(theta).W)

    def inside(self, theta: Vector) -> Vector:
        """Return theta, given (W, mu, a); mu becomes zero."""
        W = self.layout.views(theta).W
        left, long, right = np.linalg.svd(W, full_matrices=False)
        long, knee = np.maximum(long, LEAST), self.knee
        short = np.minimum(long, knee) + ROOT * np.log(np.maximum(long / knee, 1.0))
        return self._with(theta, Axes(left, right, short, long).V)

    def _with(self, theta: Vector, W: Matrix) -> Vector:
        found = theta.copy()
        views = self.layout.views(found)
        views.W[...], views.mu[...] = W, 0.0
        return found

    def slopes(self, axes: Axes, gradient: Matrix, *, out: bool = False) -> Matrix:
        """Return a gradient along V, given that along W; with ``out`` the opposite.

        The derivative of V by W is diagonal in the basis of the axes: for pairs of
        components, for their rotations, and for changes out of the column space.
        """
        within = axes.left.mT @ gradient @ axes.right.mT
        beyond = gradient @ axes.right.mT - axes.left @ within
        long, other = axes.long[..., :, None], axes.long[..., None, :]
        short, its = axes.short[..., :, None], axes.short[..., None, :]
        apart, both = long - other, long + other
        alike = np.abs(apart) <= ALIKE * both
        slope = np.where(0.5 * both > self.knee, 2.0 * ROOT / both, 1.0)
        quotient = np.where(alike, slope, (short - its) / np.where(alike, 1.0, apart))
        turning, leaving = (short + its) / both, (axes.short / axes.long)[..., None, :]
        power = 1.0 if out else -1.0
        even, odd = 0.5 * (within + within.mT), 0.5 * (within - within.mT)
        found = even * quotient**power + odd * turning**power
        mapped: Matrix = (axes.left @ found + beyond * leaving**power) @ axes.right
        return mapped

    def gradient(self, theta: Vector) -> Vector:
        found: Vector = self.plain.gradient(self.outside(theta))
        W = self.layout.views(found).W
        W[...] = self.slopes(self.axes(theta), W)
        return found

    def expect(self, theta: Vector) -> Expected:
        return self.plain.expect(self.outside(theta))

    def objectives(self, thetas: Matrix, stats: Expected) -> Vector:
        found: Vector = self.plain.objectives(self.outside(thetas), stats)
        return found

    def neg_log_likelihood(self, theta: Vector) -> Scalars:
        return self.plain.neg_log_likelihood(self.outside(theta))

    def prox(
        self, theta: Vector, stats: Expected, centre: Vector, weight: Scalars
    ) -> Vector:
        """Return some descent steps of the proximal objective from ``theta``.

        A step divides the gradient of ``-log p(X)`` by the curvature, which is about N
        plus the weight. If it does not descend, the next one is shorter.
        """
        plain, axes = self.plain, self.axes(theta)
        value = self._value(theta, axes, centre, weight)
        allowed = ROUNDING * plain.count * plain.dimension
        curvature = plain.count
        for k in range(STEPS):
            if k:
                stats = plain.expect(self._with(theta, axes.W))
            trial, its_axes = self._step(theta, axes, stats, centre, weight, curvature)
            found = self._value(trial, its_axes, centre, weight)
            lower = np.asarray(found <= value + allowed)
            curvature = np.where(lower, curvature, SHORTER * curvature)
            value = np.where(lower, found, value)
            theta = np.where(lower[..., None], trial, theta)
            axes = Axes(*(
                np.where(lower[(..., *[None] * more)], new, old)
                for more, new, old in zip((2, 2, 1, 1), its_axes, axes, strict=True)
            ))  # fmt: skip
        return theta

    def _step(
        self, theta: Vector, axes: Axes, stats: Expected, centre: Vector,
        weight: Scalars, curvature: Scalars,
    ) -> tuple[Vector, Axes]:  # fmt: skip
        """Return theta after one step, and its axes; a takes the step of EM."""
        plain, W = self.plain, axes.W
        found = theta.copy()
        V, mu, a = self.layout.views(found)
        middle, _, centre_a = self.layout.views(centre)
        slope = with_axes(a, 2) * (W @ stats.spread - stats.cross.mT)
        slope = self.slopes(axes, slope) + with_axes(weight, 2) * (V - middle)
        a.flat = plain.precisions(W, mu, stats, weight * self.a_scale, centre_a)
        V -= slope / with_axes(np.asarray(curvature + weight), 2)
        its_axes = self.axes(found, np.maximum(axes.short[..., :1], self._most))
        V[...] = its_axes.V
        return found, its_axes

    def _value(
        self, theta: Vector, axes: Axes, centre: Vector, weight: Scalars
    ) -> Scalars:
        """Return ``-log p(X)``, without constants, plus the proximal term."""
        plain, a = self.plain, self.layout.views(theta).a
        shrunk = axes.long / (axes.long**2 + 1.0 / with_axes(a, 1))
        latent = (plain.factor @ axes.left) * shrunk[..., None, :]
        left = plain.factor - (latent * axes.long[..., None, :]) @ axes.left.mT
        squares = a * inner_product(left, left) + inner_product(latent, latent)
        volume = np.log1p(with_axes(a, 1) * axes.long**2).sum(axis=-1)
        volume = volume - plain.dimension * np.log(a)
        off = theta - centre
        near = weight * np.vecdot(off * self.layout.pull, off)
        return 0.5 * (plain.count * volume + squares + near)
