"""Stopping rules: which quantities must be small, and how far nodes are from it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dadmm.admm.state import Numbers
from dadmm.core.layout import Array, Matrix, Vector
from dadmm.core.linalg import TINY

RULES = ("optimality", "residuals", "objective")
CRITERIA = ("objective", "disagreement", "residual")
FRACTION = 1e-2  # of the length that theta would need to explain all of f
KEPT = 4  # candidates of a `CriteriaLog` in a checkpoint
TRAIL = 32  # samples of the progress of a run of any length; a power of two

# of differences and of gradients, (2, P, n); or a function of the number 0 or 1 and of
# |theta| by part, (P, ..., n), with values (P, ..., n)
Scales = Array | Callable[[int, Array], Array]


class Verdict(NamedTuple):
    """The criteria of a rule by node, (..., n), over their limits; NaN if not used."""

    objective: Array  # its change since the iteration before
    disagreement: Array  # largest over the parts of theta
    residual: Array
    disagreement_part: Array  # that part; -1 is all of theta
    residual_part: Array


@dataclass(frozen=True)
class Rule:
    """A stopping rule, which judges one iteration of a node, see `dadmm.Stopping`.

    "objective" is the test of the paper's section 5, of equation (14) if the problem
    knows it, and else of f_i. If "optimality" is ``scaled``, differences and gradients
    have known scales by node and part, and no absolute tolerance. Without scales the
    Hessian of the mean of all f_i is about the identity, and |theta| is the scale.
    """

    name: str = "optimality"
    tolerance: float = 1e-3
    absolute_tolerance: float = 1e-6
    scaled: bool = False

    @property
    def is_scaled(self) -> bool:
        """Whether both criteria are relative to scales, or to |theta| alone."""
        return self.scaled and self.name == "optimality"

    def met(self, now: Numbers, sizes: Vector, scales: Scales | None = None) -> Array:
        """Return whether all criteria are met, (n,); ``sizes`` (P, 1) are roots."""
        holds = np.ones(now.judged.shape, dtype=bool)
        if not self.is_scaled:
            change, limit = self._change(now)
            holds = change < limit
        if self.name != "objective":
            for k, norms in enumerate(self._norms(now)):
                if not np.count_nonzero(holds):
                    break  # most iterations end here
                limits = self._limits(k, now, sizes, scales)
                holds = holds & np.logical_and.reduce(norms < limits)
        return holds

    def verdict(
        self, now: Numbers, sizes: Vector, scales: Scales | None = None
    ) -> Verdict:
        """Return the criteria as multiples of their limits; `met` is the quick form."""
        change, none = over(*self._change(now)), np.full(now.judged.shape, np.nan)
        whole = np.full(change.shape, -1)
        if self.name == "objective":
            return Verdict(change, none, none, whole, whole)
        limits = [self._limits(k, now, sizes, scales) for k in range(2)]
        by_part = over(self._norms(now), limits)
        parts = by_part.argmax(axis=1) if self.name == "optimality" else [whole] * 2
        return Verdict(none if self.is_scaled else change, *by_part.max(axis=1), *parts)

    def _change(self, now: Numbers) -> tuple[Array, Array]:
        limit = now.tolerance * np.maximum(np.abs(now.judged), 1.0)
        return np.abs(now.judged - now.previous), limit

    def _norms(self, now: Numbers) -> Array:
        """Return norms of disagreement and residual, (2, P, ..., n)."""
        if self.name == "residuals":
            return np.array([now.primal, now.dual])[:, None]
        return now.parts[3:]

    def _limits(
        self, k: int, now: Numbers, sizes: Vector, scales: Scales | None
    ) -> Array:
        """Return the limits of disagreement (k = 0) or residual (1), (P, ..., n)."""
        if self.name == "residuals":
            theta, mean, pull = now.lengths[:3]
            lengths = np.maximum(2.0 * pull, 1.0) if k else np.maximum(theta, mean)
            return np.asarray(now.tolerance * lengths)[None]
        theta, mean, pull = now.parts[:3]
        if not self.is_scaled:
            lengths = 2.0 * pull if k else np.maximum(theta, mean)
            entries = sizes.reshape(-1, *[1] * (theta.ndim - 1))
            least: float | Array = self.absolute_tolerance * entries
        else:
            least = TINY  # so that zero is below a limit of zero
            if isinstance(scales, np.ndarray):  # of all iterations
                lengths = np.expand_dims(scales[k], tuple(range(1, theta.ndim - 1)))
            elif scales is not None:
                lengths = scales(k, theta)
            else:
                # |theta| is at most this if all of f is explained; it matters if the
                # optimum is zero
                explained = FRACTION * np.sqrt(2.0 * np.maximum(now.judged, 0.0))
                lengths = np.maximum(theta, explained)
        return np.asarray(now.tolerance * lengths + least)


def over(lengths: ArrayLike, limit: ArrayLike) -> Array:
    """Return norms as multiples of limits; infinite if a limit is 0 or a norm NaN."""
    with np.errstate(all="ignore"):
        ratio = np.divide(lengths, limit)
    return np.where(np.isnan(ratio), np.inf, ratio)


class Unmet(NamedTuple):
    """The criterion furthest from its limit, in an iteration that did not meet all."""

    t: float = 0
    factor: float = math.inf  # value over limit
    criterion: float = 0  # index in `CRITERIA`
    part: float = -1  # of theta; -1 is all of it
    node: float = -1  # -1 is all nodes


@dataclass
class CriteriaLog:
    """How far the nodes of a process were from the limits of a rule, during a run."""

    patience: int  # iterations in a row that meet all criteria
    delay: int  # iterations after these until the run stops
    held: int = 0  # iterations in a row in which all nodes met all criteria
    unmet: Unmet = Unmet()  # noqa: RUF009 (the last unmet iteration; never changed)
    trail: Vector = field(default_factory=lambda: np.full(TRAIL, math.nan))  # sampled
    candidates: list[Unmet] = field(default_factory=list)  # then `patience` met

    def enter(self, t: int, met: bool, worst: Callable[[int], Unmet]) -> None:
        """Add iteration ``t``; ``worst`` returns the `Unmet` of the one before."""
        self.held = self.held + 1 if met else 0
        if self.held == 1 and t > 1:
            found = worst(t - 1)
            if not found.factor < 1.0:  # else a check failed
                self.unmet = found
        if met and self.held == self.patience:
            known = self.candidates
            while len(known) > 1 and known[1].t + self.patience + self.delay <= t:
                del known[0]  # a later one will precede the stop
            known.append(self.unmet)

    def sample(self, t: int, factor: float) -> None:
        """Add a sample, see `is_sampled`; if the trail is full, drop every other."""
        step = stride(t)
        k = (t - 1) // step
        if step > 1 and 2 * k == TRAIL:
            self.trail[:k] = self.trail[::2].copy()
            self.trail[k:] = math.nan
        self.trail[k] = factor

    def last_unmet(self, t: int) -> Unmet:
        """Return the last unmet iteration, if it is known of the stop after ``t``."""
        last = t - self.patience - self.delay
        counted = [each for each in self.candidates if each.t <= last]
        return counted[-1] if counted else self.unmet

    def save(self) -> Vector:
        """Return the state as numbers, for a checkpoint; always as many."""
        known = [self.unmet, *self.candidates[-KEPT:]]
        seen = [number for each in known for number in each]
        seen += [math.nan] * ((1 + KEPT) * len(Unmet._fields) - len(seen))
        return np.array([self.held, *self.trail, *seen], dtype=np.float64)

    def restore(self, saved: Matrix) -> None:
        """Continue from what was saved, with a row for each node."""
        self.held = int(saved[:, 0].min())
        self.trail = np.fmax.reduce(saved[:, 1 : 1 + TRAIL])  # ignores NaN
        seen = saved[:, 1 + TRAIL :].reshape(len(saved), 1 + KEPT, -1).tolist()
        self.unmet = max((Unmet(*own[0]) for own in seen), key=_severity)
        found = {Unmet(*row) for own in seen for row in own[1:]}
        known = [each for each in found if not math.isnan(each.t)]
        self.candidates = sorted(known, key=_severity)


SAVED = len(CriteriaLog(0, 0).save())


def _severity(unmet: Sequence[float]) -> tuple[float, float, float]:
    """Return a key: the latest is worst, then the furthest, then the first node."""
    t, factor, _, _, node = unmet
    return t, -1.0 if math.isnan(factor) else factor, -node


def merge_endings(mine: Vector, other: Vector) -> Vector:
    """Return the worst `Unmet`, and the largest factors of the trail behind it."""
    if mine is other:  # nodes of one process have one value
        return mine
    worst = max(mine[:-TRAIL].tolist(), other[:-TRAIL].tolist(), key=_severity)
    return np.array([*worst, *np.maximum(mine[-TRAIL:], other[-TRAIL:])])


def stride(t: int) -> int:
    """Return the iterations between two samples of a trail up to ``t``."""
    return max(1, 1 << (t - 1).bit_length() >> (TRAIL.bit_length() - 1))


def is_sampled(t: int) -> bool:
    """Return whether iteration ``t`` belongs to a trail, as the first one does."""
    return (t - 1) % stride(t) == 0
