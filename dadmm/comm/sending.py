"""How to send less: rounded, rarely, or only after a change."""

from __future__ import annotations

from dataclasses import dataclass

from dadmm.comm.codec import LEAST_BITS, MOST_BITS, PAYLOADS
from dadmm.core import schema
from dadmm.core.errors import ConfigError


@dataclass(frozen=True)
class Sending:
    """How to send less; by default every message has the exact parameters.

    Parameters
    ----------
    payload : {"float64", "float32", "float16", "quantised"}
        How parameters are encoded, see `dadmm.comm.codec`.
    bits : int
        Bits per entry of a "quantised" payload, 2 to 16. (With 1 bit an
        entry is off by up to half of its part's largest difference; `auto` diverged.)
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
    >>> exact = dadmm.solve(problems, dadmm.Topology.ring(6))
    >>> rounded = dadmm.solve(
    ...     problems, dadmm.Topology.ring(6), sending=dadmm.Sending("quantised", bits=8)
    ... )
    >>> rounded.status, rounded.traffic.bytes < 0.5 * exact.traffic.bytes
    ('certified', True)
    """

    payload: str = schema.entry("float64", schema.choice(PAYLOADS))
    bits: int = schema.entry(8, schema.integer(LEAST_BITS, MOST_BITS))
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
        if self.drop_probability and (
            self.payload != "float64" or self.censor or self.edge_sleep
        ):
            raise ConfigError(
                "drop_probability goes with whole payloads only: a receiver that lost "
                "a difference could not use the next; leave payload at float64, censor "
                "and edge_sleep at 0"
            )

    @property
    def always(self) -> bool:
        """Whether every message carries the parameters themselves."""
        return (
            self.payload == "float64"
            and self.send_every == 1
            and not (self.censor or self.edge_sleep or self.drop_probability)
        )


def check_drop(sending: Sending, scheme: str) -> None:
    """Raise a ConfigError if payloads are dropped and the scheme is not "fixed"."""
    if sending.drop_probability and scheme != "fixed":
        raise ConfigError(
            f"drop_probability goes with the scheme fixed only, got {scheme!r}: "
            "penalties that move need ends that know the same"
        )
