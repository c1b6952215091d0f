"""Local problems that are stacked, solved alone, or break down."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import dadmm
from dadmm import Topology
from dadmm.problems import PPCA
from tests.support.problems import Quadratic, quadratics, samples
from tests.support.solving import solve


class Alone(PPCA):
    """PPCA with a step of its own: stacking would call the methods of the parent."""

    steps = 0

    def prox(self, *given):
        self.steps += 1
        return super().prox(*given)


@pytest.mark.parametrize("scheme", ["fixed", "nap"])
def test_a_run_does_not_show_which_problems_were_stacked(scheme):
    shards = [samples(n, 4, seed) for seed, n in enumerate((9, 9, 9, 3, 3, 8))]
    settings = {"scheme": scheme, "max_iter": 30, "tolerance": 0, "record_edges": True}
    settings |= {"init": "independent", "coordinates": "raw", "eta0": 10.0}
    problems = [[kind(x, 2) for x in shards] for kind in (PPCA, Alone)]
    together, alone = (solve(p, Topology.cluster(6), **settings) for p in problems)

    assert_array_equal(together.theta, alone.theta)
    assert_array_equal(together.history["dual"], alone.history["dual"])
    assert_array_equal(together.history.edges.rows, alone.history.edges.rows)
    assert [problem.steps for problem in problems[1]] == [30] * 6


class Returning(Quadratic):
    """A quadratic whose step depends on theta, and which returns what it is told to."""

    def __init__(self, returned):
        super().__init__(np.diag([1.0, 3.0]), np.array([1.0, -2.0]))
        self.returned, self.buffer = returned, np.zeros(2)

    def init(self, rng):
        return self.returned(self, super().init(rng))

    def expect(self, theta):
        return theta, theta.copy()  # a problem may keep the arrays that it has seen

    def objectives(self, thetas, stats):
        assert_array_equal(*stats)
        return super().objectives(thetas, None)

    def prox(self, theta, stats, centre, weight):
        kept = self.returned(self, 0.5 * theta)
        exact = super().prox(theta, stats, centre, weight)
        return self.returned(self, 0.5 * exact + kept)


def in_buffer(problem, found):
    problem.buffer[...] = found
    return problem.buffer


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("returned", [lambda _, found: found.tolist(), in_buffer])
def test_a_problem_may_return_lists_or_an_array_that_it_uses_again(returned, n):
    """One node is a block of its own, as on each rank over MPI."""
    expected, found = (
        solve([Returning(how) for _ in range(n)], Topology.complete(n))
        for how in (lambda _, x: x, returned)
    )

    assert_array_equal(found.theta, expected.theta)
    assert found.iterations == expected.iterations


def singular(found):
    raise np.linalg.LinAlgError("singular")


SHAPES = [np.ones(1), np.ones((2, 1)), 1.0, None, "x"]
WRONG = [lambda own: own + 0.5j, *(lambda own, x=x: x for x in SHAPES)]


@pytest.mark.parametrize(
    ("method", "change", "culprit"),
    [(method, singular, "node 1 ") for method in ("expect", "prox", "objectives")]
    + [(method, wrong, method) for method in ("prox", "objectives") for wrong in WRONG],
)
def test_a_problem_that_breaks_down_or_returns_other_numbers_is_refused(
    method, change, culprit
):
    """Numpy would repeat one number for all parameters, and cut imaginary parts."""
    problems = quadratics(3)
    own = getattr(problems[1], method)
    setattr(problems[1], method, lambda *given: change(own(*given)))

    with pytest.raises(dadmm.ProblemError, match=culprit):
        solve(problems, Topology.ring(3), scheme="nap", eta0=1.0)
