"""How strongly a local objective bends: known curvatures, units, and breakdowns."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dadmm.admm.first import curvature, curvatures
from dadmm.admm.local import make_blocks
from dadmm.graphs.incidence import Incidence
from dadmm.problems import PPCA, LeastSquares
from tests.support.problems import Quadratic, quadratics


def counted(problem, steps, after=9, error=None):
    """Return the problem; its proximal steps are noted, and those after some fail."""
    prox = problem.prox

    def step(*given):
        steps.append(given)
        if len(steps) > after:
            raise error("singular")
        return prox(*given)

    problem.prox = step
    return problem


@pytest.mark.parametrize("scale", 10.0 ** np.arange(-18, 19, 6))
def test_a_ball_has_its_own_curvature(scale):
    """1/2 h |x - b|^2 bends by h everywhere, in any units; at its optimum unknown."""
    for size in (1, 3, 40):
        rng = np.random.default_rng(size)
        h, (b, theta) = scale * rng.uniform(0.4, 2.5), rng.standard_normal((2, size))
        for at, bend in ((theta, h), (b, np.nan)):
            steps = []
            problem = counted(Quadratic(h * np.eye(size), b), steps)
            assert_allclose(curvature(problem, at), bend, rtol=1e-3)
            assert len(steps) == 5


@pytest.mark.parametrize("error", [np.linalg.LinAlgError, ZeroDivisionError])
@pytest.mark.parametrize("after", [0, 1, 4])
def test_a_problem_that_breaks_down_has_no_curvature(error, after):
    steps = []
    problem = counted(quadratics(1)[0], steps, after, error)

    assert np.isnan(curvature(problem, np.ones(2)))
    assert len(steps) == after + 1


def test_stacked_problems_have_the_curvature_of_each_alone():
    """Bit for bit, in order, whatever other problems there are and do."""
    rng, problems = np.random.default_rng(0), []
    for k in range(9):
        X = rng.normal(size=(4 + k % 3, 3)) * 10.0 ** rng.integers(-3, 4)
        problems.append(LeastSquares(X, rng.normal(size=len(X)), fit_intercept=False))
    problems.insert(4, quadratics(1, size=3)[0])
    theta = rng.normal(size=(len(problems), 3))
    theta[2] = problems[2].prox(theta[2], None, theta[2], 0.0)  # its optimum
    pair = [PPCA(np.ones((3, 2)), 1), PPCA(rng.normal(size=(3, 2)), 1)]  # one breaks
    starts = np.array([problem.init(np.random.default_rng(1)) for problem in pair])

    for own, rows in ((problems, theta), (pair, starts)):
        incidence = Incidence(np.zeros(len(own), dtype=np.int64))
        found = curvatures(own, make_blocks(own, incidence, False), rows)
        alone = [curvature(p, x) for p, x in zip(own, rows, strict=True)]
        assert_array_equal(found, alone)
        assert own is pair or np.flatnonzero(np.isnan(found)).tolist() == [2]
