"""The least-squares ring by decent-bench and by dadmm, both in one process, in turns.

    python decent_ring.py --setting 25 --iterations 500 --rounds 15

Prints a line of JSON for each timed block, then one with all errors for each program.
decent-bench's ADMM without over-relaxation and with ``penalty = 2 eta`` is dadmm's
`fixed` with eta, so their errors are the same. Needs Python 3.13 for decent-bench, and
dadmm on PYTHONPATH.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

import decent_array.interoperability as iop
import networkx as nx
import numpy as np
from decent_bench.agents import Agent
from decent_bench.algorithms.p2p import ADMM
from decent_bench.costs import QuadraticCost
from decent_bench.networks import P2PNetwork

from benchmarks.peers import problem
from benchmarks.peers.dadmm_ring import run as dadmm_run

PACKAGES = ("decent-bench", "decent-array", "networkx", "numpy")
NEVER = 10**9  # period of decent-bench's snapshots, which cost time


def network() -> P2PNetwork:
    """Return the ring, each agent with its least squares as a quadratic cost.

    Made once from the normal equations: decent-bench's own `LinearRegressionCost`
    takes longer, since it multiplies by all rows in every step.
    """
    agents = []
    for node in range(problem.NODES):
        X, y = problem.shard(node)
        cost = QuadraticCost(iop.from_numpy(X.T @ X), iop.from_numpy(-X.T @ y))
        agents.append(Agent(cost, state_snapshot_period=NEVER))
    edges = [(i, j) for i in range(problem.NODES) for j in problem.neighbours(i)]
    graph = nx.Graph()
    graph.add_nodes_from(range(problem.NODES))  # in order: agents follow it
    graph.add_edges_from(edges)
    return P2PNetwork(graph, agents)


def decent(eta: float, iterations: int, watch: bool = False) -> dict[str, Any]:
    """Run decent-bench's ADMM; return seconds and final points, or all points."""
    ring = network()
    points: list[np.ndarray] = []

    def now() -> np.ndarray:
        return np.array([iop.to_numpy(agent.x) for agent in ring.agents()])

    def look(_: int) -> None:
        points.append(now())

    method = ADMM(penalty=2 * eta, relaxation=0.5)
    start = perf_counter()
    method.run(ring, iterations, progress_callback=look if watch else None)
    seconds = perf_counter() - start
    return {"seconds": seconds, "points": np.array(points) if watch else now()}


def blocks(eta: float, iterations: int, rounds: int) -> Iterator[dict[str, Any]]:
    tasks: dict[tuple[str, str], Callable[[], float]] = {
        ("decent-bench", "admm"): lambda: decent(eta, iterations)["seconds"],
        ("dadmm", "fixed"): lambda: dadmm_run("fixed", eta, iterations)["seconds"],
        ("dadmm", "snap"): lambda: dadmm_run("snap", None, iterations)["seconds"],
    }
    for number in range(rounds):
        for (program, method), task in tasks.items():
            watch = problem.Watch()
            row = {"round": number, "program": program, "method": method}
            row |= {"iterations": iterations, "seconds": task()}
            yield row | {"others_share": watch.share(watch.own())}


def counted(eta: float, iterations: int) -> Iterator[dict[str, Any]]:
    points = decent(eta, iterations, watch=True)["points"]
    place = ("admm", 2 * eta, problem.NODES, iterations)
    yield problem.row("decent-bench", *place, PACKAGES, points)
    for scheme in ("fixed", "snap"):
        own = eta if scheme == "fixed" else None
        row = dadmm_run(scheme, own, iterations, count=True)
        del row["messages"], row["bytes"]  # nothing is sent in one process
        yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--setting", type=float, required=True, help="eta")
    parser.add_argument("--iterations", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=15)
    chosen = parser.parse_args()
    iop.set_backend("numpy")
    for row in blocks(chosen.setting, chosen.iterations, chosen.rounds):
        print(json.dumps(row), flush=True)
    for row in counted(chosen.setting, chosen.iterations):
        print(json.dumps(row))


if __name__ == "__main__":
    main()
