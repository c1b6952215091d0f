"""What ranks send, searched for what they hold: one line of JSON per case.

Usage: privacy.py, on four ranks in a folder of its own; every rank has a file of its
own rows.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import recording
from mpi4py import MPI

from dadmm import Topology, problems, run
from dadmm import sklearn as estimators
from dadmm.comm.world import World
from tests.support.solving import solve

RANK, SIZE = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
ITERATIONS = 8
PRECISION = 1e-11  # relative, to which a double that was sent is one that is held


Job = Callable[[], Any]


def rows(n: int, width: int, seed: int) -> list[np.ndarray]:
    """Return continuous rows of each rank, in columns of unlike unit and level."""
    rng = np.random.default_rng([seed, 77])
    mix = rng.standard_normal((width, width)) + 2.0 * np.eye(width)
    unit, level = rng.uniform(0.5, 3.0, width), rng.standard_normal(width)
    return [rng.standard_normal((n, width)) @ mix * unit + level for _ in range(SIZE)]


def cases(world: recording.Comm) -> Iterator[tuple[str, list[np.ndarray], Job]]:
    """Yield names, rows of all ranks that must stay, and what is done with them."""
    tall, wide, table = rows(9, 4, 1), rows(5, 8, 2), rows(10, 4, 3)
    holes = np.random.default_rng(4).random((SIZE, 9, 4)) < 0.1
    holed = [np.where(own, np.nan, x) for own, x in zip(holes, tall, strict=True)]
    signs = [np.column_stack([t[:, :-1], t[:, -1] > t[:, -1].mean()]) for t in table]
    inputs = [t[:, :-1] for t in table]
    two = "--n-components 2"
    for name, words, blocks in (
        ("ppca", two, tall),
        ("ppca gaps", two, holed),
        ("ppca without", f"{two} --no-summaries", tall),
        ("ppca wide", two, wide),
        ("ppca asked", f"{two} --compare-centralised", tall),
        ("ppca float32", f"{two} --payload float32", tall),
        ("ppca global", f"{two} --agreement global --record-edges", tall),
        ("least_squares", "", table),
        ("least_squares without", "--no-summaries", table),
        ("logistic without", "--no-summaries", signs),
        ("ridge", "", table),
        ("lasso", "", table),
        ("elastic_net", "", table),
        ("huber", "", table),
        ("logistic", "", signs),
        ("logistic plain", "--alpha 0", signs),
        ("multinomial", '--problem-settings {"n_classes":2}', signs),
        ("poisson", "", signs),
    ):
        known = inputs if blocks is signs else blocks
        yield f"run {name}", known, partial(command, name, words, blocks[RANK])
    tracks = rows(6, 8, 5)
    lost = [x.copy() for x in tracks]
    for own in lost:
        own[2:4, 3] = np.nan
    for name, blocks, init, start in (
        ("sfm random", tracks, "shared", "random"),
        ("sfm lost tracks random", lost, "shared", "random"),
        ("sfm frame", tracks, "shared", "frame"),
        ("sfm merged", tracks, "merged", "frame"),
        ("sfm lost tracks merged", lost, "merged", "frame"),
    ):
        yield name, blocks, partial(cameras, world, blocks[RANK], init, start)
    for name in estimators.__all__:
        model = getattr(estimators, name)(comm=world, max_iter=ITERATIONS)
        if name in ("LogisticRegression", "PoissonRegressor"):
            yield f"sklearn {name}", inputs, partial(fit, model, signs[RANK])
        else:
            yield f"sklearn {name}", table, partial(fit, model, table[RANK])
        if name == "PPCA":
            yield "sklearn PPCA gaps", holed, partial(fit, model, holed[RANK])
    yield "planted", tall, partial(leak, world, tall[RANK])


def command(name: str, words: str, own: np.ndarray) -> None:
    """Run the command line on this rank's own file."""
    file = name.replace(" ", "-")
    np.save(f"{file}-{RANK}.npy", own)
    words += f" --problem {name.split()[0]} --data {file}-{{rank}}.npy --topology ring"
    words += f" --tolerance 0 --max-iter {ITERATIONS} --out run-{file}"
    quiet = [] if name.endswith("asked") else ["--quiet"]
    assert run.main([*words.split(), *quiet]) == 0


def cameras(world: recording.Comm, own: np.ndarray, init: str, start: str) -> None:
    """Find structure from motion, with this rank's own frames."""
    problem = problems.StructureFromMotion(own, start=start)
    settings = {"tolerance": 0.0, "max_iter": ITERATIONS, "init": init}
    solve(problem, Topology.ring(SIZE), comm=world, **settings)


def fit(model: Any, own: np.ndarray) -> None:
    """Fit an estimator to this rank's own rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that so few iterations are not enough
        supervised = not isinstance(model, estimators.PPCA)
        model.fit(*(own[:, :-1], own[:, -1]) if supervised else (own,))


def leak(world: recording.Comm, own: np.ndarray) -> None:
    """Leak in four ways, each by one rank, and try other ways."""
    World(world).gather(own[:1] if RANK == 1 else np.empty((0, 4)))
    centred = (own - own.mean(axis=0))[3]
    half = world.Split(RANK % 2, key=RANK)
    half.Ibcast(centred.astype(np.float32), root=0).Wait()
    data, box = np.zeros(36, np.uint8), np.zeros(36, np.uint8)
    pair = world.Dup()
    requests = [pair.real.Recv_init(box, source=(RANK - 1) % SIZE)]
    requests += [pair.Send_init(data, (RANK + 1) % SIZE)]
    if RANK == 3:  # after the request was made, and not at a multiple of 8
        data[4:] = (own[5] / own.std(axis=0)).view(np.uint8)
    recording.start_all(requests)
    MPI.Request.Waitall(requests)
    for other, name in ((pair, "Issend"), (world, "allgather"), (half, "Alltoall")):
        assert not hasattr(other, name), name


def entries(blocks: list[np.ndarray]) -> np.ndarray:
    """Return the absolute values of all that must not be sent, sorted.

    That is each entry, raw or less the mean of its column (of all nodes or of its
    own) or of its row, in units of the data or of the column's standard deviation (of
    all nodes or of its own).
    """
    whole = np.vstack(blocks)
    mean, scale = np.nanmean(whole, axis=0), np.nanstd(whole, axis=0)
    found = []
    for own in blocks:
        levels = (0.0, mean, np.nanmean(own, axis=0), np.nanmean(own, 1, keepdims=True))
        for level in levels:
            for measure in (1.0, scale, np.nanstd(own, axis=0)):
                found.append(((own - level) / measure).ravel())
    return _sorted(found)


def summaries(blocks: list[np.ndarray]) -> np.ndarray:
    """Return the absolute values of exact summaries of a node's rows, sorted."""
    found = []
    for own in blocks:
        if np.isnan(own).any():
            continue
        centred = own - own.mean(axis=0)
        found += [own.mean(axis=0), own.sum(axis=0), own.T @ own, centred.T @ centred]
        found += [np.linalg.qr(own, mode="r"), np.linalg.qr(centred, mode="r")]
    return _sorted(found)


def _sorted(found: list[np.ndarray]) -> np.ndarray:
    flat = np.abs(np.concatenate([np.empty(0), *map(np.ravel, found)]))
    return np.sort(flat[np.isfinite(flat) & (flat > 1e-9)])


def matches(tape: list[recording.Sent], held: np.ndarray) -> list[str]:
    """Return where doubles that are held were sent: the method and to whom."""
    found: set[str] = set()
    for method, to, data in tape if len(held) else ():
        for start in (0, 4):
            sent = data[start : start + (len(data) - start) // 8 * 8]
            numbers = np.abs(np.frombuffer(sent, np.float64))
            numbers = numbers[np.isfinite(numbers) & (numbers != 1.0)]
            above = np.searchsorted(held, numbers)
            same = np.zeros(len(numbers), bool)
            for near in (above - 1, above):
                other = held[np.clip(near, 0, len(held) - 1)]
                same |= np.abs(numbers - other) <= PRECISION * other
            if same.any():
                found.add(f"{method} to {to}")
    return sorted(found)


def single(tape: list[recording.Sent], held: np.ndarray) -> int:
    """Return how many numbers that are held were sent in single precision."""
    words = [np.frombuffer(data[: len(data) // 4 * 4], np.uint32) for *_, data in tape]
    plain = np.concatenate([np.empty(0, np.uint32), *words]) & 0x7FFFFFFF
    return len(np.intersect1d(plain, held.astype(np.float32).view(np.uint32)))


def main() -> None:
    """Run all cases and say what was found."""
    world = recording.install()
    for name, blocks, job in cases(world):
        world.tape.clear()
        job()
        held = entries(blocks)
        first = np.array([b[0] - np.nanmean(b[0]) + 0.1 for b in blocks])
        mine = {
            "bytes": sum(len(sent.data) for sent in world.tape),
            "entries": matches(world.tape, held),
            "single": single(world.tape, held),
            "summaries": matches(world.tape, summaries(blocks)),
            "shifted": matches(world.tape, _sorted([first])),
        }
        everyone = MPI.COMM_WORLD.gather(mine)
        if RANK == 0:
            sys.__stdout__.write(json.dumps({"case": name, "ranks": everyone}) + "\n")
            sys.__stdout__.flush()


if __name__ == "__main__":
    main()
