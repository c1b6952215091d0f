"""Which coordinates and which start a run has, and why; independent of the scheme."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dadmm.admm.local import as_numbers
from dadmm.core.errors import ConfigError, ProblemError, shown
from dadmm.core.interfaces import Problem, stacks
from dadmm.core.layout import Matrix, Vector
from dadmm.core.schema import SEED

if TYPE_CHECKING:
    from dadmm.solver.result import Result

COORDINATES = ("auto", "metric", "units", "raw")
INITS = ("merged", "shared", "independent")
MOST_COLUMNS = 300  # with more parameters, the metric costs more than it saves

Starts = dict[int, Vector]  # by node
Given = tuple[Starts, Starts | None]  # parameters, and duals if they are known


class Kind(Enum):
    """The kinds of run; the value is the name of the coordinates."""

    RAW = "raw"  # the units of the data
    METRIC = "metric"  # convex problems: the Hessian of the mean of all f_i is one
    UNITS = "units"  # PPCA from drawn parameters, in the mean and unit of all rows
    MERGED = "merged units"  # PPCA from merged axes, in the same units


class Judge(IntEnum):
    """What judges a raw run that meets its rule."""

    RULE = 0  # nothing else
    GRADIENT = 1  # the lengths of gradients
    MODEL = 2  # relative errors of PPCA


class Plan(NamedTuple):
    """The kind of a run, its start, and why it is raw."""

    kind: Kind
    init: str | Matrix
    why: str = ""  # why the run is raw; "" unless it is
    judge: Judge = Judge.RULE  # of a raw run
    asked: bool = False  # whether raw coordinates were asked for: then no sums are sent

    @property
    def name(self) -> str:
        """The coordinates: "metric", "units" or "raw"."""
        return self.kind.value.split()[-1]


class Abilities(NamedTuple):
    """What the problems of a class allow; a run has what all of them allow."""

    no_metric: str  # why there is no metric; "" if there is one
    can_merge: bool  # whether PPCA in units can start from merged axes
    can_draw: bool  # and from drawn parameters
    judge: Judge
    usual_init: str  # "merged", "shared" or "independent"
    many: bool  # whether there are more than 300 parameters


def abilities(problems: Mapping[int, Problem]) -> list[Abilities]:
    """Return what each class of problems allows; raise if their layouts differ."""
    first, like = next(iter(problems.items()))
    different: dict[object, Problem] = {}  # nodes may be many
    for i, problem in problems.items():
        if problem.layout != like.layout:
            raise ProblemError(
                f"node {i} has parameters {problem.layout} but node {first} "
                f"{like.layout}; give all nodes data of the same shape"
            )
        different[type(problem), getattr(problem, "convex", False)] = problem
    return [abilities_of(type(p), p) for p in different.values()]


def abilities_of(kind: type, problem: Problem | None = None) -> Abilities:
    """Return what a problem allows, or what problems of its class may."""
    judge, name, why = Judge.RULE, kind.__name__, ""
    can_merge = stacks(kind, "standardised", "init")
    can_draw = can_merge and stacks(kind, "with_log_lengths", "init")
    is_convex = getattr(problem, "convex", False)
    if problem is not None and hasattr(problem, "gradient") and not is_convex:
        is_model = hasattr(problem, "moment") and not problem.layout.scales
        judge = Judge.MODEL if is_model else Judge.GRADIENT
    if not hasattr(kind, "rows") or not hasattr(kind, "within"):
        why = f"the problem {name} has no methods rows and within"
    elif problem is not None and (problem.layout.private or problem.layout.scales):
        why = f"the problem {name} has private or scaled parts"
    elif not stacks(kind, "within"):
        why = f"the class {name} overrides prox, expect or objectives, but not within"
    usual = getattr(kind, "usual_init", "shared")
    many = problem is not None and problem.layout.size > MOST_COLUMNS
    return Abilities(why, can_merge, can_draw, judge, usual, many)


def make_plan(
    able: Iterable[Iterable[Any]],
    init: str | Matrix | None,
    coordinates: str,
    merges: bool = True,
) -> Plan:
    """Return the plan of a run; ``able`` are the abilities of all problems.

    ``merges`` is False if penalties never change, or if the run starts from another
    result: then it starts from merged axes only if it is asked to.
    """
    each = [Abilities(*own) for own in able]
    first = each[0]
    raw, auto = coordinates == "raw", coordinates == "auto"
    can_merge = all(own.can_merge for own in each) and not raw
    why = next((own.no_metric for own in each if own.no_metric), "")
    start: str | Matrix = first.usual_init if init is None else init
    drawn, in_units = isinstance(start, str), auto or coordinates == "units"
    merged = drawn and start == "merged"
    if init is None and merged and not (can_merge and merges):
        start, merged = "shared", False
    if merged and not can_merge:
        raise ConfigError(
            'init = "merged" is for PPCA and structure from motion, and sums rows over '
            'the network; use init = "shared", or leave out coordinates = "raw"'
        )
    if merged and in_units:
        return Plan(Kind.MERGED, start)
    if not merged and not why and (auto or coordinates == "metric"):
        if not auto or not first.many:
            return Plan(Kind.METRIC, start)
        why = f"it has over {MOST_COLUMNS} parameters, and coordinates is not metric"
    elif drawn and not merged and in_units and all(own.can_draw for own in each):
        return Plan(Kind.UNITS, start)
    if auto or raw:
        why = "raw coordinates were asked for" if raw else why
        judge = Judge(min(own.judge for own in each))
        return Plan(Kind.RAW, start, why, judge, asked=raw)
    if coordinates == "units":
        why = "they are for PPCA, and with missing entries for merged axes only"
    raise ConfigError(f'coordinates = "{coordinates}" is not possible: {why}')


def given_starts(
    hosted: Mapping[int, Problem], n_nodes: int, init: object, warm: Result | None
) -> Given | None:
    """Return parameters and duals of the hosted nodes, if the user gives them."""
    layout = next(iter(hosted.values())).layout
    if warm is not None:
        fits = warm.layout == layout and warm.topology.n_nodes == n_nodes
        if not fits or not hosted.keys() <= warm.duals.keys():
            raise ConfigError(
                f"warm_start has multipliers of {len(warm.duals)} of "
                f"{warm.topology.n_nodes} nodes with {warm.layout}, and this process "
                f"has {len(hosted)} of {n_nodes} nodes with {layout}; pass a result of "
                "the same nodes and ranks, or init"
            )
        return {i: warm.of(i) for i in hosted}, {i: warm.duals[i] for i in hosted}
    if init is None or isinstance(init, str):
        return None
    shape = n_nodes, layout.size
    try:
        given = np.array(init, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        given = np.empty(0)
    if given.shape != shape or not np.isfinite(given).all():
        raise ProblemError(
            f"init must be one of {', '.join(INITS)}, or finite numbers of shape "
            f"{shape}, got {shown(init)}"
        )
    return {i: given[i] for i in hosted}, None


def draw_starts(hosted: Mapping[int, Problem], plan: Plan, seed: int = 0) -> Given:
    """Return first parameters of the hosted nodes; none if they start merged."""
    layout, found = next(iter(hosted.values())).layout, Starts()
    if plan.kind is Kind.MERGED:
        return found, None
    SEED.check("seed", seed)
    rng = np.random.default_rng([seed, 0])
    first = rng.bit_generator.state
    for i, problem in hosted.items():
        # one stream for all nodes, or one per node: the same with and without MPI
        if plan.init == "shared":
            rng.bit_generator.state = first  # a new generator takes ten times as long
        else:
            rng = np.random.default_rng([seed, 1, i])
        found[i] = as_numbers(problem.init(rng), (layout.size,), "init")
    return found, None
