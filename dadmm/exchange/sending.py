"""How to send less: rounded, rarely, or only after a change."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dadmm.core.checks import MOST_SEED, check_integer, check_number
from dadmm.core.errors import ConfigError
from dadmm.exchange.codec import LEAST_BITS, MOST_BITS, PAYLOADS

REVISIT = 10  # a sleeping edge carries a payload in one of this many of its turns


@dataclass(frozen=True)
class Sending:
    """How to send less; by default every message has the exact parameters.

    Parameters
    ----------
    payload : {"float64", "float32", "float16", "quantised"}
        How parameters are encoded, see `dadmm.exchange.codec`.
    bits : int
        Bits per entry of a "quantised" payload, 2 to 16. (With 1 bit an
        entry is off by up to half of its part's largest difference; `auto` diverged.)
    censor : float
        Send a payload only if theta has moved by more than
        ``censor censor_decay^t |theta|`` since the last one (COCA: Liu, Xu, Zhang and
        Ling, 2019); 0 always sends.
    censor_decay : float
        Between 0 and 1. The threshold limits how close a run gets to the optimum.
    every : int
        Send payloads every N iterations, with a schedule every N periods. The local
        problems are solved in every iteration.
    sleep : float
        Skip an edge if, at both ends, its influence is below this fraction of the
        node's largest; 0 skips none.
    loss : float
        Probability that a payload is dropped, to simulate losses; 0 drops none.
    loss_seed : int
    """

    payload: str = "float64"
    bits: int = 8
    censor: float = 0.0
    censor_decay: float = 0.98
    every: int = 1
    sleep: float = 0.0
    loss: float = 0.0
    loss_seed: int = 0

    def __post_init__(self) -> None:
        if self.payload not in PAYLOADS:
            raise ConfigError(
                f"unknown payload {self.payload!r}; choose one of {', '.join(PAYLOADS)}"
            )
        check_integer("bits", self.bits, LEAST_BITS, MOST_BITS)
        check_integer("every", self.every, 1)
        check_integer("loss_seed", self.loss_seed, 0, MOST_SEED)
        check_number("censor", self.censor, lambda x: 0 <= x < math.inf, "at least 0")
        decay = self.censor_decay
        check_number("censor_decay", decay, lambda x: 0 < x < 1, "between 0 and 1")
        for name in ("sleep", "loss"):
            share = getattr(self, name)
            check_number(name, share, lambda x: 0 <= x < 1, "within [0, 1)")
        if self.loss and (self.payload != "float64" or self.censor or self.sleep):
            raise ConfigError(
                "loss goes with whole payloads only: a receiver that lost a difference "
                "could not use the next; leave payload at float64, censor and sleep at "
                "0"
            )

    @property
    def always(self) -> bool:
        """Whether every message carries the parameters themselves."""
        return (
            self.payload == "float64"
            and self.every == 1
            and not (self.censor or self.sleep or self.loss)
        )


def check_loss(sending: Sending, scheme: str) -> None:
    """Raise if payloads may be dropped and the scheme is not "fixed"."""
    if sending.loss and scheme != "fixed":
        raise ConfigError(
            f"loss goes with the scheme fixed only, got {scheme!r}: penalties that "
            "move need ends that know the same"
        )


EVERYTHING = Sending()
