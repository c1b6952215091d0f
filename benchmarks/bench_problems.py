"""What does a node's iteration cost, by problem and by size?

    python -m benchmarks.bench_problems [--quick]

Prints ratios, each within one run: an iteration of D-PPCA with missing entries over one
with all entries, and an iteration of least squares and ridge with many rows over one
with 100. Candidates take turns after every iteration, and medians are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from benchmarks.shared.commands import medians, parser_of, print_markdown, seconds_of
from dadmm.core.interfaces import Problem
from dadmm.core.threads import one_blas_thread
from dadmm.data.datasets import synthetic
from dadmm.problems import PPCA, LeastSquares, Ridge

TRIED = 3  # parameters that a node of a ring tries: its own and two neighbours'
PATTERNS = (1, 10, 100, 500)
ROWS = (100, 10_000, 1_000_000)


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


def rows(repeats: int) -> Iterator[tuple[str, str, str]]:
    for problems in groups():
        tasks = {k: partial(seconds_of, iteration(p)) for k, p in problems.items()}
        found = medians(tasks, repeats)
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
