"""Is PPCA with missing entries, and structure from motion, right from either start?

    python -m benchmarks.bench_gaps [--init NAME] [--data DIR]

Six nodes on a ring have rows of well-known and synthetic tables, of which entries are
missing: at random, or other columns at each node, for all or half of its rows. With
--data, five cameras on a ring have the tracks of each .mat file of the folder, of which
5, 10 or 30 % are removed: at random, x and y of a point in a frame together, or as
blocks, for each camera a run of points of its own in all of its frames.

A case is right if all nodes are within 1 degree, and W W' of a table within 1e-2, of EM
in one place. The angles of the worst node, and of EM in one place, to the solution
without gaps show how far the gaps themselves move the result.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import dadmm
from benchmarks.paper_tracks import CAMERAS, check
from benchmarks.shared.commands import parser_of, print_markdown
from dadmm.data import datasets
from dadmm.data.patterns import remove_entries
from dadmm.data.shard import split_frames
from dadmm.problems import PPCA, StructureFromMotion, metrics

NODES, STEPS, MOST = 6, 3000, 5000
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
LOSSES = (0.0, 0.05, 0.1, 0.3)  # of tracks
HEAD = ("case", "status", "angle to EM", "error of W W'", "angle to no gaps",
        "the same of EM", "iterations", "rounds")  # fmt: skip


class Case(NamedTuple):
    """Problems with gaps, W of EM in one place, and W of all entries."""

    name: str
    problems: list[Any]
    em: np.ndarray
    full: np.ndarray


def table(name: str) -> np.ndarray:
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


def tables() -> Iterator[Case]:
    for name, numbers in TABLES.items():
        rows = table(name)
        for M in numbers:
            full = metrics.ppca_reference(rows, M).W
            for way in ("random", "blocks", "half"):
                for fraction in (0.05, 0.2, 0.4):
                    gappy = without(rows, fraction, way)
                    own = [PPCA(part, M) for part in np.array_split(gappy, NODES)]
                    case = f"{name}, {M} components, {fraction:.0%} {way}"
                    yield Case(case, own, pooled_em(gappy, M), full)


def hide(tracks: np.ndarray, fraction: float) -> np.ndarray:
    """Return the tracks, from each camera of which a block of points is hidden."""
    n_points, parts = tracks.shape[1], []
    for i, rows in enumerate(split_frames(tracks, CAMERAS)):
        first = i * n_points // CAMERAS
        hidden = (first + np.arange(round(fraction * n_points))) % n_points
        rows[:, hidden] = np.nan
        parts.append(rows)
    return np.vstack(parts)


def structure(result: dadmm.Result) -> np.ndarray:
    """Return W of all cameras, each about its mean."""
    W = result.layout.views(result.theta).W
    return W - W.mean(axis=1, keepdims=True)


def lost_tracks(folder: Path) -> Iterator[Case]:
    for file in sorted(folder.glob("*.mat")):
        tracks = datasets.load_tracks(file)
        centred = tracks - tracks.mean(axis=1, keepdims=True)
        full = metrics.ppca_reference(centred, 3, zero_mean=True).W
        for loss in LOSSES:
            ways = {"random": remove_entries(tracks, loss, 0, together=2)}
            ways |= {"blocks": hide(tracks, loss)} if loss else {}
            for way, gappy in ways.items():
                stop = dadmm.Stopping(tolerance=0, max_iter=1000)
                alone = dadmm.solve(
                    [StructureFromMotion(gappy)], dadmm.Topology.chain(1),
                    init="shared", stopping=stop, record=False,
                )  # fmt: skip
                own = [StructureFromMotion(x) for x in split_frames(gappy, CAMERAS)]
                case = f"{file.stem}, {loss:.0%} {way if loss else ''}".strip()
                yield Case(case, own, structure(alone)[0], full)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--init", help="default: what the problem chooses")
    parser.add_argument("--data", type=Path, help="folder of tracks, .mat files")
    given = parser.parse_args()
    if given.data:
        names = sorted(file.stem for file in given.data.glob("*.mat"))
        check(given.data, names, "caltech")
    lines, right, said = [], 0, 0
    for name, problems, em, full in lost_tracks(given.data) if given.data else tables():
        ring, stop = dadmm.Topology.ring(len(problems)), dadmm.Stopping(max_iter=MOST)
        result = dadmm.solve(
            problems, ring, init=given.init, stopping=stop, record=False
        )
        W = structure(result) if given.data else result.layout.views(result.theta).W
        want = em @ em.T
        angle = metrics.subspace_angle(W, em).max()
        off = np.linalg.norm(W @ W.mT - want, axis=(1, 2)).max() / np.linalg.norm(want)
        is_right = angle < 1.0 and (given.data or off < 1e-2)
        right += result.converged and is_right
        said += result.converged and not is_right
        moved = [metrics.subspace_angle(each, full).max() for each in (W, em[None])]
        cells = [f"{angle:.4f}", f"{off:.1e}", *(f"{each:.2f}" for each in moved)]
        rounds = result.start.rounds if result.start else ""
        lines.append([name, result.status, *cells, f"{result.iterations}", f"{rounds}"])
    print_markdown(HEAD, lines)
    middle = np.median([int(line[-2]) for line in lines])
    print(
        f"\n{len(lines)} cases: {right} right, {said} wrong but called stationary; "
        f"{middle:g} iterations in the median"
    )


if __name__ == "__main__":
    main()
