"""Random choices; a seed decides them all."""

from collections.abc import Collection
from typing import Any

import numpy as np


class Draw:
    """Random choices."""

    def __init__(self, *seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def pick(self, options: Collection[Any]) -> Any:
        return [*options][int(self.rng.integers(len(options)))]

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def integer(self, least: int, most: int) -> int:
        """Return an integer; ``most`` is possible."""
        return int(self.rng.integers(least, most + 1))

    def uniform(self, least: float, most: float) -> float:
        return float(self.rng.uniform(least, most))

    def power(self, least: float, most: float) -> float:
        """Return a number between powers of ten."""
        return float(10.0 ** self.rng.uniform(least, most))
