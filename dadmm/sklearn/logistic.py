"""Logistic regression over a network; a node may lack some classes."""

from __future__ import annotations

import json
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from dadmm import problems
from dadmm.core.errors import ProblemError
from dadmm.core.interfaces import Problem, World
from dadmm.core.layout import Matrix
from dadmm.sklearn.base import (
    Consensus,
    check_positive,
    mean_parts,
    on_all_ranks,
    one_thread,
)


@dataclass(eq=False, repr=False)
class LogisticRegression(ClassifierMixin, Consensus):
    """Minimise ``C sum log(1 + exp(-s (x' w + b))) + 1/2 |w|^2``, s = -1 or 1.

    This is the objective of scikit-learn's `LogisticRegression` for two classes; the
    sum is over the rows of all nodes. With more classes there is one such fit of each
    class against all others, as in its `OneVsRestClassifier`. A node may lack classes.

    Parameters
    ----------
    C : float
        Inverse of the strength of the penalty; infinite for no penalty. The sum over
        nodes of alpha of `dadmm.problems.LogisticRegression` is ``1 / C``.
    fit_intercept : bool
        The intercept is not penalised.
    n_nodes, topology, scheme, tolerance, max_iter, options, comm
        The network, see `dadmm.sklearn.base.Consensus`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Of all nodes together, sorted.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
    intercept_ : ndarray of shape (1,) or (n_classes,)
    n_iter_ : ndarray of int, shape (1,) or (n_classes,)
    result_ : Result, or list of Result
        The result of the run; of each class if there are more than two. With
        ``fit_intercept`` it is that of rows minus the mean of all rows.
    n_features_in_, feature_names_in_
        As in scikit-learn.
    """

    C: float = 1.0
    _: KW_ONLY
    fit_intercept: bool = True

    @one_thread
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit to rows X (n, d) and labels y (n,); with ``comm``, this rank's own."""

        def check() -> tuple[Matrix, NDArray[Any]]:
            rows, labels = validate_data(self, X, y, dtype=np.float64, order="C")
            check_classification_targets(labels)
            return rows, labels

        data = self._assemble(check)
        alpha, free = 1.0 / check_positive("C", self.C), bool(self.fit_intercept)
        present = np.unique(np.concatenate([own for _, own in data.shards]))
        self.classes_ = classes = all_labels(data.world, present)
        if len(classes) < 2:
            raise ProblemError(
                "LogisticRegression needs at least two classes, but all labels are of "
                f"one class, {classes[0]!s}"
            )
        share, middle = alpha / len(data.graph), free * data.means(1)[1]

        def against_others(k: int) -> list[Problem]:
            logistic = partial(problems.LogisticRegression, fit_intercept=free)
            return data.problems(
                lambda X, y: logistic(X - middle, y == classes[k], share)
            )

        runs = range(len(classes)) if len(classes) > 2 else [1]
        results = [self._solve(data, against_others(k)) for k in runs]
        found = [mean_parts(result) for result in results]
        self.coef_ = np.array([p.coef for p in found])
        self.intercept_ = np.array([p.intercept if free else 0.0 for p in found])
        self.intercept_ -= self.coef_ @ middle
        self.n_iter_ = np.array([result.iterations for result in results])
        self.result_ = results if len(results) > 1 else results[0]
        return self

    def decision_function(self, X: ArrayLike) -> Matrix:
        """Return the score ``x' w + b`` of each row of X.

        Shape (n,) for two classes, positive for ``classes_[1]``, or (n, n_classes).
        """
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        scores = np.asarray(X @ self.coef_.T + self.intercept_)
        return scores if len(self.coef_) > 1 else scores[:, 0]

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the most probable class of each row of X (n, d)."""
        scores = self.decision_function(X)
        best = scores.argmax(axis=1) if scores.ndim > 1 else (scores > 0).astype(int)
        return np.asarray(self.classes_[best])

    def predict_proba(self, X: ArrayLike) -> Matrix:
        """Return the probability of each class, (n, n_classes).

        With more than two classes, the probabilities of each class against all others
        are scaled to sum to one.
        """
        scores = self.decision_function(X)
        if scores.ndim == 1:
            scores = np.column_stack([-scores, scores])
        chances = 1.0 / (1.0 + np.exp(-np.maximum(scores, -700.0)))
        return np.asarray(chances / chances.sum(axis=1, keepdims=True))

    def predict_log_proba(self, X: ArrayLike) -> Matrix:
        """Return the logarithm of `predict_proba`."""
        return np.asarray(np.log(self.predict_proba(X)))


def all_labels(world: World, labels: NDArray[Any]) -> NDArray[Any]:
    """Return the labels (n_classes,) of all ranks together, given those of this rank.

    Only rank 0 knows which rank has which label.
    """
    texts = world.gather_texts(json.dumps([labels.dtype.str, labels.tolist()]))
    kind, found = json.loads(world.share(on_all_ranks(world, _joined, texts)))
    return np.array(found, dtype=kind)


def _joined(texts: list[str]) -> str:
    """Return the labels in all texts, sorted, in the same form; on rank 0."""
    found = [np.array(labels, kind) for kind, labels in map(json.loads, texts)]
    for rank, other in enumerate(found):
        if isinstance(other[0], str) != isinstance(found[0][0], str):
            raise ProblemError(
                "labels must be all numbers or all text, but those of rank 0 and rank "
                f"{rank} differ in type"
            )
    together = np.unique(np.concatenate(found or [np.empty(0)]))
    return json.dumps([together.dtype.str, together.tolist()])
