"""What does a node's iteration cost, by problem and by size?

    python -m benchmarks.bench_problems [--quick]

Prints ratios, each within one run: an iteration of D-PPCA with missing entries over one
with all entries, and an iteration of least squares and ridge with many rows over one
with 100. Candidates take turns after every iteration, and medians are compared.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from statistics import median
from time import perf_counter

import numpy as np

from dadmm.core.interfaces import Problem
from dadmm.core.threads import one_blas_thread
from dadmm.data.datasets import synthetic
from dadmm.problems import PPCA, LeastSquares, Ridge

TRIED = 3  # parameters that a node of a ring tries: its own and two neighbours'
PATTERNS = (1, 10, 100, 500)
ROWS = (100, 10_000, 1_000_000)


def iteration(problem: Problem) -> Callable[[], None]:
    """Return one iteration of a node of a ring, without the network."""
    theta = problem.init(np.random.default_rng(0))
    rows = np.array([theta] * TRIED)

    def work() -> None:
        stats = problem.expect(theta)
        problem.prox(theta, stats, theta, 3.0)
        problem.objectives(rows, stats)

    return work


def seconds(problems: dict[str, Problem], repeats: int) -> dict[str, float]:
    """Return the median time of an iteration of each problem, taken in turns."""
    works = {name: iteration(problem) for name, problem in problems.items()}
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            start = perf_counter()
            work()
            times[name].append(perf_counter() - start)
    return {name: median(values) for name, values in times.items()}


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


def missing(repeats: int) -> list[tuple[str, float, float]]:
    """Return rows (name, microseconds, ratio) of D-PPCA at N = 500, D = 20, M = 5."""
    samples, _ = synthetic()
    problems: dict[str, Problem] = {"D-PPCA, all entries": PPCA(samples, 5)}
    for number in PATTERNS:
        name = f"D-PPCA, {number} pattern{'s' * (number > 1)} of missing entries"
        problems[name] = PPCA(with_patterns(samples, number), 5)
    return ratios(seconds(problems, repeats))


def regression(kind: type, repeats: int) -> list[tuple[str, float, float]]:
    """Return rows (name, microseconds, ratio) of a regression with 20 columns."""
    rng, problems = np.random.default_rng(0), {}
    for n in ROWS:
        X, y = rng.standard_normal((n, 20)), rng.standard_normal(n)
        problems[f"{kind.__name__}, {n:,} rows"] = kind(X, y, fit_intercept=False)
    return ratios(seconds(problems, repeats))


def ratios(found: dict[str, float]) -> list[tuple[str, float, float]]:
    """Return each time in microseconds, and over the first."""
    first = next(iter(found.values()))
    return [(name, 1e6 * value, value / first) for name, value in found.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    repeats = 100 if parser.parse_args().quick else 2000
    print("| a node's iteration | microseconds | ratio |\n|---|---|---|")
    with one_blas_thread():
        for rows in (
            missing(repeats),
            regression(LeastSquares, repeats),
            regression(Ridge, repeats),
        ):
            for name, value, ratio in rows:
                print(f"| {name} | {value:.0f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
