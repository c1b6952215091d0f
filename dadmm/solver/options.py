"""Options of `dadmm.solve`: small objects, each with its own settings and defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, cast

from dadmm import penalty
from dadmm.admm.rule import Rule
from dadmm.admm.stopping import AGREEMENTS
from dadmm.comm import WAITS
from dadmm.comm.sending import Sending
from dadmm.core import schema
from dadmm.core.documents import Table
from dadmm.core.errors import ConfigError, shown
from dadmm.core.schema import FLAG, check_fields, choice, entry
from dadmm.solver.rows import NODE_COLUMNS, Observe

FAILURES = ("abort", "continue")
GATHERS = ("all", "root", "none")
Option = TypeVar("Option")
MOST_RECORDED = 1000  # nodes up to which rows are recorded by default
FUNCTIONS = schema.of_type("a dict of functions by name", Mapping).also(
    "a dict of functions by name", lambda given: all(map(callable, given.values()))
)
IS_COMM = "a communicator of mpi4py, such as MPI.COMM_WORLD, or Ranks"
COMMUNICATOR = schema.Kind(((IS_COMM, lambda given: hasattr(given, "Iallreduce")),))


@dataclass(frozen=True)
class Stopping:
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
        or by a collective operation, comparable with the paper's curves.
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

    rule: str = "optimality"
    tolerance: float = Rule.tolerance
    absolute_tolerance: float = Rule.absolute_tolerance
    agreement: str = entry("neighbours", choice(AGREEMENTS))
    max_iter: int = entry(1000, schema.integer(1))
    max_seconds: float | None = entry(None, schema.number("positive", lambda x: x > 0))

    def __post_init__(self) -> None:
        _ = self.criteria  # checks the rule and its tolerances
        check_fields(self)

    @property
    def criteria(self) -> Rule:
        """The rule, with its tolerances."""
        return Rule(self.rule, self.tolerance, self.absolute_tolerance)


@dataclass(frozen=True)
class Record:
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

    def __post_init__(self) -> None:
        check_fields(self, "record ")
        for name in self.observe:
            if not isinstance(name, str) or name in NODE_COLUMNS:
                raise ConfigError(
                    "observe needs names that the history does not have yet, got "
                    f"{shown(name)}; rename that column"
                )

    def records_nodes(self, n_nodes: int) -> bool:
        """Return whether rows are recorded for a graph of this many nodes."""
        return n_nodes <= MOST_RECORDED if self.nodes is None else bool(self.nodes)


@dataclass(frozen=True)
class Ranks:
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

    def __post_init__(self) -> None:
        check_fields(self)


def as_option(kind: type[Option], given: object) -> Option:
    """Return an object of a class: the given one, or one with this first argument."""
    make = cast(Callable[[object], Option], kind)
    return given if isinstance(given, kind) else make(given)


def grouped(settings: Mapping[str, object]) -> Table:
    """Return arguments of `dadmm.solve`, given fields of its options by name.

    ``record_edges`` is the field ``edges``, and ``stopping`` the name of the rule.
    """
    left: Table = dict(settings)

    def take(kind: type, **renamed: str) -> Table:
        names = {item.name: renamed.get(item.name, item.name) for item in fields(kind)}
        return {name: left.pop(old) for name, old in names.items() if old in left}

    found: Table = {}
    if own := take(penalty.Scheme):
        found["scheme"] = penalty.build(left.pop("scheme", "snap"), **own)
    if not isinstance(left.get("stopping"), Stopping):
        found["stopping"] = Stopping(**take(Stopping, rule="stopping"))
    if "sending" not in left:
        found["sending"] = Sending(**take(Sending))
    if not isinstance(left.get("record"), Record):
        names = {"nodes": "record", "edges": "record_edges"}
        found["record"] = Record(**take(Record, **names))
    if not isinstance(left.get("comm"), Ranks):
        found["comm"] = Ranks(**take(Ranks))
    return found | left
