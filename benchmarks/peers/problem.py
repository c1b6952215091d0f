"""What all programs here share: least squares on a ring of nodes, and rows of runs.

Needs numpy alone, so that it loads in everybody's environment.
"""

import os
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

CORES = len(os.sched_getaffinity(0))
NODES, ROWS, UNKNOWNS = 20, 25, 10
NOISE = 0.1


def shard(node: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of one node, X (ROWS, UNKNOWNS) and y (ROWS,).

    All nodes measure the same coefficients, each with rows and noise of its own.
    """
    truth = np.random.default_rng([seed, 0]).standard_normal(UNKNOWNS)
    rng = np.random.default_rng([seed, 1, node])
    X = rng.standard_normal((ROWS, UNKNOWNS))
    return X, X @ truth + NOISE * rng.standard_normal(ROWS)


def neighbours(node: int, nodes: int = NODES) -> list[int]:
    """Return the neighbours of a node of the ring in order; two nodes share an edge."""
    return sorted({(node - 1) % nodes, (node + 1) % nodes} - {node})


def optimum(nodes: int = NODES, seed: int = 0) -> np.ndarray:
    """Return the minimiser of ``sum_i 1/2 |X_i w - y_i|^2``, shape (UNKNOWNS,)."""
    gram, pull = np.zeros((UNKNOWNS, UNKNOWNS)), np.zeros(UNKNOWNS)
    for node in range(nodes):
        X, y = shard(node, seed)
        gram += X.T @ X
        pull += X.T @ y
    return np.linalg.solve(gram, pull)


def error(points: np.ndarray, best: np.ndarray) -> np.ndarray:
    """Return the worst distance, (...), of points (..., nodes, UNKNOWNS); relative."""
    apart = np.linalg.norm(points - best, axis=-1)
    return apart.max(axis=-1) / np.linalg.norm(best)


def row(
    program: str, method: str, setting: float | None, nodes: int, iterations: int,
    packages: Sequence[str], points: Any = None, **measured: Any,
) -> dict[str, Any]:  # fmt: skip
    """Return a run as a row, with versions of packages.

    ``points`` are all iterates, (iterations, nodes, UNKNOWNS), if they were kept.
    """
    found = {"program": program, "method": method, "setting": setting, "nodes": nodes}
    found |= {"iterations": iterations, **measured}
    if points is not None:
        found["errors"] = error(np.array(points), optimum(nodes)).tolist()
    return found | {"versions": versions(packages)}


def versions(packages: Sequence[str]) -> dict[str, str]:
    found = {}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def gathered(comm: Any, points: Any) -> np.ndarray:
    """Return the iterates of all ranks from those of each, (iterations, UNKNOWNS)."""
    return np.stack(comm.allgather(np.array(points)), axis=1)


def busy_seconds() -> float:
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    user, nice, system, _, _, irq, soft = map(int, words[1:8])
    return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")


class Watch:
    """Measures, from its making on, what others use of the cores."""

    def __init__(self) -> None:
        self._start, self._own = perf_counter(), process_time()
        self._busy = busy_seconds()

    def own(self) -> float:
        return process_time() - self._own

    def share(self, own: float) -> float:
        others = busy_seconds() - self._busy - own
        return others / (perf_counter() - self._start) / CORES
