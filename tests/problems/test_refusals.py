"""Problems refuse what they cannot use, in one sentence that names the culprit."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from dadmm.core.errors import ProblemError
from dadmm.problems import (
    PPCA,
    ElasticNet,
    Huber,
    IncompletePPCA,
    Lasso,
    LeastSquares,
    LogisticRegression,
    MultinomialLogistic,
    PoissonRegression,
    Ridge,
    Smooth,
    StructureFromMotion,
)

X, Y = np.arange(6.0).reshape(3, 2), np.array([0.0, 1.0, 1.0])
HOLED = sparse.csr_array(np.where(X == 3, np.nan, X))
LETTERS = ["a", "b", "c"]
# what is at fault, and a call
LINEAR = [
    ("X", lambda: Ridge(Y, Y)),
    ("X", lambda: Ridge(sparse.csr_array((3, 0)), Y)),
    ("X", lambda: LeastSquares([["a"]], [1.0])),
    ("row 1, column 0", lambda: ElasticNet(np.where(X == 2, np.nan, X), Y)),
    ("row 1, column 1", lambda: LeastSquares(HOLED, Y)),
    ("y", lambda: LeastSquares(X, Y[:2])),
    ("row 2", lambda: LogisticRegression(X, [0, 1, np.inf])),
    ("labels", lambda: LogisticRegression(X, [-1, 0, 1])),
    ("labels", lambda: MultinomialLogistic(X, [0, 1, 3], 3)),
    ("labels", lambda: MultinomialLogistic(X, [0, 1, 0.5], 3)),
    ("labels", lambda: MultinomialLogistic(X, [-1, 0, 1], 3)),
    ("-2", lambda: PoissonRegression(X, [0, 1, -2])),
    ("alpha", lambda: Ridge(X, Y, -1)),
    ("alpha", lambda: Lasso(X, Y, "much")),
    ("alpha", lambda: Huber(X, Y, 1.0, np.inf)),
    ("l1_ratio", lambda: ElasticNet(X, Y, 1.0, 1.5)),
    ("delta", lambda: Huber(X, Y, 0)),
    ("n_classes", lambda: MultinomialLogistic(X, Y, 1)),
    ("n_classes", lambda: MultinomialLogistic(X, Y, 2.0)),
    ("fit_intercept", lambda: Ridge(X, Y, fit_intercept="no")),
    ("sample_weight", lambda: Ridge(X, Y, sample_weight=[1, 1])),
    ("sample_weight", lambda: LogisticRegression(X, Y, sample_weight=LETTERS)),
    ("sample_weight", lambda: LeastSquares(X, Y, sample_weight=np.zeros(3))),
    ("row 1", lambda: Huber(X, Y, sample_weight=[1, -1, 1])),
    ("row 2", lambda: Lasso(X, Y, sample_weight=[1, 1, np.inf])),
]


def square(x):
    return 0.5 * x @ x, x


def fails(x):
    raise KeyError("rate\nof")


def bent(hessian, convex=True):
    return lambda: Smooth(square, 2, hessian=lambda x: hessian, convex=convex)


SMOOTH = [
    ("size", lambda: Smooth(square, 0)),
    ("size", lambda: Smooth(square, "x")),
    ("convex", lambda: Smooth(square, 2, convex="yes")),
    ("start", lambda: Smooth(square, 2, start=np.ones(3))),
    ("float64", lambda: Smooth(np.sum, 2)),
    ("gradient", lambda: Smooth(lambda x: (0.0, x[None]), 2)),
    ("gradient", lambda: Smooth(lambda x: (0.0, ["a", "b"]), 2)),
    ("value", lambda: Smooth(lambda x: (x, x), 2)),
    ("value is inf", lambda: Smooth(lambda x: (np.inf, x), 2)),
    ("entry 1", lambda: Smooth(lambda x: (0.0, np.array([0.0, np.nan])), 2)),
    ("KeyError", lambda: Smooth(fails, 2)),
    ("convex", bent(np.eye(2), convex=False)),
    ("hessian", bent(np.ones(2))),
    ("symmetric", bent(np.tri(2))),
    ("eigenvalue", bent(-np.eye(2))),
    ("hessian", bent(2 * np.eye(2))),
]
NAN = np.nan
SAMPLES = [
    ("n_components", np.ones((9, 1))),
    ("samples", np.ones((0, 4))),
    ("missing", np.full((3, 4), NAN)),
    ("row 1, column 1", np.diag([NAN, np.inf])),
    ("samples", np.full(4, NAN)),
]
MODELS = [
    *((word, lambda x=x: PPCA(x, 1)) for word, x in SAMPLES),
    *((word, lambda x=x: IncompletePPCA(x, 1)) for word, x in SAMPLES),
    *(
        ("rows", lambda s=s: StructureFromMotion(np.ones(s)))
        for s in ((3, 5), 4, (0, 5))
    ),
    ("start", lambda: StructureFromMotion(np.ones((4, 6)), start="middle")),
]


@pytest.mark.parametrize(("culprit", "call"), [*LINEAR, *SMOOTH, *MODELS])
def test_bad_input_is_named(culprit, call):
    with pytest.raises(ProblemError, match=culprit) as caught:
        call()

    assert "\n" not in str(caught.value)
