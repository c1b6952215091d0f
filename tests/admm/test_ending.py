"""When a run ends, why, and after which iteration."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import dadmm
from dadmm import Topology
from dadmm.admm.rule import RULES
from dadmm.admm.stopping import PATIENCE
from dadmm.problems import PPCA
from tests.support.problems import Quadratic, distance, optimum, quadratics
from tests.support.solving import solve

CHAIN = Topology.chain(4)  # its diameter is 3


@pytest.mark.parametrize("agreement", ["neighbours", "global"])
@pytest.mark.parametrize("stopping", RULES)
def test_a_run_ends_when_all_are_satisfied(stopping, agreement):
    problems, ring = quadratics(5), Topology.ring(5)
    settings = {"scheme": "fixed", "stopping": stopping, "agreement": agreement}
    loose, tight = (
        solve(problems, ring, tolerance=x, **settings) for x in (1e-3, 1e-8)
    )

    assert loose.reason == tight.reason == "converged"
    assert loose.iterations < tight.iterations < 300
    assert distance(tight.theta, optimum(problems)) < 1e-5


def test_a_callback_or_a_time_limit_ends_the_run_two_rounds_of_a_diameter_later():
    """A request takes a diameter to reach all, in one process as over MPI."""
    seen = []

    def watch(t, run):
        seen.append((t, run.due))
        return "signal" if t == 7 else None

    result = solve(quadratics(4), CHAIN, tolerance=0, callbacks=[watch])
    limited = solve(quadratics(4), CHAIN, tolerance=0, max_seconds=1e-9)

    assert (result.reason, result.status) == ("signal", "not converged")
    assert seen == [(t, "") for t in range(1, 12)] + [(12, "signal")]
    assert (limited.reason, limited.iterations) == ("max_seconds", 6)


@pytest.mark.parametrize("scheme", ["fixed", "snap"])
def test_an_optimum_at_zero_ends_the_run(scheme):
    """By the absolute tolerance: relative to |theta| nothing is small there."""
    centres = np.random.default_rng(0).standard_normal((4, 2))
    problems = [Quadratic(5 * np.eye(2), b) for b in centres - centres.mean(axis=0)]

    result = solve(problems, CHAIN, scheme=scheme, max_iter=200)
    never = solve(problems, CHAIN, scheme=scheme, absolute_tolerance=0, max_iter=300)

    assert (result.converged, never.converged) == (True, False)
    assert np.abs(result.theta).max() < 1e-4


class Heavier(PPCA):
    """A problem with another objective, so PPCA's likelihood is not its own."""

    def objectives(self, thetas, stats):
        return 2.0 * super().objectives(thetas, stats)


@pytest.mark.parametrize(("kind", "gaps"), [(PPCA, 0), (PPCA, 1), (Heavier, 0)])
def test_the_rule_objective_judges_equation_14_where_a_problem_knows_it(kind, gaps):
    """The sum over all nodes; it is read one iteration later."""
    shards = dadmm.shard.split(dadmm.datasets.synthetic(72, 7, 2, seed=5)[0], 6)
    if gaps:
        shards[0][0, 1] = shards[2][3, 2] = np.nan
    problems, judged, objectives = [kind(own, 2) for own in shards], [], []

    def watch(t, run):
        each = zip(problems, run.theta, strict=True)
        objectives.append(run.objective.copy())
        judged.append(sum(p.neg_log_likelihood(theta) for p, theta in each))

    result = solve(
        problems, Topology.ring(6), scheme="nap", init="independent", tolerance=1e-2,
        stopping="objective", agreement="global", max_iter=300, callbacks=[watch],
    )  # fmt: skip

    values = np.array(judged if kind is PPCA else np.sum(objectives, axis=1))
    small = np.abs(np.diff(values)) < 1e-2 * np.abs(values[1:])
    in_a_row = np.lib.stride_tricks.sliding_window_view(small, PATIENCE).all(axis=1)
    assert result.iterations == np.argmax(in_a_row) + PATIENCE + 2
    assert_array_equal(result.history["objective"], objectives)  # those stay f_i
