"""A merged start with missing entries: against pooled EM, in any units, resumed."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dadmm import ProblemError, Topology
from dadmm.data import datasets
from dadmm.data.patterns import remove_entries
from dadmm.data.shard import split_frames
from dadmm.problems import PPCA, IncompletePPCA, StructureFromMotion, metrics
from dadmm.solver.merged import WORSE, Rounds, Start
from tests.support.solving import solve

NODES = 6
RING = Topology.ring(NODES)


def pooled_em(samples, M, steps=3000):
    """Return W of the likelihood of all observed entries, by EM in one place.

    Missing entries are latent, so that the M-step is that of complete samples.
    """
    samples = samples[~np.isnan(samples).all(axis=1)]
    known = ~np.isnan(samples)
    n, D = samples.shape
    mu = np.nanmean(samples, axis=0)
    both_lost = ~known[:, :, None] & ~known[:, None, :]

    def fit(covariance):
        values, axes = np.linalg.eigh(covariance)
        noise = values[:-M].mean()
        return axes[:, -M:] * np.sqrt(values[-M:] - noise), noise

    filled = np.where(known, samples - mu, 0.0)
    W, noise = fit(filled.T @ filled / n)
    for _ in range(steps):
        seen = known[:, :, None] * W  # (n, D, M)
        inner = np.linalg.inv(seen.mT @ W + noise * np.eye(M))
        centred = np.where(known, samples - mu, 0.0)
        z = (inner @ (centred[:, None, :] @ W).mT)[:, :, 0]
        filled = np.where(known, samples, mu + z @ W.T)
        spread = noise * (np.eye(D) + W @ inner @ W.T)
        mu, before = filled.mean(axis=0), W @ W.T
        between = (filled - mu).T @ (filled - mu)
        W, noise = fit((between + np.where(both_lost, spread, 0.0).sum(axis=0)) / n)
        if np.linalg.norm(W @ W.T - before) < 1e-8 * np.linalg.norm(before):
            break
    return W


def samples_of(noise, units, seed=0, D=12):
    """Return 240 rows of three components, by column in these units."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((240, 3)) * [4.0, 2.0, 1.0]
    rows = rows @ rng.standard_normal((3, D)) + noise * rng.standard_normal((240, D))
    return units * (rows + 3.0 * rng.standard_normal(D))


def without(samples, fraction, way, seed=0):
    """Return samples without a fraction of entries: random, or columns by node."""
    if way == "random":
        return remove_entries(samples, fraction, seed)
    n, D = samples.shape
    found = samples.copy()
    for i, rows in enumerate(np.array_split(np.arange(n), NODES)):
        lost = (i * D // NODES + np.arange(round(fraction * D))) % D
        found[np.ix_(rows, lost)] = np.nan
    return found


def built(samples, M=3):
    return [PPCA(own, M) for own in np.array_split(samples, NODES)]


def errors(result, W):
    """Return the largest angle, and the largest error of W W', of any node."""
    found, want = result.layout.views(result.theta).W, W @ W.T
    off = np.linalg.norm(found @ found.mT - want, axis=(1, 2)).max()
    return metrics.subspace_angle(found, W).max(), off / np.linalg.norm(want)


UNITS = {"one unit": 1.0, "many units": 10.0 ** (np.arange(12) % 4 - 1)}


@pytest.mark.parametrize("fraction", [0.05, 0.4])
@pytest.mark.parametrize("way", ["random", "blocks"])
@pytest.mark.parametrize("noise", [1.0, 1e-3])
@pytest.mark.parametrize("units", UNITS)
def test_stationary_is_near_pooled_em(fraction, way, noise, units):
    """In many units some cases are hardly determined; these must not say so."""
    samples = without(samples_of(noise, UNITS[units]), fraction, way)
    result = solve(built(samples), RING)

    if units == "one unit":
        assert result.status == "stationary"
    if result.status == "stationary":
        best = pooled_em(samples, 3)
        angle, off = errors(result, best)
        began = result.layout.views(result.start.theta).W
        assert metrics.subspace_angle(began, best) < 5.0
        assert angle < 1.0
        assert off < 1e-2
        assert result.iterations < 100
    assert result.start.rounds > 0


def test_a_column_that_no_node_observes_has_no_part_in_the_result():
    samples = without(samples_of(0.5, 1.0), 0.1, "random")
    empty = np.insert(samples, 3, np.nan, axis=1)
    without_it, result = (solve(built(x), RING) for x in (samples, empty))

    assert result.status == "stationary"
    W, wanted = (r.layout.views(r.solution).W for r in (result, without_it))
    assert_allclose(W[3], 0.0, atol=1e-12)
    want = wanted @ wanted.T
    found = np.delete(W, 3, axis=0)
    assert_allclose(found @ found.T, want, atol=2e-3 * np.abs(want).max())


def cameras(tracks):
    return [StructureFromMotion(rows) for rows in split_frames(tracks, NODES)]


@pytest.mark.parametrize("fraction", [0.05, 0.3])
def test_lost_tracks_end_where_their_gradients_cancel(fraction):
    """One camera keeps all of its tracks."""
    tracks, _ = datasets.turntable(24, 8, noise=0.5)
    tracks[8:] = remove_entries(tracks[8:], fraction, 0, together=2)
    problems = cameras(tracks)
    result = solve(problems, RING, init="merged")

    assert result.status == "stationary"
    assert result.iterations < 40
    at = result.solution
    noise = 1.0 / np.sqrt(result.layout.views(at).a)
    by_node = [problem.gradient(at) for problem in problems]
    total, size = np.sum(by_node, axis=0), np.linalg.norm(by_node, axis=1).sum()
    assert np.linalg.norm(total) < 0.05 * size
    assert np.linalg.norm(total[:-1]) * noise < 1e-2 * len(tracks)
    start, end = (result.layout.views(x).a for x in (result.start.theta, at))
    assert_allclose(start, end, rtol=0.02)  # a row has a degree of freedom less


def test_gaps_that_rounds_fill_slowly_make_the_rule_stricter():
    samples = samples_of(1.0, 1.0)
    complete, few, many = (
        solve(built(without(samples, gaps, "random")), RING, max_iter=1)
        for gaps in (0.0, 0.05, 0.5)
    )
    assert complete.start.strictness > 0.99
    assert few.start.strictness < 0.95
    assert many.start.strictness < 0.5


@pytest.mark.parametrize(("broken", "node"), [("completed_sum", 0), ("completed", 3)])
def test_a_node_whose_completion_breaks_down_ends_set_up_at_all(
    broken, node, monkeypatch
):
    problems = built(without(samples_of(1.0, 1.0), 0.1, "random"))
    problems[node].marked = True
    usual = getattr(IncompletePPCA, broken)

    def fails(self, theta):
        if hasattr(self, "marked"):
            raise np.linalg.LinAlgError("Singular matrix")
        return usual(self, theta)

    monkeypatch.setattr(IncompletePPCA, broken, fails)
    with pytest.raises(ProblemError, match="noise"):
        solve(problems, RING)


def test_an_extrapolation_that_makes_steps_longer_is_taken_back():
    rng, step = np.random.default_rng(0), np.ones(8)
    start = Start(rng.normal(size=8), 1.5, rng.normal(size=(8, 2)), 0.5, 1.0, 0.0)
    rounds = Rounds(start)
    first = start._replace(mean=start.mean + step)
    second = start._replace(mean=start.mean + 1.9 * step)
    assert_allclose(rounds.decide(first)[0].mean, first.mean)
    far, _ = rounds.decide(second)
    assert np.linalg.norm(far.mean - second.mean) > 1.0

    after = far._replace(mean=far.mean + 2.0 * WORSE * step)
    back, _ = rounds.decide(after)

    assert_allclose(back.mean, second.mean)
