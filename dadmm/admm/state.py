"""The state of a run: all that the next iteration depends on, by node and by edge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from dadmm.core.layout import Matrix, Vector

Arrays = dict[str, np.ndarray]
NODE, EDGE, RUN = "node", "edge", "run"
_NODE, _EDGE, _RUN = ({"of": of} for of in (NODE, EDGE, RUN))


@dataclass
class State:
    """What the next iteration and the results depend on.

    Each field has one row per node or per edge of this process, or belongs to the run
    (`_RUN`). `choose` takes the rows of a checkpoint file, or of what is left after a
    failure. The parts of a `Run` keep views of the arrays, so these are written in
    place. Only ``theta``, ``stopping`` and the arrays in dicts may be replaced.
    """

    theta: Matrix = field(metadata=_NODE)  # (n, size)
    mean: Matrix = field(metadata=_NODE)  # (n, m) of the neighbours' theta
    # (n,) f_i in the last iteration that was not idle
    objective: Vector = field(metadata=_NODE)
    # (n,) iterations in a row that met the rule
    held: np.ndarray = field(metadata=_NODE)
    # (n,) that of the node's messages, see `wire`
    header: np.ndarray = field(metadata=_NODE)
    # (n, ...) the numbers of the last iteration
    measured: Matrix = field(metadata=_NODE)
    seconds: Matrix = field(metadata=_NODE)  # (n, 4) of each phase
    # rows in collectives that are under way, by name
    posted: Arrays = field(metadata=_NODE)
    sent: Matrix = field(metadata=_EDGE)  # (E, m) theta_i as the neighbour has it
    received: Matrix = field(metadata=_EDGE)  # (E, m) theta_j
    multipliers: Matrix = field(metadata=_EDGE)  # (E, m) lambda_ij
    anchors: Matrix = field(metadata=_EDGE)  # (E, m) z_ij
    eta: Vector = field(metadata=_EDGE)  # (E,) eta_ij, as used
    # of the scheme; "eta" is what this end proposes
    penalty: Arrays = field(metadata=_EDGE)
    sending: Arrays = field(metadata=_EDGE)  # of the gates
    traffic: np.ndarray = field(metadata=_EDGE)  # (E, 2) messages and bytes
    # (n, ...) what `NeighbourStopping.save` returned
    stopping: Matrix = field(metadata=_NODE)
    # () iterations that the scheme does not count: without payloads, or before a
    # change of coordinates
    idle: np.ndarray = field(metadata=_RUN)
    collectives: np.ndarray = field(metadata=_RUN)  # (2,) calls and bytes
    coordinates: Arrays = field(metadata=_RUN)  # of `loop.RunKind`

    def choose(self, node: Any = slice(None), edge: Any = slice(None)) -> State:
        """Return a copy of these rows.

        Parameters
        ----------
        node, edge : index of the first axis
            All rows by default.
        """
        at, chosen = {NODE: node, EDGE: edge, RUN: ...}, {}
        for name, of, value in self._fields():
            if isinstance(value, dict):
                rows: Any = {key: array[at[of]].copy() for key, array in value.items()}
            else:
                rows = value[at[of]].copy()
            chosen[name] = rows
        return State(**chosen)

    def assign(self, other: State) -> None:
        """Copy the values of a state; raise ValueError if shapes or types differ."""
        for name, _, mine in self._fields():
            theirs = getattr(other, name)
            if isinstance(mine, dict):
                for key, array in mine.items():
                    _check_alike(f"{name}/{key}", array, theirs.get(key, array))
                for key, array in theirs.items():
                    mine[key] = array.copy()
            elif name == "stopping":
                _check_alike(name, np.empty((len(mine), *theirs.shape[1:2])), theirs)
                self.stopping = theirs.copy()
            else:
                _check_alike(name, mine, theirs)
                mine[...] = theirs

    def _fields(self) -> Iterator[tuple[str, str, Any]]:
        for entry in fields(self):
            yield entry.name, entry.metadata["of"], getattr(self, entry.name)

    def flatten(self) -> Arrays:
        """Return the arrays by name, those of a group as ``"group/name"``."""
        flat: Arrays = {}
        for name, _, value in self._fields():
            if isinstance(value, dict):
                flat |= {f"{name}/{key}": array for key, array in value.items()}
            else:
                flat[name] = value
        return flat

    @classmethod
    def from_arrays(cls, flat: Mapping[str, np.ndarray]) -> State:
        """Return a state, given what `flatten` returned."""
        found: dict[str, Any] = {}
        for entry in fields(cls):
            inside = f"{entry.name}/"
            found[entry.name] = flat.get(
                entry.name,
                {
                    name.removeprefix(inside): array
                    for name, array in flat.items()
                    if name.startswith(inside)
                },
            )
        return cls(**found)

    @classmethod
    def join(cls, states: list[State]) -> State:
        """Return one state with the rows of several, in their order."""
        if len(states) == 1:
            return states[0]
        found: dict[str, Any] = {}
        for name, of, first in states[0]._fields():
            values = [getattr(state, name) for state in states]
            if of == RUN:
                found[name] = first
            elif isinstance(first, dict):
                found[name] = {
                    key: np.concatenate([value[key] for value in values])
                    for key in first
                }
            else:
                found[name] = np.concatenate(values)
        return cls(**found)


def _check_alike(name: str, mine: np.ndarray, theirs: Any) -> None:
    shape, dtype = np.shape(theirs), np.asarray(theirs).dtype
    if shape != mine.shape or dtype.kind != mine.dtype.kind:
        raise ValueError(
            f"{name} has shape {shape} and type {dtype}, not {mine.shape} and "
            f"{mine.dtype}"
        )


class Work:
    """What an iteration computes. A checkpoint has its ``numbers`` only.

    The node vectors whose lengths are taken are one array, ``vectors``. The numbers of
    each node are one array, ``numbers``, so that a record of an iteration is one copy.

    Parameters
    ----------
    n, n_edges, m : int
        Nodes and edges of this process, and entries of a shared vector.
    n_parts : int
        Shared parts of theta.
    """

    VECTORS = (
        "shared",
        "mean",
        "multiplier",
        "difference",
        "stationarity",
        "deviation",
        "mean_change",
    )
    NUMBERS = (
        "objective", "judged", "previous", "eta_mean", "primal", "dual", "lag",
        "quiet", "messages", "bytes", "tolerance",
    )  # fmt: skip

    shared: Matrix  # theta_i, the shared parts
    mean: Matrix  # of the neighbours' theta
    multiplier: Matrix  # sum of lambda_ij over the edges, the paper's lambda_i
    difference: Matrix  # root mean square difference from the neighbours, by entry
    stationarity: Matrix  # minus the gradient of the node's Lagrangian
    deviation: Matrix  # theta_i minus the neighbours' mean, r_i
    mean_change: Matrix  # change of the neighbours' mean

    objective: Vector  # f_i(theta_i)
    judged: Vector  # what the rule judges: f_i(theta_i), or -log p(X_i | theta_i)
    previous: Vector  # the same in the iteration before
    eta_mean: Vector  # of the penalties used, the paper's eta_i
    primal: Vector  # |r_i|
    dual: Vector  # |s_i|
    lag: Vector  # distance from the neighbours' copies of theta_i
    quiet: Vector  # see `stopping`
    messages: Vector  # sent in this iteration
    bytes: Vector  # sent in this iteration
    tolerance: Vector  # of the stopping rule in this iteration

    def __init__(self, n: int, n_edges: int, m: int, n_parts: int) -> None:
        self.vectors = np.zeros((len(self.VECTORS), n, m))
        for name, vectors in zip(self.VECTORS, self.vectors, strict=True):
            setattr(self, name, vectors)
        count = len(self.NUMBERS)
        self.numbers = np.zeros((count + len(self.VECTORS) + 5 * n_parts, n))
        for name, numbers in zip(self.NUMBERS, self.numbers, strict=False):
            setattr(self, name, numbers)
        self.lengths = self.numbers[count : count + len(self.VECTORS)]
        # lengths of the first five vectors, by part of theta
        self.parts = self.numbers[count + len(self.VECTORS) :].reshape(5, n_parts, n)
        self.objective[:] = self.judged[:] = self.previous[:] = np.inf
        self.primal[:] = self.dual[:] = np.nan
        self.disagreement, self.residual = self.lengths[3], self.lengths[4]
        self.disagreement[:] = self.residual[:] = np.inf
        self.centre, self.weight = np.zeros((n, m)), np.zeros(n)
        self.total = np.ones(n)  # of eta_ij; stays 1 without edges
        self.midpoints = np.zeros((n_edges, m))
        self.drift = np.zeros((n_edges, m))  # rho_ij minus z_ij
        self.gap = np.zeros((n_edges, m))  # theta_i minus theta_j, or minus its copy
        self.scratch = np.zeros((n_edges, m))
        self.probes = np.zeros(n_edges)  # f_i at each edge's probe
