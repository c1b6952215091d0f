"""`check_problem`: whether a problem satisfies the interface `Problem`.

It calls the methods as a node does, at a few points and with a few weights. It raises
an error of one sentence at the first violation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from dadmm.core.errors import ProblemError
from dadmm.core.interfaces import Problem, stacks
from dadmm.core.layout import Matrix, Vector
from dadmm.problems.builder import check_members

WEIGHTS = (1.0, 100.0, 0.01, 0.0)
HUGE = (1e6, 1e9, 1e12, 1e15)
# Steps, relative to the size of the part, and the order of the difference. The second
# order is accurate where f is smooth. The first order is never too low where f is
# convex, also if the border of the domain is nearer than the step.
STEPS = ((1e-3, 2), (1e-5, 2), (1e-6, 1))
MOST = 40  # directions of one kind
SLIGHT = 1e-4  # relative, of a rise by a step that is not exact
BENDS, BEND_STEP = 10, 1e-3  # directions and relative step of second differences
EPS = float(np.finfo(float).eps)
ROUNDING = 64.0 * EPS


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
    check_members(problem, type(problem).__name__)
    for name in fixed:
        if name not in problem.layout.shapes:
            parts = ", ".join(problem.layout.shapes)
            raise ProblemError(
                f"fixed names an unknown part {name!r}; the parts are {parts}"
            )
    rng = np.random.default_rng(seed)
    with np.errstate(all="ignore"):
        theta = _init(problem, seed)
        visited = [theta, problem.init(np.random.default_rng(seed + 1))]
        for weight in WEIGHTS:
            centre = theta.copy()  # then a random point as far from theta as theta is
            for name, part in problem.layout.views(centre)._asdict().items():
                if name not in fixed and part.size:
                    size = np.sqrt(np.mean(part**2))
                    part += (size or 1.0) * rng.standard_normal(part.shape)
            step = _take_step(problem, theta, centre, weight, fixed)
            _check_objectives(step, np.array([*visited, step.result]))
            step.check_descent()
            step.check_optimality(visited, fixed, rng, rtol)
            theta = step.result
            visited.append(theta)
        _check_hold(problem, visited)
        if stacks(type(problem)):
            _check_stack(problem, visited, rng)
        if hasattr(problem, "rows") and stacks(type(problem), "within"):
            inner = _check_coordinates(problem, visited, rng)
            zero = np.zeros(inner.layout.size)
            for weight in WEIGHTS:
                centre = rng.standard_normal(inner.layout.size)
                step = _take_step(inner, zero, centre, weight, ())
                step.check_descent()
                step.check_optimality([zero, centre], (), rng, rtol)


class ProxStep(NamedTuple):
    """A proximal step: the arguments and the result."""

    problem: Problem
    theta: Vector
    stats: Any
    centre: Vector
    weight: float
    result: Vector

    @property
    def weights(self) -> Vector:
        """The weight of each entry, (size,)."""
        return np.asarray(self.weight * self.problem.layout.pull)

    def check_descent(self) -> None:
        """Check that the step does not raise the proximal objective."""
        rows = np.array([self.theta, self.result])
        values = self.problem.objectives(rows, self.stats)
        pull = 0.5 * ((rows - self.centre) ** 2 @ self.weights)
        before, after = values + pull
        size = (np.abs(values) + pull).sum()
        if after > before + ROUNDING * size:
            advice = "check signs, and that objectives has all terms that prox has"
            if after - before < SLIGHT * size:
                advice = "make it more accurate, or return theta if that is no worse"
            _fail(
                self.problem, "prox",
                "expected f + weight/2 |x - centre|^2 not to rise from theta to the "
                f"result, found {before:.6g} and then {after - before:.3g} more with "
                f"weight {self.weight:g}; {advice}",
            )  # fmt: skip

    def check_optimality(
        self,
        visited: Sequence[Vector],
        fixed: Sequence[str],
        rng: np.random.Generator,
        rtol: float,
    ) -> None:
        """Check that parts are optimal together, or with later ones at old values."""
        spans = {k: v for k, v in _spans(self.problem).items() if k not in fixed}
        known: dict[tuple[str, frozenset[str]], float | None] = {}

        def point(moved: frozenset[str]) -> Vector:
            mixed = self.result.copy()
            for name in spans.keys() - moved:
                mixed[spans[name]] = self.theta[spans[name]]
            return mixed

        def descent(name: str, moved: frozenset[str]) -> float | None:
            if (name, moved) not in known:
                ways = _directions(point(moved), spans[name], visited, rng)
                slope = self._steepest(point(moved), spans[name], ways, rtol)
                known[name, moved] = slope
            return known[name, moved]

        def explained(moved: frozenset[str]) -> bool:
            last = [name for name in moved if descent(name, moved) is None]
            steps = [frozenset(last)] + [frozenset([name]) for name in last]
            return not moved or any(explained(moved - s) for s in steps if s)

        if explained(frozenset(spans)):
            return
        names = list(spans)
        for k, name in enumerate(names):
            moved = frozenset(names[: k + 1])
            found = descent(name, moved)
            if found is not None:
                _fail(
                    self.problem, "prox",
                    "expected no descent of f + weight/2 |x - centre|^2 at the result "
                    f"with weight {self.weight:g}, found a slope of {found:.3g} in "
                    f"part {name}; {self._hint(point(moved), spans[name])}",
                )  # fmt: skip

    def _slopes(
        self, point: Vector, ways: Matrix, step: float, order: int = 2
    ) -> tuple[Vector, Vector, float]:
        """Return slopes of f and of the proximal term along ``ways``, and their noise.

        Differences are one-sided. A slope is infinite if the step leaves the domain.
        """
        rows = np.vstack([point, point + 0.5 * step * ways, point + step * ways])
        values = self.problem.objectives(rows, self.stats)
        here, (half, full) = values[0], values[1:].reshape(2, -1)
        of_f = (full - here) / step
        if order == 2:
            of_f = 4.0 * (half - here) / step - of_f
        of_f[~np.isfinite(of_f)] = np.inf
        pull = ways @ (self.weights * (point - self.centre))
        size = np.abs(values[np.isfinite(values)]).max(initial=abs(here))
        return of_f, pull, ROUNDING * size / step

    def _steepest(
        self, point: Vector, span: slice, ways: Matrix, rtol: float
    ) -> float | None:
        """Return the slope of steepest descent within a part; None at a minimum.

        A direction descends if it does with all step sizes, by more than ``rtol`` times
        the slopes of the terms at the point and the slopes at theta.
        """
        if not len(ways):
            return None
        length = max(
            float(np.sqrt(np.mean(part[span] ** 2)))
            for part in (point, point - self.centre, self.theta)
        )
        worst, excess = np.full((2, len(ways)), -np.inf)
        for size, order in STEPS:
            step = size * (length or 1.0)
            of_f, pull, noise = self._slopes(point, ways, step, order)
            before = np.add(*self._slopes(self.theta, ways, step, order)[:2])
            terms = np.concatenate([np.abs(of_f) + np.abs(pull), np.abs(before)])
            allowed = rtol * terms[np.isfinite(terms)].max(initial=0.0) + noise
            worst = np.maximum(worst, of_f + pull)
            excess = np.maximum(excess, of_f + pull + allowed)
        k = int(excess.argmin())
        return float(worst[k]) if excess[k] < 0.0 else None

    def _hint(self, point: Vector, span: slice) -> str:
        """Return the likely fault of a step that does not end at a minimum.

        A faulty step often ends at the minimum of f plus another proximal term.
        """
        ways = np.zeros((min(span.stop - span.start, MOST), len(point)))
        ways[:, span][:, : len(ways)] = np.eye(len(ways))
        entries = slice(span.start, span.start + len(ways))
        size = float(np.abs(point[span]).max(initial=0.0)) or 1.0
        up, pull, _ = self._slopes(point, ways, 1e-5 * size)
        force = 0.5 * (up - self._slopes(point, -ways, 1e-5 * size)[0])
        against = (self.weights * (point + self.centre))[entries]
        if not np.isfinite(force).all() or not pull.any():
            return "check that prox and objectives have the same terms"
        faults = {
            "prox seems to ignore the weight": 0.0 * pull,
            "prox seems to take the proximal term 0.5 times": 0.5 * pull,
            "prox seems to take the proximal term 2 times": 2.0 * pull,
            "prox seems to take -centre for centre": against,
        }
        for fault, its_pull in faults.items():
            if np.linalg.norm(force + its_pull) <= 0.01 * np.linalg.norm(pull):
                return fault
        return "check that prox and objectives have the same terms, with all penalties"


def _fail(problem: Problem, method: str, sentence: str) -> NoReturn:
    raise ProblemError(f"{type(problem).__name__}.{method}: {sentence}")


def _differ(one: Any, other: Any) -> bool:
    """Return whether two arrays differ in shape or bits."""
    return not np.array_equal(one, other, equal_nan=True)


def _spans(problem: Problem) -> dict[str, slice]:
    """Return the slice of each part in theta."""
    numbers = problem.layout.views(np.arange(problem.layout.size, dtype=np.float64))
    return {
        name: slice(int(part.min()), int(part.max()) + 1)
        for name, part in numbers._asdict().items()
        if part.size
    }


def _check_shape(
    problem: Problem, method: str, found: Any, shape: tuple[int, ...], advice: str
) -> None:
    if not isinstance(found, np.ndarray) or found.shape != shape:
        has = getattr(found, "shape", None)
        what = type(found).__name__ if has is None else f"shape {has}"
        sentence = f"expected an array of shape {shape}, found {what}; {advice}"
        _fail(problem, method, sentence)


def _check_vector(problem: Problem, method: str, found: Any) -> None:
    """Check that a method returned finite float64 parameters (size,)."""
    advice = "layout.pack(...) makes it of named parts"
    _check_shape(problem, method, found, (problem.layout.size,), advice)
    if found.dtype != np.float64:
        _fail(problem, method, f"expected float64, found {found.dtype}; convert it")
    for name, span in _spans(problem).items():
        bad = found[span][~np.isfinite(found[span])]
        if len(bad):
            _fail(
                problem, method,
                f"expected finite numbers, found {bad[0]} in part {name}; guard the "
                "division or logarithm there",
            )  # fmt: skip


def _check_untouched(
    problem: Problem, method: str, name: str, now: Matrix, before: Matrix
) -> None:
    if _differ(now, before):
        sentence = f"expected {name} not to change, found it modified; make a copy"
        _fail(problem, method, sentence)


def _init(problem: Problem, seed: int) -> Vector:
    theta = problem.init(np.random.default_rng(seed))
    _check_vector(problem, "init", theta)
    if _differ(theta, problem.init(np.random.default_rng(seed))):
        _fail(
            problem, "init",
            "expected the same point from the same seed, found another; draw only from "
            "the rng that is passed",
        )  # fmt: skip
    return theta


def _take_step(
    problem: Problem,
    theta: Vector,
    centre: Vector,
    weight: float,
    fixed: Sequence[str],
) -> ProxStep:
    """Take a proximal step, and check it without using f."""
    old, aim = theta.copy(), centre.copy()
    stats = problem.expect(theta)
    _check_untouched(problem, "expect", "theta", theta, old)
    result = problem.prox(theta, stats, centre, weight)
    _check_untouched(problem, "prox", "theta", theta, old)
    _check_untouched(problem, "prox", "centre", centre, aim)
    _check_vector(problem, f"prox with weight {weight:g}", result)
    for name, array in (("theta", theta), ("centre", centre)):
        if np.shares_memory(result, array):
            _fail(
                problem, "prox", "expected a new array, found one that shares memory "
                f"with {name}; return a copy",
            )  # fmt: skip
    kept = result.copy()
    if _differ(problem.prox(theta, problem.expect(theta), centre, weight), kept):
        _fail(
            problem, "prox", "expected the same bits from the same arguments, found "
            "other bits the second time; keep no state and draw nothing at random",
        )  # fmt: skip
    problem.prox(kept.copy(), stats, 2.0 * centre, weight + 1.0)
    if _differ(result, kept):
        _fail(
            problem, "prox", "expected a new array, found that the result changed "
            "when prox was called again; return a new array each time",
        )  # fmt: skip
    views, before = problem.layout.views(result), problem.layout.views(old)
    for name in fixed:
        if _differ(getattr(views, name), getattr(before, name)):
            _fail(
                problem, "prox", f"expected the fixed part {name} not to change, "
                "found another value; keep it, or leave it out of fixed",
            )  # fmt: skip
    return ProxStep(problem, theta, stats, centre, weight, result)


def _check_objectives(step: ProxStep, rows: Matrix) -> None:
    """Check that the value of each row depends on this row alone."""
    problem, stats, given = step.problem, step.stats, rows.copy()
    values = problem.objectives(rows, stats)
    _check_untouched(problem, "objectives", "thetas", rows, given)
    advice = "return f of each row of thetas"
    _check_shape(problem, "objectives", values, (len(rows),), advice)
    bad = values[~np.isfinite(values)]
    if len(bad):
        _fail(
            problem, "objectives", "expected finite values at the results of init and "
            f"prox, found {bad[0]}; look for a logarithm or a division",
        )  # fmt: skip
    calls: dict[str, Callable[[], Any]] = {
        "alone": lambda: [problem.objectives(row[None], stats)[0] for row in rows],
        "in another order": lambda: problem.objectives(rows[::-1], stats)[::-1],
        "when asked again": lambda: problem.objectives(rows, stats),
    }
    for how, ask in calls.items():
        again = np.array(ask())
        far = np.abs(again - values) > 1e-9 * (1.0 + np.abs(values))
        if far.any():
            _fail(
                problem, "objectives",
                f"expected the value {values[far][0]:.6g} of a row whatever the other "
                f"rows, found {again[far][0]:.6g} {how}; sum over the last axis only, "
                "and keep no state",
            )  # fmt: skip


def _check_hold(problem: Problem, visited: Sequence[Vector]) -> None:
    """Check that the result approaches the centre as the weight grows."""
    theta, centre, held = visited[-1], visited[-2], problem.layout.pull > 0.0
    scale = float(np.abs(centre).max()) or 1.0
    for weight in HUGE:
        result = problem.prox(theta, problem.expect(theta), centre.copy(), weight)
        _check_vector(problem, f"prox with weight {weight:g}", result)
        apart = float(np.abs(result - centre)[held].max(initial=0.0))
        if apart <= 1e-6 * scale:
            return
    _fail(
        problem, "prox", "expected the result to approach centre as weight grows, "
        f"found it {apart:.3g} away with weight {HUGE[-1]:g}; scale the proximal term "
        "by weight",
    )  # fmt: skip


def _directions(
    point: Vector, span: slice, visited: Sequence[Vector], rng: np.random.Generator
) -> Matrix:
    """Return unit vectors within a part: axes, random, and towards visited points.

    Directions towards visited points stay inside a convex domain.
    """
    size = span.stop - span.start
    axes = np.arange(size) if size <= MOST else rng.choice(size, MOST, replace=False)
    n_mixed = min(size, MOST // 4) if size > 1 else 0
    rows = np.zeros((len(axes) + n_mixed, size))
    rows[np.arange(len(axes)), axes] = 1.0
    rows[len(axes) :] = rng.standard_normal((n_mixed, size))
    rows = np.vstack([rows, -rows, *[(v - point)[None, span] for v in visited]])
    lengths = np.linalg.norm(rows, axis=1)
    found = np.zeros((len(rows), len(point)))
    found[:, span] = rows / np.maximum(lengths, np.finfo(float).tiny)[:, None]
    kept: Matrix = found[lengths > 0.0]
    return kept


def _check_stack(
    problem: Any, visited: Sequence[Vector], rng: np.random.Generator
) -> None:
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
        alone = {
            "prox": (
                results[k],
                problem.prox(thetas[k], stats, centres[k], weights[k]),
            ),
            "objectives": (values[k], problem.objectives(rows[k], stats)),
        }
        for method, both in alone.items():
            if _differ(*both):
                _fail(
                    problem, "stack", f"expected the same bits from {method} of a "
                    "stack and of a problem alone, found others",
                )  # fmt: skip


def _check_coordinates(
    problem: Any, visited: Sequence[Vector], rng: np.random.Generator
) -> Any:
    """Check that the problem in z has the same f, and rows below its curvature.

    Return the problem in z, theta = T z, of a random T.
    """
    p = problem.layout.size
    T = rng.standard_normal((p, p)) + 2.0 * np.eye(p)
    inner = problem.within(T)
    if inner.layout.size != p or inner.layout.private or inner.layout.scales:
        _fail(
            problem, "within", f"expected a problem of {p} parameters, none of them "
            f"private or scaled, found {inner.layout}",
        )  # fmt: skip
    largest = 0.0
    for theta in visited:
        z = np.linalg.solve(T, theta)
        point = problem.theta_of(T, z)
        if not np.allclose(point, T @ z, rtol=1e-9, atol=1e-9 * np.abs(theta).max()):
            _fail(problem, "theta_of", f"expected T z, found {point} at z = {z}")
        mine = float(problem.objectives(point[None], problem.expect(point))[0])
        other = float(inner.objectives(z[None], inner.expect(z))[0])
        largest = max(abs(mine), abs(other), largest)
        if abs(mine - other) > 1e-8 * largest:
            _fail(
                problem, "within", "expected the same f, found "
                f"{mine:.9g} at theta and {other:.9g} at z with theta = T z",
            )  # fmt: skip
        _check_curvature(problem, theta, rng)
    return inner


def _check_curvature(problem: Any, theta: Vector, rng: np.random.Generator) -> None:
    """Check that |F d|^2 does not exceed the curvature along random directions d."""
    radius = BEND_STEP * max(float(np.sqrt(np.mean(theta**2))), BEND_STEP)
    rows, stats = problem.rows(theta, radius), problem.expect(theta)
    for _ in range(BENDS):
        direction = rng.standard_normal(len(theta))
        direction /= np.linalg.norm(direction)
        line = theta + radius * direction * np.array([[-1.0], [0.0], [1.0]])
        values = problem.objectives(line, stats)
        bend = float(values @ [1.0, -2.0, 1.0]) / radius**2
        noise = 1e3 * EPS * float(np.abs(values) @ [1.0, 2.0, 1.0]) / radius**2
        claimed = float(np.sum((rows @ direction) ** 2))
        if claimed > (1.0 + 1e-6) * bend + noise:
            _fail(
                problem, "rows", f"expected |F d|^2 to be at most the curvature of f "
                f"along d, found {claimed:.6g}, and {bend:.6g} by differences of f",
            )  # fmt: skip
