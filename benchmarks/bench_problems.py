"""What does a node's iteration cost, by problem and by size?

    python -m benchmarks.bench_problems [--quick]

Prints ratios, each within one run: an iteration of D-PPCA with missing entries over one
with all entries, of least squares and ridge with many rows over one with 100, and of a
problem of cvxpy that is compiled in every iteration over `Cvxpy`, which compiles it
once. Candidates take turns after every iteration, and medians are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import cvxpy as cp
import numpy as np

from benchmarks.shared.commands import medians, parser_of, print_markdown, seconds_of
from dadmm.core.interfaces import Problem
from dadmm.core.threads import one_blas_thread
from dadmm.data.datasets import synthetic
from dadmm.problems import PPCA, Cvxpy, LeastSquares, Ridge

TRIED = 3  # parameters that a node of a ring tries: its own and two neighbours'
PATTERNS = (1, 10, 100, 500)
ROWS = (100, 10_000, 1_000_000)
SIZES = ((20, 5), (200, 30))  # rows and columns of problems of cvxpy


def iteration(problem: Problem, weight: float = 3.0) -> Callable[[], None]:
    """Return one iteration of a node of a ring, without the network."""
    theta = problem.init(np.random.default_rng(0))
    rows = np.array([theta] * TRIED)

    def work() -> None:
        stats = problem.expect(theta)
        problem.prox(theta, stats, theta, weight)
        problem.objectives(rows, stats)

    return work


def with_patterns(samples: np.ndarray, number: int) -> np.ndarray:
    """Return samples of which each lacks two entries, in so many patterns."""
    rng, dimension = np.random.default_rng(0), samples.shape[1]
    drawn: dict[tuple[int, ...], None] = {}
    while len(drawn) < number:
        size = 2 if number <= dimension * (dimension - 1) // 4 else 3
        drawn[tuple(sorted(rng.choice(dimension, size, replace=False)))] = None
    lost = np.array(list(drawn))[np.arange(len(samples)) % number]
    samples = samples.copy()
    np.put_along_axis(samples, lost, np.nan, axis=1)
    return samples


class Recompiled(Cvxpy):
    """The same steps, compiled each time."""

    def __init__(self, problem: cp.Problem, variable: cp.Variable) -> None:
        super().__init__(problem, [variable])
        self.problem, self.variable = problem, variable

    def prox(self, theta: Any, stats: Any, centre: Any, weight: float) -> np.ndarray:
        pull = 0.5 * weight * cp.sum_squares(self.variable - centre)
        objective = cp.Minimize(self.problem.objective.expr + pull)
        cp.Problem(objective, self.problem.constraints).solve(solver=cp.CLARABEL)
        return np.array(self.variable.value)


def of_cvxpy(n: int, d: int) -> Iterator[tuple[str, cp.Problem, cp.Variable]]:
    """Yield problems with n rows and d columns."""
    rng, w = np.random.default_rng(0), cp.Variable(d)
    X, y = rng.standard_normal((n, d)), rng.standard_normal(n)
    squares, ball = 0.5 * cp.sum_squares(X @ w - y), [cp.norm(w) <= 1]
    yield "lasso", cp.Problem(cp.Minimize(squares + cp.norm1(w))), w
    yield "nonnegative least squares", cp.Problem(cp.Minimize(squares), [w >= 0]), w
    yield "least squares in a ball", cp.Problem(cp.Minimize(squares), ball), w
    yield "norm of residuals", cp.Problem(cp.Minimize(cp.norm(X @ w - y)), ball), w
    yield "huber", cp.Problem(cp.Minimize(cp.sum(cp.huber(X @ w - y)))), w
    losses = cp.sum(cp.logistic(cp.multiply(np.sign(y), X @ w)))
    yield "logistic", cp.Problem(cp.Minimize(losses)), w


def groups() -> Iterator[dict[str, Problem]]:
    """Yield problems to compare with the first of their group."""
    samples, _ = synthetic()  # N = 500, D = 20
    found: dict[str, Problem] = {"D-PPCA, all entries": PPCA(samples, 5)}
    for number in PATTERNS:
        name = f"D-PPCA, {number} pattern{'s' * (number > 1)} of missing entries"
        found[name] = PPCA(with_patterns(samples, number), 5)
    yield found
    for kind in (LeastSquares, Ridge):
        rng, found = np.random.default_rng(0), {}
        for n in ROWS:
            X, y = rng.standard_normal((n, 20)), rng.standard_normal(n)
            found[f"{kind.__name__}, {n:,} rows"] = kind(X, y, fit_intercept=False)
        yield found
    for n, d in SIZES:
        for name, problem, w in of_cvxpy(n, d):
            name = f"Cvxpy, {name}, {n} rows, {d} columns"
            again = f"{name}, compiled each time"
            yield {name: Cvxpy(problem, [w]), again: Recompiled(problem, w)}


def rows(repeats: int) -> Iterator[tuple[str, str, str]]:
    for problems in groups():
        tasks = {k: partial(seconds_of, iteration(p)) for k, p in problems.items()}
        slow = any(isinstance(problem, Cvxpy) for problem in problems.values())
        found = medians(tasks, repeats // 20 if slow else repeats)
        first = next(iter(found.values()))
        for name, value in found.items():
            yield name, f"{1e6 * value:.0f}", f"{value / first:.2f}"


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    repeats = 100 if parser.parse_args().quick else 2000
    with one_blas_thread():
        head = ("a node's iteration", "microseconds", "ratio")
        print_markdown(head, rows(repeats))


if __name__ == "__main__":
    main()
