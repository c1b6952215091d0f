"""PPCA with lengths as logarithms: the same model, its derivatives and its steps."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dadmm.problems import PPCA

D, M, KNEE, LONGEST = 6, 3, 4.0, 90.0
RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((9, D)) * [20.0, 9.0, 2.0, 1.0, 1.0, 1.0] + 0.3
PROBLEM = PPCA(ROWS, M).with_log_lengths(KNEE, LONGEST, 2.5)
LEFT, RIGHT = (np.linalg.qr(RNG.standard_normal((n, M)))[0] for n in (D, M))
VIEWS = PROBLEM.layout.views


def point_of(lengths, turn=RIGHT):
    """Return (W, mu = 0, a) whose W has these lengths."""
    return PROBLEM.layout.pack(W=LEFT * lengths @ turn, mu=0.0, a=1.3)


POINT = point_of([15.0, 6.0, 2.0])  # on both sides of the knee
THETA = PROBLEM.inside(POINT)


def test_the_model_is_the_same_in_both_coordinates():
    plain = PPCA(ROWS, M, zero_mean=True)

    assert_allclose(PROBLEM.outside(THETA), POINT, rtol=1e-12, atol=1e-12)
    axes = PROBLEM.axes(THETA)
    assert_allclose(axes.long, [15.0, 6.0, 2.0])
    short = [KNEE + np.sqrt(2.0) * np.log(each / KNEE) for each in (15.0, 6.0)]
    assert_allclose(axes.short, [*short, 2.0])
    found = PROBLEM.objectives(THETA[None], PROBLEM.expect(THETA))
    assert_allclose(found, plain.objectives(POINT[None], plain.expect(POINT)))
    found, wanted = PROBLEM.neg_log_likelihood(THETA), plain.neg_log_likelihood(POINT)
    assert_allclose(found, wanted, rtol=1e-12)
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((M, M)))[0]
    turned = PROBLEM.inside(point_of([15.0, 6.0, 2.0], RIGHT @ turn))
    assert_allclose(VIEWS(turned).W, VIEWS(THETA).W @ turn, atol=1e-12)


@pytest.mark.parametrize("lengths", [(15.0, 6.0, 2.0), (9.0, 9.0, 1.0), (3.0, 2.0, 0)])
def test_slopes_are_derivatives(lengths):
    """Also of components of equal length, and of length zero."""
    point = point_of(lengths)
    theta = PROBLEM.inside(point)
    gradient = VIEWS(PROBLEM.plain.gradient(point)).W
    wanted = np.zeros((D, M))
    for at in np.ndindex(D, M):
        step = PROBLEM.layout.pack(W=0.0, mu=0.0, a=0.0)
        VIEWS(step).W[at] = 1e-6
        ends = [VIEWS(PROBLEM.outside(theta + s * step)).W for s in (1.0, -1.0)]
        wanted[at] = np.vdot(gradient, ends[0] - ends[1]) / 2e-6

    found = VIEWS(PROBLEM.gradient(theta)).W

    assert_allclose(found, wanted, rtol=1e-5, atol=1e-6 * np.abs(wanted).max())
    back = PROBLEM.slopes(PROBLEM.axes(theta), found, out=True)
    assert_allclose(back, gradient, rtol=1e-6, atol=1e-9 * np.abs(gradient).max())


def test_steps_descend_to_a_stationary_point():
    theta, centre, weight, values = THETA, 1.1 * THETA, 12.0, []
    for _ in range(60):
        off = theta - centre
        pull = weight * PROBLEM.layout.pull * off
        values.append(PROBLEM.neg_log_likelihood(theta) + 0.5 * pull @ off)
        theta = PROBLEM.prox(theta, PROBLEM.expect(theta), centre, weight)

    assert (np.diff(values) <= 1e-10).all()
    assert values[-1] < values[0] - 1.0
    rest = VIEWS(PROBLEM.gradient(theta) + weight * PROBLEM.layout.pull * off)
    assert np.abs(np.append(rest.W, rest.a)).max() < 1e-5


def test_steps_make_no_component_longer_than_the_bound():
    """Multipliers that would, as a centre far away; one that is longer may shrink."""
    far = THETA.copy()
    VIEWS(far).W[...] *= 100.0
    pulled = PROBLEM.prox(THETA, PROBLEM.expect(THETA), far, 12.0)
    assert_allclose(PROBLEM.axes(pulled).long.max(), LONGEST)
    long = PROBLEM.inside(point_of([300.0, 120.0, 40.0]))
    for centre, smaller in ((far, False), (THETA, True)):
        new = PROBLEM.prox(long, PROBLEM.expect(long), centre, 12.0)
        after = PROBLEM.axes(new).long.max()
        assert after <= 300.0 * (1.0 + 1e-12)
        assert (after < 270.0) == smaller
