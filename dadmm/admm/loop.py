"""Algorithm 1: the iteration of all nodes of a process, in the order of the paper."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dadmm.admm.edges import Edges, LossyEdges
from dadmm.admm.local import Local
from dadmm.admm.mail import Mail
from dadmm.admm.penalties import Penalties
from dadmm.admm.rule import Rule, Scales
from dadmm.admm.state import PHASES, Clock, Nodes, Phase, State
from dadmm.admm.stopping import PATIENCE, REASONS, GlobalStopping, NeighbourStopping
from dadmm.comm.codec import Exact
from dadmm.comm.exchange import Exchange
from dadmm.comm.sending import Sending
from dadmm.comm.wire import HEADER, MOST_QUIET
from dadmm.core.errors import ConfigError
from dadmm.core.interfaces import Problem
from dadmm.core.layout import Layout, Matrix, Vector
from dadmm.core.linalg import by_row
from dadmm.graphs.schedule import Schedule
from dadmm.graphs.topology import Topology
from dadmm.penalty.schemes import Scheme

MISSED = 1e-9  # probability that an edge got no payload while the rule held


def iterate(
    run: Run, max_iter: int, callbacks: Sequence[Callback] = (), start: int = 0
) -> tuple[int, str]:
    """Run the algorithm; return the number of iterations and why it ended.

    Each callback is called with ``(t, run)`` after every iteration, and may return a
    request to all nodes, see `stopping.REQUESTS`. The nodes have done ``start``
    iterations before.
    """
    edges, local, mail, clock = run.edges, run.local, run.mail, run.clock
    if start == 0 and run.kind.holds_at_start(run):
        return 0, "converged"
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
            edges.update_residuals(turn)  # r_i and s_i
            mail.update_gates(turn)  # which edges may sleep
            local.evaluate(t)  # f_i(theta_i), and f_i(rho_ij) if the scheme probes
            run.stopping.judge(mail.inbox, turn)
            run.penalties.adapt(turn)  # eta_ij and the budgets
        with clock.observe:
            due = run.stopping.due_request(t)
            run.due = run.verdict(t) or ("max_iter" if t == max_iter else due)
            for callback in callbacks:
                request = callback(t, run)
                if request is not None:
                    run.stopping.request(t, request)
        if run.due in REASONS:
            return t, run.due
    return max_iter, "max_iter"


class RunKind:
    """What differs between kinds of run: coordinates, start, and when a run stops.

    This one is in the coordinates of the user, and stops by its stopping rule. Dicts
    are by original number of the node. ``duals`` (shared_size,) are ``2 sum_j
    lambda_ij`` at the start, whose sum is zero, by default zero. ``within`` has the
    problems in the coordinates of the run.
    """

    scales: Mapping[int, Matrix] | None = None  # (2, parts) of a scaled rule
    curvature: Mapping[int, float] | None = None  # of f_i; None if to be measured

    def __init__(
        self,
        problems: Mapping[int, Any],
        rule: Rule | None = None,
        starts: Mapping[int, Vector] | None = None,
        duals: Mapping[int, Vector] | None = None,
    ) -> None:
        self.problems, self.rule = problems, rule or Rule()
        self.starts, self.duals = starts or {}, duals
        self.layout: Layout = next(iter(problems.values())).layout
        self.within: dict[int, Any] = dict(problems)

    def scales_of(self, names: np.ndarray) -> Scales | None:
        if self.scales is None:
            return None
        return np.stack([self.scales[i] for i in names.tolist()], axis=-1)

    def verdict(self, t: int, run: Run) -> str:
        """Return why a run stops, when all nodes meet the rule, or ""."""
        return "converged"

    def holds_at_start(self, run: Run) -> bool:
        """Return whether nothing is left to do, as a warm start may have it."""
        return False

    def adopt(self, run: Run) -> None:
        """Use the coordinates of ``run.state.coordinates``, or save those there are."""

    def theta_of(self, rows: Matrix) -> Matrix:
        """Return parameters (n, size) in the coordinates of the user."""
        return rows

    def gradients_of(self, rows: Matrix, theta: Matrix) -> Matrix:
        """Return gradients (n, shared_size) at theta in the coordinates of the user."""
        return rows


class Setup(NamedTuple):
    """What a run is made of, on any graph: also without failed nodes."""

    kind: RunKind
    scheme: Scheme
    sending: Sending
    agreement: str = "neighbours"  # or "global": how nodes agree on a stop


class Run(Nodes):
    """The nodes of a process: their state, and the parts of an iteration.

    Rows are in the order of degrees; `by_node` and `by_edge` put them in the order of
    the graph.

    Attributes
    ----------
    layout : Layout
        Names and shapes of the parts of theta, in the coordinates of the run.
    nodes, names : ndarray of int, shape (n,)
        Numbers of the nodes in the graph, and before other nodes failed.
    arcs : ndarray of int, shape (E,)
        Their directed edges, as indices of ``topology.edges``.
    incidence : Incidence
        Which edges belong to which node.
    state, work : State, Work
        The arrays of an iteration: those that the next one needs, and all others.
    edges, local, mail, exchange, stopping, penalties
        The parts of an iteration, in the order of `iterate`.
    kind : RunKind
    clock : Clock
        Seconds of each phase.
    due : str
        What all nodes do now: "save", a reason to stop, or "".

    Examples
    --------
    >>> import dadmm
    >>> X, y, _ = dadmm.datasets.regression(60, 3)
    >>> problems = [dadmm.problems.LeastSquares(X[i::6], y[i::6]) for i in range(6)]
    >>> def show_shapes(t, run):
    ...     if t == 3:
    ...         print(run.theta.shape, run.by_edge(run.state.eta).shape)
    >>> _ = dadmm.solve(problems, dadmm.Topology.ring(6), callbacks=[show_shapes])
    (6, 4) (12,)
    """

    def __init__(
        self,
        setup: Setup,
        exchange: Exchange,
        topology: Topology,
        schedule: Schedule | None = None,
        names: Sequence[int] | None = None,
    ) -> None:
        self.setup = setup
        kind, scheme, sending, agreement = setup
        layout = next(iter(kind.within.values())).layout
        # whether every message carries the parameters themselves
        is_partial = sending.censor or sending.edge_sleep or sending.drop_probability
        direct = sending.codec == Exact() and sending.send_every == 1
        direct = direct and schedule is None and not is_partial
        super().__init__(topology, exchange, layout, names, direct)
        own = self.names.tolist()
        state, work = self.state, self.work
        state.theta = np.array([kind.starts[i] for i in own], dtype=np.float64)
        work.shared[...] = layout.shared(state.theta)
        work.mean[...] = work.shared
        self.kind, self.due = kind, ""
        self.clock = Clock(*(Phase() for _ in PHASES))
        self.schedule = schedule
        self._seconds_before = np.zeros((len(own), len(PHASES)))
        probe = scheme.probe if scheme.probes else ""
        self.local = Local(self, [kind.within[i] for i in own], probe)
        make_edges = LossyEdges if sending.drop_probability else Edges
        self.edges: Edges = make_edges(self, scheme.relaxation or 1.0)
        self.mail = Mail(self, self.edges, sending, schedule, scheme.couples)
        # whether all messages of a node have the same bytes, as a radio broadcasts them
        self.is_broadcast = self.mail.gates.by_node and not scheme.couples
        span, period = (1, 1) if schedule is None else (schedule.span, schedule.period)
        reach, every = topology.diameter_bound * span, sending.send_every
        cycle = span if every == 1 else every * period
        window = 1
        if sending.drop_probability:  # so long that each edge has got a payload
            tries = math.log(MISSED) / math.log(sending.drop_probability)
            window = math.ceil(cycle * tries / PATIENCE)
        counts_hops = agreement == "neighbours" and kind.rule.tolerance > 0.0
        if counts_hops and reach >= MOST_QUIET:
            raise ConfigError(
                f"the nodes need {reach} iterations to agree on a stop, more than the "
                f"{MOST_QUIET - 1} that a message can count; use agreement='global', "
                "or tolerance=0 and max_iter"
            )
        known = kind.rule.name == "objective" and self.local.has_likelihood
        make_stopping = GlobalStopping if agreement == "global" else NeighbourStopping
        self.stopping: NeighbourStopping = make_stopping(
            self, kind.rule, reach, cycle, window,
            kind.scales_of(self.names), self.local.likelihoods if known else None,
        )  # fmt: skip
        self.penalties = Penalties(self, scheme, self.mail, self.local, kind.curvature)
        kind.adopt(self)

    @property
    def theta(self) -> Matrix:
        """Parameters of the nodes of this process, in the order of their numbers."""
        return self.by_node(self.points)

    @property
    def points(self) -> Matrix:
        """Parameters in the coordinates of the user, by row."""
        return self.kind.theta_of(self.state.theta)

    @property
    def objective(self) -> Vector:
        """f_i(theta_i) of the nodes of this process, in the order of their numbers."""
        return self.by_node(self.work.objective)

    def open(self, t: int = 0) -> None:
        """Exchange parameters, and set the penalties of the iteration after ``t``.

        Before the first one, also set anchors and multipliers.
        """
        state, penalties, duals = self.state, self.penalties, self.kind.duals
        scheme = penalties.scheme
        state.penalty = scheme.init(self.incidence, penalties.proposed)
        penalties.check("init")
        state.idle[...] = t  # iterations that the scheme does not count
        self.mail.open()
        if t == 0:
            state.anchors[...] = 0.5 * (state.sent + state.received)  # midpoints
        if t == 0 and duals is not None:
            # in a spanning tree; to its parent a node has half the sum of its subtree
            names = zip(self.nodes.tolist(), self.names.tolist(), strict=True)
            edges, sums = self.tree.subtotals({i: duals[name] for i, name in names})
            order = self._arc_order
            rows = order[np.searchsorted(self.arcs, edges, sorter=order)]
            state.multipliers[rows] = 0.5 * sums
        self.edges.sum_multipliers()
        self.edges.update_mean()
        state.penalty = scheme.start(
            state.penalty, self.mail.inbox.eta.copy(), state.anchors, state.multipliers
        )
        penalties.check("start")
        state.eta[...] = state.penalty["eta"]

    def verdict(self, t: int) -> str:
        """Return why the run stops after iteration ``t``, or "" if it does not."""
        return self.kind.verdict(t, self) if self.stopping.done(t) else ""

    def change_coordinates(
        self, t: int, problems: Sequence[Problem], primal: Matrix, dual: Matrix
    ) -> None:
        """Replace the problems by the same ones in other coordinates, after ``t``.

        They are by row. The new theta is ``theta @ primal``, the new multipliers are
        ``multipliers @ dual``, and ``dual`` is the inverse of ``primal.T``.
        """
        state, work = self.state, self.work
        gradients = work.centre - state.theta  # over the weights
        state.theta = by_row(state.theta, primal)
        work.centre[...] = state.theta + by_row(gradients, dual)
        state.anchors[...] = by_row(state.anchors, primal)
        state.multipliers[...] = by_row(state.multipliers, dual)
        work.shared[...] = state.theta
        self.local.adopt(problems)
        self.open(t)

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
        self.kind.adopt(self)
        work.numbers[...] = own.measured.T
        work.shared[...] = self.layout.shared(own.theta)
        self.edges.sum_multipliers()
        self._seconds_before = own.seconds.copy()
        self.exchange.sent[...] = own.traffic
        self.stopping.restore(own.stopping)
        own.header.view(HEADER)["requests"] = 0  # made before it was saved
        for name, rows in own.posted.items():
            self.exchange.post(name, rows)
        self.exchange.collectives[...] = own.collectives

    @property
    def seconds(self) -> Matrix:
        """Seconds of each node in each phase, in all sessions of the run, (n, 4)."""
        spent = np.array([phase.total for phase in self.clock])
        return self._seconds_before + spent / len(self.nodes)


Callback = Callable[[int, Run], str | None]
