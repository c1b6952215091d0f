"""The arrays of a run, those that the next iteration depends on and others; a clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from dadmm.comm.exchange import Exchange, Hosted
from dadmm.comm.wire import IDLE
from dadmm.core.layout import Array, Layout, Matrix, Vector
from dadmm.graphs.topology import Topology

Arrays = dict[str, np.ndarray]


@dataclass
class State:
    """What the next iteration and the results depend on.

    Fields have a row per node of this process, per edge (`EDGE`), or none (`RUN`). The
    parts of a `Run` keep views of the arrays, so these are written in place; only
    ``theta``, ``stopping`` and arrays in dicts may be replaced.
    """

    theta: Matrix  # (n, size)
    mean: Matrix  # (n, m) of the neighbours' theta
    objective: Vector  # (n,) f_i in the last iteration that was not idle
    held: np.ndarray  # (n,) iterations in a row that met the rule
    header: np.ndarray  # (n,) the header of the node's messages, see `wire`
    measured: Matrix  # (n, ...) the numbers of the last iteration
    seconds: Matrix  # (n, 4) of each phase
    posted: Arrays  # rows in collectives that are under way, by name
    sent: Matrix  # (E, m) theta_i as the neighbour has it
    received: Matrix  # (E, m) theta_j
    multipliers: Matrix  # (E, m) lambda_ij
    anchors: Matrix  # (E, m) z_ij
    eta: Vector  # (E,) eta_ij, as used
    penalty: Arrays  # of the scheme; "eta" is what this end proposes
    sending: Arrays  # of the gates
    traffic: np.ndarray  # (E, 2) messages and bytes
    stopping: Matrix  # (n, ...) what `NeighbourStopping.save` returned
    idle: np.ndarray  # () iterations that the scheme does not count
    collectives: np.ndarray  # (2,) calls and bytes
    coordinates: Arrays  # of `loop.RunKind`

    def flatten(self) -> Arrays:
        """Return the arrays by name; those of a dict are ``"group/name"``."""
        flat: Arrays = {}
        for name, value in vars(self).items():
            if isinstance(value, dict):
                flat |= {f"{name}/{key}": array for key, array in value.items()}
            else:
                flat[name] = value
        return flat

    @classmethod
    def from_arrays(cls, flat: Mapping[str, np.ndarray]) -> State:
        """Return a state, given what `flatten` returned."""
        found: dict[str, Any] = {item.name: {} for item in fields(cls)}
        for name, array in flat.items():
            group, _, key = name.partition("/")
            found[group] = found[group] | {key: array} if key else array
        return cls(**found)

    def choose(
        self, node: slice | Array = slice(None), edge: slice | Array = slice(None)
    ) -> State:
        """Return a copy of the rows with these indices, by default of all."""
        found = {}
        for name, rows in self.flatten().items():
            group = name.partition("/")[0]
            at = edge if group in EDGE else node
            found[name] = rows[... if group in RUN else at].copy()
        return State.from_arrays(found)

    @classmethod
    def join(cls, states: Sequence[State]) -> State:
        """Return one state with the rows of several, in their order."""
        first, *_ = flat = [state.flatten() for state in states]
        for name in first:
            if name.partition("/")[0] not in RUN:
                first[name] = np.concatenate([each[name] for each in flat])
        return cls.from_arrays(first)

    def assign(self, other: State) -> None:
        """Copy the values of a state; raise ValueError if shapes or types differ."""
        mine, theirs = self.flatten(), other.flatten()
        for name in mine.keys() - theirs.keys():
            if "/" not in name:
                raise ValueError(f"there is no {name}")
        for name, array in theirs.items():
            group, _, key = name.partition("/")
            own = mine.get(name, array)
            if name == "stopping":  # of any length
                own = self.stopping = np.empty((len(own), *array.shape[1:2]))
            if array.shape != own.shape or array.dtype.kind != own.dtype.kind:
                raise ValueError(
                    f"{name} has shape {array.shape} and type {array.dtype}, not "
                    f"{own.shape} and {own.dtype}"
                )
            if key:
                getattr(self, group)[key] = array.copy()
            else:
                own[...] = array


EDGE = {
    "sent", "received", "multipliers", "anchors", "eta", "penalty", "sending",
    "traffic",
}  # fmt: skip
RUN = {"idle", "collectives", "coordinates"}


class Numbers:
    """The numbers of each node in one or more iterations, views of one (..., K, n).

    ``n_parts`` is the number of shared parts of theta, P.
    """

    objective: Vector  # f_i(theta_i)
    judged: Vector  # what the rule judges: f_i(theta_i), or -log p(X_i | theta_i)
    previous: Vector  # the same in the iteration before; inf at t = 1
    eta_mean: Vector  # of the penalties used, the paper's eta_i
    primal: Vector  # |r_i|
    dual: Vector  # |s_i|
    lag: Vector  # distance from the neighbours' copies of theta_i
    quiet: Vector  # see `stopping`
    messages: Vector  # sent in this iteration
    bytes: Vector  # sent in this iteration
    tolerance: Vector  # of the stopping rule in this iteration
    NUMBERS = tuple(__annotations__)
    lengths: np.ndarray  # (7, ..., n) of the vectors
    parts: np.ndarray  # (5, P, ..., n) of the first five vectors, by part of theta

    def __init__(self, numbers: np.ndarray, n_parts: int) -> None:
        self.numbers, rows = numbers, np.moveaxis(numbers, -2, 0)
        for name, row in zip(self.NUMBERS, rows, strict=False):
            setattr(self, name, row)
        self.lengths, parts = np.split(rows[len(self.NUMBERS) :], [len(Work.VECTORS)])
        self.parts = parts.reshape(5, n_parts, *rows.shape[1:])
        self.disagreement, self.residual = self.lengths[3], self.lengths[4]


class Work(Numbers):
    """What an iteration computes; a checkpoint has its ``numbers`` only."""

    shared: Matrix  # theta_i, the shared parts
    mean: Matrix  # of the neighbours' theta
    multiplier: Matrix  # sum of lambda_ij over the edges, the paper's lambda_i
    difference: Matrix  # root mean square difference from the neighbours, by entry
    stationarity: Matrix  # minus the gradient of the node's Lagrangian
    deviation: Matrix  # theta_i minus the neighbours' mean, r_i
    mean_change: Matrix  # change of the neighbours' mean
    VECTORS = tuple(__annotations__)

    def __init__(self, n: int, n_edges: int, m: int, n_parts: int) -> None:
        count = len(self.NUMBERS) + len(self.VECTORS) + 5 * n_parts
        super().__init__(np.zeros((count, n)), n_parts)
        self.vectors = np.zeros((len(self.VECTORS), n, m))
        for name, vectors in zip(self.VECTORS, self.vectors, strict=True):
            setattr(self, name, vectors)
        self.objective[:] = self.judged[:] = self.previous[:] = np.inf
        self.primal[:] = self.dual[:] = np.nan
        self.disagreement[:] = self.residual[:] = np.inf
        self.centre, self.weight = np.zeros((n, m)), np.zeros(n)
        self.total = np.ones(n)  # of eta_ij; stays 1 without edges
        self.midpoints = np.zeros((n_edges, m))
        self.drift = np.zeros((n_edges, m))  # rho_ij minus z_ij
        self.gap = np.zeros((n_edges, m))  # theta_i minus theta_j, or minus its copy
        self.scratch = np.zeros((n_edges, m))
        self.probes = np.zeros(n_edges)  # f_i at each edge's probe


class Nodes(Hosted):
    """The nodes of a process, their edges and arrays: what the parts of a run share.

    If every message has the exact parameters (``direct``), ``sent`` and ``received``
    are the buffers of the exchange.
    """

    def __init__(
        self,
        topology: Topology,
        exchange: Exchange,
        layout: Layout,
        names: Sequence[int] | None = None,
        direct: bool = True,
    ) -> None:
        super().__init__(topology, exchange)
        self.layout, self.direct = layout, direct
        every = np.arange(topology.n_nodes) if names is None else np.asarray(names)
        self.names_of_all, self.names = every, every[self.nodes]
        n, n_edges, m = len(self.nodes), len(self.arcs), layout.shared_size
        self.work = Work(n, n_edges, m, len(layout.sizes))
        self.state = State(
            theta=np.zeros((n, layout.size)),
            mean=self.work.mean,
            objective=np.full(n, np.inf),
            held=np.zeros(n, dtype=np.int64),
            header=np.full(n, IDLE),
            measured=np.zeros((n, len(self.work.numbers))),
            seconds=np.zeros((n, 4)),
            posted={},
            sent=exchange.outbox.numbers if direct else np.empty((n_edges, m)),
            received=exchange.inbox.numbers if direct else np.empty((n_edges, m)),
            multipliers=np.zeros((n_edges, m)),
            anchors=np.zeros((n_edges, m)),
            eta=np.zeros(n_edges),
            penalty={},
            sending={},
            traffic=np.zeros((n_edges, 2), dtype=np.int64),
            stopping=np.empty((n, 0)),
            idle=np.zeros((), dtype=np.int64),
            collectives=np.zeros(2, dtype=np.int64),
            coordinates={},
        )


class Phase:
    """A context manager that adds up the seconds inside it."""

    last = total = began = 0.0

    def __enter__(self) -> None:
        self.began = perf_counter()

    def __exit__(self, *_: object) -> None:
        self.last = perf_counter() - self.began
        self.total += self.last


class Clock(NamedTuple):
    """Seconds of the phases of an iteration."""

    solve: Phase
    exchange: Phase
    update: Phase
    observe: Phase


PHASES = Clock._fields
