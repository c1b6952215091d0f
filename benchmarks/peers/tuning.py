"""With which penalty, or step, does each method do best on the ring?

    python -m benchmarks.peers.tuning

Each method with a setting is given the best one, so that no comparison rests on a bad
choice. disropt's two methods and mpi-sppy's progressive hedging are modelled here in
numpy, from the formulas in their documentation, since the search needs thousands of
iterations; `compare.py` runs them themselves with what is found, and the errors agree
with the model's.
"""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from benchmarks.peers import problem, rows

CAP = 3000  # iterations
GRID = 10.0 ** (np.arange(-20, 21) / 10)

Model = Callable[[float], Iterator[np.ndarray]]  # setting to iterates (nodes, UNKNOWNS)


def quadratics(nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return X'X (nodes, UNKNOWNS, UNKNOWNS) and X'y (nodes, UNKNOWNS)."""
    shards = [problem.shard(node) for node in range(nodes)]
    grams, pulls = zip(*((X.T @ X, X.T @ y) for X, y in shards), strict=True)
    return np.array(grams), np.array(pulls)


def around(nodes: int) -> np.ndarray:
    """Return each node and its neighbours as a 0/1 matrix (nodes, nodes)."""
    matrix = np.eye(nodes)
    for node in range(nodes):
        matrix[node, problem.neighbours(node, nodes)] = 1.0
    return matrix


def admm(penalty: float, nodes: int = problem.NODES) -> Iterator[np.ndarray]:
    """Yield the iterates of disropt's ADMM, which holds x_i to z_j of all around it."""
    grams, pulls = quadratics(nodes)
    near = around(nodes)
    degree = near.sum(axis=1)[:, None]
    systems = grams + penalty * degree[..., None] * np.eye(problem.UNKNOWNS)
    z = np.zeros((nodes, problem.UNKNOWNS))
    duals = np.zeros((nodes, nodes, problem.UNKNOWNS))  # of i about z_j
    while True:
        right = pulls - duals.sum(axis=1) + penalty * near @ z
        x = np.linalg.solve(systems, right[..., None])[..., 0]
        yield x
        z = (near @ x + duals.sum(axis=0) / penalty) / degree
        duals += penalty * near[..., None] * (x[:, None] - z[None])


def tracking(step: float, nodes: int = problem.NODES) -> Iterator[np.ndarray]:
    """Yield the iterates of gradient tracking with Metropolis-Hastings weights."""
    grams, pulls = quadratics(nodes)
    near = around(nodes)
    weights = near / near.sum(axis=1)[:, None]  # all degrees are equal
    x = np.zeros((nodes, problem.UNKNOWNS))
    gradient = -pulls
    tracker = gradient
    while True:
        x = weights @ x - step * tracker
        previous, gradient = gradient, np.einsum("nij,nj->ni", grams, x) - pulls
        tracker = weights @ tracker + gradient - previous
        yield x


def hedging(rho: float, nodes: int = problem.NODES) -> Iterator[np.ndarray]:
    """Yield the iterates of progressive hedging, which holds x_i to the mean of all.

    It starts from each node's own solution.
    """
    grams, pulls = quadratics(nodes)
    systems = grams + rho * np.eye(problem.UNKNOWNS)
    x = np.linalg.solve(grams, pulls[..., None])[..., 0]
    weights = np.zeros_like(x)
    while True:
        yield x
        mean = x.mean(axis=0)
        weights += rho * (x - mean)
        right = pulls - weights + rho * mean
        x = np.linalg.solve(systems, right[..., None])[..., 0]


def iterations(model: Model, setting: float) -> int | None:
    """Return when the target is met, or None if it is not until the cap."""
    best = problem.optimum()
    for t, x in enumerate(model(setting), 1):
        off = problem.error(x, best)
        if off < rows.TARGET:
            return t
        if t == CAP or not off < 1e6:
            return None
    return None


def dadmm_iterations(setting: float) -> int | None:
    """Return the same for dadmm with a fixed penalty, by dadmm itself."""
    from benchmarks.peers.dadmm_ring import run

    return rows.first(run("fixed", setting, CAP, count=True)["errors"], rows.TARGET)


def main() -> None:
    counts: dict[str, tuple[float, Callable[[float], int | None]]] = {
        "disropt admm": (1.0, partial(iterations, admm)),
        "disropt tracking": (0.01, partial(iterations, tracking)),
        "mpi-sppy ph": (1.0, partial(iterations, hedging)),
        "dadmm fixed": (1.0, dadmm_iterations),
    }
    for name, (unit, count) in counts.items():
        found = {unit * setting: count(unit * setting) for setting in GRID.tolist()}
        met = {setting: n for setting, n in found.items() if n}
        best = min(met, key=lambda setting: met[setting])
        near = {f"{s:.3g}": n for s, n in met.items() if n < 3 * met[best]}
        print(f"{name}: {best:.3g} in {met[best]} iterations; {near}")


if __name__ == "__main__":
    main()
