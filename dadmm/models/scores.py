"""What a fitted problem predicts, how well it fits, and standard errors.

Sums over the rows of a node are merged over the nodes by a function that the caller
gives, along a spanning tree of the graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from dadmm.core import linalg
from dadmm.core.errors import ConfigError
from dadmm.core.layout import Matrix, Vector
from dadmm.data.agreement import merge_moments
from dadmm.data.encoding import Rows
from dadmm.data.patterns import fill
from dadmm.problems import PROBLEMS

# what a problem predicts; others, such as sfm or a class of yours, have no model
KINDS: dict[str, str] = {
    name: kind.traits.predicts
    for name, kind in PROBLEMS.items()
    if kind.traits.predicts is not None
}
BINS = 500  # of the histograms of scores, between the least and the largest of all
LEAST = 1e-12  # singular values below this multiple of the largest count as zero
OPEN = 1e-8  # smallest component of a coefficient in a dropped direction that counts

Parameters = Mapping[str, np.ndarray]  # coef and intercept, or W, mu and a
# merges one value per node of this process over all nodes: (values, merge, finish)
Total = Callable[..., Any]


class Reconstruction(NamedTuple):
    """What the model of a subspace says of rows."""

    scores: Matrix  # (n, M) projections on the principal axes
    rows: Matrix  # (n, D) the points of the subspace with these scores
    filled: Matrix  # (n, D) the rows, with the expectation of each missing entry
    errors: Vector  # (n,) root mean square distance; NaN if all entries are missing


class Scores(NamedTuple):
    """Scores over the rows of all nodes."""

    values: dict[str, float | None]  # by name; None if it is not defined
    n_rows: int
    variance: float  # of the noise of least squares, RSS / (N - p); else 1
    by_class: tuple[float, ...] = ()  # weights of the rows of each of two classes


class Sums(NamedTuple):
    """Sums over rows; packed, they follow each other in one vector."""

    extremes: Vector  # (2,) minus the least score, and the largest, of two classes
    moments: Vector  # (3,) weights; mean of y and squares about it if y is a number
    losses: Vector  # (2,) see `_losses`
    n_rows: Vector  # (1,)

    @classmethod
    def unpack(cls, packed: Vector) -> Sums:
        return cls(*np.split(packed, [2, 5, 7]))


def linear(X: Matrix, parameters: Parameters) -> Matrix:
    """Return ``X coef + intercept``, (n,), or (n, K) if ``coef`` is (K, d)."""
    return np.asarray(X @ parameters["coef"].T + parameters.get("intercept", 0.0))


def log_probabilities(scores: Matrix) -> Matrix:
    """Return the logarithms of the probabilities of the classes, (n, K).

    ``scores`` are of `linear`; if they are (n,), of the second of two classes.
    """
    if scores.ndim == 1:
        return np.asarray(-np.logaddexp(0.0, np.column_stack([scores, -scores])))
    shifted = scores - scores.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def means(scores: Vector) -> Vector:
    """Return the means of counts."""
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(scores))


def check_score_names(names: Sequence[str], n_scores: int) -> None:
    """Raise if a column of a subspace has the name of a score or of the error."""
    taken = {*(f"score{k}" for k in range(n_scores)), "reconstruction_error"}
    for name in (name for name in names if name in taken):
        raise ConfigError(f"column {name!r} has the name of a prediction; rename it")


def reconstruct(X: Any, parameters: Parameters) -> Reconstruction:
    """Return scores and reconstruction of rows (n, D), NaN where one is missing."""
    W, mu, a = (parameters[name] for name in ("W", "mu", "a"))
    rows = _dense(X)
    lost, filled = np.isnan(rows), fill(rows, W, mu, float(a))
    axes = linalg.principal_axes(W)[0]
    scores = (filled - mu) @ axes
    again = mu + scores @ axes.T
    n_seen = (~lost).sum(axis=1)
    squares = (np.where(lost, 0.0, rows - again) ** 2).sum(axis=1)
    mean = np.where(n_seen, squares / np.maximum(n_seen, 1), np.nan)
    return Reconstruction(scores, again, filled, np.sqrt(mean))


def _dense(X: Any) -> Matrix:
    return np.asarray(X.toarray() if hasattr(X, "toarray") else X)


def score(
    total: Total,
    kind: str | None,
    parameters: Parameters,
    own: Sequence[Rows],
    with_area: bool = True,
) -> Scores:
    """Return the scores of a model on the rows of all nodes, by their weight.

    ``kind`` is what the model predicts; if None, rows are counted. ``own`` has the rows
    of the nodes of this process. Without ``with_area`` two classes have no "auc".
    """
    packed = [
        reduce(merge_sums, (_sums(kind, part, parameters) for part in rows.blocks()))
        for rows in own
    ]
    sums = Sums.unpack(total(packed, merge_sums))
    values, n_rows, by_class = _values(kind, sums), int(sums.n_rows[0]), []
    if with_area and kind == "classification" and parameters["coef"].ndim == 1:
        low, high = -sums.extremes[0], sums.extremes[1]
        counted = [_histogram(rows, parameters, low, high) for rows in own]
        area, error, *by_class = total(counted, np.add, _area).tolist()
        error = 0.0 if low == high else error  # all scores are equal
        values |= {"auc": area, "auc_error": error}
    variance = 1.0
    if kind == "regression":
        free = n_rows - sum(part.size for part in parameters.values())
        variance = sums.losses[0] / free if free > 0 else math.nan
    known = {k: float(x) if math.isfinite(x) else None for k, x in values.items()}
    return Scores(known, n_rows, float(variance), tuple(by_class))


def merge_sums(mine: Vector, other: Vector) -> Vector:
    """Return the packed sums over the rows of both."""
    a, b = Sums.unpack(mine), Sums.unpack(other)
    return np.concatenate([
        np.maximum(a.extremes, b.extremes), merge_moments(a.moments, b.moments),
        a.losses + b.losses, a.n_rows + b.n_rows,
    ])  # fmt: skip


def _sums(kind: str | None, rows: Rows, parameters: Parameters) -> Vector:
    """Return the packed sums over rows in memory."""
    extremes, moments, losses = np.full(2, -np.inf), np.zeros(3), np.zeros(2)
    if kind == "subspace":
        X = _dense(rows.X)
        centred = np.nan_to_num(X - parameters["mu"])
        left = np.nan_to_num(X - reconstruct(X, parameters).rows)
        losses = np.array([(left * left).sum(), (centred * centred).sum()])
    elif kind is not None and rows.y is not None and len(rows.y):
        y, weight, fitted = rows.y, _weights(rows), linear(rows.X, parameters)
        moments[0] = weight.sum()
        if kind == "classification" and fitted.ndim == 1:
            extremes = np.array([-fitted.min(), fitted.max()])
        elif kind != "classification" and moments[0] > 0.0:
            moments[1] = (weight * y).sum() / moments[0]
            moments[2] = (weight * (y - moments[1]) ** 2).sum()
        losses = np.array([(weight * loss).sum() for loss in _losses(kind, y, fitted)])
    return np.concatenate([extremes, moments, losses, [rows.X.shape[0]]])


def _weights(rows: Rows) -> Vector:
    return np.ones(rows.X.shape[0]) if rows.weight is None else rows.weight


def _losses(kind: str, y: Vector, fitted: Matrix) -> tuple[Vector, Vector]:
    """Return two losses of each row.

    Squared error and 0; or minus the log probability of the class and whether the label
    is right; or half the deviance, and ``y log y``.
    """
    if kind == "regression":
        return (y - fitted) ** 2, np.zeros_like(y)
    if kind == "classification":
        logs, code = log_probabilities(fitted), y.astype(int)
        loss = -logs[np.arange(len(y)), code]
        return loss, (logs.argmax(axis=1) == code).astype(np.float64)
    own = np.where(y > 0.0, y * np.log(np.maximum(y, 1e-300)), 0.0)
    return own - y * fitted - y + means(fitted), own


def _values(kind: str | None, sums: Sums) -> dict[str, float]:
    """Return the scores that the sums determine; NaN if they do not."""
    (weight, mean, squares), (first, second) = sums.moments, sums.losses

    def ratio(a: float, b: float) -> float:
        return a / b if b > 0.0 else math.nan

    if kind == "regression":
        return {"r2": 1.0 - ratio(first, squares), "rmse": ratio(first, weight) ** 0.5}
    if kind == "classification":
        return {"accuracy": ratio(second, weight), "log_loss": ratio(first, weight)}
    if kind == "counts":
        null = second - weight * mean * math.log(mean) if mean > 0.0 else 0.0
        return {"deviance_explained": 1.0 - ratio(first, null)}
    if kind == "subspace":
        return {"explained_variance": 1.0 - ratio(first, second)}
    return {}


def _histogram(rows: Rows, parameters: Parameters, low: float, high: float) -> Matrix:
    """Return the weights of the rows of each class by score, (2, BINS)."""
    found = np.zeros((2, BINS))
    if rows.y is None or not math.isfinite(high - low):
        return found
    fitted, weight = linear(rows.X, parameters), _weights(rows)
    place = np.zeros(len(fitted))
    if high > low:
        place = (fitted - low) / (high - low) * BINS
    place = np.minimum(place.astype(int), BINS - 1)
    for k in (0, 1):
        mine = rows.y == k
        found[k] = np.bincount(place[mine], weight[mine], minlength=BINS)
    return found


def _area(counts: Matrix) -> Vector:
    """Return the area under the ROC curve, a bound on its error, and both weights.

    Scores in one bin count as equal. So the error is at most half of the fraction of
    pairs of rows of different classes that share a bin.
    """
    lower, upper = counts
    below = np.cumsum(lower) - lower
    alike = 0.5 * (lower @ upper)
    with np.errstate(invalid="ignore"):  # of no pair
        area = np.array([upper @ below + alike, alike]) / (lower.sum() * upper.sum())
    return np.concatenate([area, counts.sum(axis=1)])


def standard_errors(
    total: Total,
    kind: str,
    parameters: Parameters,
    own: Sequence[Rows],
    units: Matrix,
    variance: float = 1.0,
) -> Vector:
    """Return the standard errors of coefficients, (q,) or by class (K q,).

    They are the roots of the diagonal of ``variance A H^-1 A'``, with H the Hessian of
    the sum of all objectives. A, the ``units`` (q, p), maps the coefficients of one
    class, intercept last, to those that are wanted. Of several classes they are those
    of the centred coefficients, which sum to zero over the classes. A coefficient that
    the data leave open has NaN.
    """
    n_classes = len(parameters["coef"]) if parameters["coef"].ndim > 1 else 1
    centring = np.eye(n_classes)
    if n_classes > 1:
        centring -= 1.0 / n_classes
    wanted = np.kron(centring, units)

    def finish(packed: Vector) -> Vector:
        if not np.isfinite(packed).all():
            return np.full(len(wanted), np.nan)
        factor = linalg.unpack_factor(packed)
        lengths = linalg.row_lengths(factor.T)
        lengths[lengths == 0.0] = 1.0
        _, values, axes = np.linalg.svd(factor / lengths)
        map_ = wanted / lengths
        kept = values > LEAST * values[0]
        dropped = np.abs(map_ @ axes[~kept].T)
        is_open = (dropped > OPEN * linalg.row_lengths(map_)[:, None]).any(axis=1)
        roots = map_ @ (axes[kept].T / values[kept])
        return np.where(is_open, np.nan, np.sqrt(variance * np.vecdot(roots, roots)))

    packed = []
    for rows in own:
        factors = (_curvature(kind, parameters, part) for part in rows.blocks())
        packed.append(reduce(linalg.merge_factors, map(linalg.pack_factor, factors)))
    return np.asarray(total(packed, linalg.merge_factors, finish))


def _curvature(kind: str, parameters: Parameters, rows: Rows) -> Matrix:
    """Return F with F'F the Hessian of a node's losses, by class, intercept last."""
    X = _dense(rows.X)
    if "intercept" in parameters:
        X = np.column_stack([X, np.ones(len(X))])
    root, fitted = np.sqrt(_weights(rows)), linear(rows.X, parameters)
    if kind == "counts":
        root *= np.sqrt(means(fitted))
    if kind != "classification":
        return np.asarray(root[:, None] * X)
    p = np.exp(log_probabilities(fitted))
    if fitted.ndim == 1:
        return np.asarray((root * np.sqrt(p.prod(axis=1)))[:, None] * X)
    # diag(p) - p p' is B' B with rows B_k = sqrt(p_k) (e_k - p)
    factors = []
    for k, unit in enumerate(np.eye(p.shape[1])):
        own = (root * np.sqrt(p[:, k]))[:, None] * (unit - p)
        block = own[:, :, None] * X[:, None, :]
        factors.append(linalg.triangular(block.reshape(len(X), -1)))
    return np.vstack(factors)
