"""The record of a proximal step, and checks of what methods return."""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

import numpy as np

from dadmm.core.errors import ProblemError
from dadmm.core.interfaces import Problem
from dadmm.core.layout import Vector


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
