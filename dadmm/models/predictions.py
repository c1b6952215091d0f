"""Predictions of a fitted problem from rows of numbers and named parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dadmm.core.errors import ConfigError
from dadmm.core.layout import Matrix, Vector
from dadmm.core.linalg import principal_axes
from dadmm.data.patterns import fill
from dadmm.problems import PROBLEMS

Parameters = Mapping[str, np.ndarray]  # coef and intercept, or W, mu and a
# what a problem predicts; others, such as sfm or a class of yours, have no model
KINDS: dict[str, str] = {
    name: kind.traits.predicts
    for name, kind in PROBLEMS.items()
    if kind.traits.predicts is not None
}


class Reconstruction(NamedTuple):
    """What the model of a subspace says of rows."""

    scores: Matrix  # (n, M) projections on the principal axes
    rows: Matrix  # (n, D) the points of the subspace with these scores
    filled: Matrix  # (n, D) the rows, with the expectation of each missing entry
    errors: Vector  # (n,) root mean square distance; NaN if all entries are missing


def linear(X: Matrix, parameters: Parameters) -> Matrix:
    """Return ``X coef + intercept``, (n,), or (n, K) if ``coef`` is (K, d)."""
    return np.asarray(X @ parameters["coef"].T + parameters.get("intercept", 0.0))


def log_probabilities(scores: Matrix) -> Matrix:
    """Return the logarithms of the probabilities of the classes, (n, K).

    ``scores`` is what `linear` returns; scores (n,) are for the second of two
    classes.
    """
    if scores.ndim == 1:
        both = np.column_stack([scores, -scores])
        return np.asarray(-np.logaddexp(0.0, both))
    shifted = scores - scores.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def means(scores: Vector) -> Vector:
    """Return the means of counts, ``exp(scores)``."""
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(scores))


def check_score_names(names: Sequence[str], n_scores: int) -> None:
    """Raise if a column of a subspace has the name of a score or of the error."""
    taken = {*(f"score{k}" for k in range(n_scores)), "reconstruction_error"}
    for name in (name for name in names if name in taken):
        raise ConfigError(
            f"a column is called {name!r}, as is a column of predictions; rename it"
        )


def reconstruct(rows: Matrix, parameters: Parameters) -> Reconstruction:
    """Return scores and reconstruction of rows (n, D), NaN where one is missing."""
    W, mu, a = (parameters[name] for name in ("W", "mu", "a"))
    rows = rows.toarray() if hasattr(rows, "toarray") else rows
    lost, filled = np.isnan(rows), fill(rows, W, mu, float(a))
    axes = principal_axes(W)[0]
    scores = (filled - mu) @ axes
    again = mu + scores @ axes.T
    n_seen = (~lost).sum(axis=1)
    squares = (np.where(lost, 0.0, rows - again) ** 2).sum(axis=1)
    mean = np.where(n_seen, squares / np.maximum(n_seen, 1), np.nan)
    return Reconstruction(scores, again, filled, np.sqrt(mean))
