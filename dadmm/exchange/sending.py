"""What is sent, when, and to whom, whatever the penalty scheme."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dadmm.core.errors import ConfigError
from dadmm.exchange.codec import LEAST_BITS, MOST_BITS, PAYLOADS

REVISIT = 10  # a sleeping edge is heard in one of so many of its turns


@dataclass(frozen=True)
class Sending:
    """How to send less; the defaults send everything, always.

    Parameters
    ----------
    payload : {"float64", "float32", "float16", "quantised"}
        How parameters are written, see `dadmm.exchange.codec`.
    bits : int
        Of each entry of a "quantised" payload, 2 to 16. (With 1 bit, which leaves half
        of every difference unsaid, `auto` diverged.)
    censor : float
        Send only a change longer than ``censor censor_decay^t |theta|`` since the value
        sent last (COCA: Liu, Xu, Zhang and Ling, 2019); 0 always sends.
    censor_decay : float
        Between 0 and 1. Runs get no nearer to the optimum than this allows.
    every : int
        Send every so many iterations, with a schedule in one of so many periods; local
        problems are solved in all of them.
    sleep : float
        An edge sleeps when each end finds that it moves it by less than this share of
        what its most moving edge does; 0 keeps all awake.
    loss : float
        Probability that a payload is lost on its way, to study that; 0 loses none.
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
        if not LEAST_BITS <= self.bits <= MOST_BITS:
            raise ConfigError(
                f"bits must be from {LEAST_BITS} to {MOST_BITS}, got {self.bits!r}"
            )
        if not 0 <= self.censor < math.inf:
            raise ConfigError(f"censor must be at least 0, got {self.censor!r}")
        if not 0 < self.censor_decay < 1:
            raise ConfigError(
                f"censor_decay must be between 0 and 1, got {self.censor_decay!r}"
            )
        if not self.every >= 1:
            raise ConfigError(f"every must be at least 1, got {self.every!r}")
        for name in ("sleep", "loss"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(
                    f"{name} must be within [0, 1), got {getattr(self, name)!r}"
                )
        if self.loss_seed < 0:
            raise ConfigError(f"loss_seed must be at least 0, got {self.loss_seed!r}")
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
    """Raise where a scheme would need to hear what may be lost."""
    if sending.loss and scheme != "fixed":
        raise ConfigError(
            f"loss goes with the scheme fixed only, got {scheme!r}: penalties that "
            "move need ends that know the same"
        )


EVERYTHING = Sending()
