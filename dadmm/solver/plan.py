"""Which coordinates and which start a run has, and why; independent of the scheme."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any, NamedTuple

from dadmm.comm.world import World
from dadmm.core.errors import ConfigError
from dadmm.core.interfaces import Problem, stacks
from dadmm.core.layout import Matrix

COORDINATES = ("auto", "metric", "units", "raw")
INITS = ("merged", "shared", "independent")
MOST_COLUMNS = 300  # with more parameters, the metric costs more than it saves


class Kind(Enum):
    """The kinds of run; the value is the name of the coordinates."""

    RAW = "raw"  # the units of the data
    METRIC = "metric"  # convex problems: the Hessian of the mean of all f_i is one
    UNITS = "units"  # PPCA from drawn parameters, in the mean and unit of all rows
    MERGED = "merged units"  # PPCA from merged axes, in the same units


class Start(Enum):
    """Which starts of PPCA in units a problem allows; the least of all nodes counts."""

    NONE = 0
    MERGED = 1
    ANY = 2


class Plan(NamedTuple):
    """The kind of a run, its start, and why it is raw."""

    kind: Kind
    init: str | Matrix
    why: str = ""  # why the run is raw; "" unless it is
    asked: bool = False  # whether raw coordinates were asked for: then no sums are sent
    bound_angle: bool = True  # whether to bound the angle of a subspace, if possible

    @property
    def is_chosen(self) -> bool:
        """Whether sums over the network choose the coordinates."""
        return self.kind is not Kind.RAW

    @property
    def name(self) -> str:
        """The coordinates: "metric", "units" or "raw"."""
        return self.kind.value.split()[-1]


class Abilities(NamedTuple):
    """What a problem allows."""

    no_metric: str  # why it has no metric; "" if it has one
    start: Start
    usual_init: str  # "merged", "shared" or "independent"
    many: bool = False  # whether it has more than 300 parameters


def abilities(kind: type, problem: Problem | None = None) -> Abilities:
    """Return what a class of problems allows, and one of its objects if it is given."""
    start = Start.NONE
    if can_merge_axes(kind):
        in_units = _knows_start(kind, "with_log_lengths")
        start = Start.ANY if in_units else Start.MERGED
    usual = getattr(kind, "usual_init", "shared")
    many = problem is not None and problem.layout.size > MOST_COLUMNS
    return Abilities(_no_metric(kind, problem), start, usual, many)


def can_merge_axes(kind: type) -> bool:
    """Return whether problems of a class can start from merged axes."""
    return _knows_start(kind, "standardised")


def _knows_start(kind: Any, method: str) -> bool:
    """Return whether the class with this method has the step and start of ``kind``."""
    owners = [each for each in kind.__mro__ if method in vars(each)]
    return stacks(kind, method) and kind.init is owners[0].init


def _no_metric(kind: type, problem: Problem | None) -> str:
    name = kind.__name__
    if not hasattr(kind, "rows") or not hasattr(kind, "within"):
        return f"the problem {name} has no methods rows and within"
    if problem is not None and (problem.layout.private or problem.layout.scales):
        return f"the problem {name} has private or scaled parts"
    if not stacks(kind, "within"):
        return f"the class {name} overrides prox, expect or objectives, but not within"
    return ""


def all_abilities(problems: Iterable[Problem], world: World | None = None) -> Abilities:
    """Return what the problems of all nodes allow, the same on all ranks."""
    own = [abilities(type(problem), problem) for problem in problems]
    least = (world or World()).least(min(each.start.value for each in own))
    why = next((each.no_metric for each in own if each.no_metric), "")
    return own[0]._replace(no_metric=why, start=Start(least))


def make_plan(
    able: Abilities,
    init: str | Matrix | None,
    coordinates: str,
    is_constant: bool = False,
    is_warm: bool = False,
) -> Plan:
    """Return the plan of a run of problems with these abilities.

    If penalties never change (``is_constant``), or the run starts from another result
    (``is_warm``), it does not start from merged axes unless it is asked to.
    """
    usual, raw = able.usual_init, coordinates == "raw"
    no_merge = raw or is_constant or is_warm or able.start is Start.NONE
    if usual == "merged" and no_merge:
        usual = "shared"
    start: str | Matrix = usual if init is None else init
    drawn = isinstance(start, str) and start != "merged"
    merged = isinstance(start, str) and start == "merged"
    if raw and merged:
        raise ConfigError(
            'init = "merged" needs sums over the network; leave out coordinates = '
            '"raw", or use init = "shared"'
        )
    if raw:
        return Plan(Kind.RAW, start, "raw coordinates were asked for", asked=True)
    if merged and able.start is Start.NONE:
        raise ConfigError(
            'init = "merged" is not possible: this start is for PPCA and structure '
            "from motion"
        )
    if merged and coordinates != "metric":
        return Plan(Kind.MERGED, start)
    if not merged and not able.no_metric and coordinates != "units":
        if coordinates == "metric" or not able.many:
            return Plan(Kind.METRIC, start)
        why = f"it has more than {MOST_COLUMNS} parameters"
        return Plan(Kind.RAW, start, f'{why}, and coordinates is not "metric"')
    if drawn and able.start is Start.ANY and coordinates != "metric":
        return Plan(Kind.UNITS, start)
    if coordinates == "auto":
        return Plan(Kind.RAW, start, able.no_metric)
    why = able.no_metric
    if coordinates == "units":
        why = "they are for PPCA"
        if able.start is not Start.NONE:
            why = (
                "with these starting parameters they are for PPCA without missing "
                'entries; use init = "merged"'
            )
    raise ConfigError(f'coordinates = "{coordinates}" is not possible: {why}')
