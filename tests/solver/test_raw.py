"""Raw runs: relative errors of PPCA by dense forms, true stops, resumed, over MPI."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import dadmm
from dadmm import Layout
from dadmm.problems import PPCA, StructureFromMotion, metrics
from dadmm.solver.plan import Judge, Kind, Plan
from dadmm.solver.raw import TIMES, RawKind, relative_errors
from tests.solver.test_merged import GRAPH, NODES, M, built, right, shards
from tests.support.solving import solve

RNG = np.random.default_rng(5)


def errors_of(problem, theta, slope, gaps):
    """Return the errors of a network whose nodes all have the same rows."""
    return relative_errors(problem, theta, slope, gaps, problem.moment(theta))


def model(rows=40, width=6, **settings):
    """Return a problem, and its maximum likelihood solution as W, mu and a."""
    samples = RNG.standard_normal((rows, width)) * [9.0, 6.0, *[0.5] * (width - 2)]
    best = metrics.ppca_reference(samples, M, **settings)
    return PPCA(samples, M, **settings), best


@pytest.mark.parametrize("gaps", [0.0, 0.3])
def test_moments_are_sums_over_the_samples_that_observe_a_column(gaps):
    samples, W = RNG.standard_normal((12, 6)) + 1.0, RNG.standard_normal((6, M))
    samples[RNG.random(samples.shape) < gaps] = np.nan
    problem, total, a = PPCA(samples, M), np.zeros((M, M)), 2.0
    for x in samples:
        seen = ~np.isnan(x)
        covariance = np.linalg.inv(np.eye(M) + a * W[seen].T @ W[seen])
        z = covariance @ W[seen].T @ x[seen] * a
        total += (np.outer(z, z) + covariance) * seen.mean()
    theta = problem.layout.pack(W=W, mu=0.0, a=a)
    assert_allclose(problem.moment(theta), total, rtol=1e-10)


def test_differences_are_relative_to_the_model():
    """Along the axes r of W: |d r| / |W r|; mu in standard deviations of a row."""
    problem, best = model()
    pack, k = problem.layout.pack, 3
    gaps = RNG.standard_normal((k, problem.layout.size))
    theta, none = pack(W=best.W, mu=best.mu, a=best.a), np.zeros(problem.layout.size)

    W, mu, a = errors_of(problem, theta, none, gaps)[0]

    axes = np.linalg.eigh(best.W.T @ best.W)[1]
    dW, dmu, da = problem.layout.views(gaps)
    moved = np.linalg.norm(dW @ axes, axis=1) / np.linalg.norm(best.W @ axes, axis=0)
    assert_allclose(W, np.sqrt(np.mean(moved**2, axis=0)).max(), rtol=1e-10)
    C = best.W @ best.W.T + np.eye(6) / best.a
    squares = np.vecdot(dmu, np.linalg.solve(C, dmu.T).T)
    assert_allclose(mu, math.sqrt(squares.mean() / 6), rtol=1e-10)
    assert_allclose(a, np.sqrt(np.mean(da**2)) / best.a, rtol=1e-10)
    alone = errors_of(problem, theta, none, gaps[:0])
    assert_array_equal(alone, np.zeros((2, 3)))


@pytest.mark.parametrize("what", ["length", "direction", "mu", "a", "turn"])
def test_errors_by_the_true_gradient_are_those_of_the_model(what):
    """One per cent off the optimum is seen as about one per cent; a turn is free."""
    problem, best = model(rows=400)
    off, W, mu, a = 0.01, best.W.copy(), best.mu.copy(), best.a
    axes, lengths, right = np.linalg.svd(W, full_matrices=False)
    if what == "length":
        W = (axes * lengths * [1.0, 1.0 + off]) @ right
    elif what == "direction":
        out = np.linalg.qr(np.hstack([W, np.eye(6)]))[0][:, M]
        W = W + off * lengths[1] * np.outer(out, right[1])
    elif what == "mu":
        mu = mu + off * math.sqrt(6) * axes[:, 0] * math.hypot(lengths[0], a**-0.5)
    elif what == "a":
        a = a * (1.0 + off)
    else:
        W = W @ np.linalg.qr(RNG.standard_normal((M, M)))[0]
    theta = problem.layout.pack(W=W, mu=mu, a=a)

    errors = errors_of(problem, theta, problem.gradient(theta), theta[None][:0])

    wanted = {"length": 0, "direction": 0, "mu": 1, "a": 2}
    if what == "turn":
        assert errors.max() < 1e-10
    else:
        assert_allclose(errors[1, wanted[what]], off, rtol=0.25)


def test_a_structure_counts_up_to_an_affine_map():
    """Then W is stationary for the tracks, but not for their likelihood."""
    tracks, _ = dadmm.datasets.turntable(n_frames=20, n_points=30)
    camera = StructureFromMotion(tracks)
    plain = PPCA(camera.rows, 3, zero_mean=True)
    best = metrics.ppca_reference(camera.rows, 3, zero_mean=True)
    W = best.W @ RNG.standard_normal((3, 3))
    found = []
    for problem in (camera, plain):
        theta = problem.layout.pack(W=W, mu=0.0, a=best.a)
        slope = problem.gradient(theta)
        found.append(errors_of(problem, theta, slope, theta[None][:0])[1, 0])
    assert found[0] < 1e-9 < 0.1 < found[1]


class Lazy:
    """``|x - b|^2 / 2`` with steps of a fiftieth of the way."""

    def __init__(self, b):
        self.layout, self.b = Layout.of(x=(2,)), np.asarray(b, dtype=float)

    def init(self, rng):
        return rng.standard_normal(2)

    def expect(self, theta):
        return None

    def prox(self, theta, stats, centre, weight):
        best = (self.b + weight * centre) / (1.0 + weight)
        return theta + 0.02 * (best - theta)

    def objectives(self, thetas, stats):
        return 0.5 * ((thetas - self.b) ** 2).sum(axis=-1) + 1e3


class Known(Lazy):
    def gradient(self, theta):
        return theta - self.b


def test_a_gradient_of_ones_own_decides_on_stationary():
    targets = np.random.default_rng(0).standard_normal((NODES, 2))
    ends = {}
    for kind in (Lazy, Known):
        problems = [kind(b) for b in targets]
        settings = {"max_iter": 20000, "tolerance": 1e-2, "init": "shared"}
        ends[kind] = found = solve(problems, GRAPH, scheme="fixed", **settings)
        off = np.abs(found.theta - targets.mean(axis=0)).max()
        assert (off < 0.05) == (kind is Known)
    assert ends[Lazy].status == "stopped"
    assert ends[Known].status == "stationary"


def test_convex_problems_and_other_rules_are_left_alone():
    blocks = shards(rows=40)
    settings = {"init": "shared", "coordinates": "raw", "max_iter": 500}
    found = solve(built(blocks), GRAPH, stopping="objective", **settings)
    assert found.converged
    assert found.iterations < 100
    assert found.status == "stopped"
    directed = {"scheme": "nap", "coupling": "own", "tolerance": 1e-2}
    found = solve(built(blocks), GRAPH, **directed, **settings)
    assert (found.reason, found.status) == ("converged", "stopped")


def test_the_rule_is_met_no_later_than_the_relative_errors():
    """So that a review is never late; `scales` are for norms by part of theta."""
    problem, best = model()
    layout, tolerance = problem.layout, 1e-3
    theta = layout.pack(W=best.W, mu=best.mu, a=best.a)
    parts = [np.linalg.norm(part) for part in layout.views(theta)]
    kind = RawKind({0: problem})
    kind.plan = Plan(Kind.RAW, "shared", judge=Judge.MODEL)
    scales = kind.scales_of(np.array([0]))
    lengths = np.array(parts)[:, None]
    limits = tolerance * np.array([scales(k, lengths)[:, 0] for k in range(2)])
    for k in range(20):
        vectors = np.zeros((2, layout.size))
        part = layout.views(vectors)[k % 3]
        part[...] = RNG.standard_normal(part.shape)
        errors = errors_of(problem, theta, vectors[1], vectors[:1])
        errors = errors[:, k % 3] / (TIMES * tolerance)
        lengths = np.linalg.norm(part.reshape(2, -1), axis=1)
        assert (lengths / limits[:, k % 3] <= 2.0 * errors).all()


def test_limits_follow_the_tolerance():
    blocks = shards(rows=40)
    settings = {"init": "shared", "coordinates": "raw", "max_iter": 3000}
    ends = [
        solve(built(blocks), GRAPH, tolerance=tolerance, **settings)
        for tolerance in (1e-2, 1e-4)
    ]
    assert ends[0].iterations < ends[1].iterations
    assert right(ends[1], blocks)[1] < 0.1 * right(ends[0], blocks)[1] < 0.1
