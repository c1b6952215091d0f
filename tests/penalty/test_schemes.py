"""What all schemes promise, and the sentence of each of the paper's six."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from benchmarks.shared.schemes import SCHEMES, build
from dadmm.core.interfaces import Edges, Observation

TIMED = ("vp", "ap", "vp_ap")  # adapt while t < t_max
WORSE_AND_BETTER = (3.0, 1.0)  # f at two probes; with f_i = 2, tau is -1/4 and 1/2


@pytest.fixture(params=SCHEMES)
def scheme(request):
    """Return each scheme with its default settings."""
    return build(request.param)


def agreeing(degree, size=4):
    """Return edges whose ends agree and have never pulled at each other."""
    theta, calm = np.ones(size), np.zeros((degree, size))
    rows, eta = np.ones((degree, size)), np.full(degree, 10.0)
    return Edges(theta, rows, rows, rows, calm, calm, eta, theta, 20.0 * degree)


def sight(t=2, own=2.0, before=2.0, f_probe=WORSE_AND_BETTER, primal=1.0, dual=1.0):
    """Return a sighting; the residuals are balanced unless said."""
    edges = agreeing(len(f_probe))
    return Observation(t, own, before, np.array(f_probe), primal, dual, edges)


def jump(rng, degree, size=4):
    """Return edges that are anywhere, by as much as a factor of 1e6."""
    far = np.exp(3 * rng.normal(size=(4, degree, 1)))
    rows = far * rng.normal(size=(4, degree, size))
    theta, centre = rng.normal(size=(2, size))
    eta, weight = np.exp(rng.normal(size=degree)), np.exp(rng.normal())
    said = np.tile(theta, (degree, 1))
    return Edges(theta, said, *rows, eta, centre, weight)


def wander(seed, degree=3, n=80):
    """Return random observations in order, as a node might have them."""
    rng = np.random.default_rng(seed)
    own = rng.normal(size=n + 1).cumsum()
    for t in range(1, n + 1):
        before = own[t - 1] if t > 1 else math.inf
        f_probe = own[t] + rng.normal(size=degree)
        obs = sight(t, own[t], before, f_probe, *np.exp(4 * rng.normal(size=2)))
        network = (obs.dual, obs.primal) if t > 1 else None
        yield obs._replace(edges=jump(rng, degree), global_residuals=network)


def begin(scheme, degree):
    """Return the state before iteration 1, after meeting neighbours like oneself."""
    state = scheme.init(degree)
    return scheme.start(state, state.eta, np.ones((degree, 4)))


def arrays(record):
    """Return all arrays of a state or a sighting, whatever else it remembers."""
    if isinstance(record, np.ndarray):
        return [record]
    if not isinstance(record, tuple):
        return []
    return [array for field in record for array in arrays(field)]


def follow(scheme, observations, degree=3):
    """Return the states of a scheme, the first before iteration 1."""
    states = [begin(scheme, degree)]
    for obs in observations:
        states.append(scheme.update(states[-1], obs))
    return states


@pytest.mark.parametrize("degree", [0, 1, 4])
def test_a_scheme_starts_from_eta0_on_every_edge(scheme, degree):
    assert scheme.init(degree).memory is None
    state = begin(scheme, degree)

    assert_array_equal(state.eta, np.full(degree, scheme.eta0))
    assert_array_equal(state.spent, np.zeros(degree))
    budget = scheme.budget0 if "budget0" in scheme.uses else 0.0
    assert_array_equal(state.budget, np.full(degree, budget))
    assert_array_equal(state.growths, np.zeros(degree))
    assert all(field.dtype == np.float64 for field in state[:4])


def test_equal_objectives_leave_the_penalty_alone(scheme):
    """tau is zero when no neighbour is better, though the paper's formula is 0/0."""
    *_, last = follow(scheme, [sight(t, f_probe=[2.0] * 3) for t in range(1, 9)])

    assert_array_equal(last.eta, np.full(3, scheme.eta0))
    assert_array_equal(last.spent, np.zeros(3))


@pytest.mark.parametrize("seed", range(3))
def test_penalties_stay_positive_finite_and_bounded(scheme, seed):
    """Whatever a node sees, within 1e-6 to 1e6 times eta0, in float64 rows."""
    for state in follow(scheme, wander(seed)):
        for field in state[:4]:
            assert field.shape == (3,)
            assert field.dtype == np.float64
            assert np.isfinite(field).all()
        assert np.all(state.eta >= 1e-6 * scheme.eta0)
        assert np.all(state.eta <= 1e6 * scheme.eta0)


def test_a_scheme_is_pure(scheme):
    for state, obs in zip(follow(scheme, wander(0)), wander(0), strict=False):
        given = arrays(state) + arrays(obs)
        kept = [array.copy() for array in given]

        first, again = scheme.update(state, obs), scheme.update(state, obs)

        for array, before in zip(given, kept, strict=True):
            assert_array_equal(array, before)
        for one, other in zip(arrays(first), arrays(again), strict=True):
            assert_array_equal(one, other)
            assert not any(np.shares_memory(one, theirs) for theirs in arrays(obs))


def test_edges_may_come_in_any_order(scheme):
    order = np.array([2, 0, 1])
    observations = list(wander(1))
    turned = [
        obs._replace(f_probe=obs.f_probe[order], edges=turn(obs.edges, order))
        for obs in observations
    ]
    # sums over edges in another order are the same but for rounding
    rtol = 1e-9 if scheme == build("node_spectral") else 0.0

    states, others = follow(scheme, observations), follow(scheme, turned)

    for state, other in zip(states, others, strict=True):
        for field, permuted in zip(state[:4], other[:4], strict=True):
            assert_allclose(permuted, field[order], rtol=rtol)


def turn(edges, order):
    """Return the same edges in another order."""
    rows = ("received_theta", "anchors", "drift", "multipliers", "eta")
    return edges._replace(**{name: getattr(edges, name)[order] for name in rows})


@pytest.mark.parametrize("name", TIMED)
@pytest.mark.parametrize("t_max", [0, 1, 2, 50])
def test_the_penalty_moves_while_t_is_below_t_max(name, t_max):
    """49 updates at t_max = 50; from t_max on it is eta0, as if nothing had been."""
    scheme = build(name, t_max=t_max)
    moving = [sight(t, primal=11.0, dual=1.0 / (t % 3)) for t in range(1, 70) if t % 3]

    states = follow(scheme, moving, degree=2)[1:]

    moved = [obs.t for obs, new in zip(moving, states, strict=True)
             if np.any(new.eta != 10.0)]  # fmt: skip
    assert moved == [t for t in range(1, t_max) if t % 3]


def test_vp_doubles_and_halves_by_its_own_residuals():
    """All edges alike, from where they are, whatever the neighbours' objectives."""
    scheme, state = build("vp", eta0=3.0), build("vp", eta0=3.0).init(2)
    for primal, dual, eta in [(11, 1, 6), (11, 1, 12), (1, 1, 12), (1, 11, 6)]:
        state = scheme.update(state, sight(primal=primal, dual=dual))
        assert_array_equal(state.eta, [eta, eta])


@pytest.mark.parametrize("name", ["vp", "vp_ap", "vp_nap"])
def test_doubling_and_halving_end_at_the_clamp(name):
    scheme = build(name, t_max=1000)
    up = [sight(t, f_probe=[2.0, 2.0], primal=1.0, dual=0.0) for t in range(1, 60)]
    down = [obs._replace(primal=0.0, dual=1.0) for obs in up]

    assert_array_equal(follow(scheme, up, 2)[-1].eta, [1e7, 1e7])
    assert_array_equal(follow(scheme, down, 2)[-1].eta, [1e-5, 1e-5])


def test_ap_follows_tau_from_eta0():
    """A better neighbour pulls harder, and the step is at most a factor of two."""
    states = follow(build("ap"), [sight(1), sight(2)], degree=2)

    assert_allclose(states[1].eta, [10 * 0.75, 10 * 1.5])
    assert_array_equal(states[2].eta, states[1].eta)
    for state in follow(build("ap"), wander(3)):
        assert np.all((state.eta / 10 >= 0.5) & (state.eta / 10 <= 2.0))


def test_nap_follows_tau_while_the_budget_lasts():
    """It pays |tau| per iteration; at the budget the edge falls back to eta0."""
    scheme = build("nap", budget0=1.0)  # edge 1 pays 1/2, edge 0 only 1/4
    states = follow(scheme, [sight(t) for t in range(1, 6)], degree=2)

    assert_allclose(states[3].spent, [0.75, 1.5])
    assert_allclose([s.eta[0] for s in states], [10, 7.5, 7.5, 7.5, 10, 10])
    assert_allclose([s.eta[1] for s in states], [10, 15, 10, 10, 10, 10])


@pytest.mark.parametrize("name", ["vp_ap", "vp_nap"])
def test_combined_schemes_multiply_balance_and_tau(name):
    """From the edge's last penalty; balanced residuals leave it, but tau is paid."""
    scheme, state = build(name), build(name).init(2)
    for primal, dual, eta in [
        (11, 1, [15.0, 30.0]),
        (1, 1, [15.0, 30.0]),
        (1, 11, [5.625, 22.5]),
    ]:
        state = scheme.update(state, sight(primal=primal, dual=dual))
        assert_allclose(state.eta, eta)
    paid = 3 if name == "vp_nap" else 0
    assert_allclose(state.spent, [paid / 4, paid / 2])


def test_settings_at_the_end_of_their_range_are_allowed(scheme):
    ends = {"budget_trigger": 0.0, "budget_decay": 0.0, "budget0": 0.0, "t_max": 0}
    for settings in (ends, {"budget_trigger": math.inf, "budget0": math.inf}):
        for state in follow(type(scheme)(**settings), wander(4)):
            assert np.isfinite(state.eta).all()
            assert not np.isnan(state.budget).any()
