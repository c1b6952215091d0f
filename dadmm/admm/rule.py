"""Stopping rules: which quantities must be small in an iteration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dadmm.admm.state import Work
from dadmm.core.layout import Vector
from dadmm.core.schema import FINITE, check_fields, choice, entry

RULES = ("optimality", "residuals", "objective")
CRITERIA = ("objective", "disagreement", "residual")
FRACTION = 1e-2  # of the length that theta would need to explain all of f
TINY = float(np.finfo(float).tiny)  # so that zero is below a limit of zero

# of differences and of gradients, (2, P, n); or a function of |theta| by part,
# (P, ..., n), with values (2, P, ..., n)
Scales = np.ndarray | Callable[[np.ndarray], np.ndarray]


class Verdict(NamedTuple):
    """The criteria of a rule, each as a multiple of its limit; by node, (..., n).

    A criterion is met if its multiple is below 1. The multiple is NaN if the rule does
    not use the criterion, and infinite if the limit is zero or the norm is NaN.
    """

    objective: np.ndarray  # its change since the iteration before
    disagreement: np.ndarray  # largest over the parts of theta
    residual: np.ndarray
    disagreement_part: np.ndarray  # that part; -1 is all of theta
    residual_part: np.ndarray


class Measured(NamedTuple):
    """The numbers by which a rule judges, each (..., n)."""

    objective: np.ndarray  # f_i, or -log p(X_i | theta_i), see `Rule`
    previous: np.ndarray  # inf at t = 1, so that no rule holds
    primal: np.ndarray  # |r_i| of the paper
    dual: np.ndarray  # |s_i| of the paper
    tolerance: np.ndarray  # relative tolerance of the iteration
    lengths: np.ndarray  # (7, ..., n) of the vectors of `Work`
    parts: np.ndarray  # (5, P, ..., n) by part of theta

    @classmethod
    def of(cls, numbers: np.ndarray, n_parts: int) -> Measured:
        """Return the numbers (..., K, n) of one or more iterations by name."""
        rows = np.moveaxis(numbers, -2, 0)
        names, vectors = Work.NUMBERS, len(Work.VECTORS)
        lengths, parts = rows[len(names) :][:vectors], rows[len(names) + vectors :]
        return cls(
            objective=rows[names.index("judged")],
            previous=rows[names.index("previous")],
            primal=rows[names.index("primal")],
            dual=rows[names.index("dual")],
            tolerance=rows[names.index("tolerance")],
            lengths=lengths,
            parts=parts.reshape(5, n_parts, *rows.shape[1:]),
        )


@dataclass(frozen=True)
class Rule:
    """A stopping rule, which judges one iteration of a node.

    Parameters
    ----------
    name : {"optimality", "residuals", "objective"}
        "objective" is the test of the paper's section 5, the relative change of the
        objective alone. This is equation (14), ``-log p(X_i | theta_i)``, if the
        problem has a method ``neg_log_likelihood``, and f_i otherwise. The others
        judge f_i. They also require that the node agrees with its neighbours and is at
        a minimum of its Lagrangian.
        "optimality" tests this in every part of theta, by norms that bound the
        distance from the optimum. "residuals" uses the paper's primal and dual
        residuals.
    tolerance : float
        Relative to |theta| and to the multipliers; with 0 a rule never holds.
        This is that of the first iteration; a review may change it.
    absolute_tolerance : float
        For "optimality": per entry of theta and of the gradient, in their units. It
        matters if the optimum or the multipliers are zero.
    scaled : bool
        For "optimality": whether differences and gradients have known scales, and there
        is no absolute tolerance. The scales are given by node and part. Without them
        the Hessian of the mean of all f_i is about the identity; then gradients have
        the unit of theta, and both are compared with |theta|.
    """

    name: str = "optimality"
    tolerance: float = entry(1e-3, FINITE)
    absolute_tolerance: float = entry(1e-6, FINITE)
    scaled: bool = False

    def __post_init__(self) -> None:
        choice(RULES).check("stopping", self.name)
        check_fields(self)

    @property
    def judges_likelihood(self) -> bool:
        """Whether the objective is equation (14), if the problem knows it."""
        return self.name == "objective"

    @property
    def is_scaled(self) -> bool:
        """Whether both criteria are relative to known scales, or to |theta| alone."""
        return self.scaled and self.name == "optimality"

    def met(
        self, now: Measured, sizes: Vector, scales: Scales | None = None
    ) -> np.ndarray:
        """Return whether all criteria are met, by node (n,).

        Parameters
        ----------
        now : Measured
        sizes : ndarray of shape (P, 1)
            Square roots of the numbers of entries of each part.
        scales : Scales, optional
            By part and node.
        """
        tolerance = now.tolerance
        if self.is_scaled:
            met = now.parts[3:] < self._limits(now, sizes, scales)
            return np.asarray(met.all(axis=(0, 1)))
        limit = np.maximum(np.abs(now.objective), 1.0)
        limit *= tolerance
        holds: np.ndarray = np.abs(now.objective - now.previous) < limit
        if self.name == "objective" or not np.count_nonzero(holds):
            return holds
        if self.name == "residuals":
            theta, mean, pull = now.lengths[:3]
            holds &= now.primal < tolerance * np.maximum(theta, mean)
            holds &= now.dual < tolerance * np.maximum(2.0 * pull, 1.0)
            return holds
        met = now.parts[3:] < self._limits(now, sizes, scales)
        holds &= met.all(axis=(0, 1))
        return holds

    def verdict(
        self, now: Measured, sizes: Vector, scales: Scales | None = None
    ) -> Verdict:
        """Return the criteria as multiples of their limits; `met` is the quick form."""
        tolerance = now.tolerance
        limit = tolerance * np.maximum(np.abs(now.objective), 1.0)
        change = over(np.abs(now.objective - now.previous), limit)
        if self.is_scaled:
            change = np.full_like(change, np.nan)
        if self.name == "optimality":
            by_part = over(now.parts[3:], self._limits(now, sizes, scales))
            return Verdict(change, *by_part.max(axis=1), *by_part.argmax(axis=1))
        none, whole = np.full_like(change, np.nan), np.full(change.shape, -1)
        if self.name == "objective":
            return Verdict(change, none, none, whole, whole)
        theta, mean, pull = now.lengths[:3]
        primal = over(now.primal, tolerance * np.maximum(theta, mean))
        dual = over(now.dual, tolerance * np.maximum(2.0 * pull, 1.0))
        return Verdict(change, primal, dual, whole, whole)

    def _limits(
        self, now: Measured, sizes: Vector, scales: Scales | None
    ) -> np.ndarray:
        """Return the limits of "optimality", (2, P, ..., n).

        They are those of |difference| and of |stationarity|, by part of theta.
        """
        theta, mean, pull = now.parts[:3]
        if self.is_scaled and callable(scales):
            return np.asarray(now.tolerance * scales(theta) + TINY)
        if self.is_scaled and isinstance(scales, np.ndarray):
            between = [1] * (theta.ndim - 2)  # iterations
            by_node = scales.reshape(*scales.shape[:2], *between, scales.shape[2])
            return np.asarray(now.tolerance * by_node + TINY)
        if self.is_scaled:
            # |theta| is at most this if all of f is explained; it matters if the
            # optimum is zero
            least = FRACTION * np.sqrt(2.0 * np.maximum(now.objective, 0.0))
            limits = np.array([np.maximum(theta, least)] * 2)
            limits *= now.tolerance
            limits += TINY
            return limits
        limits = np.array([np.maximum(theta, mean), 2.0 * pull])
        limits *= now.tolerance
        limits += self.absolute_tolerance * sizes.reshape(-1, *[1] * (theta.ndim - 1))
        return limits


def over(lengths: Any, limit: Any) -> np.ndarray:
    """Return norms as multiples of their limits.

    A multiple is infinite if the limit is zero or the norm is NaN. It is below 1 if and
    only if the norm is below the limit.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.divide(lengths, limit)
    return np.where(np.isnan(ratio), np.inf, ratio)
