"""A start from merged axes, also with missing entries, against pooled forms."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dadmm import ProblemError, Topology
from dadmm.comm.world import World
from dadmm.data import datasets
from dadmm.data.patterns import remove_entries
from dadmm.data.shard import split_frames
from dadmm.problems import IncompletePPCA, StructureFromMotion, metrics
from dadmm.solver.merged import MergedKind
from tests.support import shards as support
from tests.support.shards import GRAPH, NODES, D, M, built, errors, right, shards
from tests.support.solving import solve

SIX = 6
RING, ALONE = Topology.ring(SIX), Topology.from_edges(1, [])


@pytest.mark.parametrize("zero_mean", [False, True])
def test_a_start_with_all_axes_is_the_pooled_solution(zero_mean):
    """Gradients cancel, and duals are minus these; of zero_mean no sums are sent."""
    blocks, given, total = shards(), [], support.total_of(GRAPH)[0]
    problems = dict(enumerate(built(blocks, zero_mean=zero_mean)))
    best = metrics.ppca_reference(np.vstack(list(blocks)), M, zero_mean=zero_mean)
    kind = MergedKind(problems)
    kind.prepare(GRAPH, World())
    (theta,) = map(np.array, {tuple(start) for start in kind.starts.values()})
    point = kind.theta_of(theta[None])[0]
    W, mu, a = problems[0].layout.views(point)
    assert_allclose(W @ W.T, best.W @ best.W.T, atol=1e-12)
    assert_allclose(mu, best.mu, atol=1e-12)
    assert_allclose(a, best.a, rtol=1e-12)
    for i, own in kind.duals.items():
        assert_allclose(own, -kind.within[i].gradient(theta), atol=1e-9)
        mine = kind.gradients_of(own[None], theta[None])[0]
        assert_allclose(mine, -problems[i].gradient(point), atol=1e-9)
    spied = lambda rows, *more: given.append(rows) or total(rows, *more)  # noqa: E731
    MergedKind(problems).choose(spied, NODES)
    assert np.any([own[:D] for own in given[0]]) == (not zero_mean)


def test_impossible_starts_are_refused():
    """Rows are equal; or a direction is short, and two columns are equal."""
    rng = np.random.default_rng(0)
    blocks = rng.standard_normal((NODES, 2, 4)) * [1.0, 0.7, 0.5, 1e-7]
    with_copy = np.concatenate([blocks, blocks[..., :1]], axis=2)
    with_gaps = rng.standard_normal((NODES, 12, 4)) * [3.0, 2.0, 1.0, 0.0]
    with_gaps[rng.random(with_gaps.shape) < 0.25] = np.nan
    equal = np.full((NODES, 3, D), 3.0)
    for rows, m, culprit, init in (
        (equal, 2, "rows", None), (equal, 2, "rows", "shared"),
        (with_copy, 4, "noise", None), (with_gaps, 3, "noise", None),
    ):  # fmt: skip
        with pytest.raises(ProblemError, match=culprit):
            solve(built(rows, m), GRAPH, init=init)


def test_equal_components_are_told_by_a_small_gap():
    """The tolerance is stricter then, and the result is right or not converged."""
    white = np.random.default_rng(3).standard_normal((NODES, 60, D))
    result = solve(built(white), GRAPH)
    assert result.start.gap < 0.1
    assert result.start.strictness < 0.1
    assert not result.converged or max(right(result, white)) < 1e-2
    line = white[..., :1] * np.arange(1.0, D + 1.0)  # of fewer dimensions than M
    kind = MergedKind(dict(enumerate(built(line))))
    kind.choose(support.total_of(GRAPH)[0], NODES)
    assert kind.record.gap == 0.0


def test_a_stop_is_taken_back_if_the_rule_is_no_longer_met():
    """Something disturbs a node after all have agreed to stop."""
    blocks, done = shards(width=20), []

    def disturb(t, run):
        if run.stopping._fields["stop_at"][0] == t + 1 and not done:
            done.append(t)
            run.state.multipliers *= 1.5
            run.edges.sum_multipliers()

    result = solve(built(blocks), Topology.chain(NODES), callbacks=[disturb])
    assert result.converged
    assert result.iterations > done[0] + 1
    assert max(right(result, blocks)) < 1e-2


def samples_of(fraction, way="random", noise=1.0, units=1.0, D=12):
    """Return 240 rows of three components, without some entries or columns by node."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((240, 3)) * [4.0, 2.0, 1.0]
    rows = rows @ rng.standard_normal((3, D)) + noise * rng.standard_normal((240, D))
    rows = units * (rows + 3.0 * rng.standard_normal(D))
    if way == "random":
        return remove_entries(rows, fraction, 0)
    for i, own in enumerate(np.split(rows, SIX)):
        own[:, (i * D // SIX + np.arange(round(fraction * D))) % D] = np.nan
    return rows


def solved(samples, **settings):
    return solve(built(np.split(samples, SIX), 3), RING, **settings)


@pytest.mark.parametrize(
    ("fraction", "way", "noise", "exponents"),
    [(0.05, "random", 1e-3, 0), (0.4, "random", 1.0, 0), (0.4, "blocks", 1.0, 0),
     (0.05, "blocks", 1e-3, 4), (0.4, "random", 1.0, 4), (0.4, "blocks", 1e-3, 4)],
)  # fmt: skip
def test_stationary_is_near_pooled_em(fraction, way, noise, exponents):
    """EM by a node alone; some cases are hardly determined, and must not say so."""
    units = 10.0 ** (np.arange(12) % exponents - 1) if exponents else 1.0
    samples = samples_of(fraction, way, noise, units)
    result = solved(samples)
    assert result.status == "stationary" or exponents
    assert result.start.rounds > 0
    if result.status == "stationary":
        alone = solve(built([samples], 3), ALONE, tolerance=1e-9, max_iter=800)
        best = alone.layout.views(alone.solution).W
        began = result.layout.views(result.start.theta).W
        assert metrics.subspace_angle(began, best) < 5.0
        angle, off = errors(result, best)
        assert angle < 1.0
        assert off < 1e-2
        assert result.iterations < 100


def test_a_column_that_no_node_observes_has_no_part_in_the_result():
    samples = samples_of(0.1, noise=0.5)
    result, other = solved(np.insert(samples, 3, np.nan, axis=1)), solved(samples)
    assert result.status == "stationary"
    W, wanted = (r.layout.views(r.solution).W for r in (result, other))
    assert_allclose(W[3], 0.0, atol=1e-12)
    found, want = np.delete(W, 3, axis=0), wanted @ wanted.T
    assert_allclose(found @ found.T, want, atol=2e-3 * np.abs(want).max())


@pytest.mark.parametrize("fraction", [0.05, 0.3])
def test_lost_tracks_end_where_their_gradients_cancel(fraction):
    """One camera keeps all of its tracks."""
    tracks, _ = datasets.turntable(24, 8, noise=0.5)
    tracks[8:] = remove_entries(tracks[8:], fraction, 0, together=2)
    problems = [StructureFromMotion(rows) for rows in split_frames(tracks, SIX)]
    result = solve(problems, RING, init="merged")
    assert result.status == "stationary"
    assert result.iterations < 40
    start, end = (result.layout.views(x).a for x in (result.start[0], result.solution))
    by_node = [problem.gradient(result.solution) for problem in problems]
    total, size = np.sum(by_node, axis=0), np.linalg.norm(by_node, axis=1).sum()
    assert np.linalg.norm(total) < 0.05 * size
    assert np.linalg.norm(total[:-1]) / np.sqrt(end) < 1e-2 * len(tracks)
    assert_allclose(start, end, rtol=0.02)  # a row has a degree of freedom less


def test_gaps_that_rounds_fill_slowly_make_the_rule_stricter():
    for gaps, least, most in ((0.0, 0.99, 1.01), (0.05, 0.5, 0.95), (0.5, 0.0, 0.5)):
        assert least < solved(samples_of(gaps), max_iter=1).start.strictness < most


@pytest.mark.parametrize(("broken", "node"), [("completed_sum", 0), ("completed", 3)])
def test_a_node_whose_completion_breaks_down_ends_set_up_at_all(
    broken, node, monkeypatch
):
    problems = built(np.split(samples_of(0.1), SIX), 3)
    problems[node].marked, usual = True, getattr(IncompletePPCA, broken)

    def fails(self, theta):
        if hasattr(self, "marked"):
            raise np.linalg.LinAlgError("Singular matrix")
        return usual(self, theta)

    monkeypatch.setattr(IncompletePPCA, broken, fails)
    with pytest.raises(ProblemError, match="noise"):
        solve(problems, RING)
