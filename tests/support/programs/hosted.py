"""Runs with any number of nodes per rank give the bits of a run in one process.

Usage: hosted.py FOLDER [STEP]. Seven ranks take part; runs are on the first 1, 2, 3, 4
or 7 of them, and nodes are placed at random: with 7 ranks, each has one. Every run of
parity.py and sending.py is on 7, 3 or 2 ranks, in turn. A STEP of 1 does every run on
every number of ranks, and resumes each from each number to each other; a larger STEP
does one out of STEP. No ranks stand for a run in one process without MPI.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.testing import assert_array_equal

import dadmm
from dadmm import Checkpoints, Schedule, datasets, shard
from dadmm.graphs import topology
from dadmm.problems import PPCA, StructureFromMotion
from tests.support.problems import blocks
from tests.support.programs import parity, sending
from tests.support.solving import solve
from tests.support.tables import KINDS, table

NODES, SIZES = 7, (1, 2, 3, 4, 7)
GRAPHS = ("ring", "cluster", "star", "grid", "complete", "random-geometric", "chain")
TRACKS = shard.split_frames(datasets.turntable(n_frames=4 * NODES)[0], NODES)
MIXED = zip(table("ridge", NODES), table("huber", NODES), strict=True)
PROBLEMS = {
    "even": parity.build(NODES, uneven=False), "uneven": parity.build(NODES),
    "logistic": parity.logistic(NODES),
    "merged": [PPCA(own, 2) for own in blocks(NODES)],
    "gaps": [PPCA(own, 2) for own in blocks(NODES, gaps=True)],
    "cameras": [StructureFromMotion(own) for own in TRACKS],
    "mixed": [pair[i % 2] for i, pair in enumerate(MIXED)],
    **{f"table {kind}": table(kind, NODES) for kind in KINDS},
}  # fmt: skip


def cases() -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Yield problems, graph and settings of each run."""
    for k, (kind, chosen) in enumerate(parity.EVERY + parity.RULED):
        yield kind, topology.build(GRAPHS[k % len(GRAPHS)], NODES), chosen
    for graph, turns, chosen in sending.cases(NODES):
        yield "uneven", graph, {"schedule": turns, **chosen}
    for kind in PROBLEMS:
        yield kind, topology.build("ring", NODES), {}
    for init in ("shared", "independent"):
        yield "merged", topology.build("star", NODES), {"init": init, "max_iter": 20}


def place(size: int, seed: int) -> np.ndarray:
    """Return a rank for each node, at random; every rank has at least one."""
    rng = np.random.default_rng(seed)
    more = rng.integers(size, size=NODES - size)
    return rng.permutation(np.concatenate([np.arange(size), more]))


class Spread:
    """Solves on some of the ranks, or without MPI; other ranks wait."""

    def __init__(self, comm: MPI.Comm) -> None:
        self.comm = comm
        self.parts = {
            size: comm.Split(0 if comm.rank < size else MPI.UNDEFINED) for size in SIZES
        }

    def __call__(
        self, size: int, seed: int, kind: str, graph: Any, /, **chosen: Any
    ) -> dadmm.Result | None:
        found, rank = None, self.comm.rank
        if not size and rank == seed % self.comm.size:
            found = solve(PROBLEMS[kind], graph, **chosen)
        elif rank < size:
            nodes = np.flatnonzero(place(size, seed) == rank).tolist()
            own = {i: PROBLEMS[kind][i] for i in nodes}
            found = solve(own, graph, comm=self.parts[size], **chosen)
        return found


def facts(result: dadmm.Result) -> list[Any]:
    """Return what a result states, beside what `parity.compare` compares."""
    found = [result.solution, result.objective, result.coordinates]
    if result.certificate is not None:
        names = ("gap", "radius", "limit", "coefficients", "gradient", "slack")
        found += [getattr(result.certificate, name) for name in names]
    if result.ending.init == "merged":
        found += [result.start.angle, result.start.rounds]
        found += list(result.subspace_bound or ())
    return found


def compare(ours: dadmm.Result, alone: dadmm.Result) -> None:
    """Assert that two results have the same bits, and what the wire carries."""
    parity.compare(ours, alone)
    for mine, other in zip(ours.residuals, alone.residuals, strict=True):
        assert_array_equal(mine, other)
    for mine, other in zip(facts(ours), facts(alone), strict=True):
        assert_array_equal(mine, other)
    for i, duals in ours.duals.items():
        assert_array_equal(duals, alone.duals[i])
    wire, whole = ours.traffic.wire, ours.traffic
    assert len(np.unique(wire[:, :2], axis=0)) == len(wire)
    assert wire[:, 3].sum() <= whole.bytes
    if len(wire) == len(ours.topology.edges):  # a pair of ranks for each edge
        assert_array_equal(np.sort(wire[:, 3]), np.sort(whole.edge_bytes))


def check_runs(spread: Spread, step: int) -> np.ndarray:
    """Compare runs on several ranks with one process.

    Return on rank 0 how many agree, and of the cases how many were stopped by a rule,
    were silent, and lost payloads.
    """
    comm, seen = spread.comm, np.zeros(4, dtype=int)
    for k, (kind, graph, chosen) in enumerate(cases()):
        sure = (7, 3, 2)[k % 3]
        sizes = [n for j, n in enumerate(SIZES) if (k + j) % step == 0 or n == sure]
        found = [spread(size, k, kind, graph, **chosen) for size in sizes]
        if comm.rank == k % min(sizes):
            alone = solve(PROBLEMS[kind], graph, **chosen)
            for result in found:
                compare(result, alone)
        last = found[-1]
        if last is None:
            continue
        silent, lost = last.traffic.silent > 0, last.traffic.lost > 0
        seen += len(sizes), last.converged, silent, lost
    return seen


def check_resumed(spread: Spread, folder: Path, step: int) -> int:
    """Compare runs that move between numbers of ranks with whole ones."""
    comm, done = spread.comm, 0
    pairs = list(permutations((0, *SIZES), 2))
    for k, ((name, chosen), (first, then)) in enumerate(
        product(sending.RESUMED, pairs)
    ):
        if k % step:
            continue
        graph, chosen = topology.build(name, NODES), {"record_edges": True, **chosen}
        if chosen.pop("schedule", False):
            chosen["schedule"] = Schedule.matchings(graph)
        whole = solve(PROBLEMS["uneven"], graph, **chosen)  # on every rank
        at = whole.iterations - 3  # between a verdict and the stop, if there is one
        place = folder / str(k)
        saved = Checkpoints(place, seconds=0)
        part = {**chosen, "max_iter": at, "checkpoints": saved}
        spread(first, k, "uneven", graph, **part)
        comm.Barrier()
        again = Checkpoints(place, resume=True, seconds=0)
        found = spread(then, k + 1, "uneven", graph, **chosen, checkpoints=again)
        if found is not None:
            parity.compare(found, whole, at)
        done += 1
    return done


if __name__ == "__main__":
    everyone, (place_of, *more) = MPI.COMM_WORLD, sys.argv[1:]
    stride = int(more[0]) if more else 1
    several = Spread(everyone)
    seen = check_runs(several, stride)
    moved = check_resumed(several, Path(place_of), stride)
    if everyone.allreduce(1) and everyone.rank == 0:
        print(*seen, moved)
