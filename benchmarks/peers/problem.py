"""The one problem that every program here solves: least squares on a ring of nodes.

Needs numpy alone, so that it loads in everybody's environment.
"""

from __future__ import annotations

import numpy as np

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
    """Return the minimiser of ``sum_i 1/2 |X_i w - y_i|^2``, shape (UNKNOWNS,).

    In closed form, by the normal equations of all rows together.
    """
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
