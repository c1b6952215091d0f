"""How to send less: rounded, rarely, or only after a change."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from dadmm.comm.codec import CODECS, KNOWN, Codec, Exact, Quantised, TopK
from dadmm.comm.exchange import Hosted
from dadmm.comm.wire import SLEEPY, Box
from dadmm.core import schema
from dadmm.core.errors import ConfigError, shown
from dadmm.core.layout import Matrix, Vector
from dadmm.graphs.schedule import Schedule
from dadmm.graphs.topology import Integers

REVISIT = 10  # a sleeping edge carries a payload in one of this many of its turns


@dataclass(frozen=True)
class Sending(schema.Checked):
    """How to send less; by default every message has the exact parameters.

    Parameters
    ----------
    payload : str or Codec
        How parameters are encoded: "float64", "float32", "float16", "quantised:4" with
        2 to 16 bits per entry, "topk:0.05" with a share of the entries, or a codec of
        your own, see `dadmm.comm.codec.Codec`.
    censor : float
        Send a payload only if theta has moved by more than
        ``censor censor_decay^t |theta|`` since the last one (COCA: Liu, Xu, Zhang and
        Ling, 2019); 0 always sends.
    censor_decay : float
        Between 0 and 1. The threshold limits how close a run gets to the optimum.
    send_every : int
        Send payloads every N iterations, with a schedule every N periods.
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
        super().__post_init__()
        is_exact = self.codec == Exact()  # raises if there is none
        if self.drop_probability and (not is_exact or self.censor or self.edge_sleep):
            raise ConfigError(
                "drop_probability needs whole payloads: a receiver that lost a "
                "difference could not use the next; leave payload at float64, censor "
                "and edge_sleep at 0"
            )

    @property
    def codec(self) -> Codec:
        """The codec of the payload; raise a ConfigError if there is none."""
        if isinstance(self.payload, Codec):
            return self.payload
        name, colon, value = str(self.payload).partition(":")
        with suppress(KeyError, ValueError, ConfigError):
            if name == "quantised" and colon:
                return Quantised(int(value))
            if name == "topk" and colon:
                return TopK(float(value))
            return CODECS[str(self.payload)]
        raise ConfigError(
            f"unknown payload {shown(self.payload)}; choose one of {KNOWN}, or pass an "
            "object of a class derived from dadmm.comm.codec.Codec"
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


class Gates:
    """Decide which edges send, and which take their step.

    ``kept`` has arrays by edge (E,), which are kept between iterations. ``names``, the
    original numbers of the nodes, decide the random streams of losses.
    """

    def __init__(
        self,
        nodes: Hosted,
        names: Integers,
        sending: Sending,
        schedule: Schedule | None,
        kept: dict[str, np.ndarray],
    ) -> None:
        self.sending, self.incidence, self._names = sending, nodes.incidence, names
        self._period, self._active, self.kept = 1, None, kept
        n_edges = len(nodes.arcs)
        kept["silent"] = np.zeros(n_edges, dtype=np.int64)  # messages without payload
        if schedule is not None:
            self._period = schedule.period
            self._active = schedule.active_edges(nodes.topology)[:, nodes.arcs]
            # as last sent and received; an edge that is not present keeps its penalty
            kept["eta_sent"], kept["eta_received"] = np.empty((2, n_edges))
        if sending.edge_sleep:
            kept["sleepy"] = np.zeros(n_edges, dtype=bool)  # this end may skip the edge
            kept["asleep"] = np.zeros(n_edges, dtype=bool)  # both ends may skip it
            kept["missed"] = np.zeros(n_edges, dtype=np.int64)  # turns of being skipped
            kept["influence"] = np.full(n_edges, np.inf)
        if sending.censor:
            kept["threshold"] = np.full(n_edges, float(sending.censor))
        if sending.drop_probability:
            kept["lost"] = np.zeros(n_edges, dtype=np.int64)
        #: whether all edges of a node are treated alike
        self.by_node = schedule is None and not (
            sending.edge_sleep or sending.drop_probability
        )

    def before(self, turn: Turn, message: Matrix, sent: Matrix) -> None:
        """Restrict a turn; a message (E, m) is due, and the neighbour has ``sent``."""
        kept, sending = self.kept, self.sending
        if self._active is not None:
            turn.present = self._active[(turn.t - 1) % len(self._active)]
            turn.live = turn.due = turn.present
        turn.idle = (1 + (turn.t - 1) // self._period) % sending.send_every > 0
        if turn.idle:
            turn.live = turn.due = np.zeros(len(sent), dtype=bool)
        elif sending.edge_sleep:
            live = np.ones(len(sent), dtype=bool) if turn.live is None else turn.live
            kept["missed"] += live
            live = live & (~kept["asleep"] | (kept["missed"] >= REVISIT))
            kept["missed"][live] = 0
            turn.live = turn.due = live
        if sending.censor:
            kept["threshold"] *= sending.censor_decay
            moved = np.sqrt(np.square(message - sent).sum(axis=1))
            news = moved > kept["threshold"] * np.sqrt(np.vecdot(message, message))
            turn.due = news if turn.due is None else turn.due & news

    def after(self, turn: Turn, box: Box) -> None:
        """Take the messages that have arrived."""
        kept, sending = self.kept, self.sending
        if sending.edge_sleep:
            both = kept["sleepy"] & ((box.fields["flags"] & SLEEPY) > 0)
            if turn.present is not None:
                both = np.where(turn.present, both, kept["asleep"])
            kept["asleep"][...] = both
        if sending.drop_probability:
            draws = [
                np.random.default_rng([sending.drop_seed, 5, node, turn.t]).random(n)
                for node, n in zip(self._names, self.incidence.degrees, strict=True)
            ]
            assert turn.arrived is not None
            lost = turn.arrived & (np.concatenate(draws) < sending.drop_probability)
            kept["lost"] += lost
            turn.arrived = turn.arrived & ~lost

    def update(self, turn: Turn, influence: Vector) -> None:
        """Let edges sleep that hardly moved their ends, (E,), if others did."""
        known = self.kept["influence"]
        moved = slice(None) if turn.live is None else turn.live
        known[moved] = influence[moved]
        most = np.zeros(len(self.incidence.degrees))
        self.incidence.reduce(np.maximum, known, most)
        least = self.sending.edge_sleep * self.incidence.spread(most)
        self.kept["sleepy"][...] = known < least
