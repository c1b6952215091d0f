"""The least-squares ring by disropt, one rank per node.

Runs in an environment of its own that has disropt.
"""

from time import perf_counter

import dill
import numpy as np
from disropt.agents import Agent
from disropt.algorithms import ADMM, GradientTracking
from disropt.communicators import MPICommunicator
from disropt.functions import QuadraticForm, Variable
from disropt.problems import Problem
from disropt.utils.graph_constructor import metropolis_hastings, ring_graph
from mpi4py import MPI

from benchmarks.peers import problem

PACKAGES = ("disropt", "mpi4py", "mpich", "numpy", "osqp", "dill", "autograd")
WARM_UP = 3  # iterations


class Counting(MPICommunicator):
    """disropt's communicator, which also counts messages and bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.messages = self.bytes = 0

    def neighbors_send(self, obj: object, neighbors: list[int]) -> None:
        self.messages += len(neighbors)
        self.bytes += len(neighbors) * len(dill.dumps(obj))
        super().neighbors_send(obj, neighbors)


def agent_of(comm: MPI.Comm, counts: bool) -> Agent:
    """Return this rank's agent with its least-squares problem.

    As a quadratic form made once from the normal equations, which is the quickest of
    the forms that disropt offers for it, and does not depend on the number of rows.
    """
    X, y = problem.shard(comm.rank)
    form = QuadraticForm(
        Variable(problem.UNKNOWNS), P=0.5 * X.T @ X, q=-(X.T @ y)[:, None]
    )
    ring = np.zeros((comm.size, comm.size))
    for node in range(comm.size):
        ring[node, problem.neighbours(node, comm.size)] = 1
    if comm.size > 2 and (ring != ring_graph(comm.size)).any():
        raise ValueError("disropt's ring is another one")
    near = problem.neighbours(comm.rank, comm.size)
    agent = Agent(
        in_neighbors=near,
        out_neighbors=list(near),
        in_weights=metropolis_hastings(ring)[comm.rank].tolist(),
        communicator=Counting() if counts else None,
    )
    agent.set_problem(Problem(form))
    return agent


def algorithm_of(method: str, agent: Agent, log: bool) -> ADMM | GradientTracking:
    zero = np.zeros((problem.UNKNOWNS, 1))
    if method == "tracking":
        return GradientTracking(agent, zero, enable_log=log)
    duals = {node: zero.copy() for node in [*agent.in_neighbors, agent.id]}
    return ADMM(agent, duals, zero, enable_log=log)


def run(
    method: str, setting: float, iterations: int, comm: MPI.Comm, count: bool = False
) -> dict:
    admm = method == "admm"
    options = {"penalty" if admm else "stepsize": setting}
    agent = agent_of(comm, count)
    algorithm_of(method, agent, False).run(iterations=WARM_UP, **options)
    algorithm = algorithm_of(method, agent, count)
    if count:
        agent.communicator = Counting()
    comm.Barrier()
    start = perf_counter()
    log = algorithm.run(iterations=iterations, **options)
    seconds = perf_counter() - start
    points, counted = None, {}
    if count:
        points = problem.gathered(comm, (log[0] if admm else log)[..., 0])
        told = agent.communicator
        counted = {
            "messages": comm.allreduce(told.messages),
            "bytes": comm.allreduce(told.bytes),
        }
    return problem.row(
        "disropt", method, setting, comm.size, iterations, PACKAGES, points,
        seconds=comm.allreduce(seconds, MPI.MAX), **counted,
    )  # fmt: skip
