"""The recursions of other algorithms, and the loop that exchanges their messages.

Rows of the arrays are nodes. ``W`` has the Metropolis weights of the graph. A node
mixes ``x_i + sum_j w_ij (x_j - x_i)``, with both values *as they were sent*. So mixing
does not change the mean of all nodes, however messages are rounded. As in the papers,
f_i is the objective of node i: the smooth s_i plus r_i, the absolute values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, cast

import numpy as np

from dadmm.comm import wire
from dadmm.comm.codec import Coder
from dadmm.comm.exchange import Exchange, Hosted
from dadmm.comm.sending import Sending
from dadmm.comm.world import Checks, World
from dadmm.core import schema
from dadmm.core.errors import ConfigError
from dadmm.core.interfaces import Problem
from dadmm.core.layout import Layout, Matrix, Vector
from dadmm.core.linalg import one_blas_thread, triangular
from dadmm.graphs.schedule import Schedule
from dadmm.graphs.topology import Topology
from dadmm.solver import solve as engine
from dadmm.solver.kind import SolveKind
from dadmm.solver.plan import Kind, abilities, draw_starts, make_plan

if TYPE_CHECKING:
    from dadmm.comm import Comm


@dataclass
class Algorithm(schema.Checked):
    """The base of all algorithms.

    Parameters
    ----------
    step : float
        Length of a gradient step, in units of 1 / L, where L is the largest curvature
        of a node's objective at the start.

    Examples
    --------
    Decentralised gradient descent; docs/communication.md runs it:

    >>> import dadmm
    >>> class Descent(dadmm.baselines.Algorithm):
    ...     def update(self, mixed):
    ...         self.x = mixed - self.length * self.run.gradient(self.x)
    >>> Descent(step=0.1).width
    1
    """

    step: float = schema.entry(1.0, schema.POSITIVE)

    #: numbers in a message for each parameter; with 0 it adds up over a spanning tree
    width: ClassVar[int] = 1
    has_prox: ClassVar[bool] = False  # whether f_i may have absolute values
    needs_gradient: ClassVar[bool] = True
    allows_schedule: ClassVar[bool] = False  # whether edges may come and go

    def start(self, run: BaselineRun) -> None:
        """Take the nodes of this process; set ``x`` to their estimates."""
        self.run, self.length = run, self.step / run.curvature
        self.x: Matrix = run.start  # (n, m)

    def message(self) -> Matrix:
        """Return what each node sends to its neighbours, (n, width m)."""
        return self.x

    def update(self, mixed: Matrix) -> None:
        """Set ``x`` to the next estimates, given ``W message``."""
        raise NotImplementedError(f"{type(self).__name__} needs a method update")


@dataclass
class EXTRA(Algorithm):
    """EXTRA (Shi, Ling, Wu and Yin, SIAM J. Optim. 25, 2015), or PG-EXTRA with r_i."""

    step: float = 0.5
    has_prox = True

    def start(self, run: BaselineRun) -> None:
        super().start(run)
        self._z = self._both = self._slope = np.zeros_like(self.x)

    def update(self, mixed: Matrix) -> None:
        slope, both = self.run.gradient(self.x), self.x + mixed  # x + W x
        change = self.length * (slope - self._slope)
        self._z = self._z + mixed - 0.5 * self._both - change
        self._both, self._slope = both, slope
        self.x = self.run.prox(self._z, self.length)


class NIDS(Algorithm):
    """NIDS with one step length (Li, Shi and Yan, IEEE Trans. Signal Process. 2019)."""

    has_prox = True

    def start(self, run: BaselineRun) -> None:
        super().start(run)
        self._before, self._slope = self.x, run.gradient(self.x)
        self._z = self.x - self.length * self._slope
        self.x = run.prox(self._z, self.length)

    def message(self) -> Matrix:
        slope = self.run.gradient(self.x)
        self._sent = 2.0 * self.x - self._before + self.length * (self._slope - slope)
        self._before, self._slope = self.x, slope
        return self._sent

    def update(self, mixed: Matrix) -> None:
        self._z = self._z - self.x + 0.5 * (self._sent + mixed)
        self.x = self.run.prox(self._z, self.length)


@dataclass
class DIGing(Algorithm):
    """Gradient tracking (Nedic, Olshevsky and Shi, SIAM J. Optim. 27, 2017)."""

    step: float = 0.2
    width = 2
    allows_schedule = True

    def start(self, run: BaselineRun) -> None:
        super().start(run)
        self._y = self._slope = run.gradient(self.x)

    def message(self) -> Matrix:
        return np.hstack([self.x, self._y])

    def update(self, mixed: Matrix) -> None:
        x, y = np.hsplit(mixed, 2)
        self.x = x - self.length * self._y
        slope = self.run.gradient(self.x)
        self._y, self._slope = y + slope - self._slope, slope


class AllReduce(Algorithm):
    """Gradient descent; a spanning tree adds up gradients, up and down its edges."""

    width = 0
    has_prox = True

    def start(self, run: BaselineRun) -> None:
        super().start(run)
        n = run.topology.n_nodes
        self.x = np.tile(run.total(self.x) / n, (len(self.x), 1))
        self._l1: Vector = run.total(run.l1) / n if run.has_l1 else run.l1[0]

    def update(self, mixed: Matrix) -> None:
        slope = self.run.total(self.run.gradient(self.x)) / self.run.topology.n_nodes
        self.x = shrink(self.x - self.length * slope, self.length * self._l1)


class OneSum(Algorithm):
    """The normal equations of all nodes, merged once; the exact solution."""

    width = 0
    needs_gradient = False

    def update(self, mixed: Matrix) -> None:
        if self.run.t > 1:
            return
        own = [np.column_stack(problem.equations) for problem in self.run.problems]
        found = self.run.total(
            [triangular(rows) for rows in own],
            lambda a, b: triangular(np.vstack([a, b])),
            lambda rows: np.linalg.lstsq(rows[:, :-1], rows[:, -1])[0],
        )
        self.x = np.tile(found, (len(self.x), 1))


def shrink(points: Matrix, by: Matrix | Vector) -> Matrix:
    """Return the proximal step of absolute values: entries moved towards zero."""
    return np.asarray(np.sign(points) * np.maximum(np.abs(points) - by, 0.0))


ALGORITHMS: dict[str, type[Algorithm]] = {
    "extra": EXTRA, "nids": NIDS, "diging": DIGing, "allreduce": AllReduce,
    "one_sum": OneSum,
}  # fmt: skip


class BaselineRun(Hosted):
    """The nodes of a process; callbacks get it in place of `dadmm.Run`.

    Attributes
    ----------
    t : int, iterations done
    problems, start, l1 : list of Problem, ndarray of shape (n, m), ndarray (n, m)
        Problems in the coordinates of the run, first parameters, and weights of r_i.
    curvature : float, the largest of a node's objective at its start

    Examples
    --------
    >>> import dadmm
    >>> X, y, _ = dadmm.datasets.regression(60, 3)
    >>> problems = [dadmm.problems.LeastSquares(X[i::6], y[i::6]) for i in range(6)]
    >>> run = dadmm.baselines.solve(problems, dadmm.Topology.ring(6), max_iter=9)
    >>> run.t, run.theta.shape, run.exchange.sent.sum(axis=0)  # messages and bytes
    (9, (6, 4), array([ 108, 4320]))
    """

    def __init__(
        self,
        algorithm: Algorithm,
        kind: SolveKind,
        exchange: Exchange,
        topology: Topology,
        sending: Sending,
        schedule: Schedule | None,
        has_l1: bool,
    ) -> None:
        super().__init__(topology, exchange)
        self.has_l1 = has_l1  # whether a node of any process has absolute values
        self.algorithm, self.kind, self.t = copy(algorithm), kind, 0
        own = self.nodes.tolist()
        self.problems = [kind.within[i] for i in own]
        self.start: Matrix = np.array([kind.starts[i] for i in own])
        none = np.zeros(self.start.shape[1])
        self.l1 = np.array([getattr(own, "l1", none) for own in self.problems])
        if kind.sent is not None:
            self.tree.sent += kind.sent
        exchange.begin, size = wire.ETA, algorithm.width * self.start.shape[1]
        if size:
            shapes = self.problems[0].layout.shapes.items()
            copies = range(algorithm.width)
            parts = {f"{name}{k}": shape for k in copies for name, shape in shapes}
            self._coder = Coder(sending.codec, Layout.of(**parts))
            exchange.width = self._coder.length
            if exchange.width < exchange.outbox.payload.shape[1]:
                exchange.begin = wire.BRIEF
        self._sent, self._received = np.zeros((2, len(self.arcs), size))
        self._weights = self._metropolis(schedule)
        self.curvature = 1.0
        if algorithm.needs_gradient:
            at = zip(self.problems, self.start, strict=True)
            bends = [np.array([np.linalg.norm(p.rows(x), 2) ** 2]) for p, x in at]
            self.curvature = float(self.total(bends, np.maximum)[0])
        self.is_broadcast = bool(algorithm.width) and schedule is None
        self.algorithm.start(self)
        self.tree_at_start = self.tree.sent.copy()

    def _metropolis(self, schedule: Schedule | None) -> Matrix:
        """Return ``1 / (1 + largest degree of both ends)`` by round and edge."""
        i, j = self.topology.edges.T
        active = np.ones((1, len(i)), dtype=bool)
        if schedule is not None:
            active = schedule.active_edges(self.topology)
        weights = np.zeros(active.shape)
        for row, on in zip(weights, active, strict=True):
            degrees = np.bincount(i[on], minlength=self.topology.n_nodes)
            row[on] = 1.0 / (1.0 + np.maximum(degrees[i[on]], degrees[j[on]]))
        return weights[:, self.arcs]

    def iterate(self, max_iter: int, callbacks: Sequence[Callback]) -> None:
        """Run until callbacks return "stop", in all processes after one iteration."""
        for self.t in range(1, max_iter + 1):
            sends = self.algorithm.width > 0
            mixed = self._mix(self.algorithm.message()) if sends else self.start
            self.algorithm.update(mixed)
            if "stop" in [callback(self.t, self) for callback in callbacks]:
                break

    def _mix(self, message: Matrix) -> Matrix:
        """Send messages to the neighbours; return ``W message``, as it was sent."""
        exchange, incidence = self.exchange, self.incidence
        weights = self._weights[(self.t - 1) % len(self._weights)]
        on = weights > 0.0
        by_edge, n_bytes = np.empty_like(self._sent), exchange.width
        incidence.spread_into(message, by_edge)
        exchange.outbox.header[...] = wire.IDLE
        sent, out = self._sent[on], np.empty((int(on.sum()), n_bytes), np.uint8)
        self._coder.write(by_edge[on], sent, out)
        self._sent[on], exchange.outbox.payload[on, :n_bytes] = sent, out
        exchange.lengths[...] = np.where(on, 2 * wire.ETA - exchange.begin + n_bytes, 0)
        exchange.swap()
        received = self._received[on]
        self._coder.read(exchange.inbox.payload[on, :n_bytes], received)
        self._received[on] = received
        pulled = weights[:, None] * (self._received - self._sent)
        moved: Matrix = incidence.reduce(np.add, pulled, np.zeros_like(message))
        return message + moved

    def gradient(self, points: Matrix) -> Matrix:
        """Return the gradient of each s_i at its row, (n, m)."""
        pairs = zip(self.problems, points, strict=True)
        return np.array([problem.gradient(x) for problem, x in pairs])

    def prox(self, points: Matrix, length: float) -> Matrix:
        """Return the proximal step of each r_i, (n, m)."""
        return shrink(points, length * self.l1) if self.l1.any() else points

    @property
    def theta(self) -> Matrix:
        """Parameters in the user's coordinates, in the order of the nodes' numbers."""
        return self.by_node(self.kind.theta_of(self.algorithm.x))


def solve(
    problems: engine.Problems,
    topology: Topology,
    algorithm: str | Algorithm = "extra",
    *,
    sending: str | Sending = "float64",
    schedule: Schedule | None = None,
    coordinates: str = "raw",
    max_iter: int = 1000,
    callbacks: Sequence[Callback] = (),
    comm: Comm | None = None,
) -> BaselineRun:
    """Run another algorithm on the messages of `dadmm.solve`.

    Parameters
    ----------
    problems, topology, sending, schedule, comm
        As in `dadmm.solve`.
    callbacks
        As in `dadmm.solve`, but all ranks must return "stop" after the same iteration.
    algorithm : str or Algorithm
        A name in `ALGORITHMS`, or an object as ``ALGORITHMS["extra"](step=0.7)``.
    coordinates : {"raw", "metric"}, in which steps are taken
    max_iter : int, unless callbacks stop it

    Examples
    --------
    >>> import dadmm
    >>> X, y, _ = dadmm.datasets.regression(60, 3)
    >>> problems = [dadmm.problems.LeastSquares(X[i::6], y[i::6]) for i in range(6)]
    >>> ring = dadmm.Topology.ring(6)
    >>> run = dadmm.baselines.solve(problems, ring, "extra", max_iter=200)
    >>> near = dadmm.solve(problems, ring, stopping=dadmm.Stopping(tolerance=1e-9))
    >>> bool(abs(run.theta - near.solution).max() < 1e-6)
    True
    """
    world = World(engine.as_option(engine.Ranks, comm).comm)

    def check() -> dict[int, Problem]:
        nonlocal algorithm, sending, topology
        topology = engine.check_shared(topology, schedule, callbacks, coordinates)
        engine.Stopping(max_iter=max_iter)
        sending = engine.as_option(Sending, sending)
        if isinstance(algorithm, str):
            schema.choice(ALGORITHMS).check("algorithm", algorithm)
            algorithm = ALGORITHMS[algorithm]()
        schema.of_type("an Algorithm", Algorithm).check("algorithm", algorithm)
        return engine.hosted_problems(problems, topology, world)

    def common() -> dict[str, str]:
        given = {"algorithm": type(algorithm).__name__} | vars(algorithm)
        given |= {"sending": sending, "coordinates": coordinates, "max_iter": max_iter}
        return engine.facts_of(given, problems, hosted, topology, schedule)

    checks = Checks(world)
    hosted = checks.run(check)
    able = checks.run(lambda: abilities(hosted))
    has_l1 = checks.run(lambda: any(map(_has_l1, hosted.values())))
    everyone = checks.gather(common, able=able, has_l1=has_l1)
    algorithm, sending = cast(Algorithm, algorithm), cast(Sending, sending)
    if world.comm is not None and isinstance(problems, Mapping):
        world.share_nodes(list(hosted), topology.n_nodes)
    if not algorithm.needs_gradient:
        coordinates = "raw"  # no others are needed
    all_able = [able for own in everyone for able in own["able"]]
    plan = make_plan(all_able, None, coordinates)
    given = plan.kind, sending, schedule
    for problem in hosted.values():
        checks.run(partial(check_suited, algorithm, problem, *given))
    checks.gather()
    with one_blas_thread(), np.errstate(all="ignore"):
        kind = engine.KINDS[plan.kind](hosted, None, *draw_starts(hosted, plan))
        if plan.kind is not Kind.RAW:
            kind.prepare(topology, world)
        exchange = engine.make_exchange(world, topology, kind.within, algorithm.width)
        has_l1 = any(own["has_l1"] for own in everyone)
        parts = kind, exchange, topology, sending, schedule
        run = BaselineRun(algorithm, *parts, has_l1)
        run.iterate(max_iter, callbacks)
        run.exchange.close()
    return run


Callback = Callable[[int, BaselineRun], str | None]


def _has_l1(problem: Problem) -> bool:
    return bool(np.any(getattr(problem, "l1", 0.0)))


def check_suited(
    algorithm: Algorithm,
    problem: Problem,
    kind: Kind,
    sending: Sending,
    schedule: Schedule | None,
) -> None:
    """Raise if an algorithm cannot be used with a problem, or with a way of sending."""
    is_smooth, needs_gradient = not _has_l1(problem), algorithm.needs_gradient
    sloped = hasattr(problem, "gradient") and hasattr(problem, "rows")
    always = schedule is None or algorithm.allows_schedule
    needs = {  # in words, and whether it is there
        "a convex problem": getattr(problem, "convex", False),
        "a problem with the methods gradient and rows": sloped or not needs_gradient,
        "a problem of squared errors": needs_gradient or hasattr(problem, "equations"),
        "a problem without absolute values, which nids and extra can have":
            is_smooth or algorithm.has_prox,
        "raw coordinates for absolute values": is_smooth or kind is Kind.RAW,
        "all edges in all iterations; use diging, or a scheme": always,
        "the payload float64, because it sends sums along a tree":
            algorithm.width or sending == Sending(),
        "all messages; of Sending, set the payload only":
            sending == Sending(sending.payload),
    }  # fmt: skip
    for what, is_there in needs.items():
        if not is_there:
            name, given = type(algorithm).__name__, type(problem).__name__
            raise ConfigError(f"the algorithm {name} needs {what} (problem: {given})")
