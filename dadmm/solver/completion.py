"""Rounds of EM over a tree, from which PPCA with missing entries starts.

A round completes the rows of each node at the present model: missing entries get their
expectations given the observed ones, and their covariances count. The mean and the
principal axes of all completed rows are the next model. If much is missing, such steps
converge slowly. So after every two of them the root extrapolates (SQUAREM: Varadhan and
Roland, 2008, Scand. J. Stat. 35). It also decides when rounds end.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dadmm.core.layout import Matrix, Vector

MOST_ROUNDS = 60
NEAR = 1e-3  # expected distance from the limit at which rounds end
RECENT = 3  # rounds of which the slowest rate of convergence counts
MOST_RATE = 0.999
WORSE = 4.0  # growth of the steps after which an extrapolation is taken back


class Model(NamedTuple):
    """PPCA: rows are ``unit (W z + noise) + mean``, the noise of variance 1."""

    W: Matrix
    unit: float
    mean: Vector


class Rounds:
    """What the root decides after each round; rows are first completed at a model."""

    def __init__(self, model: Model) -> None:
        self._at = model  # at which rows were completed
        self._path = [model]  # of steps without extrapolation
        self._sizes: list[float] = []  # of steps
        self._rates: list[float] = []  # of convergence
        self._before: tuple[Model, float] | None = None  # the last extrapolation

    def decide(self, found: Model) -> tuple[Model, float]:
        """Return the next model, and the pace: 1 minus the rate of convergence.

        ``found`` is that of the completed rows. At the end the pace has a minus sign.
        """
        size = distance(self._at, found)
        if self._sizes and self._sizes[-1] > 0.0:
            self._rates.append(size / self._sizes[-1])
        self._sizes.append(size)
        rate = min(max(self._rates[-RECENT:], default=0.5), MOST_RATE)
        if size * rate < NEAR * (1.0 - rate):
            return found, rate - 1.0
        found = _aligned(found, self._path[0])
        self._path.append(found)
        if self._before is not None:
            (kept, least), self._before = self._before, None
            if size > WORSE * least:
                found, self._path = kept, [kept]
        if len(self._path) == 3:
            self._before = found, size
            found = _extrapolated(*self._path)
            self._path = [found]
        self._at = found
        return found, 1.0 - rate


def distance(one: Model, two: Model) -> float:
    """Return how much two models differ, in units of the second.

    It is the largest relative change of a variance in any direction, or the shift of
    the mean in standard deviations, if that is larger.
    """
    ratio = one.unit / two.unit
    axes = np.linalg.qr(np.hstack([two.W, one.W]))[0]
    old, new = ratio * (axes.T @ one.W), axes.T @ two.W
    eye = np.eye(len(old))
    root = np.linalg.cholesky(new @ new.T + eye)
    half = np.linalg.solve(root, np.hstack([old, ratio * eye]))
    variances = np.linalg.svd(half, compute_uv=False) ** 2
    shift = np.linalg.norm(_whitened(two, (one.mean - two.mean)[:, None] / two.unit))
    changes = [np.abs(variances - 1.0).max(), abs(ratio * ratio - 1.0), shift]
    return float(max(changes))


def _whitened(model: Model, columns: Matrix) -> Matrix:
    """Return columns (D, k) over the standard deviations of a model, in its unit."""
    axes, lengths, _ = np.linalg.svd(model.W, full_matrices=False)
    along = axes.T @ columns
    shorter = along / np.sqrt(lengths**2 + 1.0)[:, None]
    return np.asarray(columns - axes @ (along - shorter))


def _aligned(model: Model, other: Model) -> Model:
    """Return the same model with W rotated to be nearest to another."""
    left, _, right = np.linalg.svd(model.W.T @ other.W)
    return model._replace(W=model.W @ (left @ right))


def _extrapolated(first: Model, second: Model, third: Model) -> Model:
    """Return where steps from the first to the third model lead to."""
    unit = third.unit
    steps = []
    for one, two in ((first, second), (second, third)):
        scaled = np.column_stack(
            [two.unit * two.W - one.unit * one.W, two.mean - one.mean]
        )
        noise = math.log(two.unit / one.unit)
        size = np.append(_whitened(third, scaled / unit), noise)
        steps.append((scaled, noise, size))
    (scaled, noise, size), (scaled_two, noise_two, size_two) = steps
    turn = float(np.linalg.norm(size_two - size))
    length = max(float(np.linalg.norm(size)) / turn, 1.0) if turn else 1.0
    # from the first model, with length 1 the third
    gain, bend = 2.0 * length, length * length
    move = gain * scaled + bend * (scaled_two - scaled)
    unit = first.unit * math.exp(gain * noise + bend * (noise_two - noise))
    W = (first.unit * first.W + move[:, :-1]) / unit
    return Model(W, unit, first.mean + move[:, -1])
