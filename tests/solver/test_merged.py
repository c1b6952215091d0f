"""A start from merged axes: against pooled forms, in any units, resumed, over MPI."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dadmm import ProblemError, Topology
from dadmm.comm.world import World
from dadmm.graphs import topology
from dadmm.problems import PPCA, metrics
from dadmm.solver.merged import MergedKind, merged_axes
from tests.solver.test_coordinates import total_of
from tests.support.solving import solve

D, M, NODES = 6, 2, 5
GRAPH = Topology.ring(NODES)


def shards(seed=0, width=D, rows=12, decay=2.0):
    """Return rows of unlike nodes, with gaps between all variances."""
    rng = np.random.default_rng(seed)
    scale = decay ** -np.arange(width)
    shift = rng.standard_normal((NODES, 1, width))
    return 3.0 * scale * (rng.standard_normal((NODES, rows, width)) + 0.3 * shift) + 1.0


def built(blocks, **settings):
    return [PPCA(own, M, **settings) for own in blocks]


def right(result, blocks, zero_mean=False, M=M):
    """Return the largest angle, and error of W W', from the pooled solution."""
    best = metrics.ppca_reference(np.vstack(list(blocks)), M, zero_mean=zero_mean)
    W = result.layout.views(result.theta).W
    want = best.W @ best.W.T
    off = np.linalg.norm(W @ W.mT - want, axis=(1, 2)).max() / np.linalg.norm(want)
    return metrics.subspace_angle(W, best.W).max(), off


@pytest.mark.parametrize("name", ["ring", "star", "chain"])
def test_all_axes_are_those_of_all_rows(name):
    blocks = shards()
    total, tree = total_of(topology.build(name, NODES))

    axes = merged_axes(total, list(blocks), D)

    wanted = np.linalg.svd(np.vstack(list(blocks)))[2].T
    assert_allclose(np.abs(axes.T @ wanted), np.eye(D), atol=1e-12)
    assert tree.sent[:, 1].sum() == 2 * (NODES - 1) * (24 + 8 * D * D)


@pytest.mark.parametrize("zero_mean", [False, True])
def test_a_start_with_all_axes_is_the_pooled_solution(zero_mean):
    """Then all gradients cancel, and the duals are minus those of the nodes."""
    blocks = shards()
    problems = dict(enumerate(built(blocks, zero_mean=zero_mean)))
    best = metrics.ppca_reference(np.vstack(list(blocks)), M, zero_mean=zero_mean)

    kind = MergedKind(problems)
    kind.prepare(GRAPH, World(), None)
    duals = kind.duals

    (theta,) = {tuple(start) for start in kind.starts.values()}
    W, mu, a = problems[0].layout.views(kind.theta_of(np.array([theta]))[0])
    assert_allclose(W @ W.T, best.W @ best.W.T, atol=1e-12)
    assert_allclose(mu, best.mu, atol=1e-12)
    assert_allclose(a, best.a, rtol=1e-12)
    for i, own in duals.items():
        gradient = kind.within[i].gradient(np.array(theta))
        assert_allclose(own, -gradient, atol=1e-9)
    point = kind.theta_of(np.array([theta]))[0]
    for i, problem in problems.items():
        mine = kind.gradients_of(duals[i][None], np.array([theta]))[0]
        assert_allclose(mine, -problem.gradient(point), atol=1e-9)


def test_impossible_starts_are_refused():
    """Rows are equal; or a direction is short, and two columns are equal."""
    with pytest.raises(ProblemError, match="rows"):
        solve(built(np.full((NODES, 3, D), 3.0)), GRAPH)
    rng = np.random.default_rng(0)
    blocks = rng.standard_normal((NODES, 2, 4)) * [1.0, 0.7, 0.5, 1e-7]
    with_copy = np.concatenate([blocks, blocks[..., :1]], axis=2)
    with_gaps = rng.standard_normal((NODES, 12, 4)) * [3.0, 2.0, 1.0, 0.0]
    with_gaps[rng.random(with_gaps.shape) < 0.25] = np.nan
    for rows, n_components in ((with_copy, 4), (with_gaps, 3)):
        with pytest.raises(ProblemError, match="noise"):
            solve([PPCA(own, n_components) for own in rows], GRAPH)


def test_equal_components_are_told_by_a_small_gap():
    """The tolerance is stricter then, and the result is right or not converged."""
    white = np.random.default_rng(3).standard_normal((NODES, 60, D))
    result = solve(built(white), GRAPH)

    assert result.start.gap < 0.1
    assert result.start.strictness < 0.1
    assert not result.converged or max(right(result, white)) < 1e-2
    line = white[..., :1] * np.arange(1.0, D + 1.0)  # of fewer dimensions than M
    kind = MergedKind(dict(enumerate(built(line))))
    kind.choose(total_of(GRAPH)[0], NODES)
    assert kind.record.gap == 0.0


def test_a_stop_is_taken_back_if_the_rule_is_no_longer_met():
    """Something disturbs a node after all have agreed to stop."""
    blocks, done = shards(width=20), []

    def disturb(t, run):
        if run.stopping._fields["stop_at"][0] == t + 1 and not done:
            done.append(t)
            run.state.multipliers *= 1.5
            run.edges.derive()

    result = solve(built(blocks), Topology.chain(NODES), callbacks=[disturb])

    assert done
    assert result.converged
    assert result.iterations > done[0] + 1
    assert max(right(result, blocks)) < 1e-2


def test_with_zero_mean_no_sums_of_rows_are_sent():
    total, given = total_of(GRAPH)[0], []

    def spied(rows, *others):
        given.append(rows)
        return total(rows, *others)

    MergedKind(dict(enumerate(built(shards(), zero_mean=True)))).choose(spied, NODES)

    assert not np.any([own[:D] for own in given[0]])
