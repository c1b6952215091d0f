"""Convex problems whose messages are rounded, rare, lost or in turns: exact optima."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dadmm import Topology
from dadmm.comm.sending import Sending
from dadmm.graphs.schedule import Schedule
from dadmm.penalty import SCHEMES
from tests.support.problems import distance, optimum, quadratics
from tests.support.solving import solve

RING, CLUSTER = Topology.ring(5), Topology.cluster(6)
COMBINED = Sending(
    payload="quantised", bits=4, censor=0.3, censor_decay=0.85, edge_sleep=0.3
)
OPTIONS = {
    "all": Sending(),
    "float32": Sending(payload="float32"),
    "float16": Sending(payload="float16"),
    "quantised 8": Sending(payload="quantised", bits=8),
    "quantised 3": Sending(payload="quantised", bits=3),
    "censor": Sending(censor=0.3, censor_decay=0.85),
    "every 2": Sending(send_every=2),
    "sleep": Sending(edge_sleep=0.3),
    "combined": COMBINED,
}
TURNS = {
    "ring": Schedule.matchings(Topology.ring(6)),
    "cluster": Schedule.matchings(CLUSTER),
    "names": Schedule.build(["star", "ring", "chain"], 6),
    "a third": Schedule(6, [[(i, i + 1)] for i in (4, 2, 0)] + [[(1, 2), (3, 4)]]),
}
CASES = [(scheme, "combined") for scheme in SCHEMES]
CASES += [
    (scheme, option)
    for scheme in ("snap", "nap", "fixed")
    for option in OPTIONS
    if option not in ("combined", "all")
]


def reach(problems, net, best, max_iter=900, **settings):
    """Solve until the worst node is within 1e-9, or as long as allowed."""

    def watch(t, run):
        return "signal" if distance(run.theta, best) < 1e-9 else None

    return solve(
        problems, net, tolerance=0, max_iter=max_iter, record=False,
        callbacks=[watch], **settings,
    )  # fmt: skip


@pytest.mark.parametrize(("scheme", "option"), CASES)
def test_the_optimum_is_reached_whatever_is_sent(scheme, option):
    problems = quadratics(5, 3, seed=4)
    best = optimum(problems)

    result = reach(problems, RING, best, scheme=scheme, sending=OPTIONS[option])

    assert distance(result.theta, best) < 1e-8
    assert result.reason == "signal"


ALL = Sending(
    payload="quantised", bits=6, censor=0.1, censor_decay=0.95, edge_sleep=0.2,
    send_every=2,
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "scheme", "sending"),
    [(name, s, Sending()) for name in TURNS for s in ("snap", "nap", "fixed")]
    + [("cluster", scheme, ALL) for scheme in ("snap", "vp_nap", "fixed")],
)
def test_the_optimum_is_reached_on_graphs_that_take_turns(name, scheme, sending):
    problems, schedule = quadratics(6, 3, seed=5), TURNS[name]
    best = optimum(problems)

    result = reach(
        problems, schedule.union, best, 2500, schedule=schedule, scheme=scheme,
        sending=sending,
    )  # fmt: skip

    assert distance(result.theta, best) < 1e-8
    assert result.reason == "signal"


def opposite(net):
    """Return a callback that asserts that both ends of each edge are where they are."""

    def watch(t, run):
        state = run.state
        multipliers, anchors, eta = map(
            run.by_edge, (state.multipliers, state.anchors, state.eta)
        )
        assert_array_equal(multipliers, -multipliers[net.reverse])
        assert_array_equal(anchors, anchors[net.reverse])
        assert_array_equal(eta, eta[net.reverse])
        together = run.work.multiplier.sum(axis=0)
        assert np.abs(together).max() <= 1e-14 * np.abs(multipliers).sum()

    return watch


@pytest.mark.parametrize("turns", [False, True])
@pytest.mark.parametrize("option", ["all", "float16", "combined"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_both_ends_of_an_edge_stay_equal_and_opposite(scheme, option, turns):
    """Bit for bit, after every iteration; all multipliers sum to zero."""
    schedule = TURNS["cluster"] if turns else None
    solve(
        quadratics(6, 3, seed=7), CLUSTER, scheme=scheme, sending=OPTIONS[option],
        schedule=schedule, tolerance=0, max_iter=25, t_max=12, budget0=0.6,
        record=False, callbacks=[opposite(CLUSTER)],
    )  # fmt: skip


class Halves:
    """Theta itself in half precision, and what its sender believes that it said."""

    def __init__(self, size, honest):
        self.length, self.honest = 2 * size, honest

    def write(self, theta, said, out):
        """Write theta; who is not honest goes on with the unrounded one."""
        out.view(np.float16)[:] = theta
        said[:] = out.view(np.float16) if self.honest else theta

    def read(self, box, heard):
        """Take what was written."""
        heard[:] = box.view(np.float16)


@pytest.mark.parametrize("scheme", ["fixed", "snap"])
def test_the_value_as_sent_must_enter_the_dual_step(scheme, monkeypatch):
    """With the unrounded one multipliers no longer cancel, and the result is off."""
    problems = quadratics(5, 3, seed=4)
    best, off, sums = optimum(problems), {}, {}
    for honest in (True, False):
        codecs = partial(lambda honest, *_: Halves(3, honest), honest)
        monkeypatch.setattr("dadmm.admm.mail.build_codec", codecs)

        thetas = []

        def watch(t, run, honest=honest, thetas=thetas):
            sums[honest] = np.abs(run.work.multiplier.sum(axis=0)).max()
            thetas.append(run.theta.mean(axis=0))

        solve(
            problems, RING, scheme=scheme, tolerance=0, max_iter=400,
            sending=Sending(payload="float16"), callbacks=[watch],
        )  # fmt: skip
        middle = np.mean(thetas[-100:], axis=0)
        off[honest] = np.linalg.norm(middle - best) / np.linalg.norm(best)
    assert sums[True] < 1e-12
    assert sums[False] > 1e-2
    assert off[False] > 3e-4
    assert off[False] > 3 * off[True]


@pytest.mark.parametrize("relaxation", [1.0, 1.6])
@pytest.mark.parametrize("loss", [0.05, 0.3])
def test_the_optimum_is_reached_over_links_that_lose(loss, relaxation):
    problems = quadratics(5, 3, seed=4)
    best, chosen = optimum(problems), {"scheme": "fixed", "relaxation": relaxation}
    lossy = Sending(drop_probability=loss, drop_seed=3)

    result = reach(problems, RING, best, sending=lossy, **chosen)
    again = reach(problems, RING, best, sending=lossy, **chosen)
    lossy = Sending(drop_probability=loss, drop_seed=4)
    other = reach(problems, RING, best, sending=lossy, **chosen)

    assert distance(result.theta, best) < 1e-8
    assert distance(other.theta, best) < 1e-8
    assert_array_equal(result.theta, again.theta)
    assert_array_equal(result.traffic.edge_lost, again.traffic.edge_lost)
    assert (result.traffic.edge_lost != other.traffic.edge_lost).any()
    sent = result.traffic.messages - len(RING.edges)
    assert abs(result.traffic.lost / sent - loss) < 4 * np.sqrt(loss / sent)


def test_without_losses_it_is_plain_admm():
    problems, found = quadratics(5, 3, seed=4), []
    for sending in (Sending(), Sending(drop_probability=1e-300)):
        found.append([])
        solve(
            problems, RING, scheme="fixed", tolerance=0, max_iter=30, sending=sending,
            callbacks=[lambda t, run: found[-1].append(run.theta)],
        )  # fmt: skip

    assert np.abs(np.subtract(*found)).max() < 1e-12


@pytest.mark.parametrize("stopping", ["optimality", "residuals"])
def test_over_links_that_lose_nothing_is_proved(stopping):
    """A node cannot tell how far its neighbours are: runs end by max_iter."""
    problems = quadratics(5, 3)
    result = solve(
        problems, RING, scheme="fixed", sending=Sending(drop_probability=0.1),
        stopping=stopping, tolerance=0.1, max_iter=60,
    )  # fmt: skip

    assert (result.reason, result.iterations) == ("max_iter", 60)
    assert np.isnan(result.residuals.residual).all()
    assert result.status == "not converged"
