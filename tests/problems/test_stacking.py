"""Problems that are solved together: which ones, and with the same bits."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dadmm.data.patterns import remove_entries
from dadmm.problems import PPCA, IncompletePPCA, LostTracks
from tests.support.linear import OTHERS, SIZES, make
from tests.support.problems import samples

LINEAR = ["least_squares", "ridge", "ridge with intercept", *OTHERS]
WEIGHTS = np.array([0.0, 1e-6, 3.0, 1e6])
STACKS = {
    f"{name} {size}": [
        make(name, size, seed, scale)[0].problem
        for seed, scale in enumerate((0.0, 1.0, 1.0, 100.0))
    ]
    for name, size in product(LINEAR, SIZES)
}
for name, problems in list(STACKS.items()):
    p = problems[0].layout.size
    T = np.random.default_rng(p).normal(size=(p, p - 1))
    STACKS[f"{name} in z"] = [problem.within(T) for problem in problems]


for (n, d, M), zero in product([(30, 5, 2), (4, 6, 2), (1, 4, 1)], (False, True)):
    drawn = [samples(n, d, seed) for seed in range(4)]
    STACKS[f"ppca {n} {zero}"] = [PPCA(x, M, zero_mean=zero) for x in drawn]
holed = [remove_entries(samples(20, 12, seed), 0.3, seed) for seed in range(4)]
STACKS["missing"] = [IncompletePPCA(x, 2) for x in holed]
STACKS["tracks"] = [LostTracks(x) for x in holed]
STACKS["log lengths"] = [  # of unlike numbers of rows
    PPCA(samples(n, 6, n), 2).with_log_lengths(4.0, 90.0, 2.5) for n in (9, 30, 12, 20)
]


@pytest.mark.parametrize("name", STACKS)
def test_stacked_problems_give_the_same_bits(name):
    problems, rng = STACKS[name], np.random.default_rng(0)
    first = getattr(problems[0], "plain", problems[0])  # log lengths have no start
    theta = np.array([first.init(rng) for _ in problems])
    centre = rng.normal(size=theta.shape)
    if not theta.any():  # a linear problem: from near and far
        theta = centre * np.array([[0.0], [1.0], [30.0], [300.0]])
    rows = np.stack([theta, theta + 0.1, 2 * theta], axis=1)
    assert len({problem.kind for problem in problems}) == 1
    stacked = type(problems[0]).stack(problems)

    stats = stacked.expect(theta)
    new = stacked.prox(theta, stats, centre, WEIGHTS)
    values = stacked.objectives(rows, stats)

    for k, problem in enumerate(problems):
        alone = problem.expect(theta[k])
        for together, single in zip(stats or (), alone or (), strict=True):
            assert_array_equal(together[k], single)
        one = problem.prox(theta[k], alone, centre[k], float(WEIGHTS[k]))
        assert_array_equal(new[k], one)
        assert_array_equal(values[k], problem.objectives(rows[k], alone))
        first = stacked.objectives(rows[:, :1], stats)[k]
        assert_array_equal(first, problem.objectives(rows[k, :1], alone))
        if hasattr(problem, "neg_log_likelihood"):
            found = stacked.neg_log_likelihood(theta)[k]
            assert_array_equal(found, problem.neg_log_likelihood(theta[k]))


def test_only_problems_of_one_kind_are_stacked():
    """The number of rows matters to logistic regression only."""
    assert make("ridge", (9, 4))[0].problem.kind == make("ridge")[0].problem.kind
    assert make("ridge", (9, 3))[0].problem.kind != make("ridge")[0].problem.kind
    name = "logistic with intercept"
    assert make(name, (9, 4))[0].problem.kind != make(name)[0].problem.kind
    wide = make("ridge", (9, 5))[0].problem
    assert make("ridge with intercept", (9, 4))[0].problem.kind != wide.kind
