"""Checks that proximal steps end at a minimum, by finite differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from dadmm.core.errors import ProblemError
from dadmm.core.interfaces import Problem
from dadmm.core.layout import Matrix, Vector

HUGE = (1e6, 1e9, 1e12, 1e15)
# Steps, relative to the size of the part, and the order of the difference. The second
# order is accurate where f is smooth. The first order is never too low where f is
# convex, also if the border of the domain is nearer than the step.
STEPS = ((1e-3, 2), (1e-5, 2), (1e-6, 1))
MOST = 40  # directions of one kind
SLIGHT = 1e-4  # relative, of a rise by a step that is not exact
ROUNDING = 64.0 * float(np.finfo(float).eps)


class ProxStep(NamedTuple):
    """The arguments and the result of a proximal step."""

    theta: Vector
    stats: Any
    centre: Vector
    weights: Vector  # (size,) of each entry
    result: Vector


def fail(problem: Problem, method: str, sentence: str) -> NoReturn:
    """Raise an error about a method."""
    raise ProblemError(f"{type(problem).__name__}.{method}: {sentence}")


def check_vector(problem: Problem, method: str, found: Any) -> None:
    """Check that a method returned finite float64 parameters (size,)."""
    size = problem.layout.size
    check_shape(
        problem, method, found, (size,), "layout.pack(...) makes it of named parts"
    )
    if found.dtype != np.float64:
        fail(problem, method, f"expected float64, found {found.dtype}; convert it")
    if not np.isfinite(found).all():
        entry, parts = int(np.isfinite(found).argmin()), spans(problem).items()
        part = next(name for name, span in parts if span.start <= entry < span.stop)
        fail(
            problem, method, f"expected finite numbers, found {found[entry]} in part "
            f"{part}; guard the division or logarithm there",
        )  # fmt: skip


def check_shape(
    problem: Problem, method: str, found: Any, shape: tuple[int, ...], advice: str
) -> None:
    """Check that a method returned an array of the given shape."""
    if not isinstance(found, np.ndarray) or found.shape != shape:
        has = getattr(found, "shape", None)
        what = type(found).__name__ if has is None else f"shape {has}"
        fail(
            problem, method,
            f"expected an array of shape {shape}, found {what}; {advice}",
        )  # fmt: skip


def differ(one: Any, other: Any) -> bool:
    """Return whether two arrays differ in shape or bits."""
    return not np.array_equal(one, other, equal_nan=True)


def spans(problem: Problem) -> dict[str, slice]:
    """Return the slice of each part in theta."""
    numbers = problem.layout.views(np.arange(problem.layout.size, dtype=np.float64))
    return {
        name: slice(int(part.min()), int(part.max()) + 1)
        for name, part in numbers._asdict().items()
        if part.size
    }


def check_descent(problem: Problem, taken: ProxStep, weight: float) -> None:
    """Check that a step does not raise the proximal objective."""
    rows = np.array([taken.theta, taken.result])
    values = problem.objectives(rows, taken.stats)
    pull = 0.5 * ((rows - taken.centre) ** 2 @ taken.weights)
    before, after = values + pull
    if after > before + ROUNDING * (np.abs(values) + pull).sum():
        advice = "check signs, and that objectives has all terms that prox has"
        if after - before < SLIGHT * (np.abs(values) + pull).sum():
            advice = "make it more accurate, or return theta if the result is no better"
        fail(
            problem, "prox", "expected f + weight/2 |x - centre|^2 not to rise from "
            f"theta to the result, found {before:.6g} and then {after - before:.3g} "
            f"more with weight {weight:g}; {advice}",
        )  # fmt: skip


def check_optimality(
    problem: Problem,
    taken: ProxStep,
    weight: float,
    visited: Sequence[Vector],
    fixed: Sequence[str],
    rng: np.random.Generator,
    rtol: float,
) -> None:
    """Check that each part is optimal: together, or with later parts at old values."""
    where = {k: v for k, v in spans(problem).items() if k not in fixed}
    known: dict[tuple[str, frozenset[str]], float | None] = {}

    def point(moved: frozenset[str]) -> Vector:
        mixed = taken.result.copy()
        for name in where.keys() - moved:
            mixed[where[name]] = taken.theta[where[name]]
        return mixed

    def descent(name: str, moved: frozenset[str]) -> float | None:
        if (name, moved) not in known:
            known[name, moved] = steepest(
                problem, taken, point(moved), where[name], visited, rng, rtol
            )
        return known[name, moved]

    def explained(moved: frozenset[str]) -> bool:
        last = [name for name in moved if descent(name, moved) is None]
        steps = [frozenset(last)] + [frozenset([name]) for name in last]
        return not moved or any(explained(moved - s) for s in steps if s)

    if explained(frozenset(where)):
        return
    moved: list[str] = []
    for name in where:
        moved.append(name)
        found = descent(name, frozenset(moved))
        if found is not None:
            cause = hint(problem, taken, point(frozenset(moved)), where[name])
            fail(
                problem, "prox", "expected no descent of f + weight/2 |x - centre|^2 "
                f"at the result with weight {weight:g}, found a slope of "
                f"{found:.3g} in part {name}; {cause}",
            )  # fmt: skip


def check_hold(problem: Problem, visited: Sequence[Vector]) -> None:
    """Check that the result approaches the centre as the weight grows."""
    theta, centre, held = visited[-1], visited[-2], problem.layout.pull > 0.0
    scale = float(np.abs(centre).max()) or 1.0
    for weight in HUGE:
        result = problem.prox(theta, problem.expect(theta), centre.copy(), weight)
        check_vector(problem, f"prox with weight {weight:g}", result)
        apart = float(np.abs(result - centre)[held].max(initial=0.0))
        if apart <= 1e-6 * scale:
            return
    fail(
        problem, "prox", "expected the result to approach centre as weight grows, "
        f"found it {apart:.3g} away with weight {HUGE[-1]:g}; scale the proximal term "
        "by weight",
    )  # fmt: skip


def directions(
    point: Vector, span: slice, visited: Sequence[Vector], rng: np.random.Generator
) -> Matrix:
    """Return unit vectors within a part: axes, random, and towards visited points.

    Directions towards visited points stay inside a convex domain.
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
    kept: Matrix = found[lengths > 0.0]
    return kept


def slopes(
    problem: Problem,
    taken: ProxStep,
    point: Vector,
    ways: Matrix,
    step: float,
    order: int = 2,
) -> tuple[Vector, Vector, Vector]:
    """Return the slopes of f and of the proximal term along ``ways``, and their noise.

    Differences are one-sided. A slope is infinite if the step leaves the domain.
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
) -> float | None:
    """Return the slope of steepest descent within a part; None at a minimum.

    A direction descends if it does with all step sizes, by more than ``rtol`` times the
    slopes of the terms at the point and the slopes at theta.
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
    return float(worst[k])


def hint(problem: Problem, taken: ProxStep, point: Vector, span: slice) -> str:
    """Return the likely fault of a step that does not end at a minimum.

    A faulty step often ends at the minimum of f plus another proximal term.
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
        return "prox seems to ignore the weight"
    for factor in (0.5, 2.0):
        if np.linalg.norm(force + factor * pull) <= near:
            return f"prox seems to take the proximal term {factor:g} times"
    if np.linalg.norm(force + against) <= near:
        return "prox seems to take -centre for centre"
    return "check that prox and objectives have the same terms, regulariser included"
