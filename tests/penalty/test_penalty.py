"""The penalty equations of the paper, one by one, and the settings they take."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_array_equal

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


@pytest.mark.parametrize("value", [0.0, 2.0, -1e300, 1e-300])
def test_tau_is_zero_when_all_objectives_agree(value):
    """The paper's 0/0 means that no neighbour is better."""
    assert_array_equal(tau((value, [value] * 3)), np.zeros(3))


@pytest.mark.parametrize("scale", [1.0, -1.0, 1e-200, 3e150, -7e9])
def test_rounding_noise_is_no_difference(scale):
    """A few last bits must not become a penalty, whatever the scale and sign of f."""
    f_probe = scale * np.array([1.0, 1 + 8 * STEP, 1 - 64 * STEP, 1 + 1e-13])

    assert_array_equal(tau((scale, f_probe)), np.zeros(4))


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
