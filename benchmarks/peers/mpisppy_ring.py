"""The same least squares by mpi-sppy's progressive hedging, one rank per scenario.

A node is a scenario and the unknowns are the first stage, which all scenarios must
agree on. Nothing runs along a ring: each iteration averages over all ranks. Runs in an
environment of its own that has mpi-sppy.
"""

from time import perf_counter
from typing import Any

import mpisppy
import pyomo.environ as pyo
from mpi4py import MPI
from mpisppy.extensions.extension import Extension
from mpisppy.opt.ph import PH
from mpisppy.utils.sputils import attach_root_node

from benchmarks.peers import problem

PACKAGES = ("mpi-sppy", "pyomo", "highspy", "mpi4py", "mpich", "numpy")
SOLVER = {"threads": 1, "qp_regularization_value": 0.0}  # HiGHS; exact to rounding

mpisppy.tt_timer.toc = lambda *_, **__: 0.0  # its progress lines


def scenario_creator(name: str) -> pyo.ConcreteModel:
    """Return a node's problem, a quadratic form made once from its rows."""
    X, y = problem.shard(int(name))
    gram, pull, span = X.T @ X, X.T @ y, range(problem.UNKNOWNS)
    model = pyo.ConcreteModel()
    model.w = pyo.Var(span, initialize=0.0)
    square = sum(0.5 * gram[i, j] * model.w[i] * model.w[j] for i in span for j in span)
    cost = square - sum(pull[i] * model.w[i] for i in span)
    model.cost = pyo.Objective(expr=cost)
    attach_root_node(model, model.cost, [model.w])
    model._mpisppy_probability = "uniform"
    return model


class Counting(MPI.Intracomm):
    """A communicator that counts the bytes given to collective sums."""

    bytes = 0

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> None:
        super().Allreduce(sendbuf, recvbuf, op)
        self.bytes += (sendbuf[0] if isinstance(sendbuf, list) else sendbuf).nbytes


class Watch(Extension):
    """Times iterations, and keeps every iterate of this rank if asked to."""

    def __init__(self, ph: PH) -> None:
        super().__init__(ph)
        self.first = self.last = 0.0
        self.points: list[list[float]] = []

    def note(self) -> None:
        if self.opt.options["watch"]:
            (scenario,) = self.opt.local_scenarios.values()
            self.points.append([v.value for v in scenario.w.values()])

    def post_iter0(self) -> None:
        """Count the solves without a penalty as the first iteration."""
        self.note()

    def enditer(self) -> None:
        self.last = perf_counter()
        self.first = self.first or self.last
        self.note()


def run(
    method: str, setting: float, iterations: int, comm: MPI.Comm, count: bool = False
) -> dict[str, Any]:
    """Run so many iterations with rho = ``setting``; return a row, on every rank."""
    options = {
        "solver_name": "highs", "PHIterLimit": iterations - 1, "convthresh": 0.0,
        "defaultPHrho": setting, "iter0_solver_options": SOLVER,
        "iterk_solver_options": SOLVER, "verbose": False, "display_progress": False,
        "watch": count,
    }  # fmt: skip
    names = [str(node) for node in range(comm.size)]
    world = Counting(comm) if count else comm
    ph = PH(options, names, scenario_creator, mpicomm=world, extensions=Watch)
    start = perf_counter()
    ph.ph_main(finalize=False)
    seconds = perf_counter() - start
    watch = ph.extobject
    loop = (watch.last - watch.first) * iterations / max(iterations - 2, 1)
    points, counted = None, {}
    if count:
        points = problem.gathered(comm, watch.points)
        counted = {"bytes": comm.allreduce(world.bytes)}
    return problem.row(
        "mpi-sppy", method, setting, comm.size, iterations, PACKAGES, points,
        seconds=comm.allreduce(seconds, MPI.MAX),
        loop_seconds=comm.allreduce(loop, MPI.MAX), **counted,
    )  # fmt: skip
