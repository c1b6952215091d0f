"""`dadmm.solve` and its options: check them, run the algorithm, gather the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from time import monotonic
from typing import Any, TypeVar, cast

import numpy as np

from dadmm import penalty
from dadmm.admm.loop import Callback, Run, Setup
from dadmm.admm.rule import RULES, Rule
from dadmm.admm.stopping import AGREEMENTS
from dadmm.comm import WAITS, identity
from dadmm.comm.exchange import Exchange
from dadmm.comm.sending import Sending, check_drop
from dadmm.comm.world import Checks, World
from dadmm.core import schema
from dadmm.core.classes import place_of
from dadmm.core.documents import Table
from dadmm.core.errors import ConfigError, ProblemError, TopologyError, shown
from dadmm.core.interfaces import Problem
from dadmm.core.layout import Matrix
from dadmm.core.linalg import one_blas_thread
from dadmm.core.schema import FINITE, FLAG, choice, entry, of_type
from dadmm.graphs.schedule import Schedule
from dadmm.graphs.topology import Topology
from dadmm.penalty import Scheme
from dadmm.solver import plan as plans
from dadmm.solver.checkpoint import Checkpoints, restoring, run_with_recovery
from dadmm.solver.ending import find_ending
from dadmm.solver.kind import RawKind, SolveKind
from dadmm.solver.merged import MergedKind
from dadmm.solver.metric import MetricKind
from dadmm.solver.plan import Given, Judge, Kind, Plan
from dadmm.solver.result import Result, collect
from dadmm.solver.rows import NODE_COLUMNS, Observe, Recorder
from dadmm.solver.subspace import UnitsKind

FAILURES = ("abort", "continue")
Option = TypeVar("Option")
MOST_RECORDED = 1000  # nodes up to which rows are recorded by default
FUNCTIONS = of_type("a dict of functions by name", Mapping).also(
    "a dict of functions by names that the history does not have yet",
    lambda given: all(
        isinstance(name, str) and name not in NODE_COLUMNS and callable(look)
        for name, look in given.items()
    ),
)
IS_COMM = "a communicator of mpi4py, such as MPI.COMM_WORLD, or Ranks"
COMMUNICATOR = schema.Kind(((IS_COMM, lambda given: hasattr(given, "Iallreduce")),))
# fields and arguments that may change when a run is resumed
MAY_CHANGE = {
    "max_iter", "max_seconds", "wait", "on_failure", "gather", "record", "nodes",
    "edges", "observe", "checkpoints", "bound_angle",
}  # fmt: skip


@dataclass(frozen=True)
class Stopping(schema.Checked):
    """When a run stops.

    Parameters
    ----------
    rule : {"optimality", "residuals", "objective"}
        What must be small on all nodes, 4 times in a row, see `dadmm.admm.rule.Rule`.
    tolerance, absolute_tolerance : float
        Of the rule; in the metric only ``tolerance``, which also limits the bound on
        the error. With a ``tolerance`` of 0, the run does ``max_iter`` iterations.
    agreement : {"neighbours", "global"}
        How nodes find out that all of them meet the rule: by numbers in their messages,
        or by a collective operation, as in the paper's experiments.
    max_iter : int
    max_seconds : float, optional
        Request a stop after this time. All nodes stop after the same iteration, at most
        two diameters of the graph, times the period of the schedule, later.

    Examples
    --------
    >>> import dadmm
    >>> X, y, _ = dadmm.datasets.regression(60, 3)
    >>> problems = [dadmm.problems.LeastSquares(X[i::6], y[i::6]) for i in range(6)]
    >>> exact = dadmm.Stopping(tolerance=0, max_iter=10)  # ten iterations, no rule
    >>> dadmm.solve(problems, dadmm.Topology.ring(6), stopping=exact).iterations
    10
    """

    rule: str = entry(Rule.name, choice(RULES), called="stopping")
    tolerance: float = entry(Rule.tolerance, FINITE)
    absolute_tolerance: float = entry(Rule.absolute_tolerance, FINITE)
    agreement: str = entry("neighbours", choice(AGREEMENTS))
    max_iter: int = entry(1000, schema.integer(1))
    max_seconds: float | None = entry(None, schema.number("positive", lambda x: x > 0))


@dataclass(frozen=True)
class Record(schema.Checked):
    """Which rows and columns `Result.history` has.

    Parameters
    ----------
    nodes : bool, optional
        A row per iteration and node; by default for graphs of up to 1,000 nodes.
    edges : bool
        A row per iteration and directed edge.
    observe : dict of str to callable
        Further columns. Each is a function of the parameters (size,) of a node.

    Examples
    --------
    >>> import dadmm, numpy as np
    >>> X, y, _ = dadmm.datasets.regression(60, 3)
    >>> problems = [dadmm.problems.LeastSquares(X[i::6], y[i::6]) for i in range(6)]
    >>> record = dadmm.Record(edges=True, observe={"length": np.linalg.norm})
    >>> result = dadmm.solve(problems, dadmm.Topology.ring(6), record=record)
    >>> result.history["length"].shape, result.history.edges["eta"].shape
    ((26, 6), (26, 12))
    """

    nodes: bool | None = entry(None, FLAG)
    edges: bool = entry(False, FLAG)
    observe: Observe = field(default_factory=dict, metadata={"kind": FUNCTIONS})
    where = "record "


@dataclass(frozen=True)
class Ranks(schema.Checked):
    """The processes of a run over MPI, one or more nodes each.

    Parameters
    ----------
    comm : MPI.Comm
    wait : {"auto", "block", "poll"}
        How ranks wait for messages, see `dadmm.comm.mpi.MPIExchange`.
    on_failure : {"abort", "continue"}
        If a rank fails, abort the run, or continue with the other ranks. To continue,
        ``comm`` must be fault tolerant (Open MPI with ULFM).

    Examples
    --------
    >>> import dadmm
    >>> dadmm.Ranks(wait="block").on_failure  # a program for MPI passes comm, too
    'abort'
    """

    comm: Any = entry(None, COMMUNICATOR)  # noqa: RUF009
    wait: str = entry("auto", choice(WAITS))
    on_failure: str = entry("abort", choice(FAILURES))


OPTIONS = {"stopping": Stopping, "sending": Sending, "record": Record}


def as_option(kind: type[Option], given: object) -> Option:
    """Return an object of a class: the given one, or one with this first argument."""
    make = cast(Callable[[object], Option], kind)
    return given if isinstance(given, kind) else make(given)


def grouped(settings: Mapping[str, object]) -> Table:
    """Return arguments of `dadmm.solve`, given fields of its options by name."""
    renamed = {"rule": "stopping", "nodes": "record", "edges": "record_edges"}
    left, found = Table(settings), Table()
    for name, kind in ({"scheme": Scheme} | OPTIONS | {"comm": Ranks}).items():
        if kind is not Scheme and isinstance(left.get(name), kind):
            continue
        known = {item.name: renamed.get(item.name, item.name) for item in fields(kind)}
        own = {field: left.pop(old) for field, old in known.items() if old in left}
        if kind is not Scheme:
            found[name] = kind(**own)
        elif own:
            found[name] = penalty.build(left.pop(name, "snap"), **own)
    return found | left


KINDS: dict[Kind, type[SolveKind]] = {
    Kind.RAW: RawKind, Kind.METRIC: MetricKind, Kind.UNITS: UnitsKind,
    Kind.MERGED: MergedKind,
}  # fmt: skip

Problems = Sequence[Problem] | Mapping[int, Problem] | Problem
SCHEDULE = of_type("a Schedule", Schedule, type(None))
RESULT = of_type("a result of dadmm.solve", Result, type(None))
CHECKPOINTS = of_type("dadmm.Checkpoints(folder)", Checkpoints, type(None))
CALLBACKS = of_type("a list of functions of (t, run)", Sequence).also(
    "a list of functions of (t, run)", lambda given: all(map(callable, given))
)


def solve(
    problems: Problems,
    topology: Topology,
    *,
    scheme: str | Scheme = "snap",
    stopping: str | Stopping = "optimality",
    sending: str | Sending = "float64",
    schedule: Schedule | None = None,
    init: str | Matrix | None = None,
    warm_start: Result | None = None,
    coordinates: str = "auto",
    bound_angle: bool = True,
    seed: int = 0,
    record: bool | Record | None = None,
    callbacks: Sequence[Callback] = (),
    checkpoints: Checkpoints | None = None,
    comm: Any = None,
    gather: str = "all",
) -> Result:
    """Minimise the sum of the nodes' objectives over one shared parameter vector.

    Parameters
    ----------
    problems : sequence of Problem, dict of int to Problem, or Problem
        One problem per node. With ``comm``, the problem of node i on rank i, or a dict
        of the problems of this rank by node.
    topology : Topology or networkx graph
        The graph: which nodes exchange messages.
    scheme : str or Scheme
        How penalties adapt: ``"snap"``, the paper's ``"fixed"``, ``"vp"``, ``"ap"``,
        ``"nap"``, ``"vp_ap"`` or ``"vp_nap"``, the centralised ``"global_balance"``, or
        as ``dadmm.penalty.NAP(budget0=2.0)``.
    stopping : str or Stopping
        A rule by its name, or ``dadmm.Stopping(tolerance=1e-4, max_iter=500)``.
    sending : str or Sending
        A payload by its name, or ``dadmm.Sending("quantised:6", censor=0.01)``.
    schedule : Schedule, optional
        Which edges are used in which iteration; by default all edges in each.
    init : {"merged", "shared", "independent"} or ndarray of shape (n_nodes, size)
        "merged", for PPCA and structure from motion: the principal axes of all rows,
        merged over the network. "shared" draws the same parameters for all nodes,
        "independent" draws others for each node. The default is "merged" for PPCA,
        except with the scheme "fixed" or raw coordinates; "independent" for structure
        from motion, where each camera starts from its first frame; else "shared".
    warm_start : Result, optional
        Start from the parameters and multipliers of another result of the same nodes
        and layout, in place of ``init``; rows, penalties and edges may differ.
    coordinates : {"auto", "metric", "units", "raw"}
        In which coordinates theta is found, see `docs/accuracy.md`. "metric", for
        convex problems with the methods ``rows`` and ``within``; "units", for PPCA: the
        mean and unit of all rows; "raw": the units of the data, and no sums over the
        network. The default is the metric for convex problems of up to 300 parameters,
        units for PPCA, unless entries are missing and the start is drawn, else raw.
    bound_angle : bool
        Whether sums at the end bound the angle between the subspace of each node and
        the principal axes of all rows, for PPCA in units without missing entries.
    seed : int
        Seed of the initial parameters.
    record : bool or Record, optional
        Whether to record a row per iteration and node in ``result.history``, by default
        for graphs of up to 1,000 nodes; or ``dadmm.Record(edges=True)``.
    callbacks : sequence of callables
        Each is called with ``(t, run)`` after each iteration, and may return a request
        to all nodes, such as ``"stop"``, see `docs/callbacks.md`.
    checkpoints : Checkpoints, optional
        Where and when to save the state of the run, and whether to resume it. The
        history of a resumed run starts at the resume.
    comm : MPI.Comm or Ranks, optional
        Run one or more nodes per rank; by default all in this process. The result is
        the same to the last bit on machines of one type with the same BLAS, unless a
        problem of your own uses BLAS with several threads before `solve`.
    gather : {"all", "root", "none"}
        Which ranks have the results of all nodes; others have those of their own nodes.

    Returns
    -------
    result : Result

    Raises
    ------
    DadmmError
        If an argument is invalid.

    Examples
    --------
    >>> import dadmm
    >>> X, y, _ = dadmm.datasets.regression(60, 3)
    >>> problems = [dadmm.problems.Ridge(X[i::6], y[i::6], alpha=0.1) for i in range(6)]
    >>> dadmm.solve(problems, dadmm.Topology.ring(6)).status
    'certified'
    """
    began, ranks = monotonic(), as_option(Ranks, comm)
    world, is_warm = World(ranks.comm), warm_start is not None
    given: Table = {
        "scheme": scheme, "stopping": stopping, "sending": sending,
        "init": "warm" if is_warm else init, "coordinates": coordinates,
        "bound_angle": bound_angle, "seed": seed, "record": record, "wait": ranks.wait,
        "on_failure": ranks.on_failure, "gather": gather,
        "checkpoints": checkpoints is not None,
    }  # fmt: skip

    def check() -> dict[int, Problem]:
        nonlocal topology
        topology = check_shared(topology, schedule, callbacks, coordinates)
        CHECKPOINTS.check("checkpoints", checkpoints)
        if checkpoints is not None:
            checkpoints.check_unused()
        RESULT.check("warm_start", warm_start)
        choice(("all", "root", "none")).check("gather", gather)
        FLAG.check("bound_angle", bound_angle)
        if isinstance(init, str):
            choice(plans.INITS).check("init", init)
        if is_warm and init is not None:
            raise ConfigError("give init or warm_start, not both")
        given["scheme"] = penalty.build(scheme)
        for name, kind in OPTIONS.items():
            given[name] = as_option(kind, given[name])
        check_drop(given["sending"], penalty.name_of(given["scheme"]))
        return hosted_problems(problems, topology, world)

    checks = Checks(world)
    hosted = checks.run(check)  # None after an error, which `gather` raises on all
    able = checks.run(lambda: plans.abilities(hosted))
    begin = checks.run(
        lambda: plans.given_starts(hosted, topology.n_nodes, init, warm_start)
    )
    everyone = checks.gather(
        lambda: facts_of(given, problems, hosted, topology, schedule), able=able
    )
    if world.comm is not None and isinstance(problems, Mapping):
        world.share_nodes(list(hosted), topology.n_nodes)
    all_able = [able for own in everyone for able in own["able"]]
    merges = not (given["scheme"].is_constant or is_warm)
    plan = plans.make_plan(all_able, init, coordinates, merges)
    if checkpoints is not None:
        facts = identity.identity(_facts(given, MAY_CHANGE), topology, schedule)
        most = given["stopping"].max_iter
        checkpoints.open(world, tuple(hosted), topology.n_nodes, most, facts)
    return run_plan(
        plan, world, hosted, topology, given, schedule, callbacks, checkpoints,
        begin, began,
    )  # fmt: skip


def check_shared(
    topology: Topology, schedule: object, callbacks: object, coordinates: object
) -> Topology:
    """Check what `dadmm.baselines.solve` takes, too; return the graph."""
    topology = Topology.from_graph(topology)
    SCHEDULE.check("schedule", schedule, TopologyError)
    CALLBACKS.check("callbacks", callbacks)
    choice(plans.COORDINATES).check("coordinates", coordinates)
    return topology


def facts_of(
    given: Table,
    problems: Problems,
    hosted: Mapping[int, Problem],
    topology: Topology,
    schedule: Schedule | None,
) -> dict[str, str]:
    """Return the facts that must be the same on all ranks."""
    facts = identity.settings(_facts(given, {"max_seconds"}))
    facts["graph"] = identity.of_graph(topology, schedule)
    facts["problems"] = "a dict" if isinstance(problems, Mapping) else "one problem"
    return facts | {"layout": repr(next(iter(hosted.values())).layout)}


def run_plan(
    plan: Plan,
    world: World,
    hosted: Mapping[int, Problem],
    topology: Topology,
    given: Table,
    schedule: Schedule | None,
    callbacks: Sequence[Callback],
    checkpoints: Checkpoints | None,
    starts: Given | None = None,
    began: float | None = None,
) -> Result:
    """Run the problems of this process; what is given has been checked, see `solve`."""
    began, n_nodes = began or monotonic(), topology.n_nodes
    stop: Stopping = given["stopping"]
    records: Record = given["record"]
    scheme: Scheme = given["scheme"]
    usual = scheme.RAW if plan.kind is Kind.RAW else scheme.CHOSEN
    left = {name: own for name, own in usual.items() if getattr(scheme, name) is None}
    scheme = replace(scheme, **left)
    checkpoints = checkpoints or Checkpoints("", saves=False)
    if checkpoints.resume and checkpoints.saves and world.rank == 0:
        checkpoints.prune(checkpoints.start)  # or this run would complete later ones
    # prepare; numpy's warnings are off: an objective that is not finite raises
    with one_blas_thread(), np.errstate(all="ignore"):
        first = starts or plans.draw_starts(hosted, plan, given["seed"])
        is_scaled = plan.kind is not Kind.RAW or plan.judge is Judge.MODEL
        rule = Rule(stop.rule, stop.tolerance, stop.absolute_tolerance, is_scaled)
        kind = KINDS[plan.kind](hosted, rule, *first)
        kind.plan, kind.bound_angle = plan, bool(given["bound_angle"])
        if checkpoints.coordinates:
            with restoring(checkpoints):
                kind.enter(kind.RECORD(**checkpoints.coordinates))
        elif plan.kind is not Kind.RAW:
            kind.prepare(topology, world)
        setup = Setup(kind, scheme, given["sending"], stop.agreement)
        # After an error the exchange stays open: to close it waits for other ranks.
        how = {"wait": given["wait"], "survives": given["on_failure"] != "abort"}
        exchange = make_exchange(world, topology, kind.within, **how)
        run = Run(setup, exchange, topology, schedule)
        if kind.sent is not None:
            run.tree.sent += kind.sent
        # iterate
        small, by_edge = n_nodes <= MOST_RECORDED, bool(records.edges)
        by_node = small if records.nodes is None else bool(records.nodes)
        recorder = Recorder(run, records.observe, by_node, by_edge, checkpoints.start)
        called: list[Callback] = [*kind.callbacks, *callbacks, recorder]
        if stop.max_seconds is not None:
            end = monotonic() + stop.max_seconds
            called.append(lambda t, run: "max_seconds" if monotonic() > end else None)
        set_up = monotonic() - began
        local = run_with_recovery(run, stop.max_iter, called, checkpoints)
        # conclude
        stated = kind.conclude(local.run, local.reason)
        ending = find_ending(local, "given" if starts else str(plan.init))
        result = collect(
            local, recorder, checkpoints.seconds_before, given["gather"],
            ending=ending, coordinates=plan.name, **stated._asdict(),
        )  # fmt: skip
        exchange, alive = local.run.exchange, world.comm
        if local.lost and exchange.private_comm is not None:
            alive = exchange.private_comm.Dup()
        exchange.close()
        problem = place_of(type(next(iter(hosted.values()))))
        settings = {"problem": problem} | _facts(given, set())
        spent = {"total": monotonic() - began, "set_up": set_up}
        return replace(result, comm=alive, settings=settings, spent=spent)


def _facts(given: Table, left_out: set[str]) -> Table:
    """Return settings by name, with the fields of objects in place of the objects."""
    found: Table = {}
    for name, value in given.items():
        if isinstance(value, Scheme):
            found |= {name: penalty.name_of(value), **vars(value)}
        elif name in OPTIONS:
            found |= vars(value)
        else:
            found[name] = value
    return {name: value for name, value in found.items() if name not in left_out}


def hosted_problems(
    problems: Problems, topology: Topology, world: World
) -> dict[int, Problem]:
    """Return the problems of this process by node."""
    over_mpi, n_nodes = world.comm is not None, topology.n_nodes
    if over_mpi and isinstance(problems, Problem):
        if n_nodes != world.size:
            raise TopologyError(
                f"the graph has {n_nodes} nodes but MPI started {world.size} "
                f"processes; run mpiexec -n {n_nodes}, or pass a dict of the problems "
                "of this rank by node"
            )
        return {world.rank: problems}
    if isinstance(problems, Mapping):
        nodes: set[object] = {*range(n_nodes)}
        wrong = [i for i in problems if isinstance(i, bool) or i not in nodes]
        if wrong or not problems:
            raise ProblemError(
                f"give problems by node, from 0 to {n_nodes - 1}, at least one on each "
                f"rank; got {shown(wrong[0]) if wrong else 'none'}"
            )
        own = {int(i): problems[i] for i in sorted(problems)}
    elif over_mpi or isinstance(problems, Problem) or not np.iterable(problems):
        raise ProblemError(
            "without comm, pass a list with one problem per node; with comm, the "
            "problem of this rank, or a dict of its problems by node"
        )
    else:
        own = dict(enumerate(problems))
    if not over_mpi and len(own) != n_nodes:
        raise TopologyError(
            f"the graph has {n_nodes} nodes but {len(own)} problems were given; pass "
            "one per node"
        )
    for i, problem in {type(each): (i, each) for i, each in own.items()}.values():
        if not isinstance(problem, Problem):
            raise ProblemError(
                f"{shown(problem)} of node {i} is not a Problem: it needs a layout, "
                "and the methods init, expect, prox and objectives"
            )
    return own


def make_exchange(
    world: World,
    topology: Topology,
    problems: Mapping[int, Problem],
    width: int = 1,
    **how: Any,
) -> Exchange:
    """Return the exchange of a run; ``how`` ranks wait, and whether they survive."""
    size = width * next(iter(problems.values())).layout.shared_size
    nodes = np.array(list(problems))
    nodes = nodes[np.argsort(topology.degrees[nodes], kind="stable")]
    if world.comm is None:
        return Exchange(topology, size, nodes)
    from dadmm.comm.mpi import MPIExchange

    return MPIExchange(world.comm, topology, size, nodes, world.hosts, **how)
