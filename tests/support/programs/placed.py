"""Runs of the command line on any number of ranks leave the same files.

Usage: placed.py FOLDER [STEP]. Four ranks take part; runs are on the first 1 to 4 of
them, or in one process without MPI. A STEP of 1 does every case on every number of
ranks, and resumes some from one number to another; a larger STEP does one out of STEP.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import closing
from itertools import permutations
from pathlib import Path

import numpy as np
from mpi4py import MPI
from scipy import sparse

from dadmm.cli.job import Job
from dadmm.cli.progress import Signals
from dadmm.comm.world import World
from dadmm.core.threads import one_blas_thread
from dadmm.data import datasets
from tests.support.runs import (
    SINCE_RESUME,
    assert_same_arrays,
    history_of,
    summary_of,
)

SIZES, NODES = (0, 1, 2, 3, 4), 6
# of the ranks, the time and the machine; outside_* depends on where values go
OWN = {"ranks", "seconds", "outside_calls", "outside_bytes", "mpi_library", "hosts",
       "resumed_after", "versions"}  # fmt: skip
LINEAR = "--problem least_squares --target price --record-edges"
CASES = (  # with the most iterations, and the iteration after which to resume
    ("--topology ring --tolerance 0 --record-angle", 14, 9),
    (f"{LINEAR} --data houses.csv --topology star --standardise", 100, 4),
    (f"{LINEAR} --data houses.npz --topology grid --placement FILE --weight w", 100, 4),
    (f"{LINEAR} --data part-{{node}}.csv --topology chain --on-missing mean", 100, 4),
    ("--data holed.npy --n-components 2 --topology random-geometric --placement blocks "
     "--tolerance 0 --record-edges", 14, 8),
    ("--problem sfm --tolerance 0", 14, 6),
    ("--problem logistic --agreement global --schedule matchings", 30, 5),
    ("--problem ridge --data sparse.npz --topology ring", 100, 4),
)  # fmt: skip


def write_files(n_ranks: int) -> None:
    """Write tables with a column of text, rows with gaps, and a placement."""
    X, y, _ = datasets.regression(90, 3, seed=4)
    towns = np.array(["Ulm", "Bonn", "Kiel"])[np.arange(90) % 3]
    lines = [
        f"{a!r},{b!r},{town},{v!r}"
        for (a, b, _), town, v in zip(X.tolist(), towns, y.tolist(), strict=True)
    ]
    header = "size,rooms,town,price"
    Path("houses.csv").write_text("\n".join([header, *lines, ""]))
    np.savez("houses.npz", X=X, price=y, w=np.abs(y))
    sparse.save_npz("sparse.npz", sparse.csr_array(np.column_stack([X, y])))
    for i in range(NODES):
        own = [",".join(["", *lines[i].split(",")[1:]]), *lines[i + NODES :: NODES]]
        Path(f"part-{i}.csv").write_text("\n".join([header, *own, ""]))
    rows, _ = datasets.synthetic(90, 5, 2, seed=3)
    rows[np.arange(5) == np.arange(90)[:, None] % 9] = np.nan
    np.save("holed.npy", rows)
    for n in range(1, n_ranks + 1):
        pairs = [f"{i},{(5 * i + 1) % n}" for i in reversed(range(NODES))]
        Path(f"place-{n}.csv").write_text("\n".join(["node,rank", *pairs, ""]))


class Jobs:
    """Runs the command line on some of the ranks."""

    def __init__(self, comm: MPI.Comm) -> None:
        self.comm = comm
        self.parts = [
            comm.Split(0 if comm.rank < size else MPI.UNDEFINED)
            for size in range(comm.size + 1)
        ]

    def __call__(self, size: int, words: str, out: str) -> None:
        world = None
        if not size and self.comm.rank == 0:
            world = World()
        elif self.comm.rank < size:
            world = World(self.parts[size])
        if world is not None:
            argv = words.replace("FILE", f"place-{size or 1}.csv").split()
            with closing(Signals()) as signals, one_blas_thread():
                code = Job(world, signals).run([*argv, "--quiet", *out.split()])
            assert code == 0
        self.comm.Barrier()


def compare(one: str, other: str) -> None:
    """Assert that two folders have the same files, but for times and ranks."""
    names = [{*os.listdir(each)} - {"ranks.csv", ".lock"} for each in (one, other)]
    assert names[0] == names[1], names
    resumed = summary_of(other)["resumed_after"]
    for name in names[0]:
        files = Path(one, name), Path(other, name)
        if name.endswith(".npz"):
            assert_same_arrays(*files, SINCE_RESUME if resumed else ())
        elif name in ("history.csv", "edges.csv"):
            assert history_of(one, name) == history_of(other, name), name
        elif name == "model.json":
            assert files[0].read_bytes() == files[1].read_bytes()
    own = OWN | {"tree_bytes"} if resumed else OWN
    told = [
        {k: v for k, v in summary_of(each).items() if k not in own}
        for each in (one, other)
    ]
    for key in told[0]:
        mine, theirs = (json.dumps(each[key], sort_keys=True) for each in told)
        assert mine == theirs, (key, mine, theirs)


def check(jobs: Jobs, step: int) -> tuple[int, int]:
    """Return the number of runs that agree, and of those that were resumed."""
    root, done, moved = jobs.comm.rank == 0, 0, 0
    for k, (words, last, at) in enumerate(CASES):
        words, most = f"{words} --nodes {NODES}", f"--max-iter {last}"
        jobs(0, f"{words} {most}", f"--out {k}-whole")
        for size in SIZES[1:]:
            if (k + size) % step == 0:
                jobs(size, f"{words} {most}", f"--out {k}-{size}")
                done += 1
                if root:
                    compare(f"{k}-whole", f"{k}-{size}")
        for j, (first, then) in enumerate(permutations(SIZES, 2)):
            if (k + j) % (3 * step) == 0:
                out = f"{k}-{first}-{then}"
                jobs(first, f"{words} --max-iter {at}", f"--out {out}")
                placed = "--placement FILE" if "FILE" in words else ""
                jobs(then, f"--resume {out} {most} {placed}", "")
                moved += 1
                if root:
                    compare(f"{k}-whole", out)
    return done, moved


if __name__ == "__main__":
    everyone, (place, *more) = MPI.COMM_WORLD, sys.argv[1:]
    os.chdir(place)
    if everyone.rank == 0:
        write_files(everyone.size)
    everyone.Barrier()
    found = check(Jobs(everyone), int(more[0]) if more else 1)
    if everyone.rank == 0:
        print("{} runs agree, {} resumed".format(*found))
