"""What "converged" proves, also where neighbours know rounded, old or few values."""

from __future__ import annotations

import numpy as np
import pytest

from dadmm import Topology
from dadmm.exchange.sending import Sending
from dadmm.graphs.schedule import Schedule
from tests.support.problems import moduli, optimum, quadratics
from tests.support.solving import solve

CLUSTER = Topology.cluster(6)
MATCHINGS = Schedule.matchings(CLUSTER)
WAYS = {
    "everything": (Sending(), None),
    "quantised": (Sending(payload="quantised", bits=3), None),
    "censored": (Sending(censor=0.5, censor_decay=0.9), None),
    "asleep": (Sending(edge_sleep=0.7), None),
    "rare": (Sending(send_every=4), None),
    "in turns": (Sending(), MATCHINGS),
    "all at once": (
        Sending(
            payload="quantised", bits=4, censor=0.2, censor_decay=0.9, edge_sleep=0.5,
            send_every=2,
        ),
        MATCHINGS,
    ),
}  # fmt: skip


def run(way, scheme, **settings):
    """Return a run's result, its largest distance from the optimum, and its bound."""
    sending, schedule = WAYS[way]
    problems = quadratics(6, 3, seed=8)
    result = solve(
        problems, CLUSTER, scheme=scheme, sending=sending, schedule=schedule,
        record=False, **settings,
    )  # fmt: skip
    off = np.linalg.norm(result.theta - optimum(problems), axis=1).max()
    return result, off, result.distance_bound(*moduli(problems))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("scheme", ["auto", "nap"])
@pytest.mark.parametrize("tolerance", [1e-2, 1e-4])
def test_converged_bounds_the_distance_and_the_gap(way, scheme, tolerance):
    result, off, bound = run(
        way, scheme, tolerance=tolerance, absolute_tolerance=1e-9, max_iter=3000
    )

    assert result.converged
    assert off <= bound < 300 * tolerance
    problems = quadratics(6, 3, seed=8)
    best = optimum(problems)
    least = sum(float(p.objectives(best[None], None)[0]) for p in problems)
    assert result.objectives.sum() - least <= result.certificate.gap


@pytest.mark.parametrize("way", list(WAYS)[1:])
@pytest.mark.parametrize("scheme", ["auto", "vp"])
def test_a_run_that_is_cut_short_has_a_bound_too(way, scheme):
    lags = []
    for max_iter in (1, 2, 5, 13, 34):
        result, off, bound = run(way, scheme, tolerance=0.0, max_iter=max_iter)
        assert off <= bound < np.inf
        lags.append(result.certificate.lag.max())
    assert max(lags) > 0


@pytest.mark.parametrize("stopping", ["objective", "residuals"])
def test_iterations_without_messages_are_no_standstill(stopping):
    """Else a run that sends rarely would stop at once: nothing changes meanwhile."""
    problems = quadratics(6, 3, seed=8)
    settings = {"scheme": "fixed", "stopping": stopping, "tolerance": 1e-4}

    plain = solve(problems, CLUSTER, **settings)
    rare = solve(
        problems, CLUSTER, sending=Sending(send_every=5), max_iter=5000, **settings
    )

    assert rare.converged
    assert rare.iterations >= 5 * (plain.iterations - 2 * CLUSTER.diameter)
