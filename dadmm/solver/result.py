"""The result of `dadmm.solve`, gathered from all nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dadmm.admm.build import RunFactory
from dadmm.admm.certificate import Certificate, distance_bound
from dadmm.admm.clock import PHASES
from dadmm.admm.loop import Run
from dadmm.core.interfaces import Traffic
from dadmm.core.layout import Layout, Matrix, Vector
from dadmm.graphs.topology import Topology
from dadmm.resilience.runner import LocalRun
from dadmm.results.history import History, Recorder
from dadmm.solver.ending import Ending, find


class Seconds(NamedTuple):
    """Seconds that each node spent in each phase, each (n_nodes,)."""

    solve: Vector
    exchange: Vector
    update: Vector  # multipliers, stopping rule and penalties
    observe: Vector  # records and callbacks


@dataclass(frozen=True)
class Result:
    """The result of a run; the same on every rank.

    Parameters
    ----------
    topology : Topology
    layout : Layout
        Names and shapes of the parts of theta.
    theta : ndarray of shape (n_nodes, size)
        Parameters of each node.
    eta : ndarray of shape (E,)
        Final penalties, aligned with ``topology.edges``.
    objectives : ndarray of shape (n_nodes,)
        f_i at theta_i in the last iteration.
    reason : str
        Why the run ended, one of `dadmm.admm.stopping.REASONS`.
    iterations : int
    certificate : Certificate
        What the last iteration tells about the distance from the optimum.
    ending : Ending
        The criterion that was met last, or was not met.
    traffic : Traffic
    seconds : Seconds
        Of this session: since the run began or was resumed.
    seconds_of_all_sessions : Seconds
    history : History
    nodes : ndarray of int of shape (n_nodes,)
        Original number of each node that is left.
    lost : tuple of int
        Original numbers of failed nodes.
    component_root : int, optional
        First node of this part of the graph, if failures disconnected it from the rest.
    comm : MPI.Comm, optional
        Communicator of the ranks that finished.
    """

    topology: Topology
    layout: Layout
    theta: Matrix
    eta: Vector
    objectives: Vector
    reason: str
    iterations: int
    certificate: Certificate
    ending: Ending
    traffic: Traffic
    seconds: Seconds
    seconds_of_all_sessions: Seconds
    history: History
    nodes: np.ndarray
    lost: tuple[int, ...] = ()
    component_root: int | None = None
    comm: Any = None

    @property
    def converged(self) -> bool:
        """Whether the stopping rule ended the run."""
        return self.reason == "converged"

    def distance_bound(self, strong: float, smooth: float) -> float:
        """Return a bound on every node's distance from the optimum of a convex sum.

        Parameters
        ----------
        strong : float
            Smallest curvature of the whole sum.
        smooth : float
            Largest curvature of any one f_i.
        """
        return distance_bound(self.certificate, self.topology, strong, smooth)

    def of(self, node: int) -> Vector:
        """Return the parameters (size,) of a node, by its number at the start."""
        theta: Vector = self.theta[np.searchsorted(self.nodes, node)]
        return theta

    def parts(self, i: int) -> Any:
        """Return the named parts of node i's parameters."""
        return self.layout.views(self.theta[i])


def gather(
    local: LocalRun,
    factory: RunFactory,
    init: str,
    iterations: int,
    reason: str,
    recorder: Recorder,
    before: Mapping[int, Vector],
) -> Result:
    """Return the result of all nodes that finished, on every rank.

    ``before`` has the seconds (4,) of nodes in earlier sessions of the run.
    """
    run, work = local.run, local.run.work
    exchange, size, phases = run.exchange, run.layout.size, len(PHASES)
    earlier = [before.get(i, np.zeros(phases)) for i in run.names.tolist()]
    own = np.column_stack(
        [run.state.theta, work.objective, run.seconds, run.seconds - earlier,
         work.disagreement, work.residual, run.gaps, work.lag]
    )  # fmt: skip
    table = exchange.collect(run.by_node(own))
    measured = table[:, size + 1 :].T.copy()
    eta = run.by_edge(run.state.penalty["eta"])
    return Result(
        topology=run.topology,
        layout=run.layout,
        theta=table[:, :size].copy(),
        eta=exchange.collect(eta[:, None])[:, 0],
        objectives=table[:, size].copy(),
        reason=reason,
        iterations=iterations,
        certificate=Certificate(*measured[2 * phases :]),
        ending=find(local, factory, init, iterations, reason == "converged"),
        traffic=_traffic(run),
        seconds=Seconds(*measured[phases : 2 * phases]),
        seconds_of_all_sessions=Seconds(*measured[:phases]),
        history=recorder.history(exchange),
        nodes=np.array(local.names),
        lost=tuple(local.lost),
        component_root=local.component_root,
    )


def _traffic(run: Run) -> Traffic:
    """Return the number of messages and bytes that all nodes have sent."""
    kept, none = run.state.sending, np.zeros(len(run.arcs), dtype=np.int64)
    own = np.column_stack(
        [run.exchange.sent, kept.get("silent", none), kept.get("lost", none)]
    )
    counts = run.exchange.collect(run.by_edge(own)).astype(np.int64)
    messages, data, silent, lost = counts.T.copy()
    # receivers count lost payloads, so the sender's row is the reverse edge
    return Traffic(
        messages,
        data,
        silent,
        lost[run.topology.reverse],
        *run.exchange.collectives.tolist(),
    )
