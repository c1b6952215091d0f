"""Logistic regression over a network; a node may lack some classes."""

from __future__ import annotations

import json
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax
from sklearn.base import ClassifierMixin

from dadmm import problems
from dadmm.comm.world import World
from dadmm.core.errors import ProblemError
from dadmm.core.layout import Matrix
from dadmm.sklearn.base import check_positive, on_all_ranks, one_thread
from dadmm.sklearn.linear import LinearModel


@dataclass(eq=False, repr=False)
class LogisticRegression(ClassifierMixin, LinearModel):
    """Minimise ``-C sum log p + 1/2 |w|^2``, as scikit-learn's `LogisticRegression`.

    p is the probability of a row's own class. The sum is over the rows of all nodes,
    with their weights. For two classes the odds are ``exp(x' w + b)``. For more, the
    probabilities are the softmax of ``x' w_k + b_k`` (multinomial). Labels are numbers
    or text. A node may lack classes.

    Parameters
    ----------
    C : float
        Inverse of the strength of the penalty; infinite for no penalty. The sum over
        nodes of alpha of `dadmm.problems.LogisticRegression` is ``1 / C``.
    fit_intercept, warm_start
        As in `dadmm.sklearn.linear.LinearModel`.
    n_nodes, topology, scheme, tolerance, max_iter, sending, options, comm
        The network, see `dadmm.sklearn.base.Consensus`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Of all nodes together, sorted.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
    intercept_ : ndarray of shape (1,) or (n_classes,)
        With more than two classes, coefficients and intercepts sum to zero over the
        classes.
    n_iter_ : ndarray of int, shape (1,)
    result_ : Result
        The result of `dadmm.solve`, with its history.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> from dadmm.sklearn import LogisticRegression
    >>> X, y = [[0.0], [1.0], [4.0], [5.0], [9.0]], ["a", "a", "b", "b", "c"]
    >>> model = LogisticRegression(n_nodes=2).fit(X, y)
    >>> model.predict([[0.0], [5.0], [10.0]])
    array(['a', 'b', 'c'], dtype='<U1')
    """

    C: float = 1.0
    _: KW_ONLY

    @one_thread
    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Fit to rows X (n, d) and labels y (n,); with ``comm``, this rank's own.

        ``sample_weight`` (n,) has factors of the losses of the rows, 1 by default. A
        row of weight 2 counts twice, and one of weight 0 as absent.
        """
        data = self._read(X, y, sample_weight)
        alpha = 1.0 / check_positive("C", self.C)
        present = np.unique(np.concatenate([own for _, own, _ in data.shards]))
        self.classes_ = classes = all_labels(data.world, present)
        if len(classes) < 2:
            raise ProblemError(
                "LogisticRegression needs at least two classes, but all labels are of "
                f"one class, {classes[0]!s}"
            )
        numbered = [(A, np.searchsorted(classes, b), w) for A, b, w in data.shards]
        multinomial = partial(problems.MultinomialLogistic, n_classes=len(classes))
        problem = problems.LogisticRegression if len(classes) == 2 else multinomial
        self._minimise(data._replace(shards=numbered), problem, alpha)
        self.coef_ = np.atleast_2d(self.coef_)
        self.intercept_ = np.atleast_1d(self.intercept_)
        self.n_iter_ = np.array([self.result_.iterations])
        return self

    def decision_function(self, X: ArrayLike) -> Matrix:
        """Return the score ``x' w + b`` of each row of X.

        Shape (n,) for two classes, positive for ``classes_[1]``, or (n, n_classes).
        """
        scores = self._linear(X)
        return scores if len(self.coef_) > 1 else scores[:, 0]

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the most probable class of each row of X (n, d)."""
        scores = self.decision_function(X)
        best = scores.argmax(axis=1) if scores.ndim > 1 else (scores > 0).astype(int)
        return np.asarray(self.classes_[best])

    def predict_proba(self, X: ArrayLike) -> Matrix:
        """Return the probability of each class, (n, n_classes)."""
        return np.asarray(np.exp(self.predict_log_proba(X)))

    def predict_log_proba(self, X: ArrayLike) -> Matrix:
        """Return the logarithm of `predict_proba`."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            scores = np.column_stack([np.zeros(len(scores)), scores])
        return np.asarray(log_softmax(scores, axis=1))


def all_labels(world: World, labels: NDArray[Any]) -> NDArray[Any]:
    """Return the labels (n_classes,) of all ranks together, given those of this rank.

    Only rank 0 knows which rank has which label.
    """
    texts = world.texts(
        json.dumps([labels.dtype.str, labels.tolist()]), everywhere=False
    )
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
