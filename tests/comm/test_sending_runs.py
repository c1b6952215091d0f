"""Runs whose messages are rounded, rare, lost or in turns: optima and certificates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dadmm import Topology
from dadmm.comm.sending import Sending
from dadmm.graphs.schedule import Schedule
from dadmm.penalty import SCHEMES
from dadmm.problems import LeastSquares
from tests.support.problems import distance, optimum, quadratics
from tests.support.solving import solve

RING, CLUSTER = Topology.ring(5), Topology.cluster(6)
OPTIONS = {
    "all": Sending(),
    "float32": Sending(payload="float32"),
    "float16": Sending(payload="float16"),
    "quantised 8": Sending(payload="quantised:8"),
    "quantised 3": Sending(payload="quantised:3"),
    "censor": Sending(censor=0.3, censor_decay=0.85),
    "every 2": Sending(send_every=2),
    "sleep": Sending(edge_sleep=0.3),
    "combined": Sending(
        payload="quantised:4", censor=0.3, censor_decay=0.85, edge_sleep=0.3
    ),
    "at once": Sending(
        payload="quantised:6", censor=0.1, censor_decay=0.95, edge_sleep=0.2,
        send_every=2,
    ),
}  # fmt: skip
TURNS = {
    "ring": Schedule.matchings(Topology.ring(6)),
    "cluster": Schedule.matchings(CLUSTER),
    "names": Schedule.build(["star", "ring", "chain"], 6),
    "a third": Schedule(6, [[(i, i + 1)] for i in (4, 2, 0)] + [[(1, 2), (3, 4)]]),
}
CASES = [(None, scheme, option) for scheme in SCHEMES for option in ("all", "combined")]
CASES += [(None, s, o) for s in ("snap", "nap", "fixed") for o in list(OPTIONS)[1:-2]]
CASES += [(name, s, "all") for name in TURNS for s in ("snap", "nap", "fixed")]
CASES += [("cluster", s, "at once") for s in ("snap", "vp_nap", "fixed")]


def reach(problems, net, best, max_iter=2500, callbacks=(), **settings):
    """Solve until the worst node is within 1e-9, or as long as allowed."""

    def watch(t, run):
        return "signal" if distance(run.theta, best) < 1e-9 else None

    return solve(
        problems, net, tolerance=0, max_iter=max_iter, record=False,
        callbacks=[watch, *callbacks], **settings,
    )  # fmt: skip


@pytest.mark.parametrize(("turns", "scheme", "option"), CASES)
def test_the_optimum_is_reached_whatever_is_sent(turns, scheme, option):
    """After every iteration, both ends of an edge are equal and opposite, bitwise."""
    schedule = TURNS.get(turns)
    net = CLUSTER if schedule is None else schedule.union
    problems = quadratics(6, 3, seed=5)
    best = optimum(problems)

    def compare(t, run):
        state = run.state
        multipliers, anchors, eta = map(
            run.by_edge, (state.multipliers, state.anchors, state.eta)
        )
        assert_array_equal(multipliers, -multipliers[net.reverse])
        assert_array_equal(anchors, anchors[net.reverse])
        assert_array_equal(eta, eta[net.reverse])
        together = run.work.multiplier.sum(axis=0)
        assert np.abs(together).max() <= 1e-14 * np.abs(multipliers).sum()

    result = reach(
        problems, net, best, callbacks=[compare], schedule=schedule, scheme=scheme,
        sending=OPTIONS[option],
    )  # fmt: skip

    assert distance(result.theta, best) < 1e-8
    assert result.reason == "signal"


@pytest.mark.parametrize("relaxation", [1.0, 1.6])
@pytest.mark.parametrize("loss", [0.05, 0.3])
def test_the_optimum_is_reached_over_links_that_lose(loss, relaxation):
    problems = quadratics(5, 3, seed=4)
    best, chosen = optimum(problems), {"scheme": "fixed", "relaxation": relaxation}
    lossy = Sending(drop_probability=loss)

    found = [
        reach(problems, RING, best, sending=replace(lossy, drop_seed=seed), **chosen)
        for seed in (3, 3, 4)
    ]
    result, again, other = found

    assert max(distance(each.theta, best) for each in found) < 1e-8
    assert_array_equal(result.theta, again.theta)
    assert_array_equal(result.traffic.edge_lost, again.traffic.edge_lost)
    assert (result.traffic.edge_lost != other.traffic.edge_lost).any()
    sent = result.traffic.messages - len(RING.edges)
    assert abs(result.traffic.lost / sent - loss) < 4 * np.sqrt(loss / sent)


WAYS = [(o, None) for o in ("all", "quantised 3", "censor", "sleep", "every 2")]
WAYS += [("all", "cluster"), ("at once", "cluster")]


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


def run(option, turns, scheme, **settings):
    """Return a run's result, after a check of its bounds."""
    problems, best, least = tables(6)
    result = solve(
        problems, CLUSTER, scheme=scheme, sending=OPTIONS[option],
        schedule=TURNS.get(turns), record=False, coordinates="metric", **settings,
    )  # fmt: skip
    certificate = result.certificate
    assert (np.abs(result.solution - best) <= certificate.coefficients).all()
    assert -1e-9 * least <= result.objective - least <= certificate.gap
    return result


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("scheme", ["snap", "nap"])
def test_a_certified_result_is_near_the_optimum(way, scheme):
    """A run that is cut short has a bound too."""
    for tolerance in (1e-2, 1e-3):
        result = run(*way, scheme, tolerance=tolerance, max_iter=3000)
        assert result.status == "certified"
        limit = 2.0 * max(tolerance**2, 1e-8) * result.objective
        assert result.certificate.gap <= limit
    cut = [run(*way, scheme, tolerance=0.0, max_iter=k) for k in (1, 2, 5, 13, 34)]
    assert all(result.certificate.radius < np.inf for result in cut)
    lags = [result.residuals.lag.max() for result in cut]
    assert max(lags) > 0 or way[0] in ("all", "sleep")


@pytest.mark.parametrize("loss", [0.1, 0.5])
def test_over_links_that_lose_a_run_stops_near_the_optimum(loss):
    """Not before each edge has surely got a payload since all anchors rest."""
    problems = quadratics(5, 3)
    chosen = {"scheme": "fixed", "eta0": "auto", "tolerance": 1e-5, "max_iter": 3000}
    chosen["sending"] = Sending(drop_probability=loss)
    result = solve(problems, RING, **chosen)

    assert (result.reason, result.status) == ("converged", "stopped")
    assert distance(result.theta, optimum(problems)) < 1e-3
    assert result.ending.iteration + np.log(1e-9) / np.log(loss) < result.iterations
    paper = solve(problems, RING, **chosen | {"max_iter": 60, "stopping": "residuals"})
    assert paper.reason == "max_iter"  # the dual residual is not known


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
