"""`check_problem` finds faults of `within`, `theta_of` and `rows`."""

from __future__ import annotations

import numpy as np
import pytest

from dadmm import ProblemError
from dadmm.problems import ElasticNet, Huber, Lasso, LeastSquares, LogisticRegression
from dadmm.testing import check_problem

rng = np.random.default_rng(0)
X, Y = rng.standard_normal((30, 3)), rng.standard_normal(30)


class Plain(LeastSquares):
    """Least squares with a fault."""

    @property
    def kind(self):
        return type(self), self.layout


class Stretched(Plain):
    def within(self, T):
        return super().within(2.0 * T)


class Narrow(Plain):
    def within(self, T):
        return super().within(T[:, :-1])


class Moved(Plain):
    def theta_of(self, T, z):
        return super().theta_of(T, z) + 1.0


class Steep(Plain):
    def rows(self, theta, radius=0.0):
        return 1.1 * super().rows(theta, radius)


class Reckless(LogisticRegression):
    """Its curvature at theta is claimed for points around it."""

    def rows(self, theta, radius=0.0):
        return 1.01 * super().rows(theta)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Stretched, "within: expected the same f"),
        (Narrow, "within: expected a problem of 4 parameters"),
        (Moved, "theta_of: expected T z"),
        (Steep, "rows: expected"),
    ],
)
def test_faults_are_found(kind, words):
    with pytest.raises(ProblemError, match=words):
        check_problem(kind(X, Y))


def test_curvature_that_is_too_large_is_found():
    with pytest.raises(ProblemError, match="rows: expected"):
        check_problem(Reckless(X, (Y > 0).astype(float), 0.1))


@pytest.mark.parametrize("kind", [LeastSquares, Lasso, ElasticNet, Huber])
def test_problems_of_the_package_pass(kind):
    check_problem(kind(X, Y))
    check_problem(LogisticRegression(X, (Y > 0).astype(float), 0.1))
