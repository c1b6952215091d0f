"""Algorithm 1: the iteration of all nodes of a process, in the order of the paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from dadmm.admm.clock import Clock
from dadmm.admm.edges import Edges
from dadmm.admm.local import Local
from dadmm.admm.mail import Mail
from dadmm.admm.penalties import Penalties
from dadmm.admm.state import State, Work
from dadmm.admm.stopping import REASONS, NeighbourStopping
from dadmm.core.interfaces import Exchange
from dadmm.core.layout import Layout, Matrix, Vector
from dadmm.graphs.incidence import Incidence
from dadmm.graphs.topology import Topology


def iterate(
    run: Run, max_iter: int, callbacks: Sequence[Callback] = (), start: int = 0
) -> tuple[int, str]:
    """Run the algorithm; return the number of iterations and why it ended.

    Parameters
    ----------
    run : Run
    max_iter : int
    callbacks : sequence of Callback
        Each is called with ``(t, run)`` after every iteration. ``run.due`` is what all
        nodes do now: "save", a reason to stop, or "". A callback may return a request
        to all nodes, see `stopping.REQUESTS`.
    start : int
        Number of iterations that the nodes have done before.
    """
    edges, local, mail, clock = run.edges, run.local, run.mail, run.clock
    for t in range(start + 1, max_iter + 1):
        with clock.solve:
            edges.pull()  # centre and weight of the proximal term
            local.solve()  # theta_i
            turn = mail.write(t)
        with clock.exchange:
            run.exchange.swap()
        with clock.update:
            mail.read(turn)  # theta_j
            edges.move(turn)  # lambda_ij and z_ij
            edges.measure(turn)  # r_i and s_i
            mail.update_gates(turn)  # which edges may sleep
            local.evaluate(t)  # f_i(theta_i), and f_i(rho_ij) if the scheme probes
            run.stopping.judge(mail.inbox, turn)
            run.penalties.adapt(turn)  # eta_ij and the budgets
        with clock.observe:
            done = run.stopping.done(t)
            due = run.stopping.due_request(t)
            run.due = "converged" if done else "max_iter" if t == max_iter else due
            for callback in callbacks:
                request = callback(t, run)
                if request is not None:
                    run.stopping.request(t, request)
        if run.due in REASONS:
            return t, run.due
    return max_iter, "max_iter"


@dataclass
class Run:
    """The nodes of a process: their state, and the parts of an iteration.

    Rows of arrays are in order of degree. `by_node` and `by_edge` put them in the order
    of the graph.

    Parameters
    ----------
    topology : Topology
    nodes : ndarray of int, shape (n,)
        Numbers of the nodes in the graph, by row.
    arcs : ndarray of int, shape (E,)
        Their directed edges, as indices of ``topology.edges``.
    names : ndarray of int, shape (n,)
        Numbers of the nodes at the start of the run; others may have failed since.
    """

    topology: Topology
    layout: Layout
    nodes: np.ndarray
    arcs: np.ndarray
    names: np.ndarray
    incidence: Incidence
    state: State
    work: Work
    edges: Edges
    local: Local
    mail: Mail
    exchange: Exchange
    stopping: NeighbourStopping
    penalties: Penalties
    clock: Clock = field(default_factory=Clock)
    due: str = ""

    def __post_init__(self) -> None:
        self._node_order = np.argsort(self.nodes)
        self._arc_order = np.argsort(self.arcs)
        self._seconds_before = np.zeros((len(self.nodes), 4))

    def by_node(self, rows: np.ndarray) -> np.ndarray:
        """Return rows (n, ...) in the order of the nodes' numbers."""
        return rows[self._node_order]

    def by_edge(self, rows: np.ndarray) -> np.ndarray:
        """Return rows (E, ...) in the order of ``topology.edges``."""
        return rows[self._arc_order]

    @property
    def theta(self) -> Matrix:
        """Parameters of the nodes of this process, in the order of their numbers."""
        return self.by_node(self.state.theta)

    @property
    def objective(self) -> Vector:
        """f_i(theta_i) of the nodes of this process, in the order of their numbers."""
        return self.by_node(self.work.objective)

    def open(self) -> None:
        """Exchange starting parameters, and set the first anchors and penalties."""
        self.mail.open()
        self.edges.start()
        self.penalties.start()

    def snapshot(self) -> State:
        """Return a copy of the state after the last iteration."""
        state = self.state
        self.penalties.check("update")
        state.measured[...] = self.work.numbers.T
        state.seconds[...] = self.seconds
        state.traffic[...] = self.exchange.sent
        state.collectives[...] = self.exchange.collectives
        state.stopping = np.tile(self.stopping.save(), (len(self.nodes), 1))
        return state.choose()

    def restore(self, state: State) -> None:
        """Continue from a state with the same rows."""
        own, work = self.state, self.work
        own.assign(state)
        work.numbers[...] = own.measured.T
        work.shared[...] = self.layout.shared(own.theta)
        self.edges.derive()
        self._seconds_before = own.seconds.copy()
        self.exchange.sent[...] = own.traffic
        self.stopping.restore(own.stopping)
        own.header.view(self.mail.outbox.fields.dtype)["requests"] = (
            0  # made before it was saved
        )
        for name, rows in own.posted.items():
            self.exchange.post(name, rows)
        self.exchange.collectives[...] = own.collectives

    @property
    def seconds(self) -> Matrix:
        """Seconds of each node in each phase, in all sessions of the run, (n, 4)."""
        return self._seconds_before + self.clock.total / len(self.nodes)

    @property
    def gaps(self) -> Vector:
        """Each node's share of the estimated objective gap, see `Certificate.gap`."""
        state, work, incidence = self.state, self.work, self.incidence
        difference, lag = work.scratch, work.gap
        incidence.spread_into(work.shared, difference)
        if not self.mail.direct:
            np.subtract(difference, state.sent, out=lag)
        difference -= state.received
        if not self.mail.direct:
            difference += lag
        across = np.zeros(len(self.nodes))
        products = np.vecdot(state.multipliers, difference)
        incidence.reduce(np.add, products, across)
        lengths = np.sqrt(np.vecdot(work.shared, work.shared))
        gaps: Vector = np.abs(across) + work.residual * lengths
        return gaps


Callback = Callable[[int, Run], str | None]
