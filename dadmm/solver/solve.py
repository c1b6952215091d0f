"""Solve a consensus problem: the library's front door."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from dadmm import penalty
from dadmm.admm.algorithm import Watcher
from dadmm.admm.certificate import Certificate, distance_bound
from dadmm.admm.node import PHASES, Node
from dadmm.admm.stopping import AGREEMENTS, Rule
from dadmm.core.checks import MOST_SEED, check_integer, check_number
from dadmm.core.errors import ConfigError, ProblemError, TopologyError
from dadmm.core.interfaces import Exchange, Problem, Traffic
from dadmm.core.layout import Layout, Matrix, Vector
from dadmm.core.linalg import one_thread
from dadmm.exchange import InProcessExchange, identity
from dadmm.exchange.sending import EVERYTHING, Sending, check_loss
from dadmm.exchange.wire import width
from dadmm.exchange.world import Alone, together
from dadmm.graphs.schedule import Schedule
from dadmm.graphs.topology import Topology
from dadmm.resilience.checkpoint import Checkpoints
from dadmm.resilience.team import Recipe, Team, carry_through
from dadmm.results.record import History, Observe, Recorder
from dadmm.solver.ending import Ending, find

INITS = ("shared", "independent")
FAILURES = ("abort", "continue")
# arguments that each rank may have as it likes, or that are compared as a graph
OWN = {"problems", "topology", "comm", "schedule", "max_seconds", "watchers"}
# arguments that may change when a run is resumed
FREE = {
    "max_iter", "wait", "record", "record_edges", "observe", "checkpoints",
    "on_failure",
}  # fmt: skip


class Seconds(NamedTuple):
    """What each node spent on each phase of its iterations, each (n_nodes,)."""

    solve: Vector
    exchange: Vector
    update: Vector  # of multipliers, verdict and penalties
    observe: Vector


@dataclass(frozen=True)
class Result:
    """What a run found; the same on every rank."""

    topology: Topology
    layout: Layout
    theta: Matrix  # (n_nodes, size)
    eta: Vector  # (E,) as each end set it at the end, aligned with topology.edges
    objectives: Vector  # (n_nodes,) f_i at theta_i, in the last iteration
    reason: str  # one of stopping.REASONS
    iterations: int
    certificate: Certificate  # what the last iteration proves about the optimum
    ending: Ending  # what the stopping rule waited for last
    traffic: Traffic
    seconds: Seconds  # of this session: since the run began, or was resumed
    seconds_of_all_sessions: Seconds
    history: History
    nodes: np.ndarray  # (n_nodes,) what the nodes were called when the run began
    lost: tuple[int, ...] = ()  # nodes that died on the way
    offshoot: int | None = None  # first node of a part that a loss has cut off
    comm: Any = None  # of those that finished

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
        return self.theta[np.searchsorted(self.nodes, node)]

    def parts(self, i: int) -> Any:
        """Return the named parts of node i's parameters."""
        return self.layout.views(self.theta[i])


def solve(
    problems: Sequence[Problem] | Problem,
    topology: Topology,
    *,
    comm: Any = None,
    scheme: str = "auto",
    eta0: float = 10.0,
    t_max: int = 50,
    residual_ratio: float = 10.0,
    budget0: float = 5.0,
    budget_decay: float = 0.5,
    budget_trigger: float = 0.1,
    relaxation: float | None = None,
    probe: str = "midpoint",
    coupling: str = "symmetric",
    init: str = "shared",
    stopping: str = "optimality",
    agreement: str = "neighbours",
    tolerance: float = 1e-3,
    absolute_tolerance: float = 1e-6,
    max_iter: int = 1000,
    max_seconds: float | None = None,
    theta0: Matrix | None = None,
    seed: int = 0,
    wait: str = "auto",
    sending: Sending = EVERYTHING,
    schedule: Schedule | None = None,
    record: bool = True,
    record_edges: bool = False,
    observe: Observe | None = None,
    watchers: Sequence[Watcher] = (),
    checkpoints: Checkpoints | None = None,
    on_failure: str = "abort",
) -> Result:
    """Minimise the sum of the nodes' objectives over one shared parameter vector.

    Parameters
    ----------
    problems : sequence of Problem, or Problem
        One per node; with ``comm``, the one problem of this rank.
    topology : Topology
        Who talks to whom.
    comm : MPI.Comm, optional
        One node per rank. Without it all nodes run in this process. The result is the
        same to the last bit on machines of one type with the same BLAS, if a problem of
        one's own does not use BLAS with several threads before `solve` does.
    scheme : str
        How penalties adapt. `auto` needs no settings; the paper's are `fixed`, `vp`,
        `ap`, `nap`, `vp_ap`, `vp_nap`; others in `dadmm.penalty.beyond`.
    eta0, t_max, residual_ratio, budget0, budget_decay, budget_trigger, relaxation
        Settings of the scheme, see `dadmm.penalty.schemes.Scheme`.
    probe : {"midpoint", "neighbour"}
        Where a node tries its neighbours' parameters: halfway, or at theirs.
    coupling : {"symmetric", "own"}
        One penalty per edge, which converges to the optimum; or each end its own, as
        the paper prints it, which does not in general.
    init : {"shared", "independent"}
        All nodes draw the same starting parameters from the seed, or each its own.
    stopping : {"optimality", "residuals", "objective"}
        What must be small for a node to be satisfied, 4 iterations in a row.
    agreement : {"neighbours", "global"}
        How the nodes agree that all are satisfied: by words in their messages, or by a
        collective, for curves comparable with the paper's.
    tolerance, absolute_tolerance : float
        Of the stopping rule, see `dadmm.admm.stopping.Rule`; a ``tolerance`` of 0 runs
        exactly ``max_iter`` iterations.
    max_iter : int
    max_seconds : float, optional
        Ask all nodes to stop once some process has iterated this long. They stop after
        the same iteration, at most two diameters of iterations later.
    theta0 : ndarray of shape (n_nodes, size), optional
        Starting parameters, instead of ``init``.
    seed : int
        Of the starting parameters.
    wait : {"auto", "block", "nap"}
        How ranks wait, see `dadmm.exchange.mpi.MPIExchange`.
    sending : Sending
        How to send less, see `dadmm.exchange.sending.Sending`.
    schedule : Schedule, optional
        Which edges of the graph there are when, see `dadmm.graphs.schedule`; all, always, by
        default.
    record, record_edges : bool
        Keep a row per node, and per directed edge, and iteration in ``history``.
    observe : dict of str to callable, optional
        Further columns of the history: each a function of theta (size,).
    watchers : sequence of callables
        Each is shown ``(t, nodes)`` after every iteration; see `algorithm.iterate`.
    checkpoints : Checkpoints, optional
        Where and when to save the state of the run, and whether to go on from there;
        the history then begins where the run goes on.
    on_failure : {"abort", "continue"}
        When a rank dies, end all of them, or go on with those that are left, for which
        ``comm`` must be fault tolerant (Open MPI with ULFM).

    Returns
    -------
    result : Result

    Raises
    ------
    DadmmError
        For anything a caller can mend; each message is one sentence.
    """
    given = locals()
    if comm is not None:
        _compare(given)  # first: what is wrong then is so, and told, on all ranks
    rule = Rule(stopping, tolerance, absolute_tolerance)
    policy = penalty.build(
        scheme,
        eta0=eta0,
        t_max=t_max,
        residual_ratio=residual_ratio,
        budget0=budget0,
        budget_decay=budget_decay,
        budget_trigger=budget_trigger,
        relaxation=relaxation,
    )
    _check(init, agreement, on_failure, max_iter, max_seconds)
    check_loss(sending, scheme)
    hosted = _hosted(problems, topology, comm)
    layout = next(iter(hosted.values())).layout
    if checkpoints is not None:
        _open(checkpoints, tuple(hosted), given)
    with one_thread():
        starts = _starts(hosted, topology.n_nodes, layout.size, init, theta0, seed)
    recipe = Recipe(hosted, starts, policy, rule, sending, coupling, probe, agreement)
    # an objective that is not finite is told in words
    with one_thread(), np.errstate(all="ignore"):
        # On an error it is not closed: peers may still wait, and the job must end.
        exchange = _exchange(topology, layout, comm, wait, on_failure)
        team = recipe.team(exchange, topology, schedule, range(topology.n_nodes))
        start = 0 if checkpoints is None else checkpoints.start
        recorder = Recorder(team.nodes, observe or {}, record, record_edges, start)
        watching = [*watchers, *recorder.watchers]
        if max_seconds is not None:
            watching.append(_deadline(max_seconds))
        if checkpoints is not None:
            watching.append(checkpoints)
        team, iterations, reason = carry_through(
            team, recipe, max_iter, watching, checkpoints
        )
        before = {} if checkpoints is None else checkpoints.seconds_before
        result = _gather(team, recipe, iterations, reason, recorder, before)
        left = team.exchange.comm if team.lost else comm
        team.exchange.close()
        return replace(result, comm=left)


def _gather(
    team: Team,
    recipe: Recipe,
    iterations: int,
    reason: str,
    recorder: Recorder,
    before: Mapping[int, Vector],
) -> Result:
    """Return what all nodes that finished have found, on every rank.

    ``before`` has the seconds (4,) of nodes in earlier sessions of the run.
    """
    exchange, nodes = team.exchange, team.nodes
    layout = nodes[0].layout
    none = np.zeros(len(PHASES))
    own = [
        (*node.theta, node.objective, *node.total_seconds,
         *(node.total_seconds - before.get(node.index, none)),
         node.disagreement, node.residual, node.gap, node.lag)
        for node in nodes
    ]  # fmt: skip
    table = exchange.collect(np.array(own))
    measured = table[:, layout.size + 1 :].T.copy()
    eta = np.concatenate([node.penalty.eta for node in nodes])
    return Result(
        topology=team.topology,
        layout=layout,
        theta=table[:, : layout.size].copy(),
        eta=exchange.collect(eta[:, None])[:, 0],
        objectives=table[:, layout.size].copy(),
        reason=reason,
        iterations=iterations,
        certificate=Certificate(*measured[2 * len(PHASES) :]),
        ending=find(team, recipe, iterations, reason == "converged"),
        traffic=_traffic(nodes, exchange, team.topology),
        seconds=Seconds(*measured[len(PHASES) : 2 * len(PHASES)]),
        seconds_of_all_sessions=Seconds(*measured[: len(PHASES)]),
        history=recorder.history(exchange),
        nodes=np.array(team.names),
        lost=tuple(team.lost),
        offshoot=team.offshoot,
    )


def _open(
    checkpoints: Checkpoints, hosted: Sequence[int], given: dict[str, Any]
) -> None:
    """Read the checkpoint to go on from, if the run is to go on."""
    topology, comm = given["topology"], given["comm"]
    world: Any = Alone()
    if comm is not None:
        from dadmm.exchange.mpi import World

        world = World(comm)
    decides = {k: v for k, v in given.items() if k not in OWN | FREE}
    about = identity.identity(decides, topology, given["schedule"])
    checkpoints.open(world, hosted, topology.n_nodes, given["max_iter"], about)
    together(world, checkpoints.tidy, world.rank)


def _traffic(nodes: Sequence[Node], exchange: Exchange, topology: Topology) -> Traffic:
    """Return what all nodes have sent."""
    own = [
        np.column_stack([exchange.sent[i], node.links.silent, node.links.lost])
        for i, node in zip(exchange.hosted, nodes, strict=True)
    ]
    counts = exchange.collect(np.vstack(own)).astype(np.int64)
    messages, data, silent, lost = counts.T.copy()
    # a receiver counts what was lost, its sender's row is the reverse one
    return Traffic(
        messages, data, silent, lost[topology.reverse], *exchange.collectives
    )


def _compare(given: dict[str, Any]) -> None:
    """Raise, on all ranks, if they were not given one thing to solve together."""
    from dadmm.exchange.mpi import compare

    facts = identity.versions()
    facts |= identity.settings({k: v for k, v in given.items() if k not in OWN})
    facts["graph"] = identity.of_graph(given["topology"], given["schedule"])
    facts["layout"] = repr(getattr(given["problems"], "layout", None))
    compare(given["comm"], facts)


def _check(
    init: str, agreement: str, on_failure: str, max_iter: int, max_seconds: float | None
) -> None:
    for name, value, allowed in (
        ("init", init, INITS),
        ("agreement", agreement, AGREEMENTS),
        ("on_failure", on_failure, FAILURES),
    ):
        if value not in allowed:
            raise ConfigError(
                f"unknown {name} {value!r}; choose one of {', '.join(allowed)}"
            )
    check_integer("max_iter", max_iter, 1)
    if max_seconds is not None:
        check_number("max_seconds", max_seconds, lambda x: x > 0, "positive")


def _hosted(
    problems: Sequence[Problem] | Problem, topology: Topology, comm: Any
) -> dict[int, Problem]:
    """Return the problems of this process by node."""
    if comm is not None:
        if not isinstance(problems, Problem):
            raise ProblemError("with comm, pass the one problem of this rank")
        return {comm.rank: problems}
    if isinstance(problems, Problem):
        raise ProblemError(
            "without comm, pass a list with one problem per node; with one node per "
            "rank, pass comm=MPI.COMM_WORLD"
        )
    if len(problems) != topology.n_nodes:
        raise TopologyError(
            f"the graph has {topology.n_nodes} nodes but {len(problems)} problems "
            "were given; pass one per node"
        )
    for i, problem in enumerate(problems):
        if problem.layout != problems[0].layout:
            raise ProblemError(
                f"all nodes must share one layout, but node 0 has {problems[0].layout} "
                f"and node {i} has {problem.layout}"
            )
    return dict(enumerate(problems))


def _starts(
    hosted: dict[int, Problem],
    n_nodes: int,
    size: int,
    init: str,
    theta0: Matrix | None,
    seed: int,
) -> dict[int, Vector]:
    """Return the starting parameters of the hosted nodes."""
    if theta0 is not None:
        if np.shape(theta0) != (n_nodes, size):
            raise ProblemError(
                f"theta0 must have shape ({n_nodes}, {size}), got {np.shape(theta0)}"
            )
        if not np.isfinite(theta0).all():
            node = int(np.argwhere(~np.isfinite(theta0))[0, 0])
            raise ProblemError(f"theta0 must be finite, but that of node {node} is not")
        return {i: np.asarray(theta0[i], dtype=np.float64) for i in hosted}
    check_integer("seed", seed, 0, MOST_SEED)
    # one stream for all nodes, or one per node: the same with and without MPI
    key = {i: [seed, 0] if init == "shared" else [seed, 1, i] for i in hosted}
    return {i: hosted[i].init(np.random.default_rng(key[i])) for i in hosted}


def _exchange(
    topology: Topology, layout: Layout, comm: Any, wait: str, on_failure: str
) -> Exchange:
    longest = width(layout.shared_size)
    if comm is None:
        return InProcessExchange(topology, longest)
    from dadmm.exchange.mpi import MPIExchange

    return MPIExchange(comm, topology, longest, wait, on_failure == "continue")


def _deadline(seconds: float) -> Watcher:
    end = monotonic() + seconds
    return lambda t, nodes: "max_seconds" if monotonic() > end else None
