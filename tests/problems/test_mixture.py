"""Gaussian mixtures: the bound, its proximal steps, and clustering over a network."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from dadmm import Topology
from dadmm.core.errors import ProblemError
from dadmm.data import datasets, shard
from dadmm.problems import GaussianMixture
from dadmm.run import main
from dadmm.testing import check_problem
from tests.support.solving import solve

ROWS, MEANS = datasets.clusters(120, 2, 3, seed=2)
START = MEANS + np.array([[0.4, -0.3], [-0.2, 0.5], [0.3, 0.2]])


def random_theta(problem, seed=0):
    """Return weights that do not sum to one, and precisions that are not round."""
    rng = np.random.default_rng(seed)
    K, D = problem.n_components, problem.dimension
    root = rng.normal(size=(K, D, D))
    return problem.layout.pack(
        means=rng.normal(size=(K, D)),
        precisions=root @ root.mT + 0.1 * np.eye(D),
        weights=rng.uniform(0.1, 0.9, size=K),
    )


def log_joint(theta, problem, X):
    """Return log pi_k N(x; mu_k, P_k^-1), by scipy, (n, K)."""
    means, precisions, weights = problem.layout.views(theta)
    parts = [
        multivariate_normal(m, np.linalg.inv(P)).logpdf(X)
        for m, P in zip(means, precisions, strict=True)
    ]
    return np.column_stack(parts) + np.log(weights)


def objective(theta, problem, X):
    """Return f itself, by scipy."""
    _, precisions, weights = problem.layout.views(theta)
    floor = 0.5 * problem.alpha * np.trace(precisions, axis1=1, axis2=2).sum()
    likelihood = logsumexp(log_joint(theta, problem, X), axis=1).sum()
    return -likelihood + len(X) * (weights.sum() - 1.0) + floor


def em(problem, rounds=2000):
    """Return where the steps of a node alone end."""
    theta = problem.init(np.random.default_rng(0))
    for _ in range(rounds):
        new = problem.prox(theta, problem.expect(theta), theta, 0.0)
        if np.abs(new - theta).max() < 1e-12:
            break
        theta = new
    return theta


@pytest.mark.parametrize("size", [(40, 2, 3), (30, 3, 1), (10, 1, 2), (5, 3, 4)])
def test_it_keeps_the_contract(size):
    n, D, K = size
    X = np.random.default_rng([0, n]).normal(size=(n, D))

    check_problem(GaussianMixture(X, K, scale=0.3))


def test_the_bound_touches_the_objective():
    """Where the E-step was made, and nowhere is it below."""
    problem = GaussianMixture(ROWS, 3, alpha=0.2)
    theta = random_theta(problem)
    others = np.array([random_theta(problem, seed) for seed in range(1, 6)])

    stats = problem.expect(theta)

    (here,) = problem.objectives(theta[None], stats)
    assert_allclose(here, objective(theta, problem, ROWS), rtol=1e-12)
    below = [objective(other, problem, ROWS) for other in others]
    assert (problem.objectives(others, stats) >= below).all()


def test_outside_its_domain_the_objective_is_infinite():
    problem = GaussianMixture(ROWS, 3)
    thetas = np.array([random_theta(problem)] * 3)
    stats = problem.expect(thetas[0])
    problem.layout.views(thetas[1]).weights[2] *= -1.0
    problem.layout.views(thetas[2]).precisions[0] = np.diag([1.0, -1e-3])

    assert_array_equal(
        np.isfinite(problem.objectives(thetas, stats)), [True, False, False]
    )


def test_a_step_without_weight_is_the_m_step_of_em():
    problem = GaussianMixture(ROWS, 3, alpha=0.2)
    theta = random_theta(problem)
    shares = np.exp(log_joint(theta, problem, ROWS))
    shares /= shares.sum(axis=1, keepdims=True)

    new = problem.prox(theta, problem.expect(theta), 7.0 * theta, 0.0)

    means, precisions, weights = problem.layout.views(new)
    counts = shares.sum(axis=0)
    assert_allclose(weights, counts / len(ROWS), rtol=1e-12)
    assert_allclose(means, shares.T @ ROWS / counts[:, None], rtol=1e-12)
    for k in range(3):
        off = ROWS - means[k]
        scatter = (shares[:, k, None] * off).T @ off + 0.2 * np.eye(2)
        assert_allclose(precisions[k], np.linalg.inv(scatter / counts[k]), rtol=1e-10)
    assert_allclose(
        problem.responsibilities(theta, ROWS), shares, rtol=1e-10, atol=1e-14
    )


def test_a_cluster_of_equal_rows_has_the_variance_of_the_floor():
    """alpha / n_k: the likelihood alone would be without bound."""
    X = np.vstack([np.tile([3.0, 3.0], (10, 1)), ROWS[:20] - 9.0])
    problem = GaussianMixture(X, 2, alpha=0.01, means=[[3.0, 3.0], [-9.0, -9.0]])

    found = problem.layout.views(em(problem))

    assert_allclose(np.linalg.inv(found.precisions[0]), 1e-3 * np.eye(2), rtol=1e-9)
    assert_allclose(found.means[0], [3.0, 3.0], rtol=1e-12)


def test_a_component_without_rows_stays_finite():
    problem = GaussianMixture(ROWS, 2, means=[[0.0, 0.0], [1e4, 1e4]])
    theta = problem.init(np.random.default_rng(0))
    for _ in range(5):
        stats = problem.expect(theta)
        theta = problem.prox(theta, stats, theta, 0.0)
        assert np.isfinite(problem.objectives(theta[None], stats)).all()

    found = problem.layout.views(theta)
    assert np.isfinite(theta).all()
    assert_array_equal(found.means[1], [1e4, 1e4])
    assert found.weights[1] < 1e-90


WRONG = {
    "needs X of shape (n, d) with n, d >= 1, got (120,)": ((ROWS[:, 0], 3), {}),
    "needs X of numbers": (([["a"]], 3), {}),
    "needs finite X, but row 1, column 0 is nan": (
        (np.where(np.arange(8).reshape(4, 2) == 2, np.nan, 1.0), 3), {},
    ),
    "n_components must be at least 1, got 0": ((ROWS, 0), {}),
    "alpha must be a number, not negative and finite, got -1": (
        (ROWS, 3), {"alpha": -1},
    ),
    "scale must be a number, positive and finite, got 0": ((ROWS, 3), {"scale": 0}),
    "means must be 3 rows of 2 numbers, one row per component, got shape (2, 2)": (
        (ROWS, 3), {"means": START[:2]},
    ),
    "GaussianMixture needs means of numbers": ((ROWS, 3), {"means": "there"}),
}  # fmt: skip


@pytest.mark.parametrize("sentence", WRONG)
def test_bad_input_gets_one_sentence(sentence):
    arguments, settings = WRONG[sentence]
    with pytest.raises(ProblemError) as caught:
        GaussianMixture(*arguments, **settings)

    assert sentence in str(caught.value)


def blocks(sort):
    """Return the rows of 5 nodes: mixed, or so that most have one cluster only."""
    nearest = ((ROWS[:, None] - MEANS) ** 2).sum(axis=2).argmin(axis=1)
    order = np.argsort(nearest, kind="stable") if sort else np.arange(len(ROWS))
    return shard.split(ROWS[order], 5)


@pytest.mark.parametrize("graph", ["ring", "cluster"])
@pytest.mark.parametrize("sort", [False, True])
def test_the_network_finds_what_em_finds_on_all_rows(graph, sort):
    """Also where a node has no row of some cluster, which it alone could not find."""
    pooled = GaussianMixture(ROWS, 3, alpha=0.05, means=START, scale=0.5)
    best = em(pooled)
    nodes = [
        GaussianMixture(rows, 3, alpha=0.01, means=START, scale=0.5)
        for rows in blocks(sort)
    ]

    result = solve(
        nodes, getattr(Topology, graph)(5), tolerance=1e-7, max_iter=3000, record=False
    )

    assert result.converged
    for theta in result.theta:
        assert_allclose(theta, best, rtol=1e-3, atol=1e-4)
        assert objective(theta, pooled, ROWS) - objective(best, pooled, ROWS) < 1e-6
    assert objective(em(nodes[0]), pooled, ROWS) - objective(best, pooled, ROWS) > 1.0


def test_a_run_needs_no_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = json.dumps({"means": START.tolist(), "scale": 0.5})
    words = ["--problem", "mixture", "--n-samples", 120, "--dimension", 2, "--nodes", 3]
    words += ["--data-seed", 2, "--max-iter", 25, "--problem-settings", given]
    assert main([*map(str, words), "--out", "run", "--quiet"]) == 0

    nodes = [
        GaussianMixture(rows, 3, alpha=1e-3 / 3, means=START, scale=0.5)
        for rows in shard.split(ROWS, 3)
    ]
    result = solve(nodes, Topology.complete(3), max_iter=25)
    with np.load("run/result.npz") as arrays:
        for name, part in result.layout.views(result.theta)._asdict().items():
            assert_array_equal(arrays[name], part)
    assert "n_components = 3\n" in Path("run/config.toml").read_text()
