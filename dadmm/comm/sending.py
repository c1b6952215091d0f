"""How to send less: rounded, rarely, or only after a change.

`Sending` has the settings. A gate is one rule of them: it decides which edges send, and
which take their step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dadmm.comm.codec import Codec, Exact, codec_of
from dadmm.comm.exchange import Hosted
from dadmm.comm.wire import SLEEPY, Box
from dadmm.core import schema
from dadmm.core.errors import ConfigError
from dadmm.core.layout import Matrix, Vector
from dadmm.graphs.incidence import Incidence
from dadmm.graphs.schedule import Schedule
from dadmm.graphs.topology import Integers

REVISIT = 10  # a sleeping edge carries a payload in one of this many of its turns
Arrays = dict[str, np.ndarray]  # by edge, (E,)


@dataclass(frozen=True)
class Sending:
    """How to send less; by default every message has the exact parameters.

    Parameters
    ----------
    payload : str or Codec
        How parameters are encoded: "float64", "float32", "float16", "quantised:4" with
        2 to 16 bits per entry, "topk:0.05" with a share of the entries, or a codec of
        your own, see `dadmm.comm.codec`.
    censor : float
        Send a payload only if theta has moved by more than
        ``censor censor_decay^t |theta|`` since the last one (COCA: Liu, Xu, Zhang and
        Ling, 2019); 0 always sends.
    censor_decay : float
        Between 0 and 1. The threshold limits how close a run gets to the optimum.
    send_every : int
        Send payloads every N iterations, with a schedule every N periods. The local
        problems are solved in every iteration.
    edge_sleep : float
        Skip an edge if, at both ends, its influence is below this fraction of the
        node's largest; 0 skips none.
    drop_probability : float
        Probability that a payload is dropped, to simulate losses; 0 drops none.
    drop_seed : int

    Examples
    --------
    >>> import dadmm
    >>> X, y, _ = dadmm.datasets.regression(600, 20)
    >>> problems = [dadmm.problems.LeastSquares(X[i::6], y[i::6]) for i in range(6)]
    >>> ring, short = dadmm.Topology.ring(6), dadmm.Sending("quantised:8")
    >>> rounded = dadmm.solve(problems, ring, sending=short)
    >>> rounded.traffic.bytes < 0.5 * dadmm.solve(problems, ring).traffic.bytes
    True
    """

    payload: str | Codec = schema.entry("float64", None)  # noqa: RUF009
    censor: float = schema.entry(0.0, schema.FINITE)
    censor_decay: float = schema.entry(
        0.98, schema.number("between 0 and 1", lambda x: 0 < x < 1)
    )
    send_every: int = schema.entry(1, schema.integer(1))
    edge_sleep: float = schema.entry(0.0, schema.SHARE)
    drop_probability: float = schema.entry(0.0, schema.SHARE)
    drop_seed: int = schema.entry(0, schema.SEED)

    def __post_init__(self) -> None:
        schema.check_fields(self)
        _ = self.codec  # raises if there is none
        if self.drop_probability and (
            self.codec != Exact() or self.censor or self.edge_sleep
        ):
            raise ConfigError(
                "drop_probability needs whole payloads: a receiver that lost a "
                "difference could not use the next; leave payload at float64, censor "
                "and edge_sleep at 0"
            )

    @property
    def codec(self) -> Codec:
        """The codec of the payload."""
        return codec_of(self.payload)

    @property
    def always(self) -> bool:
        """Whether every message carries the parameters themselves."""
        return (
            self.codec == Exact()
            and self.send_every == 1
            and not (self.censor or self.edge_sleep or self.drop_probability)
        )


def check_drop(sending: Sending, scheme: str) -> None:
    """Raise a ConfigError if payloads are dropped and the scheme is not "fixed"."""
    if sending.drop_probability and scheme != "fixed":
        raise ConfigError(
            f"drop_probability needs the scheme fixed, got {scheme!r}; where payloads "
            "are lost, the two ends of an edge cannot adapt one penalty"
        )


@dataclass
class Turn:
    """Which edges take part in an iteration; masks (E,), or None for all edges."""

    t: int
    idle: bool = False  # whether no edge of any node is used
    present: np.ndarray | None = None  # edges of this iteration's graph
    live: np.ndarray | None = None  # edges whose multiplier and anchor change
    due: np.ndarray | None = None  # edges whose message has a payload
    arrived: np.ndarray | None = None  # edges on which a payload has arrived


class Gate:
    """One way to send less; this one restricts nothing.

    A gate updates the turn and ``kept``, what it keeps by edge between iterations.
    """

    needs_influence = False  # whether `update` is needed
    by_node = True  # whether it treats all edges of a node alike

    def arrays(self, n_edges: int) -> Arrays:
        """Return what the gate keeps at first, by name."""
        return {}

    def before(self, kept: Arrays, turn: Turn, message: Matrix, sent: Matrix) -> None:
        """Restrict a turn; a message (E, m) is due, and the neighbour has ``sent``."""

    def after(self, kept: Arrays, turn: Turn, box: Box) -> None:
        """Take the messages that have arrived."""

    def update(self, kept: Arrays, turn: Turn, influence: Vector) -> None:
        """Take how much each edge moved its ends, (E,)."""


@dataclass(eq=False)
class Scheduled(Gate):
    """Use the edges of a schedule: row t - 1 of ``active`` (period, E), in turns."""

    by_node = False
    active: np.ndarray

    def arrays(self, n_edges: int) -> Arrays:
        # as last sent and received; an edge that is not present keeps its penalty
        return {"eta_sent": np.empty(n_edges), "eta_received": np.empty(n_edges)}

    def before(self, kept: Arrays, turn: Turn, message: Matrix, sent: Matrix) -> None:
        turn.present = self.active[(turn.t - 1) % len(self.active)]
        turn.live = turn.due = turn.present


@dataclass(eq=False)
class SendEvery(Gate):
    """Send payloads in one period out of ``every``; solve local problems in all."""

    every: int
    period: int = 1

    def before(self, kept: Arrays, turn: Turn, message: Matrix, sent: Matrix) -> None:
        periods = (turn.t - 1) // self.period
        turn.idle = (periods + 1) % self.every > 0
        if turn.idle:
            turn.live = turn.due = np.zeros(len(sent), dtype=bool)


@dataclass(eq=False)
class Sleep(Gate):
    """Skip edges whose influence is a small fraction of the node's largest."""

    needs_influence = True
    by_node = False
    share: float
    incidence: Incidence

    def arrays(self, n_edges: int) -> Arrays:
        return {
            "sleepy": np.zeros(n_edges, dtype=bool),  # this end may skip the edge
            "asleep": np.zeros(n_edges, dtype=bool),  # both ends may skip the edge
            "missed": np.zeros(n_edges, dtype=np.int64),  # turns that it was skipped
            "influence": np.full(n_edges, np.inf),
        }

    def before(self, kept: Arrays, turn: Turn, message: Matrix, sent: Matrix) -> None:
        if turn.idle:
            return
        # use an edge in one of its turns, which a schedule may have at any iteration
        live = np.ones(len(sent), dtype=bool) if turn.live is None else turn.live
        kept["missed"] += live
        live = live & (~kept["asleep"] | (kept["missed"] >= REVISIT))
        kept["missed"][live] = 0
        turn.live = turn.due = live

    def after(self, kept: Arrays, turn: Turn, box: Box) -> None:
        both = kept["sleepy"] & ((box.fields["flags"] & SLEEPY) > 0)
        if turn.present is not None:
            both = np.where(turn.present, both, kept["asleep"])
        kept["asleep"][...] = both

    def update(self, kept: Arrays, turn: Turn, influence: Vector) -> None:
        known = kept["influence"]
        moved = slice(None) if turn.live is None else turn.live
        known[moved] = influence[moved]
        most = np.zeros(len(self.incidence.degrees))
        self.incidence.reduce(np.maximum, known, most)
        kept["sleepy"][...] = known < self.share * self.incidence.spread(most)


@dataclass(eq=False)
class Censor(Gate):
    """Send a payload if theta moved by ``censor decay^t |theta|`` since the last."""

    censor: float
    decay: float

    def arrays(self, n_edges: int) -> Arrays:
        return {"threshold": np.full(n_edges, float(self.censor))}

    def before(self, kept: Arrays, turn: Turn, message: Matrix, sent: Matrix) -> None:
        kept["threshold"] *= self.decay
        moved = np.sqrt(np.square(message - sent).sum(axis=1))
        news = moved > kept["threshold"] * np.sqrt(np.vecdot(message, message))
        turn.due = news if turn.due is None else turn.due & news


@dataclass(eq=False)
class Drop(Gate):
    """Drop payloads at random, by streams of the nodes' original numbers."""

    by_node = False
    probability: float
    seed: int
    nodes: Integers
    degrees: Integers

    def arrays(self, n_edges: int) -> Arrays:
        return {"lost": np.zeros(n_edges, dtype=np.int64)}

    def after(self, kept: Arrays, turn: Turn, box: Box) -> None:
        draws = [
            np.random.default_rng([self.seed, 5, node, turn.t]).random(degree)
            for node, degree in zip(self.nodes, self.degrees, strict=True)
        ]
        assert turn.arrived is not None
        arrived = turn.arrived & (np.concatenate(draws) >= self.probability)
        kept["lost"] += turn.arrived & ~arrived
        turn.arrived = arrived


def make_gates(
    nodes: Hosted, names: Integers, sending: Sending, schedule: Schedule | None
) -> tuple[Gate, ...]:
    """Return the gates of nodes with these original numbers."""
    gates: list[Gate] = []
    if schedule is not None:
        active = schedule.active_edges(nodes.topology)
        gates.append(Scheduled(active[:, nodes.arcs]))
    if sending.send_every > 1:
        period = 1 if schedule is None else schedule.period
        gates.append(SendEvery(sending.send_every, period))
    if sending.edge_sleep:
        gates.append(Sleep(sending.edge_sleep, nodes.incidence))
    if sending.censor:
        gates.append(Censor(sending.censor, sending.censor_decay))
    if sending.drop_probability:
        seed, degrees = sending.drop_seed, nodes.incidence.degrees
        gates.append(Drop(sending.drop_probability, seed, names, degrees))
    return tuple(gates)
