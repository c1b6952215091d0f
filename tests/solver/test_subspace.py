"""The bound on the angle of PPCA, against the angle in extended precision."""

import math

import numpy as np
import pytest

from dadmm import Topology
from dadmm.solver.subspace import bound_subspace
from tests.campaigns.properties.ppca import draw
from tests.support.shards import built, total_of
from tests.support.solving import solve
from tests.support.subspaces import largest_angle, principal_axes


def points(rng, axes, lengths, n_nodes):
    """Return W of each node, (n, D, M): turned from the axes, scaled and rotated."""
    D, M = axes.shape
    turned = axes + 10.0 ** rng.uniform(-12, 0) * rng.standard_normal((D, M))
    W = np.linalg.qr(turned)[0] * (lengths if rng.random() < 0.5 else 1.0)
    W = W @ np.linalg.qr(rng.standard_normal((M, M)))[0]
    size = np.abs(W).max() * 10.0 ** rng.uniform(-14, -1)
    return W + size * rng.standard_normal((n_nodes, D, M)) * (rng.random() < 0.7)


@pytest.mark.parametrize("first", [0, 12])
def test_the_bound_holds_at_any_point(first):
    rng = np.random.default_rng([17, first])
    ratios, near, bounded = [], 0, 0
    for case in map(draw, range(first, first + 12)):
        M, n = case.M, case.topology.n_nodes
        total, _ = total_of(case.topology)
        variances, axes = principal_axes(case.X, case.zero_mean)
        lengths = np.sqrt(variances)
        scale = np.maximum(lengths[:M], 1e-8 * lengths[0]).astype(float)
        for _ in range(5):
            W = points(rng, axes[:, :M].astype(float), scale, n)
            found = bound_subspace(total, case.problems(), W, W.mean(axis=0), n)
            true = max(largest_angle(own, axes[:, :M]) for own in W)
            assert true <= found.angle
            assert (found.why == "") == (found.angle <= 10.0)
            if true < 5.0 and lengths[M] < 0.9 * lengths[M - 1]:
                near += 1
                bounded += found.why == ""
            if true > 1e-6 and found.why == "":
                ratios.append(found.angle / true)
    assert np.median(ratios) < 3.0
    assert bounded > 0.7 * near > 0


EYE = np.tile(np.eye(6)[:, :2], (2, 1, 1))
SPREAD = np.array([9.0, 5.0, 1.0, 1.0, 1.0, 1.0])


@pytest.mark.parametrize(
    ("W", "scale", "why"),
    [
        (EYE * [[[1.0, 0.0]]], SPREAD, "agree"),
        (EYE * np.nan, SPREAD, "finite"),
        (EYE[:, ::-1], SPREAD, "variance outside"),
        (EYE, np.ones(6), "variance outside"),  # there is no gap
        (EYE + np.eye(6)[:, 3:5] * [[[0.0]], [[1.0]]], SPREAD, "agree"),
        (EYE, 1e-170 * SPREAD, "underflow"),
        (EYE, 1e160 * SPREAD, "overflow"),
    ],
)
def test_a_point_without_a_bound_says_why(W, scale, why):
    rows = np.random.default_rng(0).standard_normal((10, 6))
    blocks = np.array([np.vstack([rows, -rows]), np.vstack([rows[:, ::-1], -rows])])
    total, _ = total_of(Topology.chain(2))

    with np.errstate(invalid="ignore", over="ignore"):
        found = bound_subspace(total, built(blocks * scale), W, W.mean(axis=0), 2)

    assert found.angle == math.inf
    assert why in found.why


def test_a_converged_run_of_complete_rows_is_bounded_tightly():
    """But not a raw run, nor if it is not asked for: sums would be sent."""
    rng = np.random.default_rng(0)
    blocks = rng.standard_normal((8, 30, 40)) * 1.1 ** -np.arange(40) + 50.0
    graph, own = Topology.ring(8), built(blocks, 3)
    result = solve(own, graph)
    axes = principal_axes(np.vstack(list(blocks))).axes[:, :3]

    true = max(largest_angle(W, axes) for W in result.layout.views(result.theta).W)
    assert true <= result.subspace_bound.angle < 20 * true
    assert result.subspace_bound.apart < result.subspace_bound.angle < 1.0
    assert solve(own, graph, scheme="vp").subspace_bound.angle < 10.0
    blocks[1, 2, 3] = np.nan
    for problems, more in (
        (own, {"coordinates": "raw"}), (own, {"bound_angle": False}),
        (built(blocks, 3), {}),
    ):  # fmt: skip
        assert solve(problems, graph, max_iter=3, **more).subspace_bound is None
