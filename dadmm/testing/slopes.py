"""Which way an objective falls, by finite differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dadmm.core.interfaces import Problem
from dadmm.core.layout import Matrix, Vector
from dadmm.testing.step import ProxStep

# Relative to the size of what is moved, and of which order. A parabola through two
# steps is exact where f is smooth; a straight line is never too low where f is convex,
# also if the border of the domain is nearer than the step.
STEPS = ((1e-3, 2), (1e-5, 2), (1e-6, 1))
MOST = 40  # directions of a kind, in parts with more entries
ROUNDING = 64.0 * float(np.finfo(float).eps)


class Descent(NamedTuple):
    """The steepest way down from a point."""

    slope: float  # negative, per unit of length
    entry: int  # the entry of theta that changes most along it


def directions(
    point: Vector, span: slice, visited: Sequence[Vector], rng: np.random.Generator
) -> Matrix:
    """Return unit vectors within a part: axes, random, and towards visited points.

    Those towards points that were visited stay inside a convex domain.
    """
    size, whole = span.stop - span.start, len(point)
    axes = np.arange(size) if size <= MOST else rng.choice(size, MOST, replace=False)
    n_mixed = min(size, MOST // 4) if size > 1 else 0
    rows = np.zeros((len(axes) + n_mixed, size))
    rows[np.arange(len(axes)), axes] = 1.0
    rows[len(axes) :] = rng.standard_normal((n_mixed, size))
    rows = np.vstack([rows, -rows, *[(v - point)[None, span] for v in visited]])
    lengths = np.linalg.norm(rows, axis=1)
    found = np.zeros((len(rows), whole))
    found[:, span] = rows / np.maximum(lengths, np.finfo(float).tiny)[:, None]
    return found[lengths > 0.0]


def slopes(
    problem: Problem,
    taken: ProxStep,
    point: Vector,
    ways: Matrix,
    step: float,
    order: int = 2,
) -> tuple[Vector, Vector, Vector]:
    """Return the slopes of f along some ways, of the proximal term, and their noise.

    One-sided; infinite where a way leads out of the domain.
    """
    rows = np.vstack([point, point + 0.5 * step * ways, point + step * ways])
    values = problem.objectives(rows, taken.stats)
    here, (half, full) = values[0], values[1:].reshape(2, -1)
    of_f = (full - here) / step
    if order == 2:
        of_f = 4.0 * (half - here) / step - of_f
    of_f[~np.isfinite(of_f)] = np.inf
    pull = ways @ (taken.weights * (point - taken.centre))
    size = np.abs(values[np.isfinite(values)]).max(initial=abs(here))
    return of_f, pull, np.full(len(ways), ROUNDING * size / step)


def steepest(
    problem: Problem,
    taken: ProxStep,
    point: Vector,
    span: slice,
    visited: Sequence[Vector],
    rng: np.random.Generator,
    rtol: float,
) -> Descent | None:
    """Return the steepest way down from a point within a part; None if it is lowest.

    Falling is what all step sizes agree on, and more than ``rtol`` of the slopes that
    cancel at the point, or that there were at theta.
    """
    ways = directions(point, span, visited, rng)
    if not len(ways):
        return None
    length = max(
        float(np.sqrt(np.mean(part[span] ** 2)))
        for part in (point, point - taken.centre, taken.theta)
    )
    worst = np.full(len(ways), -np.inf)
    excess = np.full(len(ways), -np.inf)
    for size, order in STEPS:
        step = size * (length if length > 0.0 else 1.0)
        of_f, pull, noise = slopes(problem, taken, point, ways, step, order)
        before = np.add(*slopes(problem, taken, taken.theta, ways, step, order)[:2])
        terms = np.concatenate([np.abs(of_f) + np.abs(pull), np.abs(before)])
        allowed = rtol * terms[np.isfinite(terms)].max(initial=0.0) + noise
        worst = np.maximum(worst, of_f + pull)
        excess = np.maximum(excess, of_f + pull + allowed)
    k = int(excess.argmin())
    if excess[k] >= 0.0:
        return None
    return Descent(float(worst[k]), int(np.abs(ways[k]).argmax()))


def hint(problem: Problem, taken: ProxStep, point: Vector, span: slice) -> str:
    """Return what may be wrong with a step that does not end at the lowest point.

    A faulty step often ends where f balances some other proximal term than the one
    that was asked for.
    """
    ways = np.zeros((min(span.stop - span.start, MOST), len(point)))
    ways[:, span][:, : len(ways)] = np.eye(len(ways))
    entries = slice(span.start, span.start + len(ways))
    size = float(np.abs(point[span]).max(initial=0.0)) or 1.0
    up = slopes(problem, taken, point, ways, 1e-5 * size)[0]
    down = slopes(problem, taken, point, -ways, 1e-5 * size)[0]
    force = 0.5 * (up - down)
    weights = taken.weights[entries]
    pull = weights * (point - taken.centre)[entries]
    against = weights * (point + taken.centre)[entries]
    if not np.isfinite(force).all() or not pull.any():
        return "check that prox and objectives have the same terms"
    near = 0.01 * float(np.linalg.norm(pull))
    if np.linalg.norm(force) <= near:
        return "it looks as if prox ignored the weight"
    for factor in (0.5, 2.0):
        if np.linalg.norm(force + factor * pull) <= near:
            return f"it looks as if the proximal term was taken {factor:g} times"
    if np.linalg.norm(force + against) <= near:
        return "it looks as if prox took -centre for centre"
    return "check that prox and objectives have the same terms, regulariser included"
