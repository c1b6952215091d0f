"""Raw runs: relative errors of PPCA by dense forms, and when they end."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import dadmm
from dadmm.problems import PPCA, StructureFromMotion, metrics
from dadmm.solver.kind import TIMES, RawKind, relative_errors
from dadmm.solver.plan import Judge, Kind, Plan
from tests.support.problems import Quadratic
from tests.support.shards import GRAPH, NODES, M, built, right, shards
from tests.support.solving import solve


def errors_of(problem, theta, slope, gaps=None):
    """Return the errors of a network whose nodes all have the same rows."""
    gaps = theta[None][:0] if gaps is None else gaps
    return relative_errors(problem, theta, slope, gaps, problem.moment(theta))


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def model(rng, rows=40):
    """Return a problem, its maximum likelihood solution, and that as theta."""
    samples = rng.standard_normal((rows, 6)) * [9.0, 6.0, 0.5, 0.5, 0.5, 0.5]
    problem, best = PPCA(samples, M), metrics.ppca_reference(samples, M)
    return problem, best, problem.layout.pack(W=best.W, mu=best.mu, a=best.a)


@pytest.mark.parametrize("gaps", [0.0, 0.3])
def test_moments_are_sums_over_the_samples_that_observe_a_column(rng, gaps):
    samples, W = rng.standard_normal((12, 6)) + 1.0, rng.standard_normal((6, M))
    samples[rng.random(samples.shape) < gaps] = np.nan
    problem, total, a = PPCA(samples, M), np.zeros((M, M)), 2.0
    for x in samples:
        seen = ~np.isnan(x)
        covariance = np.linalg.inv(np.eye(M) + a * W[seen].T @ W[seen])
        z = covariance @ W[seen].T @ x[seen] * a
        total += (np.outer(z, z) + covariance) * seen.mean()
    theta = problem.layout.pack(W=W, mu=0.0, a=a)
    assert_allclose(problem.moment(theta), total, rtol=1e-10)


def test_differences_are_relative_to_the_model(rng):
    """Along the axes r of W: |d r| / |W r|; mu in standard deviations of a row."""
    problem, best, theta = model(rng)
    gaps, none = rng.standard_normal((3, theta.size)), np.zeros(theta.size)

    W, mu, a = errors_of(problem, theta, none, gaps)[0]

    axes = np.linalg.eigh(best.W.T @ best.W)[1]
    dW, dmu, da = problem.layout.views(gaps)
    moved = np.linalg.norm(dW @ axes, axis=1) / np.linalg.norm(best.W @ axes, axis=0)
    assert_allclose(W, np.sqrt(np.mean(moved**2, axis=0)).max(), rtol=1e-10)
    C = best.W @ best.W.T + np.eye(6) / best.a
    squares = np.vecdot(dmu, np.linalg.solve(C, dmu.T).T)
    assert_allclose(mu, math.sqrt(squares.mean() / 6), rtol=1e-10)
    assert_allclose(a, np.sqrt(np.mean(da**2)) / best.a, rtol=1e-10)
    assert_array_equal(errors_of(problem, theta, none), np.zeros((2, 3)))


def test_errors_by_the_true_gradient_are_those_of_the_model(rng):
    """One per cent off the optimum is seen as about one per cent; a turn is free."""
    problem, (W, mu, a), _ = model(rng, rows=400)
    axes, lengths, right = np.linalg.svd(W, full_matrices=False)
    out = np.linalg.qr(np.hstack([W, np.eye(6)]))[0][:, M]
    far = math.sqrt(6) * axes[:, 0] * math.hypot(lengths[0], a**-0.5)
    turn = np.linalg.qr(rng.standard_normal((M, M)))[0]
    for part, W_off, mu_off, a_off in (
        (0, (axes * lengths * [1.0, 1.01]) @ right, mu, a),
        (0, W + 0.01 * lengths[1] * np.outer(out, right[1]), mu, a),
        (1, W, mu + 0.01 * far, a),
        (2, W, mu, 1.01 * a),
        (None, W @ turn, mu, a),
    ):
        theta = problem.layout.pack(W=W_off, mu=mu_off, a=a_off)
        errors = errors_of(problem, theta, problem.gradient(theta))
        if part is None:
            assert errors.max() < 1e-10
        else:
            assert_allclose(errors[1, part], 0.01, rtol=0.25)


def test_a_structure_counts_up_to_an_affine_map(rng):
    """Then W is stationary for the tracks, but not for their likelihood."""
    tracks, _ = dadmm.datasets.turntable(n_frames=20, n_points=30)
    camera = StructureFromMotion(tracks)
    plain = PPCA(camera.rows, 3, zero_mean=True)
    best = metrics.ppca_reference(camera.rows, 3, zero_mean=True)
    W, found = best.W @ rng.standard_normal((3, 3)), []
    for problem in (camera, plain):
        theta = problem.layout.pack(W=W, mu=0.0, a=best.a)
        found.append(errors_of(problem, theta, problem.gradient(theta))[1, 0])
    assert found[0] < 1e-9 < 0.1 < found[1]


def test_the_rule_is_met_no_later_than_the_relative_errors(rng):
    """So that a review is never late; `scales` are for norms by part of theta."""
    problem, _, theta = model(rng)
    layout, kind = problem.layout, RawKind({0: problem})
    kind.plan = Plan(Kind.RAW, "shared", judge=Judge.MODEL)
    lengths = np.array([[np.linalg.norm(part)] for part in layout.views(theta)])
    scales = [kind.scales_of(np.array([0]))(k, lengths)[:, 0] for k in range(2)]
    for k in range(20):
        vectors = np.zeros((2, layout.size))
        part = layout.views(vectors)[k % 3]
        part[...] = rng.standard_normal(part.shape)
        errors = errors_of(problem, theta, vectors[1], vectors[:1])[:, k % 3]
        sizes = np.linalg.norm(part.reshape(2, -1), axis=1) / np.array(scales)[:, k % 3]
        assert (sizes <= 2.0 * errors / TIMES).all()


class Lazy(Quadratic):
    """A quadratic with steps of a tenth of the way."""

    def prox(self, theta, stats, centre, weight):
        return theta + 0.1 * (super().prox(theta, stats, centre, weight) - theta)


class Known(Lazy):
    def gradient(self, theta):
        return theta - self.b


@pytest.mark.parametrize(("kind", "status"), [(Lazy, "stopped"), (Known, "stationary")])
def test_a_gradient_of_ones_own_decides_on_stationary(kind, status):
    targets = np.random.default_rng(0).standard_normal((NODES, 2))
    problems = [kind(np.eye(2), b, floor=1e3) for b in targets]
    settings = {"max_iter": 20000, "tolerance": 1e-2, "init": "shared"}
    found = solve(problems, GRAPH, scheme="fixed", **settings, record=False)

    off = np.abs(found.theta - targets.mean(axis=0)).max()
    assert (off < 0.005) == (kind is Known)
    assert found.status == status


def test_limits_follow_the_tolerance_but_other_rules_and_own_penalties_bound_nothing():
    blocks = shards(rows=40)
    settings = {"init": "shared", "coordinates": "raw", "max_iter": 3000}
    loose, tight, by_objective, directed = (
        solve(built(blocks), GRAPH, **settings, **more)
        for more in (
            {"tolerance": 1e-2}, {"tolerance": 1e-4}, {"stopping": "objective"},
            {"scheme": "nap", "coupling": "own", "tolerance": 1e-2},
        )
    )  # fmt: skip

    assert loose.iterations < tight.iterations
    assert right(tight, blocks)[1] < 0.1 * right(loose, blocks)[1] < 0.1
    assert by_objective.iterations < 100
    for found in (by_objective, directed):
        assert (found.reason, found.status) == ("converged", "stopped")
