"""`check_problem`: whether a problem satisfies the interface `Problem`.

It calls the methods as a node does, at a few points and with a few weights. It raises
an error of one sentence at the first violation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dadmm.core.errors import ProblemError
from dadmm.core.interfaces import Problem, stacks
from dadmm.core.layout import Layout, Matrix, Vector
from dadmm.problems._minimum import (
    ProxStep,
    check_descent,
    check_hold,
    check_optimality,
    check_shape,
    check_vector,
    differ,
    fail,
)
from dadmm.problems.builder import missing_member

WEIGHTS = (1.0, 100.0, 0.01, 0.0)
STEP = 1e-3  # of finite differences, relative to the size of theta
DIRECTIONS = 10
ROUNDING = 1e3 * float(np.finfo(float).eps)


def check_problem(
    problem: Problem, *, fixed: Sequence[str] = (), seed: int = 0, rtol: float = 1e-4
) -> None:
    """Raise ProblemError unless a problem satisfies the interface `Problem`.

    Parameters
    ----------
    problem : Problem
        With some data; a few rows are enough.
    fixed : sequence of str
        Parts that `prox` leaves at their values in `init`, such as mu of PPCA with
        ``zero_mean``. All others must be optimal.
    seed : int
        Of the points at which the problem is checked.
    rtol : float
        Accuracy of `prox`: the largest slope at its result, relative to the slopes of
        the terms.

    Notes
    -----
    Slopes are one-sided finite differences of `objectives`, in coordinate and random
    directions and towards other points that the problem has visited. No slope may be
    negative. Where f is smooth, the gradient is then zero; the condition also holds at
    corners of f and at the border of its domain, outside which f is infinite. The parts
    may be optimal together, or one after the other in any order, each with the later
    ones at their old values.

    Examples
    --------
    >>> from dadmm.problems import Ridge
    >>> check_problem(Ridge(np.eye(3), np.ones(3), alpha=0.5))
    """
    _members(problem, fixed)
    rng = np.random.default_rng(seed)
    with np.errstate(all="ignore"):
        theta = _init(problem, seed)
        visited = [theta, problem.init(np.random.default_rng(seed + 1))]
        for weight in WEIGHTS:
            centre = _nearby(problem.layout, theta, fixed, rng)
            taken = _prox(problem, theta, centre, weight, fixed)
            _objectives(problem, taken, np.array([*visited, taken.result]))
            check_descent(problem, taken, weight)
            check_optimality(problem, taken, weight, visited, fixed, rng, rtol)
            theta = taken.result
            visited.append(theta)
        check_hold(problem, visited)
        if stacks(type(problem)):
            _stack(problem, visited, rng)
        if hasattr(problem, "rows") and stacks(type(problem), "within"):
            inner = _coordinates(problem, visited, rng)
            zero = np.zeros(inner.layout.size)
            for weight in WEIGHTS:
                centre = rng.standard_normal(inner.layout.size)
                taken = _prox(inner, zero, centre, weight, ())
                check_descent(inner, taken, weight)
                check_optimality(inner, taken, weight, [zero, centre], (), rng, rtol)


def _members(problem: Problem, fixed: Sequence[str]) -> None:
    missing = missing_member(problem)
    if missing is not None:
        raise ProblemError(f"{type(problem).__name__} has no {missing}")
    for name in fixed:
        if name not in problem.layout.shapes:
            parts = ", ".join(problem.layout.shapes)
            raise ProblemError(
                f"fixed names an unknown part {name!r}; the parts are {parts}"
            )


def _init(problem: Problem, seed: int) -> Vector:
    theta = problem.init(np.random.default_rng(seed))
    check_vector(problem, "init", theta)
    if differ(theta, problem.init(np.random.default_rng(seed))):
        fail(
            problem, "init", "expected the same point from the same seed, found "
            "another; draw only from the rng that is passed",
        )  # fmt: skip
    return theta


def _nearby(
    layout: Layout, theta: Vector, fixed: Sequence[str], rng: np.random.Generator
) -> Vector:
    """Return a random point near theta, at a distance of the size of theta."""
    centre = theta.copy()
    for name, part in layout.views(centre)._asdict().items():
        if name not in fixed and part.size:
            size = np.sqrt(np.mean(part**2))
            part += (size if size > 0.0 else 1.0) * rng.standard_normal(part.shape)
    return centre


def _prox(
    problem: Problem,
    theta: Vector,
    centre: Vector,
    weight: float,
    fixed: Sequence[str],
) -> ProxStep:
    """Take a proximal step, and check it without using f."""
    old, aim = theta.copy(), centre.copy()
    stats = problem.expect(theta)
    _untouched(problem, "expect", "theta", theta, old)
    result = problem.prox(theta, stats, centre, weight)
    _untouched(problem, "prox", "theta", theta, old)
    _untouched(problem, "prox", "centre", centre, aim)
    check_vector(problem, f"prox with weight {weight:g}", result)
    for name, array in (("theta", theta), ("centre", centre)):
        if np.shares_memory(result, array):
            fail(
                problem, "prox", "expected a new array, found one that shares memory "
                f"with {name}; return a copy",
            )  # fmt: skip
    kept = result.copy()
    if differ(problem.prox(theta, problem.expect(theta), centre, weight), kept):
        fail(
            problem, "prox", "expected the same bits from the same arguments, found "
            "other bits the second time; keep no state and draw nothing at random",
        )  # fmt: skip
    problem.prox(kept.copy(), stats, 2.0 * centre, weight + 1.0)
    if differ(result, kept):
        fail(
            problem, "prox", "expected a new array, found that the result changed "
            "when prox was called again; return a new array each time",
        )  # fmt: skip
    views, before = problem.layout.views(result), problem.layout.views(old)
    for name in fixed:
        if differ(getattr(views, name), getattr(before, name)):
            fail(
                problem, "prox", f"expected the fixed part {name} not to change, "
                "found another value; keep it, or leave it out of fixed",
            )  # fmt: skip
    return ProxStep(theta, stats, centre, weight * problem.layout.pull, result)


def _untouched(
    problem: Problem, method: str, name: str, now: Matrix, before: Matrix
) -> None:
    if differ(now, before):
        fail(
            problem, method, f"expected {name} not to change, found it modified; work "
            f"on {name}.copy()",
        )  # fmt: skip


def _objectives(problem: Problem, taken: ProxStep, rows: Matrix) -> None:
    """Check that the value of each row depends on this row alone."""
    given, n = rows.copy(), len(rows)
    values = problem.objectives(rows, taken.stats)
    _untouched(problem, "objectives", "thetas", rows, given)
    check_shape(problem, "objectives", values, (n,), "return f of each row of thetas")
    if not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values))[0])
        fail(
            problem, "objectives", "expected finite values at the results of init and "
            f"prox, found {values[row]}; look for a logarithm or a division",
        )  # fmt: skip
    calls: dict[str, Callable[[], Any]] = {
        "alone": lambda: [problem.objectives(r[None], taken.stats)[0] for r in rows],
        "in another order": lambda: problem.objectives(rows[::-1], taken.stats)[::-1],
        "when asked again": lambda: problem.objectives(rows, taken.stats),
    }
    for how, ask in calls.items():
        again = np.array(ask())
        far = np.abs(again - values) > 1e-9 * (1.0 + np.abs(values))
        if far.any():
            row = int(np.flatnonzero(far)[0])
            fail(
                problem, "objectives", f"expected the value {values[row]:.6g} of a row "
                f"whatever the other rows, found {again[row]:.6g} {how}; sum over the "
                "last axis only, and keep no state",
            )  # fmt: skip


def _stack(problem: Any, visited: Sequence[Vector], rng: np.random.Generator) -> None:
    """Check that a stack of two gives the same bits as each problem alone."""
    thetas, weights = np.array(visited[-2:]), np.array([0.5, 3.0])
    centres = thetas + rng.standard_normal(thetas.shape)
    stacked = type(problem).stack([problem, problem])
    stats = stacked.expect(thetas)
    results = stacked.prox(thetas, stats, centres, weights)
    rows = np.stack([thetas, results], axis=1)
    values = stacked.objectives(rows, stats)
    for k in range(2):
        stats = problem.expect(thetas[k])
        alone = problem.prox(thetas[k], stats, centres[k], weights[k])
        if differ(results[k], alone):
            fail(problem, "stack", "expected the same bits from prox of a stack and "
                  "of a problem alone, found others")  # fmt: skip
        if differ(values[k], problem.objectives(rows[k], stats)):
            fail(problem, "stack", "expected the same bits from objectives of a stack "
                  "and of a problem alone, found others")  # fmt: skip


def _coordinates(
    problem: Any, visited: Sequence[Vector], rng: np.random.Generator
) -> Any:
    """Check that the problem in z has the same f, and rows below its curvature.

    Return the problem in z, theta = T z, of a random T.
    """
    p = problem.layout.size
    T = rng.standard_normal((p, p)) + 2.0 * np.eye(p)
    inner = problem.within(T)
    if inner.layout.size != p or inner.layout.private or inner.layout.scales:
        fail(
            problem, "within", f"expected a problem of {p} parameters, none of them "
            f"private or scaled, found {inner.layout}",
        )  # fmt: skip
    largest = 0.0
    for theta in visited:
        z = np.linalg.solve(T, theta)
        point = problem.theta_of(T, z)
        if not np.allclose(point, T @ z, rtol=1e-9, atol=1e-9 * np.abs(theta).max()):
            fail(problem, "theta_of", f"expected T z, found {point} at z = {z}")
        mine = float(problem.objectives(point[None], problem.expect(point))[0])
        other = float(inner.objectives(z[None], inner.expect(z))[0])
        largest = max(abs(mine), abs(other), largest)
        if abs(mine - other) > 1e-8 * largest:
            fail(
                problem, "within", "expected the same f, found "
                f"{mine:.9g} at theta and {other:.9g} at z with theta = T z",
            )  # fmt: skip
        _curvature(problem, theta, rng)
    return inner


def _curvature(problem: Any, theta: Vector, rng: np.random.Generator) -> None:
    """Check that |F d|^2 does not exceed the curvature along random directions d."""
    size = max(float(np.sqrt(np.mean(theta**2))), STEP)
    radius = STEP * size
    rows = problem.rows(theta, radius)
    stats = problem.expect(theta)
    for _ in range(DIRECTIONS):
        direction = rng.standard_normal(len(theta))
        direction /= np.linalg.norm(direction)
        line = theta + radius * direction * np.array([[-1.0], [0.0], [1.0]])
        before, here, after = problem.objectives(line, stats).tolist()
        bend = (before - 2.0 * here + after) / radius**2
        noise = ROUNDING * (abs(before) + 2.0 * abs(here) + abs(after)) / radius**2
        claimed = float(np.sum((rows @ direction) ** 2))
        if claimed > (1.0 + 1e-6) * bend + noise:
            fail(
                problem, "rows", f"expected |F d|^2 to be at most the curvature of f "
                f"along d, found {claimed:.6g}, and {bend:.6g} by differences of f",
            )  # fmt: skip
