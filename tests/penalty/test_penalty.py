"""The penalty equations of the paper, one by one, and the settings they take."""

from __future__ import annotations

import math
import re
from fractions import Fraction

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dadmm.core.errors import ConfigError
from dadmm.penalty import SCHEMES, build, equations

STEP = 2.0**-52  # the relative step of float64


def tau_by_hand(own, f_probe):
    """Return tau_ij in exact arithmetic, as the paper prints it."""
    own, f_probe = Fraction(own), [Fraction(f) for f in f_probe]
    low, high = min([own, *f_probe]), max([own, *f_probe])

    def kappa(f):
        return (f - low) / (high - low) + 1

    return [float(kappa(own) / kappa(f) - 1) for f in f_probe]


def test_kappa_maps_the_best_to_one_and_the_worst_to_two():
    """In between it is linear."""
    f = np.array([-3.0, -2.5, -1.0])

    assert_array_equal(equations.kappa(f, -3.0, -1.0), [1.0, 1.25, 2.0])
    assert equations.kappa(-3.0, -3.0, -1.0) == 1.0


@pytest.mark.parametrize("value", [0.0, 2.0, -1e300, 1e-300])
def test_kappa_is_one_when_all_objectives_agree(value):
    """The paper's 0/0 means that nobody is better."""
    f = np.full(3, value)

    assert_array_equal(equations.kappa(f, value, value), np.ones(3))
    assert_array_equal(equations.tau(value, f), np.zeros(3))


@pytest.mark.parametrize("scale", [1.0, -1.0, 1e-200, 3e150, -7e9])
def test_rounding_noise_is_no_difference(scale):
    """A few last bits must not become a penalty, whatever the scale and sign of f."""
    f_probe = scale * np.array([1.0, 1 + 8 * STEP, 1 - 64 * STEP, 1 + 1e-13])

    assert_array_equal(equations.tau(scale, f_probe), np.zeros(4))


@pytest.mark.parametrize("scale", [1.0, -1.0, 1e-200, 3e150])
def test_a_small_true_difference_counts_in_full(scale):
    """Only the order of the objectives matters, not how far apart they are."""
    better, worse = scale - abs(scale) * 1e-11, scale + abs(scale) * 1e-11

    assert_allclose(equations.tau(scale, np.array([better])), [1.0])
    assert_allclose(equations.tau(scale, np.array([worse])), [-0.5])


@pytest.mark.parametrize("seed", range(20))
def test_tau_is_the_ratio_of_kappas(seed):
    """Against exact fractions, for objectives of any sign and number of neighbours."""
    rng = np.random.default_rng(seed)
    own, *f_probe = rng.normal(size=rng.integers(2, 9)) + rng.choice([-10, 0, 10])

    found = equations.tau(own, np.array(f_probe))

    assert found.shape == (len(f_probe),)
    assert_allclose(found, tau_by_hand(own, f_probe), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_tau_stays_between_minus_one_half_and_one(scale):
    """So that one step of AP changes a penalty by a factor of two at most."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        own, *f_probe = scale * rng.standard_cauchy(size=rng.integers(2, 6))
        tau = equations.tau(own, np.array(f_probe))

        assert np.all((tau >= -0.5) & (tau <= 1.0))
        assert np.all(np.sign(tau) == np.sign(own - np.array(f_probe)))


def test_tau_reaches_both_ends_of_its_range():
    """Worst beside best gives 1, best beside worst -1/2, equal 0."""
    assert_array_equal(equations.tau(5.0, np.array([1.0, 5.0])), [1.0, 0.0])
    assert_array_equal(equations.tau(1.0, np.array([1.0, 5.0])), [0.0, -0.5])


def test_tau_leaves_the_objectives_alone():
    """They go on to other uses."""
    f_probe = np.array([1.0, 5.0, 3.0])
    equations.tau(2.0, f_probe)

    assert_array_equal(f_probe, [1.0, 5.0, 3.0])


@pytest.mark.parametrize(
    ("primal", "dual", "factor"),
    [
        (10.1, 1.0, 2.0),
        (10.0, 1.0, 1.0),
        (1.0, 1.0, 1.0),
        (1.0, 10.0, 1.0),
        (1.0, 10.1, 0.5),
        (1e-300, 0.0, 2.0),
        (0.0, 1e-300, 0.5),
        (0.0, 0.0, 1.0),
    ],
)
def test_balance_doubles_or_halves_beyond_the_ratio(primal, dual, factor):
    """Both comparisons are strict, so nothing moves at the ratio or when all is 0."""
    assert equations.balance(primal, dual, 10.0) == factor


def test_balance_takes_steps_of_another_size():
    """(1 + step) and its inverse, as He, Yang and Wang have it."""
    assert equations.balance(9.0, 1.0, 2.0, step=3.0) == 4.0
    assert equations.balance(1.0, 9.0, 2.0, step=3.0) == 0.25
    assert equations.balance(1.0, 9.0, 20.0, step=3.0) == 1.0


def test_adapt_starts_from_eta0_every_time():
    """AP and NAP have no memory of the last penalty."""
    tau = np.array([-0.5, 0.0, 1.0])
    some = np.array([True, False, False])

    assert_array_equal(equations.adapt(8.0, tau, True), [4.0, 8.0, 16.0])
    assert_array_equal(equations.adapt(8.0, tau, False), [8.0, 8.0, 8.0])
    assert_array_equal(equations.adapt(8.0, tau, some), [4.0, 8.0, 8.0])


def test_combine_moves_only_what_is_out_of_balance():
    """The factor multiplies (1 + tau), but a balanced edge ignores tau."""
    eta, tau = np.array([1.0, 2.0, 4.0]), np.array([-0.5, 0.0, 1.0])

    assert_array_equal(equations.combine(eta, tau, 2.0, 9.0, True), [1, 4, 16])
    assert_array_equal(equations.combine(eta, tau, 0.5, 9.0, True), [0.25, 1, 4])
    assert_array_equal(equations.combine(eta, tau, 1.0, 9.0, True), eta)


@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0])
def test_combine_resets_what_is_no_longer_active(factor):
    """To eta0, edge by edge, even when the residuals are balanced."""
    eta, tau = np.array([1.0, 2.0]), np.array([0.0, 0.0])
    active = np.array([True, False])

    found = equations.combine(eta, tau, factor, 9.0, active)

    assert_array_equal(found, [factor, 9.0])


def grow(spent, change, *, budget=5.0, growths=0.0, decay=0.5, trigger=0.1):
    """Return the budget and growths of one edge with T = 5."""
    edge = np.array([budget]), np.array([growths]), np.array([spent])
    new, count = equations.grow(*edge, change, 5.0, decay, trigger)
    return new[0], count[0]


def test_a_budget_grows_when_it_is_spent_and_the_objective_moves():
    """Spent means at least the budget; moving means more than the trigger."""
    assert grow(5.0, 0.2) == (7.5, 1.0)
    assert grow(4.9, 0.2) == (5.0, 0.0)
    assert grow(5.0, 0.1) == (5.0, 0.0)


def test_each_edge_grows_on_its_own():
    """A neighbour that spent nothing keeps its budget and its count."""
    budget, growths, spent = np.full(3, 5.0), np.array([0.0, 2.0, 1.0]), [6.0, 6.0, 1.0]

    found, counts = equations.grow(budget, growths, np.array(spent), 1.0, 5.0, 0.5, 0.1)

    assert_array_equal(found, [5 + 2.5, 5 + 5 / 8, 5])
    assert_array_equal(counts, [1, 3, 1])
    assert_array_equal(budget, np.full(3, 5.0))
    assert_array_equal(growths, [0.0, 2.0, 1.0])


@pytest.mark.parametrize("decay", [0.0, 0.3, 0.5, 0.9])
def test_raises_shrink_so_that_a_budget_is_bounded(decay):
    """The k-th raise adds decay^k T, k = 1, 2, ...: below T / (1 - decay) for ever."""
    budget, growths = 5.0, 0.0
    for k in range(1, 200):
        new, growths = grow(1e9, 1.0, budget=budget, growths=growths, decay=decay)

        assert growths == k
        assert new - budget == pytest.approx(5.0 * decay**k, abs=1e-12)
        assert new <= 5.0 / (1 - decay) * (1 + 1e-12)
        budget = new
    assert budget == pytest.approx(5.0 / (1 - decay), rel=1e-6)


def test_an_infinite_trigger_never_raises():
    """Then T_ij is the constant T, for which the paper proves convergence."""
    assert grow(1e9, 1e300, trigger=math.inf) == (5.0, 0.0)
    assert grow(1e9, math.inf, trigger=math.inf) == (5.0, 0.0)


def test_a_zero_trigger_asks_for_any_change():
    """But no change at all, as in iteration 1, earns nothing."""
    assert grow(5.0, 1e-300, trigger=0.0) == (7.5, 1.0)
    assert grow(5.0, 0.0, trigger=0.0) == (5.0, 0.0)


def test_clamp_keeps_penalties_within_a_million_times_eta0():
    """Neither zero nor infinity can come of doubling for ever."""
    eta = np.array([0.0, 1e-9, 3.0, 1e9, np.inf])

    assert_array_equal(equations.clamp(eta, 2.0), [2e-6, 2e-6, 3.0, 2e6, 2e6])
    assert_array_equal(equations.clamp(eta, 2.0, span=10.0), [0.2, 0.2, 3.0, 20, 20])


REFUSED = {
    "eta0 must be positive and finite": (0.0, -1.0, math.inf, math.nan),
    "t_max must be at least 0": (-1,),
    "residual_ratio must be greater than 1": (1.0, 0.1, math.nan),
    "budget0 must be at least 0": (-0.5, math.nan),
    "budget_decay must be within [0, 1)": (1.0, -0.1, math.nan),
    "budget_trigger must be at least 0 (inf is allowed)": (-0.1, math.nan),
    "relaxation must be between 0 and 2, both excluded": (0.0, 2.0, -1.0, math.nan),
}


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("rule", REFUSED)
def test_a_setting_out_of_range_is_refused(name, rule):
    """By every scheme, with its name, the rule and the value."""
    for value in REFUSED[rule]:
        with pytest.raises(ConfigError, match=f"^{re.escape(rule)}, got {value!r}$"):
            build(name, **{rule.split()[0]: value})


def test_an_unknown_scheme_is_refused_with_the_known_ones():
    """The sentence lists what can be chosen."""
    known = ", ".join(SCHEMES)
    with pytest.raises(ConfigError, match=f"^unknown scheme 'npa'; choose .*{known}$"):
        build("npa")
