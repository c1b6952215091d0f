"""Promises of the pages that no other test shows, each in small."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

import dadmm
from dadmm import Stopping, Topology, problems

RING = Topology.ring(4)


def rows(n: int = 80, d: int = 3, seed: int = 0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, X @ np.arange(1.0, d + 1) + rng.normal(size=n)


def ridges(alpha: float, n: int = 80) -> list[problems.Ridge]:
    X, y = rows()
    return [problems.Ridge(X[i:n:4], y[i:n:4], alpha / 4) for i in range(4)]


@pytest.mark.parametrize(("alpha", "n"), [(1.1, 80), (1.0, 76)])
def test_a_warm_start_reaches_the_new_optimum_in_fewer_iterations(alpha, n):
    """After another penalty, or with more rows at every node."""
    before, now = ridges(1.0, n), ridges(alpha)
    cold = dadmm.solve(now, RING)
    warm = dadmm.solve(now, RING, warm_start=dadmm.solve(before, RING))

    assert warm.status == cold.status == "certified"
    assert warm.iterations < cold.iterations
    bounds = cold.certificate.coefficients + warm.certificate.coefficients
    assert (np.abs(warm.solution - cold.solution) <= bounds).all()


def test_no_gap_below_rounding_is_claimed():
    result = dadmm.solve(ridges(1.0), RING, stopping=Stopping(tolerance=1e-12))

    assert result.certificate.gap >= 1e-8 * result.objective


def test_a_run_that_is_stopped_before_its_iterations_are_done_can_be_resumed(tmp_path):
    """With tolerance 0 it is asked for iterations, not for a result."""
    stopping = Stopping(tolerance=0, max_iter=200)

    def stop(t: int, run: object) -> str | None:
        return "stop" if t == 100 else None

    saved = dadmm.Checkpoints(tmp_path)
    first = dadmm.solve(
        ridges(1.0), RING, stopping=stopping, callbacks=[stop], checkpoints=saved
    )
    resumed = dadmm.Checkpoints(tmp_path, resume=True)
    last = dadmm.solve(ridges(1.0), RING, stopping=stopping, checkpoints=resumed)

    assert (first.status, last.status) == ("not converged", "max_iter")
    assert last.iterations == 200


def test_labels_may_be_minus_one_and_one():
    X, y = rows()
    ends = [(y > 0).astype(float), np.where(y > 0, 1.0, -1.0)]
    found = [
        dadmm.solve(
            [problems.LogisticRegression(X[i::4], own[i::4], 0.1) for i in range(4)],
            RING,
        ).solution
        for own in ends
    ]

    assert found[0].tobytes() == found[1].tobytes()


@pytest.mark.parametrize("kind", ["ball", "semidefinite"])
def test_cvxpy_takes_constraints_of_cones(kind):
    """The node's parameters satisfy them, and are those of one place."""
    cp = pytest.importorskip("cvxpy", reason="cvxpy is not installed")
    rng = np.random.default_rng(1)
    points = [rng.normal(size=(2, 2)) + 2.0 * np.eye(2) for _ in range(4)]

    def task(own: list[np.ndarray], variable):
        loss = sum(cp.sum_squares(variable - point) for point in own)
        one = cp.norm(variable, "fro") <= 1.0
        return cp.Problem(cp.Minimize(loss), [one if kind == "ball" else variable >> 0])

    def matrix():
        return cp.Variable((2, 2), name="S", symmetric=kind == "semidefinite")

    nodes = []
    for point in points:
        S = matrix()
        nodes.append(problems.Cvxpy(task([point], S), [S]))
    result = dadmm.solve(nodes, RING, stopping=Stopping(tolerance=1e-6, max_iter=500))
    S = matrix()
    task(points, S).solve(solver=cp.CLARABEL)

    for i in range(4):
        assert_allclose(result.parts(i).S, S.value, atol=2e-3)
