"""Is PPCA with missing entries, and structure from motion, right from either start?

    python -m benchmarks.bench_gaps [--init NAME] [--data DIR]

Six nodes on a ring have rows of well-known and synthetic tables, of which entries are
missing: at random, or other columns at each node, for all or half of its rows. With
--data, five cameras on a ring and a complete graph have the complete tracks of each
.mat file of the folder. A case is right if all nodes are within 1 degree, and W W'
within 1e-2, of EM in one place, or for complete tracks of the solution of all rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

import dadmm
from benchmarks.shared.commands import parser_of, print_markdown
from benchmarks.shared.tracks import CAMERAS, cameras
from dadmm.problems import PPCA, metrics

NODES, STEPS = 6, 3000
TABLES = {  # components
    "wine": (1, 2, 3), "wine, standardised": (2,), "breast_cancer": (2, 3),
    "breast_cancer, standardised": (3,), "iris": (1, 2), "diabetes": (2,),
    "20 columns": (5,), "20, noise 1e-2": (3,), "12, noise 1e-4": (3,),
    "40 columns": (3,), "10, noise 1": (2,),
}  # fmt: skip
SYNTHETIC = {  # columns, components, rows, noise
    "20 columns": (20, 5, 400, 0.5), "20, noise 1e-2": (20, 3, 300, 0.01),
    "12, noise 1e-4": (12, 3, 300, 1e-4), "40 columns": (40, 3, 200, 0.3),
    "10, noise 1": (10, 2, 200, 1.0),
}  # fmt: skip
HEAD = ("case", "status", "angle", "error of W W'", "iterations", "rounds")


def table(name: str) -> np.ndarray:
    """Return the rows of a table, in some order."""
    if name in SYNTHETIC:
        D, M, n, noise = SYNTHETIC[name]
        rng = np.random.default_rng(1)
        rows = rng.normal(size=(n, M)) * np.arange(M, 0, -1)
        rows = 0.5 * rows @ rng.normal(size=(M, D)) + noise * rng.normal(size=(n, D))
        rows += 3.0 * rng.normal(size=D)
    else:
        from sklearn import datasets

        rows = getattr(datasets, f"load_{name.split(',')[0]}")().data
        if "standardised" in name:
            rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    return rows[np.random.default_rng(3).permutation(len(rows))]


def without(rows: np.ndarray, fraction: float, way: str) -> np.ndarray:
    """Return rows without a fraction of their entries."""
    if way == "random":
        lost = np.random.default_rng([0, 7]).random(rows.shape) < fraction
        return np.where(lost, np.nan, rows)
    (n, D), found = rows.shape, rows.copy()
    for i, own in enumerate(np.array_split(np.arange(n), NODES)):
        lost = (i * D // NODES + np.arange(max(1, round(fraction * D)))) % D
        found[np.ix_(own[:: 2 if way == "half" else 1], lost)] = np.nan
    return found


def pooled_em(rows: np.ndarray, M: int) -> np.ndarray:
    """Return W of EM in one place, in which missing entries are latent."""
    rows = rows[~np.isnan(rows).all(axis=1)]
    known, (n, D) = ~np.isnan(rows), rows.shape
    both_lost = ~known[:, :, None] & ~known[:, None, :]
    mu = np.nanmean(rows, axis=0)

    def fit(covariance: np.ndarray) -> tuple[np.ndarray, float]:
        values, axes = np.linalg.eigh(covariance)
        noise = values[:-M].mean()
        return axes[:, -M:] * np.sqrt(np.maximum(values[-M:] - noise, 0.0)), noise

    filled = np.where(known, rows - mu, 0.0)
    W, noise = fit(filled.T @ filled / n)
    for _ in range(STEPS):
        inner = np.linalg.inv((known[:, :, None] * W).mT @ W + noise * np.eye(M))
        centred = np.where(known, rows - mu, 0.0)
        z = (inner @ (centred[:, None, :] @ W).mT)[:, :, 0]
        filled = np.where(known, rows, mu + z @ W.T)
        spread = np.where(both_lost, noise * (np.eye(D) + W @ inner @ W.T), 0.0)
        mu, before = filled.mean(axis=0), W @ W.T
        between = (filled - mu).T @ (filled - mu)
        W, noise = fit((between + spread.sum(axis=0)) / n)
        if np.linalg.norm(W @ W.T - before) < 1e-7 * np.linalg.norm(before):
            break
    return W


def tasks(
    folder: Path | None,
) -> Iterator[tuple[str, list, dadmm.Topology, np.ndarray]]:
    """Yield the name, problems, graph and right W of each case."""
    for file in sorted(folder.glob("*.mat")) if folder else ():
        problems = cameras(file)
        rows = np.vstack([problem.rows for problem in problems])
        best = metrics.ppca_reference(rows, 3, zero_mean=True)
        for graph in ("ring", "complete"):
            built = getattr(dadmm.Topology, graph)(CAMERAS)
            yield f"{file.stem}, {graph}", problems, built, best.W
    for name, numbers in TABLES.items() if folder is None else ():
        rows = table(name)
        for M in numbers:
            for way in ("random", "blocks", "half"):
                for fraction in (0.05, 0.2, 0.4):
                    gappy = without(rows, fraction, way)
                    own = [PPCA(part, M) for part in np.array_split(gappy, NODES)]
                    case = f"{name}, {M} components, {fraction:.0%} {way}"
                    ring = dadmm.Topology.ring(NODES)
                    yield case, own, ring, pooled_em(gappy, M)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--init", help="default: that of the problem")
    parser.add_argument("--data", type=Path, help="folder of tracks, .mat files")
    chosen = parser.parse_args()
    lines, right, said = [], 0, 0
    for name, problems, graph, best in tasks(chosen.data):
        result = dadmm.solve(problems, graph, init=chosen.init, record=False)
        W, want = result.layout.views(result.theta).W, best @ best.T
        angle = metrics.subspace_angle(W, best).max()
        off = np.linalg.norm(W @ W.mT - want, axis=(1, 2)).max() / np.linalg.norm(want)
        is_right = angle < 1.0 and off < 1e-2
        right += result.converged and is_right
        said += result.converged and not is_right
        rounds = result.start.rounds if result.start else ""
        cells = [result.status, f"{angle:.4f}", f"{off:.1e}", f"{result.iterations}"]
        lines.append([name, *cells, f"{rounds}"])
    print_markdown(HEAD, lines)
    middle = np.median([int(line[4]) for line in lines])
    print(
        f"\n{len(lines)} cases: {right} right, {said} wrong but called stationary; "
        f"{middle:g} iterations in the median"
    )


if __name__ == "__main__":
    main()
