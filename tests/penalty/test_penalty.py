"""The penalty equations of the paper, one by one, and the settings they take."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dadmm.core.errors import ConfigError
from dadmm.graphs.incidence import Incidence
from dadmm.penalty import SCHEMES, build, equations

STEP = 2.0**-52  # the relative step of float64


def tau(*nodes):
    """Return tau of each edge of nodes with (f_i, f_i at its probes), flat."""
    nodes = sorted(nodes, key=lambda node: len(node[1]))
    every = [np.append(own, probes) for own, probes in nodes]
    return equations.tau(
        np.array([own for own, _ in nodes], dtype=float),
        np.concatenate([np.asarray(probes, dtype=float) for _, probes in nodes]),
        np.array([f.min() for f in every]),
        np.array([f.max() for f in every]),
        Incidence(np.array([len(probes) for _, probes in nodes])),
    )


def tau_by_hand(own, f_probe):
    """Return tau_ij in exact arithmetic, as the paper prints it."""
    own, f_probe = Fraction(own), [Fraction(f) for f in f_probe]
    low, high = min([own, *f_probe]), max([own, *f_probe])

    def kappa(f):
        return (f - low) / (high - low) + 1

    return [float(kappa(own) / kappa(f) - 1) for f in f_probe]


@pytest.mark.parametrize("value", [0.0, 2.0, -1e300, 1e-300])
def test_tau_is_zero_when_all_objectives_agree(value):
    """The paper's 0/0 means that no neighbour is better."""
    assert_array_equal(tau((value, [value] * 3)), np.zeros(3))


@pytest.mark.parametrize("scale", [1.0, -1.0, 1e-200, 3e150, -7e9])
def test_rounding_noise_is_no_difference(scale):
    """A few last bits must not become a penalty, whatever the scale and sign of f."""
    f_probe = scale * np.array([1.0, 1 + 8 * STEP, 1 - 64 * STEP, 1 + 1e-13])

    assert_array_equal(tau((scale, f_probe)), np.zeros(4))


@pytest.mark.parametrize("seed", range(8))
def test_tau_is_the_ratio_of_kappas(seed):
    """Against exact fractions, for objectives of any sign and number of neighbours."""
    rng = np.random.default_rng(seed)
    own, *f_probe = rng.normal(size=rng.integers(2, 9)) + rng.choice([-10, 0, 10])

    found = tau((own, f_probe))

    assert found.shape == (len(f_probe),)
    assert_allclose(found, tau_by_hand(own, f_probe), rtol=1e-11, atol=1e-13)


def test_tau_of_a_node_does_not_depend_on_other_nodes():
    """Bit for bit, also where another node's objectives are all equal."""
    rng = np.random.default_rng(0)
    nodes = [(rng.normal(), rng.normal(size=d)) for d in (0, 1, 1, 3, 3, 9)]
    nodes.insert(3, (2.0, np.full(3, 2.0)))

    assert_array_equal(tau(*nodes), np.concatenate([tau(node) for node in nodes]))


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
    rows = equations.balance(np.array([primal, 1.0]), np.array([dual, 1.0]), 10.0)
    assert_array_equal(rows, [factor, 1.0])


@pytest.mark.parametrize("decay", [0.0, 0.3, 0.5, 0.9])
def test_a_budget_is_raised_while_an_edge_is_out_of_it_and_moves(decay):
    """The k-th raise adds decay^k T, k = 1, 2, ...: below T / (1 - decay) for ever."""
    out, moves = np.array([1, 1, 0, 0], bool), np.array([1, 0, 1, 0], bool)
    state = {"budget": np.full(4, 5.0), "raised": np.zeros(4)}
    for k in range(1, 200):
        before = state["budget"]
        state |= equations.raise_budgets(state, out, moves, 5.0, decay)

        assert_array_equal(state["raised"], [k, 0, 0, 0])
        assert_array_equal(state["used_up"], [0, 1, 0, 0])
        more = [5.0 * decay**k, 0, 0, 0]
        assert_allclose(state["budget"] - before, more, atol=1e-12)
        assert state["budget"][0] <= 5.0 / (1 - decay) * (1 + 1e-12)
    assert_allclose(state["budget"], [5.0 / (1 - decay), 5, 5, 5], rtol=1e-6)


REFUSED = {
    "eta0": (0.0, -1.0, math.inf, math.nan, "10", "best", True),
    "t_max": (-1, 2.5),
    "residual_ratio": (1.0, 0.1, math.nan),
    "budget0": (-0.5, math.nan),
    "budget_decay": (1.0, -0.1, math.nan),
    "budget_trigger": (-0.1, math.nan),
    "relaxation": (0.0, 2.0, -1.0, math.nan),
    "probe": ("middle",),
    "coupling": ("both",),
}


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("setting", REFUSED)
def test_a_setting_out_of_range_is_refused(name, setting):
    for value in REFUSED[setting]:
        with pytest.raises(ConfigError, match=setting):
            build(name, **{setting: value})
    for value in ("auto", None, 3.0):
        assert build(name, eta0=value).eta0 == value
    with pytest.raises(ConfigError, match="npa"):
        build("npa")
