"""Penalty rules beyond the paper: plain numbers, and where nothing can be learnt."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dadmm.penalty import rules

ROWS = (
    np.random.default_rng(0).standard_normal((5, 7)) * 10.0 ** np.arange(-2, 3)[:, None]
)


def full(value, degree=1):
    """Return one number per edge."""
    return np.full(degree, float(value))


def test_a_row_has_the_same_length_wherever_it_lies_and_whichever_way_it_points():
    """Bit for bit: both ends of an edge see each other's rows with other strides."""
    wide = np.zeros((5, 11))
    wide[:, 2:9] = -ROWS

    assert_array_equal(rules.row_norms(wide[:, 2:9]), rules.row_norms(ROWS))
    for k in range(5):
        assert rules.row_norms(wide[k : k + 1, 2:9])[0] == rules.row_norms(ROWS)[k]


@pytest.mark.parametrize("scale", [10.0, 150.0])
def test_all_that_a_penalty_may_ever_move_is_bounded(scale):
    """The exponents sum to less than the scale, however long a run is."""
    steps = [rules.damping(t, scale) for t in range(1, 200_000)]

    assert all(later < sooner for sooner, later in pairwise(steps))
    assert 0.9 * scale < math.fsum(steps) < scale


def test_where_only_one_side_has_moved_the_bound_decides():
    assert rules.spectral_ratio(full(0), full(1), full(1), full(1)) == 0.0
    assert rules.spectral_ratio(full(1), full(0), full(1), full(1)) == math.inf


@pytest.mark.parametrize("size", [0.0, 1.0, 1e9])
def test_noise_has_no_spectral_ratio(size):
    quiet, loud = full(0.5e-13 * size), full(2e-13 * size)

    assert np.isnan(rules.spectral_ratio(quiet, quiet, full(size), full(size)))
    if size:
        for turn, way in [(quiet, loud), (loud, quiet), (loud, loud)]:
            assert rules.spectral_ratio(turn, way, full(size), full(size)) == turn / way
