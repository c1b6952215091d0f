"""The bits of problems: the same in a stack, and with one BLAS thread."""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from threadpoolctl import ThreadpoolController

from dadmm import Topology
from dadmm.data.patterns import remove_entries
from dadmm.problems import PPCA, PROBLEMS, IncompletePPCA, LostTracks
from tests.support.linear import OTHERS, SIZES, make
from tests.support.problems import samples
from tests.support.solving import solve

LINEAR = ["least_squares", "ridge", "ridge with intercept", *OTHERS]
WEIGHTS = np.array([0.0, 1e-6, 3.0, 1e6])
STACKS = {}
for name, size in product(LINEAR, SIZES):
    scales = enumerate((0.0, 1.0, 1.0, 100.0))
    made = [make(name, size, seed, scale)[0].problem for seed, scale in scales]
    p = made[0].layout.size
    T = np.random.default_rng(p).normal(size=(p, p - 1))
    STACKS[f"{name} {size}"] = made
    STACKS[f"{name} {size} in z"] = [problem.within(T) for problem in made]
for (n, d, M), zero in product([(30, 5, 2), (4, 6, 2), (1, 4, 1)], (False, True)):
    drawn = [samples(n, d, seed) for seed in range(4)]
    STACKS[f"ppca {n} {zero}"] = [PPCA(x, M, zero_mean=zero) for x in drawn]
holed = [remove_entries(samples(20, 12, seed), 0.3, seed) for seed in range(4)]
STACKS["missing"] = [IncompletePPCA(x, 2) for x in holed]
STACKS["tracks"] = [LostTracks(x) for x in holed]
STACKS["unlike rows"] = [make("ridge", (n, 4))[0].problem for n in (9, 30, 1, 3)]
STACKS["log lengths"] = [  # of unlike numbers of rows
    PPCA(samples(n, 6, n), 2).with_log_lengths(4.0, 90.0, 2.5) for n in (9, 30, 12, 20)
]


def facts(problem, theta, rows, centre, weight):
    """Return statistics, a step, values and the likelihood: of one, or of a stack."""
    stats = problem.expect(theta)
    found = [*(stats or ()), problem.prox(theta, stats, centre, weight)]
    found += [problem.objectives(rows[..., :k, :], stats) for k in (1, 3)]
    if hasattr(problem, "neg_log_likelihood"):
        found.append(problem.neg_log_likelihood(theta))
    return found


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

    together = facts(type(problems[0]).stack(problems), theta, rows, centre, WEIGHTS)

    for k, problem in enumerate(problems):
        alone = facts(problem, theta[k], rows[k], centre[k], float(WEIGHTS[k]))
        for found, single in zip(together, alone, strict=True):
            assert_array_equal(found[k], single)


BLAS = ThreadpoolController().select(threading_layer=["pthreads", "openmp"])
BLAS = BLAS.select(user_api="blas")  # those that can have several threads


def n_threads():
    return {library["num_threads"] for library in BLAS.info()}


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_problem_is_made_and_starts_with_one_thread(name, monkeypatch):
    calls = []

    def watched(function):
        return lambda *on, **by: calls.append(n_threads()) or function(*on, **by)

    for place, of in ((np.linalg, "qr"), (np.linalg, "svd"), (np.linalg, "eigh"),
                      (np, "vecdot")):  # fmt: skip
        monkeypatch.setattr(place, of, watched(getattr(place, of)))
    X, kind = samples(30, 4), PROBLEMS[name]
    targets = () if issubclass(kind, PPCA) else (X[:, 0] > 0,)
    with BLAS.limit(limits=2):
        if n_threads() != {2}:
            pytest.skip("this BLAS has no threads")
        made = kind(X, *targets, *{"ppca": (2,), "multinomial": (3,)}.get(name, ()))
        assert n_threads() == {2}
        solve([made] * 3, Topology.ring(3), max_iter=1)

    assert calls
    assert calls == [{1}] * len(calls)
