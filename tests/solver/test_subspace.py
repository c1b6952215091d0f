"""The bound on the angle of PPCA: never below the true angle, and seldom far above.

The true angle is computed from all rows in extended precision.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from dadmm import Topology
from dadmm.graphs import topology
from dadmm.problems import PPCA
from dadmm.solver.subspace import bound_subspace
from tests.solver.test_coordinates import total_of
from tests.support.solving import solve
from tests.support.subspaces import largest_angle, principal_axes


def table(rng):
    """Return rows by node, M and words: units, shifts, gaps and nodes of all kinds."""
    D, n_nodes = int(rng.integers(2, 19)), int(rng.integers(1, 8))
    M = int(rng.integers(1, min(D, 6)))
    spread = {
        0: lambda: np.ones(D),  # no gap
        1: lambda: 10.0 ** -rng.uniform(0, 3, D),
        2: lambda: np.where(np.arange(D) < M, 1.0, 10.0 ** -rng.uniform(3, 9)),
        3: lambda: 1.3 ** -np.arange(D),
        4: lambda: 10.0 ** rng.uniform(-6, 6, D),
        5: lambda: np.where(np.arange(D) < M, 1.0 + rng.uniform(1e-3, 1), 1.0),
    }
    kind = int(rng.integers(len(spread)))
    least = int(rng.integers(1, 30))
    counts = rng.integers(least, least + 10, n_nodes)
    rows = rng.standard_normal((counts.sum(), D)) * spread[kind]()
    if rng.random() < 0.6:
        rows = rows @ np.linalg.qr(rng.standard_normal((D, D)))[0]
    if rng.random() < 0.3:
        rows = rows[np.argsort(rows[:, 0])]
    if rng.random() < 0.3:
        rows = rows + np.abs(rows).max() * 10.0 ** rng.uniform(0, 6, D)
    if rng.random() < 0.5:
        rows = rows * 10.0 ** rng.uniform(-6, 6)
    return np.split(rows, counts.cumsum()[:-1]), M, kind


def points(rng, axes, lengths, n_nodes):
    """Return W of each node, (n, D, M): turned from the axes, scaled and rotated."""
    D, M = axes.shape
    turned = axes + 10.0 ** rng.uniform(-12, 0) * rng.standard_normal((D, M))
    W = np.linalg.qr(turned)[0] * (lengths if rng.random() < 0.5 else 1.0)
    W = W @ np.linalg.qr(rng.standard_normal((M, M)))[0]
    size = np.abs(W).max() * 10.0 ** rng.uniform(-14, -1)
    return W + size * rng.standard_normal((n_nodes, D, M)) * (rng.random() < 0.7)


@pytest.mark.parametrize("seed", range(4))
def test_the_bound_holds_at_any_point(seed):
    rng = np.random.default_rng([17, seed])
    ratios, near, bounded = [], 0, 0
    for _ in range(20):
        blocks, M, _ = table(rng)
        graph = topology.build(["ring", "star", "chain"][seed % 3], len(blocks))
        problems = [PPCA(own, M) for own in blocks]
        variances, axes = principal_axes(np.vstack(blocks))
        lengths = np.sqrt(variances)
        scale = np.maximum(lengths[:M], 1e-8 * lengths[0]).astype(float)
        for _ in range(5):
            W = points(rng, axes[:, :M].astype(float), scale, len(blocks))
            found = bound_subspace(
                total_of(graph)[0], problems, W, W.mean(axis=0), len(blocks)
            )
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
        own = [PPCA(block * scale, 2) for block in blocks]
        found = bound_subspace(total, own, W, W.mean(axis=0), 2)

    assert found.angle == math.inf
    assert why in found.why


def test_a_converged_run_is_bounded_tightly():
    rng = np.random.default_rng(0)
    blocks = rng.standard_normal((8, 30, 40)) * 1.1 ** -np.arange(40) + 50.0
    result = solve([PPCA(own, 3) for own in blocks], Topology.ring(8))
    axes = principal_axes(np.vstack(list(blocks))).axes[:, :3]

    W = result.layout.views(result.theta).W
    true = max(largest_angle(own, axes) for own in W)
    assert true <= result.subspace_bound.angle < 20 * true
    assert result.subspace_bound.angle < 1.0
    assert result.subspace_bound.apart < result.subspace_bound.angle


def test_only_ppca_without_gaps_has_a_bound_and_not_without_sums():
    blocks = np.random.default_rng(0).standard_normal((3, 9, 4)) * [5, 1, 1, 1]
    graph = Topology.ring(3)
    problems = [PPCA(own, 1) for own in blocks]

    assert solve(problems, graph, coordinates="raw").subspace_bound is None
    assert solve(problems, graph, bound_angle=False).subspace_bound is None
    assert solve(problems, graph, scheme="vp").subspace_bound.angle < 10.0
    blocks[1, 2, 3] = np.nan
    holed = [PPCA(own, 1) for own in blocks]
    assert solve(holed, graph, max_iter=3).subspace_bound is None
