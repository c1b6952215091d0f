"""Runs of the command line on any number of ranks leave the same files.

Usage: placed.py FOLDER [STEP]. Four ranks take part; runs are on the first 1 to 4 of
them, or in one process without MPI. A STEP of 1 does every case on every number of
ranks, and resumes some from one number to another; a larger STEP does one out of STEP.
"""

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
from dadmm.core.linalg import one_blas_thread
from dadmm.data import datasets
from tests.support.runs import SINCE_RESUME, differences, summary_of

COMM, SIZES, NODES = MPI.COMM_WORLD, (0, 1, 2, 3, 4), 6
# of the ranks, the time and the machine; outside_* depends on where values go
OWN = {"ranks", "seconds", "outside_calls", "outside_bytes", "mpi_library", "hosts",
       "resumed_after", "versions"}  # fmt: skip
LINEAR = "--problem least_squares --target price --record-edges"
FEW = "--payload quantised:5 --edge-sleep 0.4 --censor 0.1 --send-every 2"
CASES = (  # with the most iterations, and the iteration after which to resume
    ("--topology ring --tolerance 0 --record-angle", 14, 9),
    (f"{LINEAR} --data houses.csv --topology star --standardise", 100, 4),
    (f"{LINEAR} --data houses.npz --topology grid --placement FILE --weight w", 100, 4),
    (f"{LINEAR} --data part-{{node}}.csv --topology chain --on-missing mean", 100, 4),
    ("--problem sfm --tolerance 0 --placement FILE", 14, 6),
    ("--data holed.npy --n-components 2 --topology random-geometric --placement blocks "
     "--tolerance 0 --record-edges", 14, 8),
    ("--problem logistic --agreement global --schedule matchings", 30, 5),
    ("--topology cluster --tolerance 0 --record-edges --scheme nap "
     "--schedule matchings --payload float16 --censor 0.2 --edge-sleep 0.7", 20, 13),
    ("--topology chain --scheme fixed --drop-probability 0.2 --tolerance 0", 20, 13),
    ("--problem ridge --data sparse.npz --topology ring", 100, 4),
    ("--data holed.npy --n-components 2 --labels labels.npy --tolerance 0", 12, 5),
    (f"--topology a.edges,b.edges {FEW} --record-edges --tolerance 0", 30, 14),
)  # fmt: skip


def write_files() -> None:
    X, y, _ = datasets.regression(90, 3, seed=4)
    towns = ("Ulm", "Bonn", "Kiel")
    lines = [f"{a!r},{b!r},{towns[k % 3]},{v!r}\n"
             for k, (a, b, _, v) in enumerate(np.c_[X, y].tolist())]  # fmt: skip
    header = "size,rooms,town,price\n"
    Path("houses.csv").write_text(header + "".join(lines))
    np.savez("houses.npz", X=X, price=y, w=np.abs(y))
    sparse.save_npz("sparse.npz", sparse.csr_array(np.c_[X, y]))
    for i in range(NODES):
        own = [lines[i][lines[i].index(",") :], *lines[i + NODES :: NODES]]
        Path(f"part-{i}.csv").write_text(header + "".join(own))
    rows, _ = datasets.synthetic(90, 5, 2, seed=3)
    rows[np.arange(5) == np.arange(90)[:, None] % 9] = np.nan
    np.save("holed.npy", rows)
    np.save("labels.npy", np.arange(90) * 5 % 7 % NODES)
    Path("a.edges").write_text("0 1\n2 3\n4 5\n")
    Path("b.edges").write_text("1 2\n3 4\n0 5\n")
    for n in SIZES[1:]:
        pairs = [f"{i},{(5 * i + 1) % n}\n" for i in reversed(range(NODES))]
        Path(f"place-{n}.csv").write_text("node,rank\n" + "".join(pairs))


def run(size: int, words: str) -> None:
    """Run the command line on the first ranks; without MPI, if the size is 0."""
    part = COMM.Split(0 if COMM.rank < max(size, 1) else MPI.UNDEFINED)
    if part != MPI.COMM_NULL:
        argv = words.replace("FILE", f"place-{size or 1}.csv").split()
        world = World(part) if size else World()
        with closing(Signals()) as signals, one_blas_thread():
            assert Job(world, signals).run([*argv, "--quiet"]) == 0
    COMM.Barrier()


def compare(one: str, other: str) -> None:
    """Assert that two folders have the same files, but for times and ranks."""
    places = Path(one), Path(other)
    names = [{*os.listdir(place)} - {"ranks.csv", ".lock"} for place in places]
    assert names[0] == names[1], names
    known, but = summary_of(one).keys() - OWN, ()
    if summary_of(other)["resumed_after"]:
        known, but = known - {"tree_bytes"}, SINCE_RESUME
    assert differences(*places, known, but) == []
    if "model.json" in names[0]:
        model, again = (place / "model.json" for place in places)
        assert model.read_bytes() == again.read_bytes()


def check(step: int) -> list[int]:
    done = [0, 0]
    for k, (words, last, at) in enumerate(CASES):
        words, most = f"{words} --nodes {NODES}", f"--max-iter {last}"
        run(0, f"{words} {most} --out {k}-whole")
        sizes = [(size, size) for size in SIZES[1:] if (k + size) % step == 0]
        moves = list(permutations(SIZES, 2))[-k % (3 * step) :: 3 * step]
        for first, then in sizes + moves:
            out = f"{k}-{first}-{then}"
            if first == then:
                run(first, f"{words} {most} --out {out}")
            else:
                run(first, f"{words} --max-iter {at} --out {out}")
                placed = "--placement FILE" if "FILE" in words else ""
                run(then, f"--resume {out} {most} {placed}")
            if COMM.rank == 0:
                compare(f"{k}-whole", out)
            done[first != then] += 1
    return done


if __name__ == "__main__":
    place, *more = sys.argv[1:]
    os.chdir(place)
    if COMM.rank == 0:
        write_files()
    COMM.Barrier()
    found = check(int(more[0]) if more else 1)
    if COMM.rank == 0:
        print("{} runs agree, {} resumed".format(*found))
