"""Time disropt and dadmm in turns, inside one job: a busy machine slows both alike.

    mpiexec -n 20 python turns.py --rounds 15 \\
        disropt:admm:20:15 disropt:tracking:0.0008:40 dadmm:fixed:25:500 dadmm:auto::500

Each word is a program, its method, its setting and the iterations of one block. A round
is a block of each; rank 0 prints a line of JSON for each block, with the share of the
cores that other programs used meanwhile. Runs in disropt's environment, with dadmm on
PYTHONPATH.
"""

from __future__ import annotations

import argparse
import json

import mpi4py

mpi4py.rc.thread_level = "single"  # as dadmm asks for; disropt has no wish

import dadmm_ring  # noqa: E402
import disropt_ring  # noqa: E402
from mpi4py import MPI  # noqa: E402

from benchmarks.peers.others import Watch  # noqa: E402


def block(word: str, comm: MPI.Comm) -> dict:
    """Run one block and return its row, on every rank."""
    program, method, setting, iterations = word.split(":")
    comm.Barrier()
    watch = Watch()
    if program == "disropt":
        row = disropt_ring.run(method, float(setting), int(iterations), comm)
    else:
        eta0 = float(setting or 1)
        row = dadmm_ring.run(method, eta0, int(iterations), comm.size, comm)
    return {**row, "others_share": watch.share(comm.allreduce(watch.own()))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("blocks", nargs="+", help="program:method:setting:iterations")
    parser.add_argument("--rounds", type=int, default=15)
    chosen = parser.parse_args()
    comm = MPI.COMM_WORLD
    for number in range(chosen.rounds):
        for word in chosen.blocks:
            row = block(word, comm)
            if comm.rank == 0:
                print(json.dumps({"round": number, **row}), flush=True)


if __name__ == "__main__":
    main()
