"""The rule "objective" judges equation (14) where the problem knows it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import dadmm
from dadmm.admm.stopping import PATIENCE
from tests.support.solving import solve

TOLERANCE = 1e-2


def some_problems(n_nodes=6, gaps=False, kind=dadmm.problems.PPCA):
    samples, _ = dadmm.datasets.synthetic(12 * n_nodes, 7, 2, seed=5)
    shards = dadmm.shard.split(samples, n_nodes)
    if gaps:
        for own in shards[::2]:
            own[0, 1] = own[3, 2] = np.nan
    return [kind(own, 2) for own in shards]


class Kept:
    """A callback that keeps -log p(X_i | theta_i) and f_i of every iteration."""

    def __init__(self, problems):
        self.problems, self.likelihoods, self.objectives = problems, [], []

    def __call__(self, t, run):
        rows = zip(self.problems, run.theta, strict=True)
        self.likelihoods.append([p.neg_log_likelihood(theta) for p, theta in rows])
        self.objectives.append(run.objective.copy())


def watched(problems, **settings):
    kept = Kept(problems)
    result = solve(
        problems, dadmm.Topology.ring(len(problems)), scheme="nap", init="independent",
        tolerance=TOLERANCE, max_iter=300, callbacks=[kept], **settings,
    )  # fmt: skip
    return result, np.array(kept.likelihoods), np.array(kept.objectives)


def held(values):
    """Return the first iteration that ends PATIENCE small changes in a row."""
    small = np.abs(np.diff(values, axis=0)) < TOLERANCE * np.abs(values[1:])
    met = np.array(
        [small[max(0, k - PATIENCE + 1) : k + 1].all(axis=0) for k in range(len(small))]
    )
    met[: PATIENCE - 1] = False
    return np.argmax(met, axis=0) + 2


@pytest.mark.parametrize("gaps", [False, True])
def test_globally_it_is_the_sum(gaps):
    result, likelihoods, objectives = watched(
        some_problems(gaps=gaps), stopping="objective", agreement="global"
    )

    assert result.reason == "converged"
    assert result.iterations == held(likelihoods.sum(axis=1)) + 1  # read later
    assert_array_equal(result.objectives, objectives[-1])  # those stay f_i
    assert_array_equal(result.history["objective"], objectives)
    assert result.traffic.collectives == result.iterations - 1


class Heavier(dadmm.problems.PPCA):
    """A problem with another objective, so PPCA's likelihood is not its own."""

    def objectives(self, thetas, stats):
        return 2.0 * super().objectives(thetas, stats)


def test_a_class_with_another_objective_has_no_likelihood_of_its_parent():
    settings = {"stopping": "objective", "agreement": "global"}
    result, _, objectives = watched(some_problems(kind=Heavier), **settings)

    assert result.iterations == held(objectives.sum(axis=1)) + 1
