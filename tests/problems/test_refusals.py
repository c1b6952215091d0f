"""Problems refuse what they cannot use, in one sentence that names the culprit."""

from functools import partial

import numpy as np
import pytest
from scipy import sparse

from dadmm import problems
from dadmm.core.errors import ProblemError
from dadmm.problems import PPCA, IncompletePPCA, Smooth, StructureFromMotion

X, Y, NAN = np.arange(6.0).reshape(3, 2), np.array([0.0, 1.0, 1.0]), np.nan
HOLED = np.where(X == 3, NAN, X)
WEIGHT = "sample_weight"
# the class, what is at fault, further arguments, and by name
LINEAR = [
    ("Ridge", "X", (Y, Y)),
    ("Ridge", "X", (sparse.csr_array((3, 0)), Y)),
    ("LeastSquares", "X", ([["a"]], [1.0])),
    ("ElasticNet", "row 1, column 1", (HOLED, Y)),
    ("LeastSquares", "row 1, column 1", (sparse.csr_array(HOLED), Y)),
    ("LeastSquares", "y", (X, Y[:2])),
    ("LogisticRegression", "row 2", (X, [0, 1, np.inf])),
    ("LogisticRegression", "labels", (X, [-1, 0, 1])),
    ("MultinomialLogistic", "labels", (X, [0, 1, 3], 3)),
    ("MultinomialLogistic", "labels", (X, [0, 1, 0.5], 3)),
    ("MultinomialLogistic", "labels", (X, [-1, 0, 1], 3)),
    ("PoissonRegression", "-2", (X, [0, 1, -2])),
    ("Ridge", "alpha", (X, Y, -1)),
    ("Lasso", "alpha", (X, Y, "much")),
    ("Huber", "alpha", (X, Y, 1.0, np.inf)),
    ("ElasticNet", "l1_ratio", (X, Y, 1.0, 1.5)),
    ("Huber", "delta", (X, Y, 0)),
    ("MultinomialLogistic", "n_classes", (X, Y, 1)),
    ("MultinomialLogistic", "n_classes", (X, Y, 2.0)),
    ("Ridge", "fit_intercept", (X, Y), {"fit_intercept": "no"}),
    ("Ridge", WEIGHT, (X, Y), {WEIGHT: [1, 1]}),
    ("LogisticRegression", WEIGHT, (X, Y), {WEIGHT: ["a", "b", "c"]}),
    ("LeastSquares", WEIGHT, (X, Y), {WEIGHT: np.zeros(3)}),
    ("Huber", "row 1", (X, Y), {WEIGHT: [1, -1, 1]}),
    ("Lasso", "row 2", (X, Y), {WEIGHT: [1, 1, np.inf]}),
]


def square(x):
    return 0.5 * x @ x, x


def fails(x):
    raise KeyError("rate\nof")


def bent(hessian, convex=True):
    return partial(Smooth, square, 2, hessian=lambda x: hessian, convex=convex)


SMOOTH = [
    ("size", partial(Smooth, square, 0)),
    ("size", partial(Smooth, square, "x")),
    ("convex", partial(Smooth, square, 2, convex="yes")),
    ("start", partial(Smooth, square, 2, start=np.ones(3))),
    ("float64", partial(Smooth, np.sum, 2)),
    ("gradient", partial(Smooth, lambda x: (0.0, x[None]), 2)),
    ("gradient", partial(Smooth, lambda x: (0.0, ["a", "b"]), 2)),
    ("value", partial(Smooth, lambda x: (x, x), 2)),
    ("value is inf", partial(Smooth, lambda x: (np.inf, x), 2)),
    ("entry 1", partial(Smooth, lambda x: (0.0, np.array([0.0, NAN])), 2)),
    ("KeyError", partial(Smooth, fails, 2)),
    ("convex", bent(np.eye(2), convex=False)),
    ("hessian", bent(np.ones(2))),
    ("symmetric", bent(np.tri(2))),
    ("eigenvalue", bent(-np.eye(2))),
    ("hessian", bent(2 * np.eye(2))),
]
SAMPLES = [
    ("n_components", np.ones((9, 1))),
    ("samples", np.ones((0, 4))),
    ("missing", np.full((3, 4), NAN)),
    ("row 1, column 1", np.diag([NAN, np.inf])),
    ("samples", np.full(4, NAN)),
]
CALLS = [
    *((word, partial(getattr(problems, kind), *given, **dict(*named)))
      for kind, word, given, *named in LINEAR),
    *SMOOTH,
    *((word, partial(kind, x, 1)) for word, x in SAMPLES
      for kind in (PPCA, IncompletePPCA)),
    *(("rows", partial(StructureFromMotion, np.ones(s))) for s in ((3, 5), 4, (0, 5))),
    ("start", partial(StructureFromMotion, np.ones((4, 6)), start="middle")),
]  # fmt: skip


@pytest.mark.parametrize(("culprit", "call"), CALLS)
def test_bad_input_is_named(culprit, call):
    with pytest.raises(ProblemError, match=culprit) as caught:
        call()

    assert "\n" not in str(caught.value)
