"""PPCA with lengths as logarithms: the same model, its derivatives and its steps."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dadmm.problems import PPCA

D, M, KNEE, LONGEST, SCALE = 6, 3, 4.0, 90.0, 2.5


def made(count=9, seed=0):
    """Return a problem, and (W, mu = 0, a) with lengths on both sides of the knee."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((count, D)) * [20.0, 9.0, 2.0, 1.0, 1.0, 1.0] + 0.3
    problem = PPCA(rows, M).with_log_lengths(KNEE, LONGEST, SCALE)
    left, right = (np.linalg.qr(rng.standard_normal((n, M)))[0] for n in (D, M))
    W = left * [15.0, 6.0, 2.0] @ right
    return problem, problem.layout.pack(W=W, mu=0.0, a=1.3), rows


def test_the_model_is_the_same_in_both_coordinates():
    problem, point, rows = made()
    theta = problem.inside(point)

    assert_allclose(problem.outside(theta), point, rtol=1e-12, atol=1e-12)
    axes = problem.axes(theta)
    assert_allclose(axes.long, [15.0, 6.0, 2.0])
    short = [KNEE + np.sqrt(2.0) * np.log(each / KNEE) for each in (15.0, 6.0)]
    assert_allclose(axes.short, [*short, 2.0])
    plain = PPCA(rows, M, zero_mean=True)
    stats, its = problem.expect(theta), plain.expect(point)
    found = problem.objectives(theta[None], stats)
    assert_allclose(found, plain.objectives(point[None], its), rtol=1e-12)
    found, wanted = problem.neg_log_likelihood(theta), plain.neg_log_likelihood(point)
    assert_allclose(found, wanted, rtol=1e-12)
    rng = np.random.default_rng(1)
    turn = np.linalg.qr(rng.standard_normal((M, M)))[0]
    W = problem.layout.views(point).W
    turned = problem.inside(problem.layout.pack(W=W @ turn, mu=0.0, a=1.3))
    V, its_V = (problem.layout.views(each).W for each in (theta, turned))
    assert_allclose(its_V, V @ turn, atol=1e-12)


@pytest.mark.parametrize("lengths", [(15.0, 6.0, 2.0), (9.0, 9.0, 1.0), (3.0, 2.0, 0)])
def test_slopes_are_derivatives(lengths):
    """Also of components of equal length, and of length zero."""
    problem, point, _ = made()
    axes = problem.axes(problem.inside(point))
    W = axes._replace(long=np.array(lengths)).W
    point = problem.layout.pack(W=W, mu=0.0, a=1.3)
    theta = problem.inside(point)
    wanted = np.zeros((D, M))
    gradient = problem.layout.views(problem.plain.gradient(point)).W
    for at in np.ndindex(D, M):
        step = np.zeros((D, M))
        step[at] = 1e-6
        moved = [theta.copy(), theta.copy()]
        for each, sign in zip(moved, (1.0, -1.0), strict=True):
            problem.layout.views(each).W[...] += sign * step
        ends = [problem.layout.views(problem.outside(each)).W for each in moved]
        wanted[at] = np.vdot(gradient, ends[0] - ends[1]) / 2e-6

    found = problem.layout.views(problem.gradient(theta)).W

    assert_allclose(found, wanted, rtol=1e-5, atol=1e-6 * np.abs(wanted).max())
    back = problem.slopes(problem.axes(theta), found, out=True)
    assert_allclose(back, gradient, rtol=1e-6, atol=1e-9 * np.abs(gradient).max())


def test_steps_descend_to_a_stationary_point():
    problem, point, _ = made()
    theta = problem.inside(point)
    centre, weight = 1.1 * theta, 12.0
    values = []
    for _ in range(60):
        values.append(problem._value(theta, problem.axes(theta), centre, weight))
        theta = problem.prox(theta, problem.expect(theta), centre, weight)

    assert (np.diff(values) <= 1e-10).all()
    assert values[-1] < values[0] - 1.0
    pull = weight * problem.layout.pull * (theta - centre)
    rest = problem.layout.views(problem.gradient(theta) + pull)
    assert np.abs(rest.W).max() < 1e-5
    assert abs(rest.a) < 1e-5


def test_steps_make_no_component_longer_than_the_bound():
    """Multipliers that would, as a centre far away; one that is longer may shrink."""
    problem, point, _ = made()
    theta = problem.inside(point)
    far = theta.copy()
    problem.layout.views(far).W[...] *= 100.0
    pulled = problem.prox(theta, problem.expect(theta), far, 12.0)
    assert_allclose(problem.axes(pulled).long.max(), LONGEST)
    W = problem.layout.views(point).W
    long = problem.inside(problem.layout.pack(W=20.0 * W, mu=0.0, a=1.3))
    before = problem.axes(long).long.max()
    for centre, smaller in ((far, False), (theta, True)):
        after = problem.axes(problem.prox(long, problem.expect(long), centre, 12.0))
        assert after.long.max() <= before * (1.0 + 1e-12)
        assert (after.long.max() < 0.9 * before) == smaller
