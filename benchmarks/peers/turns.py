"""Run the same least squares by several programs, in turns, one rank per node.

    mpiexec -n 20 python turns.py --rounds 15 \\
        disropt:admm:20:15 mpi-sppy:ph:40:20 dadmm:fixed:25:500 dadmm:snap::500
    mpiexec -n 20 python turns.py --count disropt:admm:20:150

Each word is a program, its method, its setting and the iterations of one block. A round
is a block of each, so that all meet the same conditions. Rank 0 prints a line of JSON
for each block, with the share of the cores that other programs used meanwhile. With
`--count` ranks also count bytes and keep every iterate, and the time is not to be used.
"""

import argparse
import importlib
import json

import mpi4py

mpi4py.rc.thread_level = "single"  # as dadmm asks for; disropt has no wish

from mpi4py import MPI  # noqa: E402

from benchmarks.peers.problem import Watch  # noqa: E402


def block(word: str, comm: MPI.Comm, count: bool) -> dict:
    program, method, setting, iterations = word.split(":")
    module = f"benchmarks.peers.{program.replace('-', '')}_ring"
    run = importlib.import_module(module).run
    comm.Barrier()
    watch = Watch()
    row = run(method, float(setting) if setting else None, int(iterations), comm, count)
    return {**row, "others_share": watch.share(comm.allreduce(watch.own()))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("blocks", nargs="+", help="program:method:setting:iterations")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--count", action="store_true", help="bytes and errors")
    chosen = parser.parse_args()
    comm = MPI.COMM_WORLD
    for number in range(chosen.rounds):
        for word in chosen.blocks:
            row = block(word, comm, chosen.count)
            if comm.rank == 0:
                print(json.dumps({"round": number, **row}), flush=True)


if __name__ == "__main__":
    main()
