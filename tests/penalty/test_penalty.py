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


@pytest.mark.parametrize("seed", range(8))
def test_tau_is_the_ratio_of_kappas(seed):
    """Against exact fractions, for objectives of any sign and number of neighbours."""
    rng = np.random.default_rng(seed)
    own, *f_probe = rng.normal(size=rng.integers(2, 9)) + rng.choice([-10, 0, 10])

    found = equations.tau(own, np.array(f_probe))

    assert found.shape == (len(f_probe),)
    assert_allclose(found, tau_by_hand(own, f_probe), rtol=1e-11, atol=1e-13)


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
    assert grow(5.0, 1e-300, trigger=0.0) == (7.5, 1.0)
    assert grow(5.0, 0.0, trigger=0.0) == (5.0, 0.0)
    assert grow(1e9, math.inf, trigger=math.inf) == (5.0, 0.0)


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
    for value in REFUSED[rule]:
        with pytest.raises(ConfigError, match=f"^{re.escape(rule)}, got {value!r}$"):
            build(name, **{rule.split()[0]: value})


def test_an_unknown_scheme_is_refused_with_the_known_ones():
    known = ", ".join(SCHEMES)
    with pytest.raises(ConfigError, match=f"^unknown scheme 'npa'; choose .*{known}$"):
        build("npa")
