"""Ways of sending less have the same bits over MPI and in one process.

Usage: sending.py. Every rank takes part in every run over MPI; then each repeats some
of the runs by itself, in process, and compares.
"""

from __future__ import annotations

from mpi4py import MPI
from numpy.testing import assert_array_equal

from dadmm.comm.sending import Sending
from dadmm.graphs import topology
from dadmm.graphs.schedule import Schedule
from tests.support.programs.parity import build, compare
from tests.support.solving import solve

DRAWN = {"init": "independent"}  # in units
RAW = {"coordinates": "raw"}
SHORT = {"tolerance": 0.0, "max_iter": 24, "budget0": 0.6}
OPTIONS = (
    {"payload": "float32"},
    {"payload": "float16"},
    {"payload": "quantised:5"},
    {"censor": 0.3, "censor_decay": 0.9},
    {"send_every": 3},
    {"edge_sleep": 0.7},
    {"payload": "quantised:3", "censor": 0.2, "edge_sleep": 0.7,
     "send_every": 2},
)  # fmt: skip
TURNS = ("", "matchings", "ring,star")
# so loose that the rule stops the runs
STOPPING = {"tolerance": 50.0, "max_iter": 80, "record_edges": True}


def cases(n_nodes: int) -> list:
    """Return the graph and the settings of every run."""
    cluster = topology.build("cluster", n_nodes)
    several = Schedule.build(["ring", "star"], n_nodes)
    graphs = {
        "": (cluster, None), "matchings": (cluster, Schedule.matchings(cluster)),
        "ring,star": (several.union, several),
    }  # fmt: skip
    chosen = [(turns, {}) for turns in TURNS[1:]]
    chosen += [("", it) for it in OPTIONS] + [(t, OPTIONS[-1]) for t in TURNS[1:]]
    found = [
        (*graphs[turns], {"sending": Sending(**it), "scheme": scheme, **SHORT} | raw)
        for turns, it in chosen
        for scheme, raw in (("snap", DRAWN), ("snap", RAW), ("nap", RAW))
    ]
    found = [(a, b, {**c, "record_edges": True}) for a, b, c in found]
    lossy = {"sending": Sending(drop_probability=0.2), "scheme": "fixed", **SHORT}
    late = {"sending": Sending(**OPTIONS[-1]), **STOPPING}
    for turns in TURNS:
        found += [(*graphs[turns], lossy), (*graphs[turns], late)]
    for agreement, wait in (("global", "poll"), ("neighbours", "block")):
        found.append((*graphs["matchings"], {**late, "agreement": agreement}))
        found.append((*graphs["matchings"], {**late, "wait": wait, "max_iter": 8}))
    return found


def check(comm: MPI.Comm) -> str:
    """Run everything and return what was seen."""
    problems, every = build(comm.size), cases(comm.size)
    results = [
        solve(problems[comm.rank], graph, comm=comm, schedule=turns, **chosen)
        for graph, turns, chosen in every
    ]
    mine = range(comm.rank, len(every), comm.size)
    for k in mine:
        graph, turns, chosen = every[k]
        alone = solve(problems, graph, schedule=turns, **chosen)
        compare(results[k], alone)
        for ours, theirs in zip(results[k].residuals, alone.residuals, strict=True):
            assert_array_equal(ours, theirs)
        assert results[k].objective == alone.objective
    stopped = sum(result.converged for result in results)
    silent = sum(result.traffic.silent > 0 for result in results)
    lost = sum(result.traffic.lost > 0 for result in results)
    count = comm.allreduce(len(mine))
    return (
        f"{count} agree, {stopped} stopped, {silent} with silence, {lost} with losses"
    )


if __name__ == "__main__":
    line = check(MPI.COMM_WORLD)
    if MPI.COMM_WORLD.rank == 0:
        print(line)
