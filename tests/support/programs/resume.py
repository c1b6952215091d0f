"""Runs that move from MPI to one process and back give the bits of a whole run.

Usage: resume.py FOLDER. Rank 0 does the parts in one process. Most graphs have nodes of
different degrees: the rows of one process are in order of degree.
"""

from __future__ import annotations

import sys
from pathlib import Path

from mpi4py import MPI

import dadmm
from dadmm import Checkpoints, Schedule, Sending
from dadmm.graphs import topology
from tests.support.programs.parity import LOOSE, SHORT, build, compare
from tests.support.programs.sending import OPTIONS
from tests.support.solving import solve as run_solve

STOPPED = {"tolerance": LOOSE["optimality"], "max_iter": 60}
JOINT = {"agreement": "global", "stopping": "objective", "max_iter": 60}
CASES = (
    ("ring", {"scheme": "snap", **SHORT}),
    ("star", {"scheme": "vp_nap", **SHORT}),
    ("star", {"scheme": "nap", "schedule": True, **SHORT}),
    ("grid", {"scheme": "snap", **STOPPED}),
    ("grid", {"scheme": "global_balance", **SHORT}),
    ("cluster", {"sending": Sending(**OPTIONS[-1]), "schedule": True, **SHORT}),
    ("cluster", {"sending": Sending(edge_sleep=0.7, censor=0.1), **STOPPED}),
    ("chain", {"sending": Sending(payload="float16"), "coupling": "own",
               "scheme": "nap", **SHORT}),
    ("chain", {"scheme": "fixed", "sending": Sending(drop_probability=0.2), **SHORT}),
    ("complete", {"scheme": "global_balance", "tolerance": LOOSE["objective"],
                  **JOINT}),
)  # fmt: skip


def check(comm: MPI.Comm, folder: Path) -> int:
    """Run all cases; return the number of runs that were resumed."""
    for k, (name, chosen) in enumerate(CASES):
        graph, chosen = topology.build(name, comm.size), dict(chosen)
        if chosen.pop("schedule", False):
            chosen["schedule"] = Schedule.matchings(graph)
        move(comm, folder / str(k), graph, chosen)
    return 2 * len(CASES)


def move(comm: MPI.Comm, folder: Path, graph: dadmm.Topology, chosen: dict) -> None:
    """Compare a whole run with runs that are resumed on the other side."""
    problems = build(comm.size)

    def solve(over_mpi: bool, **more) -> dadmm.Result | None:
        settings = {"record_edges": True, **chosen, **more}
        found = None
        if over_mpi:
            found = run_solve(problems[comm.rank], graph, comm=comm, **settings)
        elif comm.rank == 0:
            found = run_solve(problems, graph, **settings)
        comm.Barrier()
        return found

    whole = solve(over_mpi=True)
    at = whole.iterations - 3  # between a verdict and the stop, if there is one
    for first in (True, False):
        place = folder / str(first)
        solve(first, max_iter=at, checkpoints=Checkpoints(place, seconds=0))
        again = solve(not first, checkpoints=Checkpoints(place, resume=True, seconds=0))
        if again is not None:
            compare(again, whole, at)


if __name__ == "__main__":
    count = check(MPI.COMM_WORLD, Path(sys.argv[1]))
    if MPI.COMM_WORLD.rank == 0:
        print(f"{count} agree")
