"""Checks that proximal steps end at a minimum of the objective."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dadmm.core.interfaces import Problem
from dadmm.core.layout import Vector
from dadmm.testing.slopes import ROUNDING, Descent, hint, steepest
from dadmm.testing.step import ProxStep, check_vector, fail, spans

HUGE = (1e6, 1e9, 1e12, 1e15)


def check_descent(problem: Problem, taken: ProxStep, weight: float) -> None:
    """Check that a step does not raise the proximal objective."""
    rows = np.array([taken.theta, taken.result])
    values = problem.objectives(rows, taken.stats)
    pull = 0.5 * ((rows - taken.centre) ** 2 @ taken.weights)
    before, after = values + pull
    if after > before + ROUNDING * (np.abs(values) + pull).sum():
        fail(
            problem, "prox", "expected f + weight/2 |x - centre|^2 not to rise from "
            f"theta to the result, found {before:.6g} and then {after:.6g} with weight "
            f"{weight:g}; check signs, and that objectives has all terms that prox has",
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
    known: dict[tuple[str, frozenset[str]], Descent | None] = {}

    def point(moved: frozenset[str]) -> Vector:
        mixed = taken.result.copy()
        for name in where.keys() - moved:
            mixed[where[name]] = taken.theta[where[name]]
        return mixed

    def descent(name: str, moved: frozenset[str]) -> Descent | None:
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
                f"{found.slope:.3g} in part {name}; {cause}",
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
