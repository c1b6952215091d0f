"""`check_problem`, for authors of problems: whether one satisfies `Problem`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NoReturn

import numpy as np

from dadmm.core.errors import ProblemError
from dadmm.core.interfaces import Problem, stacks
from dadmm.core.layout import Matrix, Vector
from dadmm.core.linalg import EPS, row_lengths
from dadmm.core.schema import choice
from dadmm.problems.builder import check_members

__all__ = ["check_problem"]

WEIGHTS = (1.0, 100.0, 0.01, 0.0)
HUGE = (1e6, 1e9, 1e12, 1e15)
# Steps, relative to the size of the part, and the order of the difference: the second
# is accurate where f is smooth, the first is never too low where f is convex.
STEPS = ((1e-3, 2), (1e-5, 2), (1e-6, 1))
MOST = 40  # directions of one kind
BENDS, BEND_STEP = 10, 1e-3  # directions and relative step of second differences
ROUNDING = 64.0 * EPS
PROXIMAL = "f + weight/2 |x - centre|^2"


def check_problem(
    problem: Problem, *, fixed: Sequence[str] = (), seed: int = 0, rtol: float = 1e-4
) -> None:
    """Raise ProblemError unless a problem satisfies the interface `Problem`.

    Parameters
    ----------
    problem : Problem, with some data; a few rows are enough
    fixed : sequence of str
        Parts that `prox` leaves as `init` has them, such as mu with ``zero_mean``.
    seed : int, of the points at which the problem is checked
    rtol : float
        Largest slope at the result of `prox`, relative to the slopes of the terms.

    Notes
    -----
    At the result of `prox` no one-sided finite difference of `objectives` may be
    negative, also at corners of f and at the border of its domain, outside which f is
    infinite. The parts may be optimal together, or one after the other in any order,
    each with the later ones at their old values.

    Examples
    --------
    >>> from dadmm.problems import Ridge
    >>> check_problem(Ridge(np.eye(3), np.ones(3), alpha=0.5))
    """
    check_members(problem, type(problem).__name__)
    for name in fixed:
        choice(problem.layout.shapes).check("a part in fixed", name, ProblemError)
    rng = np.random.default_rng(seed)
    with np.errstate(all="ignore"):
        check = _Contract(problem, fixed, rng, rtol)
        theta, again, other = (
            problem.init(np.random.default_rng(s)) for s in (seed, seed, seed + 1)
        )
        check.vector("init", theta)
        if _differ(theta, again):
            check.fail("init", "the same point from the same seed of rng", "another")
        visited = [theta, other]
        for weight in WEIGHTS:
            centre = theta.copy()  # then a random point as far from theta as theta is
            for name, part in problem.layout.views(centre)._asdict().items():
                if name not in fixed and part.size:
                    size = np.sqrt(np.mean(part**2))
                    part += (size or 1.0) * rng.standard_normal(part.shape)
            check.take(theta, centre, weight)
            theta = check.result
            check.objectives(np.array([*visited, theta]))
            check.optimality(visited)
            visited.append(theta)
        check.hold(visited)
        if stacks(type(problem)):
            check.stack(visited)
        if hasattr(problem, "rows") and stacks(type(problem), "within"):
            inside = _Contract(check.within(visited), (), rng, rtol)
            zero = np.zeros(problem.layout.size)
            for weight in WEIGHTS:
                centre = rng.standard_normal(len(zero))
                inside.take(zero, centre, weight)
                inside.optimality([zero, centre])


class _Contract:
    def __init__(
        self, problem: Any, fixed: Sequence[str], rng: np.random.Generator, rtol: float
    ) -> None:
        self.problem, self.layout, self.fixed = problem, problem.layout, fixed
        self.rng, self.rtol = rng, rtol
        places = self.layout.views(np.arange(self.layout.size, dtype=np.float64))
        self.spans = {  # the slice of each part in theta
            name: slice(int(part.min()), int(part.max()) + 1)
            for name, part in places._asdict().items()
            if part.size
        }

    def fail(self, method: str, wanted: str, found: object) -> NoReturn:
        name = type(self.problem).__name__
        raise ProblemError(f"{name}.{method}: expected {wanted}, found {found}")

    @contextmanager
    def unchanged(self, method: str, **arrays: Matrix) -> Iterator[None]:
        before = {name: array.copy() for name, array in arrays.items()}
        yield
        for name, array in arrays.items():
            if _differ(array, before[name]):
                self.fail(method, f"{name} not to change", "that the method wrote it")

    def _shape(self, method: str, found: object, shape: tuple[int, ...]) -> None:
        what, wanted = type(found).__name__, f"float64 of shape {shape}"
        if isinstance(found, np.ndarray):
            what = f"{found.dtype} of shape {found.shape}"
        if what != wanted:
            self.fail(method, wanted, what)

    def vector(self, method: str, found: Vector) -> None:
        self._shape(method, found, (self.layout.size,))
        for name, span in self.spans.items():
            for bad in found[span][~np.isfinite(found[span])]:
                self.fail(method, "finite numbers", f"{bad} in part {name}")

    def take(self, theta: Vector, centre: Vector, weight: float) -> None:
        """Take a proximal step, which is checked without using f."""
        problem = self.problem
        with self.unchanged("expect", theta=theta):
            stats = problem.expect(theta)
        with self.unchanged("prox", theta=theta, centre=centre):
            result = problem.prox(theta, stats, centre, weight)
        self.vector(f"prox with weight {weight:g}", result)
        for name, array in (("theta", theta), ("centre", centre)):
            if np.shares_memory(result, array):
                self.fail("prox", "a new array", f"one that shares memory with {name}")
        kept = result.copy()
        if _differ(problem.prox(theta, problem.expect(theta), centre, weight), kept):
            self.fail("prox", "the same bits from the same arguments", "others later")
        problem.prox(kept.copy(), stats, 2.0 * centre, weight + 1.0)
        if _differ(result, kept):
            found = "that the result changed when prox was called again"
            self.fail("prox", "a new array", found)
        for name in self.fixed:
            if _differ(result[self.spans[name]], theta[self.spans[name]]):
                self.fail("prox", f"the fixed part {name} not to change", "a new value")
        self.theta, self.stats, self.centre, self.result = theta, stats, centre, kept
        self.weight, self.weights = weight, weight * self.layout.pull

    def _values(self, rows: Matrix) -> Vector:
        return np.asarray(self.problem.objectives(rows, self.stats))

    def objectives(self, rows: Matrix) -> None:
        """Check that the value of each row depends on this row alone."""
        ask = self._values
        with self.unchanged("objectives", thetas=rows):
            values = ask(rows)
        self._shape("objectives", values, (len(rows),))
        for bad in values[~np.isfinite(values)]:
            self.fail("objectives", "finite f at the results of init and prox", bad)
        for how, again in (
            ("alone", np.array([ask(row[None])[0] for row in rows])),
            ("in another order", ask(rows[::-1])[::-1]),
            ("when asked again", ask(rows)),
        ):
            far = np.abs(again - values) > 1e-9 * (1.0 + np.abs(values))
            if far.any():
                wanted = f"{values[far][0]:.6g} of a row whatever the other rows"
                self.fail("objectives", wanted, f"{again[far][0]:.6g} {how}")

    def optimality(self, visited: Sequence[Vector]) -> None:
        """Check that the step does not raise the proximal objective, and is optimal."""
        rows = np.array([self.theta, self.result])
        values = self._values(rows)
        pull = 0.5 * ((rows - self.centre) ** 2 @ self.weights)
        before, after = values + pull
        at = f"with weight {self.weight:g}"
        if after > before + ROUNDING * (np.abs(values) + pull).sum():
            wanted = f"{PROXIMAL} not to rise from theta to the result"
            self.fail("prox", wanted, f"a rise by {after - before:.3g} {at}")
        spans = {k: v for k, v in self.spans.items() if k not in self.fixed}

        @cache
        def descent(name: str, moved: frozenset[str]) -> float | None:
            """Return the slope in a part if only these parts have moved so far."""
            point = self.result.copy()
            for other in spans.keys() - moved:
                point[spans[other]] = self.theta[spans[other]]
            return self._steepest(point, spans[name], visited)

        def explained(moved: frozenset[str]) -> bool:
            """Return whether some parts moved last, together or one of them alone."""
            last = [name for name in moved if descent(name, moved) is None]
            steps = [frozenset(last)] + [frozenset([name]) for name in last]
            return not moved or any(explained(moved - s) for s in steps if s)

        moved = [] if explained(frozenset(spans)) else list(spans)
        for k, name in enumerate(moved):
            slope = descent(name, frozenset(moved[: k + 1]))
            if slope is not None:
                found = f"a slope of {slope:.3g} in part {name} {at}"
                self.fail("prox", f"no descent of {PROXIMAL} at the result", found)

    def _slopes(
        self, point: Vector, ways: Matrix, length: float, order: int
    ) -> tuple[Vector, Vector, float]:
        """Return slopes of f and of the proximal term along ways, and their noise."""
        rows = np.vstack([point, point + 0.5 * length * ways, point + length * ways])
        values = self._values(rows)
        here, (half, full) = values[0], values[1:].reshape(2, -1)
        of_f = (full - here) / length
        if order == 2:
            of_f = 4.0 * (half - here) / length - of_f
        of_f[~np.isfinite(of_f)] = np.inf  # outside the domain
        pull = ways @ (self.weights * (point - self.centre))
        size = np.abs(values[np.isfinite(values)]).max(initial=abs(here))
        return of_f, pull, ROUNDING * size / length

    def _steepest(
        self, point: Vector, span: slice, visited: Sequence[Vector]
    ) -> float | None:
        """Return the slope of steepest descent within a part; None at a minimum.

        A direction descends if it does with all step sizes, by more than ``rtol`` times
        the slopes of the terms at the point and the slopes at theta.
        """
        # axes, random, and towards visited points, which stay inside a convex domain
        width = span.stop - span.start
        axes = self.rng.choice(width, min(width, MOST), replace=False)
        n_mixed = min(width, MOST // 4) if width > 1 else 0
        mixed = self.rng.standard_normal((n_mixed, width))
        rows = np.vstack([np.eye(width)[axes], mixed])
        rows = np.vstack([rows, -rows, *[(v - point)[None, span] for v in visited]])
        rows = rows[row_lengths(rows) > 0.0]
        ways = np.zeros((len(rows), len(point)))
        ways[:, span] = rows / row_lengths(rows)[:, None]
        near = point, point - self.centre, self.theta
        scale = max(float(np.sqrt(np.mean(part[span] ** 2))) for part in near)
        worst, excess = np.full((2, len(ways)), -np.inf)
        for size, order in STEPS:
            length = size * (scale or 1.0)
            of_f, pull, noise = self._slopes(point, ways, length, order)
            before = np.add(*self._slopes(self.theta, ways, length, order)[:2])
            terms = np.concatenate([np.abs(of_f) + np.abs(pull), np.abs(before)])
            allowed = self.rtol * terms[np.isfinite(terms)].max(initial=0.0) + noise
            worst = np.maximum(worst, of_f + pull)
            excess = np.maximum(excess, of_f + pull + allowed)
        k = int(excess.argmin())
        return float(worst[k]) if excess[k] < 0.0 else None

    def hold(self, visited: Sequence[Vector]) -> None:
        """Check that the result approaches the centre as the weight grows."""
        problem, theta, centre = self.problem, visited[-1], visited[-2]
        for weight in HUGE:
            result = problem.prox(theta, problem.expect(theta), centre.copy(), weight)
            self.vector(f"prox with weight {weight:g}", result)
            off = np.abs(result - centre)[self.layout.pull > 0.0]
            apart = float(off.max(initial=0.0))
            if apart <= 1e-6 * (float(np.abs(centre).max()) or 1.0):
                return
        wanted = "the result to approach centre as weight grows"
        self.fail("prox", wanted, f"it {apart:.3g} away at weight {HUGE[-1]:g}")

    def stack(self, visited: Sequence[Vector]) -> None:
        problem, weights = self.problem, np.array([0.5, 3.0])
        thetas = np.array(visited[-2:])
        centres = thetas + self.rng.standard_normal(thetas.shape)
        stacked = type(problem).stack([problem, problem])
        stats = stacked.expect(thetas)
        results = stacked.prox(thetas, stats, centres, weights)
        rows = np.stack([thetas, results], axis=1)
        values = stacked.objectives(rows, stats)
        for k in range(2):
            own = problem.expect(thetas[k])
            alone = problem.prox(thetas[k], own, centres[k], weights[k])
            same = "the same bits of a stack and of its problems"
            if _differ(results[k], alone):
                self.fail("stack", same, "others from prox")
            if _differ(values[k], problem.objectives(rows[k], own)):
                self.fail("stack", same, "others from objectives")

    def within(self, visited: Sequence[Vector]) -> Any:
        """Return the problem in z of a random T; check its f, and the rows."""
        problem, p = self.problem, self.layout.size
        T = self.rng.standard_normal((p, p)) + 2.0 * np.eye(p)
        inner = problem.within(T)
        if inner.layout.size != p or inner.layout.private or inner.layout.scales:
            wanted = f"a problem of {p} parameters, none of them private or scaled"
            self.fail("within", wanted, inner.layout)
        largest = 0.0
        for theta in visited:
            z = np.linalg.solve(T, theta)
            point = problem.theta_of(T, z)
            atol = 1e-9 * np.abs(theta).max()
            if not np.allclose(point, T @ z, rtol=1e-9, atol=atol):
                self.fail("theta_of", "T z", f"{point} at z = {z}")
            mine = float(problem.objectives(point[None], problem.expect(point))[0])
            other = float(inner.objectives(z[None], inner.expect(z))[0])
            largest = max(abs(mine), abs(other), largest)
            if abs(mine - other) > 1e-8 * largest:
                self.fail("within", f"f = {mine:.9g}, as at theta = T z", other)
            self._curvature(theta)
        return inner

    def _curvature(self, theta: Vector) -> None:
        """Check that |F d|^2 is at most the curvature along random directions d."""
        radius = BEND_STEP * max(float(np.sqrt(np.mean(theta**2))), BEND_STEP)
        rows, stats = self.problem.rows(theta, radius), self.problem.expect(theta)
        for _ in range(BENDS):
            direction = self.rng.standard_normal(len(theta))
            direction /= np.linalg.norm(direction)
            line = theta + radius * direction * np.array([[-1.0], [0.0], [1.0]])
            values = self.problem.objectives(line, stats)
            bend = float(values @ [1.0, -2.0, 1.0]) / radius**2
            noise = 1e3 * EPS * float(np.abs(values) @ [1.0, 2.0, 1.0]) / radius**2
            claimed = float(np.sum((rows @ direction) ** 2))
            if claimed > (1.0 + 1e-6) * bend + noise:
                wanted = f"|F d|^2 of at most the curvature of f along d, {bend:.6g}"
                self.fail("rows", wanted, f"{claimed:.6g}")


def _differ(one: Matrix, other: Matrix) -> bool:
    return not np.array_equal(one, other, equal_nan=True)
