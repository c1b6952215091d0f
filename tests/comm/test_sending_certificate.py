"""What "certified" proves, also where neighbours know rounded, old or few values."""

from __future__ import annotations

import numpy as np
import pytest

from dadmm import Topology
from dadmm.comm.sending import Sending
from dadmm.graphs.schedule import Schedule
from dadmm.problems import LeastSquares
from tests.support.problems import quadratics
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


def tables(n):
    """Return the rows of n nodes, in units that are far apart, and their solution."""
    rng = np.random.default_rng(8)
    X = rng.standard_normal((20 * n, 3)) * [1e-4, 1.0, 1e3] + [0.0, 50.0, 0.0]
    y = X @ [3e4, 1.0, 2e-3] + rng.standard_normal(20 * n)
    rows = np.column_stack([X, np.ones(len(X))])
    scale = np.abs(rows).max(axis=0)
    best = np.linalg.lstsq(rows / scale, y)[0] / scale
    parts = np.array_split(np.arange(len(X)), n)
    least = 0.5 * np.sum((rows @ best - y) ** 2)
    return [LeastSquares(X[part], y[part]) for part in parts], best, least


def run(way, scheme, **settings):
    """Return a run's result, after a check of its bounds."""
    sending, schedule = WAYS[way]
    problems, best, least = tables(6)
    result = solve(
        problems, CLUSTER, scheme=scheme, sending=sending, schedule=schedule,
        record=False, coordinates="metric", **settings,
    )  # fmt: skip
    certificate = result.certificate
    assert (np.abs(result.solution - best) <= certificate.coefficients).all()
    assert -1e-9 * least <= result.objective - least <= certificate.gap
    return result


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("scheme", ["snap", "nap"])
@pytest.mark.parametrize("tolerance", [1e-2, 1e-3])
def test_a_certified_result_is_near_the_optimum(way, scheme, tolerance):
    result = run(way, scheme, tolerance=tolerance, max_iter=3000)

    assert result.status == "certified"
    assert result.certificate.gap <= 2.0 * max(tolerance**2, 1e-8) * result.objective


@pytest.mark.parametrize("way", list(WAYS)[1:])
@pytest.mark.parametrize("scheme", ["snap", "vp"])
def test_a_run_that_is_cut_short_has_a_bound_too(way, scheme):
    lags = []
    for max_iter in (1, 2, 5, 13, 34):
        result = run(way, scheme, tolerance=0.0, max_iter=max_iter)
        assert result.certificate.radius < np.inf
        lags.append(result.residuals.lag.max())
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
