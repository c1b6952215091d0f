"""`dadmm.solve`: check its arguments, run the algorithm, gather the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import wraps
from time import monotonic
from typing import Any, ParamSpec, TypeVar

import numpy as np

from dadmm import penalty
from dadmm.admm.build import RunFactory, row_order
from dadmm.admm.loop import Callback
from dadmm.admm.stopping import AGREEMENTS, Rule
from dadmm.core.checks import MOST_SEED, check_integer, check_number
from dadmm.core.errors import ConfigError, ProblemError, TopologyError
from dadmm.core.interfaces import Exchange, Problem, World
from dadmm.core.layout import Matrix, Vector
from dadmm.core.threads import one_blas_thread
from dadmm.exchange import InProcessExchange, check_wait, identity
from dadmm.exchange.sending import EVERYTHING, Sending, check_loss
from dadmm.exchange.world import SerialWorld, collectively
from dadmm.graphs.schedule import Schedule
from dadmm.graphs.topology import Topology
from dadmm.penalty import Scheme
from dadmm.resilience.checkpoint import Checkpoints
from dadmm.resilience.runner import LocalRun, run_with_recovery
from dadmm.results.history import Recorder
from dadmm.results.rows import Observe
from dadmm.solver.result import Result, gather

P = ParamSpec("P")
T = TypeVar("T")
INITS = ("shared", "independent")
FAILURES = ("abort", "continue")
# arguments that may differ between ranks, or are compared by their content
PER_RANK = {"problems", "topology", "comm", "schedule", "max_seconds", "callbacks"}
RENAMED = {"watchers": "callbacks"}  # arguments, from their old names
# arguments that may change when a run is resumed
MAY_CHANGE = {
    "max_iter", "max_seconds", "wait", "record", "record_edges", "observe",
    "checkpoints", "on_failure",
}  # fmt: skip


def _refuse_old_names(function: Callable[P, T]) -> Callable[P, T]:
    """Return a function that names the new argument when an old one is passed."""

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        for old, new in RENAMED.items():
            if old in kwargs:
                raise ConfigError(f"{old} is now called {new}")
        return function(*args, **kwargs)

    return checked


@_refuse_old_names
def solve(
    problems: Sequence[Problem] | Problem,
    topology: Topology,
    *,
    comm: Any = None,
    scheme: str | Scheme = "auto",
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
    callbacks: Sequence[Callback] = (),
    checkpoints: Checkpoints | None = None,
    on_failure: str = "abort",
) -> Result:
    """Minimise the sum of the nodes' objectives over one shared parameter vector.

    Parameters
    ----------
    problems : sequence of Problem, or Problem
        One problem per node. With ``comm``, the problem of this rank.
    topology : Topology
        The graph: which nodes exchange messages.
    comm : MPI.Comm, optional
        Run one node per rank. By default all nodes run in this process. The result is
        the same to the last bit on machines of one type with the same BLAS, unless a
        problem of your own uses BLAS with several threads before `solve`.
    scheme : str or Scheme
        How penalties adapt. ``"auto"`` needs no settings. The paper's schemes are
        ``"fixed"``, ``"vp"``, ``"ap"``, ``"nap"``, ``"vp_ap"`` and ``"vp_nap"``;
        ``"global_balance"`` is a centralised baseline. A `Scheme` object has its own
        settings; the next seven arguments must then have their default values.
    eta0, t_max, residual_ratio, budget0, budget_decay, budget_trigger, relaxation
        Settings of the scheme, see `dadmm.penalty.schemes.Scheme`.
    probe : {"midpoint", "neighbour"}
        Where a node evaluates its objective to rate a neighbour: halfway between their
        parameters, or at the neighbour's parameters.
    coupling : {"symmetric", "own"}
        Use one penalty per edge, which converges to the optimum, or one per end of an
        edge, as printed in the paper, which in general does not.
    init : {"shared", "independent"}
        Draw the same initial parameters for all nodes, or different ones for each.
    stopping : {"optimality", "residuals", "objective"}
        The stopping rule. Its criteria must be met in 4 iterations in a row.
    agreement : {"neighbours", "global"}
        How nodes find out that all of them meet the criteria: by numbers in their
        messages, or by a collective operation, comparable with the paper's curves.
    tolerance, absolute_tolerance : float
        Tolerances of the stopping rule, see `dadmm.admm.stopping.Rule`. With a
        ``tolerance`` of 0, the run does exactly ``max_iter`` iterations.
    max_iter : int
        Maximum number of iterations.
    max_seconds : float, optional
        Ask all nodes to stop after this time. They stop after the same iteration. The
        delay is at most twice the diameter of the graph, in iterations, times the
        period of the schedule.
    theta0 : ndarray of shape (n_nodes, size), optional
        Initial parameters. If given, ``init`` is not used.
    seed : int
        Seed of the initial parameters.
    wait : {"auto", "block", "poll"}
        How ranks wait for messages, see `dadmm.exchange.mpi.MPIExchange`.
    sending : Sending
        Which messages are sent, and how they are encoded, see
        `dadmm.exchange.sending.Sending`.
    schedule : Schedule, optional
        Which edges are used in which iteration, see `dadmm.graphs.schedule`. By
        default all edges are used in all iterations.
    record, record_edges : bool
        Record a row per iteration and node, and per directed edge, in ``history``.
    observe : dict of str to callable, optional
        Further columns of the history. Each is a function of theta (size,).
    callbacks : sequence of callables
        Called with ``(t, run)`` after each iteration, see `dadmm.admm.loop.iterate`.
    checkpoints : Checkpoints, optional
        Where and when to save the state of the run, and whether to resume it. The
        history of a resumed run starts at the resume.
    on_failure : {"abort", "continue"}
        If a rank fails, abort the run, or continue with the other ranks. To continue,
        ``comm`` must be fault tolerant (Open MPI with ULFM).

    Returns
    -------
    result : Result

    Raises
    ------
    DadmmError
        If an argument is invalid.
    """
    given = _named(locals())
    if comm is not None:
        _compare(given)  # first, so that all ranks raise the same errors below
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
    check_loss(sending, penalty.name_of(policy))
    check_wait(wait)
    hosted = _hosted(problems, topology, comm)
    layout = next(iter(hosted.values())).layout
    if checkpoints is not None:
        _open(checkpoints, tuple(hosted), given)
    with one_blas_thread():
        starts = _starts(hosted, topology.n_nodes, layout.size, init, theta0, seed)
    factory = RunFactory(
        hosted, starts, policy, rule, sending, coupling, probe, agreement
    )
    # numpy's warnings are off: an objective that is not finite raises an error
    with one_blas_thread(), np.errstate(all="ignore"):
        # not closed on an error: other ranks may still wait, and the job must end
        exchange = _exchange(topology, hosted, comm, wait, on_failure)
        run = factory.build(exchange, topology, schedule)
        local = LocalRun(run, schedule, tuple(range(topology.n_nodes)))
        start = 0 if checkpoints is None else checkpoints.start
        recorder = Recorder(run, observe or {}, record, record_edges, start)
        watching = [*callbacks, *recorder.callbacks]
        if max_seconds is not None:
            watching.append(_deadline(max_seconds))
        local, iterations, reason = run_with_recovery(
            local, factory, max_iter, watching, checkpoints
        )
        before = {} if checkpoints is None else checkpoints.seconds_before
        how = init if theta0 is None else "theta0"
        result = gather(local, factory, how, iterations, reason, recorder, before)
        exchange = local.run.exchange
        left = exchange.comm if local.lost else comm
        exchange.close()
        return replace(result, comm=left)


def _named(given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments; replace a scheme object by its name and settings."""
    scheme = given["scheme"]
    if not isinstance(scheme, Scheme):
        return given
    own = {f"scheme.{name}": value for name, value in asdict(scheme).items()}
    return given | {"scheme": penalty.name_of(scheme)} | own


def _open(
    checkpoints: Checkpoints, hosted: Sequence[int], given: dict[str, Any]
) -> None:
    """Read the checkpoint if the run is resumed, and remove outdated files."""
    topology, comm = given["topology"], given["comm"]
    world: World = SerialWorld()
    if comm is not None:
        from dadmm.exchange.mpi_world import MPIWorld

        world = MPIWorld(comm)
    decides = {k: v for k, v in given.items() if k not in PER_RANK | MAY_CHANGE}
    about = identity.identity(decides, topology, given["schedule"])
    checkpoints.open(world, hosted, topology.n_nodes, given["max_iter"], about)
    if checkpoints.resume:
        collectively(world, checkpoints.tidy, world.rank)


def _compare(given: dict[str, Any]) -> None:
    """Raise, on all ranks, if their arguments differ."""
    from dadmm.exchange.collectives import compare

    facts = identity.versions()
    facts |= identity.settings({k: v for k, v in given.items() if k not in PER_RANK})
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
    topology: Topology,
    hosted: dict[int, Problem],
    comm: Any,
    wait: str,
    on_failure: str,
) -> Exchange:
    size = next(iter(hosted.values())).layout.shared_size
    if comm is None:
        return InProcessExchange(topology, size, row_order(topology, hosted))
    from dadmm.exchange.mpi import MPIExchange

    return MPIExchange(comm, topology, size, wait, on_failure == "continue")


def _deadline(seconds: float) -> Callback:
    end = monotonic() + seconds
    return lambda t, run: "max_seconds" if monotonic() > end else None
