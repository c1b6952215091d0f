"""Checks of problems that change their coordinates: `within`, `theta_of`, `rows`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dadmm.core.layout import Vector
from dadmm.testing.step import fail

STEP = 1e-3  # of finite differences, relative to the size of theta
DIRECTIONS = 10
ROUNDING = 1e3 * float(np.finfo(float).eps)


def check_coordinates(
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
        _rows(problem, theta, rng)
    return inner


def _rows(problem: Any, theta: Vector, rng: np.random.Generator) -> None:
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
