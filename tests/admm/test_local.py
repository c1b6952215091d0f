"""Local problems that are stacked, solved alone, or break down."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import dadmm
from dadmm import Topology
from dadmm.penalty import SCHEMES
from dadmm.problems import PPCA
from tests.support.problems import Quadratic, samples
from tests.support.solving import solve


class Alone(PPCA):
    """PPCA that is like no other, so that it is never stacked."""

    kind = property(id)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_run_does_not_show_which_problems_were_stacked(scheme):
    topology = Topology.cluster(6)
    shards = [samples(n, 4, seed) for seed, n in enumerate((9, 9, 9, 3, 3, 8))]
    settings = {"scheme": scheme, "max_iter": 60, "tolerance": 0, "record_edges": True}

    together = solve([PPCA(x, 2) for x in shards], topology, **settings)
    alone = solve([Alone(x, 2) for x in shards], topology, **settings)

    assert_array_equal(together.theta, alone.theta)
    assert_array_equal(together.history["dual"], alone.history["dual"])
    assert_array_equal(together.history.edges.rows, alone.history.edges.rows)


def test_a_subclass_with_its_own_step_is_not_stacked():
    """Stacking would call the methods of the parent."""
    asked = []

    class Own(PPCA):
        def prox(self, *given):
            asked.append(self)
            return super().prox(*given)

    problems = [Own(samples(6, 3, seed), 1) for seed in range(4)]
    solve(problems, Topology.ring(4), scheme="fixed", tolerance=0, max_iter=2)

    assert sorted(asked, key=id) == sorted(problems * 2, key=id)


def test_starting_parameters_must_be_finite():
    problems = [PPCA(x, 1) for x in np.random.default_rng(0).standard_normal((3, 6, 3))]
    theta0 = np.ones((3, problems[0].layout.size))
    theta0[1, 2] = np.nan

    with pytest.raises(dadmm.ProblemError, match="node 1"):
        solve(problems, dadmm.Topology.ring(3), init=theta0)


class Returning(Quadratic):
    """A quadratic whose step depends on theta, and which returns what it is told to."""

    buffer = None

    def __init__(self, returned):
        super().__init__(np.diag([1.0, 3.0]), np.array([1.0, -2.0]))
        self.returned, self.buffer = returned, np.zeros(2)

    def init(self, rng):
        return self.returned(self, super().init(rng))

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
    topology = Topology.complete(n)
    expected = solve([Returning(lambda _, x: x) for _ in range(n)], topology)

    found = solve([Returning(returned) for _ in range(n)], topology)

    assert_array_equal(found.theta, expected.theta)
    assert found.iterations == expected.iterations


@pytest.mark.parametrize("method", ["prox", "objectives"])
@pytest.mark.parametrize("wrong", [np.ones(1), np.ones((2, 1)), 1.0, None, "x", 0.5j])
def test_numbers_of_another_shape_or_type_are_refused(wrong, method):
    """Numpy would repeat one number for all parameters, and cut imaginary parts."""
    problems = [Quadratic(np.eye(2), np.ones(2)) for _ in range(3)]
    for problem in problems:
        own, is_complex = getattr(problem, method), isinstance(wrong, complex)
        added = lambda *given, own=own: own(*given) + wrong  # noqa: E731
        setattr(problem, method, added if is_complex else lambda *given: wrong)

    with pytest.raises(dadmm.ProblemError, match=method):
        solve(problems, Topology.ring(3), scheme="nap")
