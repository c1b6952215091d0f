"""Random starts in the mean and unit of all rows: equations, any units, resumed."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dadmm import ProblemError, Topology
from dadmm.admm.rule import Rule
from dadmm.problems import PPCA, metrics
from dadmm.solver.units import Units, UnitsKind, find_units, kept_fraction
from tests.solver.test_coordinates import total_of
from tests.solver.test_merged import GRAPH, NODES, M, built, shards
from tests.support.solving import solve
from tests.support.subspaces import expected_objective


def test_points_and_gradients_are_in_the_units_of_the_user():
    """Also of the part a, whose scale the messages contain."""
    problems = dict(enumerate(built(shards())))
    drawn = problems[0].init(np.random.default_rng(0))
    kind = UnitsKind(problems, starts={0: drawn})
    kind.choose(total_of(GRAPH)[0], len(problems))
    theta = kind.starts[0]
    point = kind.theta_of(theta[None])[0]
    within = kind.within[0]
    root = np.sqrt(within.layout.pull)

    slopes = within.gradient(theta)[None] / root

    found = kind.gradients_of(slopes, theta[None])[0]

    wanted = problems[0].layout.views(problems[0].gradient(point))
    W, mu, a = problems[0].layout.views(found)
    assert_allclose(W, wanted.W, rtol=1e-9, atol=1e-9)
    assert_allclose(a, wanted.a, rtol=1e-9)
    assert not mu.any()  # mu is not part of the problem
    warm = UnitsKind(problems, None, {0: point}, {0: found})
    warm.enter(kind.record)
    assert_allclose(warm.starts[0], theta, rtol=1e-9, atol=1e-12)
    assert_allclose(warm.duals[0], slopes[0], rtol=1e-9, atol=1e-9)
    W, _, a = problems[0].layout.views(point)
    unit, length = float(kind.record.unit), float(kind.record.length)
    assert_allclose(W.T @ W, (unit * length) ** 2 * np.eye(M), atol=1e-10)
    assert_allclose(a, unit**-2)


def test_turning_multipliers_keeps_them_opposite_and_part_of_what_turns_W():
    parts = []

    def turning(run):
        views = run.layout.views
        Z, L = views(run.state.anchors).W, views(run.state.multipliers).W
        moment = Z.mT @ L
        return moment - moment.mT

    def see(t, run):
        before = turning(run)
        run.kind.turn(t, run)
        share = kept_fraction(GRAPH.diameter, 1.6)
        assert_allclose(turning(run), share * before, atol=1e-9 * np.abs(before).max())
        summed = np.add.reduce(run.state.multipliers, axis=0)
        assert np.abs(summed).max() < 1e-12 * np.abs(run.state.multipliers).max()
        assert_allclose(run.by_node(run.work.multiplier).sum(axis=0), summed, atol=1e-9)
        parts.append(np.abs(before).max())

    solve(built(shards()), GRAPH, init="independent", max_iter=6, callbacks=[see])
    assert len(parts) == 6
    assert min(parts) > 0.0


@pytest.mark.parametrize(
    ("graph", "alpha"), [(Topology.ring(20), 1.6), (Topology.chain(12), 1.0)]
)
def test_flat_directions_agree_soonest_with_the_fraction_that_is_kept(graph, alpha):
    """ADMM for f = 0, where a fraction of the multipliers remains."""
    degrees = np.bincount(graph.edges[:, 0])
    walk = np.zeros((graph.n_nodes, graph.n_nodes))
    walk[graph.edges[:, 0], graph.edges[:, 1]] = 1.0
    walk /= degrees[:, None]

    def rate(g):
        eye = np.eye(graph.n_nodes)
        near, far = 0.5 * alpha * (eye + walk), 0.5 * alpha * (eye - walk)
        step = np.block(
            [[near + (1.0 - alpha) * eye, -near], [g * far, g * (eye - far)]]
        )
        sizes = np.sort(np.abs(np.linalg.eigvals(step)))
        assert_allclose(sizes[-1], 1.0)  # all nodes alike
        return sizes[-2]

    g = kept_fraction(graph.diameter, alpha)
    least = min(map(rate, np.linspace(0.0, 0.95, 96)))
    assert rate(g) < rate(0.0) - 0.03
    assert math.log(rate(g)) < 0.7 * math.log(least)


def test_components_of_unlike_length_cost_the_objective_no_digits():
    """W is known up to a rotation only; the E-step loses digits in most of them."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 6)) * [1e5, 3e4, 1.0, 1.0, 1.0, 1.0]
    problem = PPCA(rows, 3)
    W = np.eye(6)[:, :3] * [1e5, 3e4, 1e-4]
    W = W @ np.linalg.qr(rng.normal(size=(3, 3)))[0]
    mu = rows.mean(axis=0)

    found = UnitsKind({0: problem}).rotated(problem.layout.pack(W=W, mu=mu, a=1.0))

    turned = problem.layout.views(found).W
    assert_allclose(turned @ turned.T, W @ W.T, atol=1e-5)
    value = float(problem.objectives(found[None], problem.expect(found))[0])
    assert_allclose(value, expected_objective(rows, W, mu, 1.0)[0], rtol=1e-9)


@pytest.mark.parametrize("precision", [4.0, 1.0, 0.25])
def test_limits_of_the_rule_are_those_of_the_curvature(precision):
    """Those of docs/accuracy.md; the gradient has a third of the residual's limit.

    That of W is smaller where the noise of the model is larger than the unit.
    """
    problems = dict(enumerate(built(shards(width=10, rows=40))))
    n, D = problems[0].n_samples, problems[0].dimension
    drawn = problems[0].init(np.random.default_rng(0))
    kind = UnitsKind(problems, starts={0: drawn})
    kind.enter(Units(np.zeros(D), 1.0, 5.0))
    parts = np.sqrt([M, M, D / 2.0])
    assert_allclose(kind.scales[0], [parts, 3.0 * n * parts])
    at = kind.starts[0]
    problems[0].layout.views(at).a[...] = precision
    gradient = kind.within[0].gradient(at) / np.sqrt(kind.within[0].layout.pull)
    less = min(math.sqrt(precision), 1.0)
    limits = n * parts * [less, less, 1.0]
    for part, limit in zip(("W", "mu", "a"), limits, strict=True):
        off = problems[0].layout.pack(**{"W": 0.0, "mu": 0.0, "a": 0.0, part: 1.0})
        off *= 1e-3 * limit / np.linalg.norm(off)
        for times, holds in ((0.99, True), (1.01, False)):
            run = SimpleNamespace(
                names=np.array([0]),
                state=SimpleNamespace(theta=at[None]),
                work=SimpleNamespace(multiplier=(times * off - gradient)[None] / 2.0),
                stopping=SimpleNamespace(rule=Rule(tolerance=1e-3, scaled=True)),
            )
            assert (kind.slope(run) <= 1.0).tolist() == [holds], part


def test_the_unit_of_few_or_noiseless_rows_is_known_too():
    few = shards(rows=M + 1)
    rows = np.vstack(list(few))
    found = find_units(total_of(GRAPH)[0], dict(enumerate(built(few))))
    assert_allclose(found.unit, (rows - rows.mean(axis=0)).std(), rtol=1e-12)
    flat = shards(rows=12)
    flat[..., M:] = 0.0
    found = find_units(total_of(GRAPH)[0], dict(enumerate(built(flat))))
    squares = ((flat - flat.mean(axis=(0, 1))) ** 2).sum() / (NODES * 12)
    assert_allclose(found.unit, 1e-6 * math.sqrt(squares), rtol=1e-12)
    with pytest.raises(ProblemError, match="rows of all nodes are equal"):
        find_units(total_of(GRAPH)[0], dict(enumerate(built(np.ones((NODES, 3, 4))))))


@pytest.mark.parametrize("size", [1e-3, 1e5])
def test_no_component_of_the_solution_reaches_the_bound_on_lengths(size):
    """Of one component much or less long than the noise."""
    blocks = shards() * np.append(size, np.ones(shards().shape[-1] - 1))
    problems = dict(enumerate(built(blocks)))
    start = find_units(total_of(GRAPH)[0], problems)
    kind = UnitsKind(problems)
    kind.enter(start)
    best = metrics.ppca_reference(np.vstack(list(blocks)), M)

    longest = np.linalg.norm(best.W, 2) / float(start.unit)

    assert 1e3 * longest <= kind.within[0].longest
    assert kind.within[0].longest >= kind.within[0].knee
