"""Networks with missing entries: as good as centralised EM, and what a run leaves."""

from __future__ import annotations

import json
from functools import lru_cache

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import dadmm
from dadmm.data.encoding import Rows
from dadmm.data.patterns import remove_entries
from dadmm.data.shard import check, split, split_frames
from dadmm.problems import (
    PPCA,
    LostTracks,
    StructureFromMotion,
    metrics,
)
from dadmm.run import main
from tests.support.runs import refused
from tests.support.solving import solve

NODES = 20


@lru_cache
def gappy(missing):
    """Return samples, the same with missing entries, and what one EM finds of them."""
    samples, _ = dadmm.datasets.synthetic(200, 8, 2)
    if missing == "blocks":  # each node is blind to three columns in turn
        lost = np.zeros(samples.shape, dtype=bool)
        for i, rows in enumerate(split(np.arange(200.0)[:, None], NODES)):
            lost[rows.astype(int), [i % 8, (i + 1) % 8, (i + 2) % 8]] = True
        holed = np.where(lost, np.nan, samples)
    else:
        holed = remove_entries(samples, missing, seed=1)
    return samples, holed, centralised(holed)


def centralised(samples):
    """Return what EM finds of all samples in one place."""
    pooled = PPCA(samples, 2)
    theta = pooled.init(np.random.default_rng([0, 0]))
    for _ in range(600):
        theta = pooled.prox(theta, pooled.expect(theta), theta, 0.0)
    return theta


def error(samples, holed, theta):
    """Return the root mean square error of what is filled in."""
    filled, _ = PPCA(holed, 2).impute(theta, holed)
    return np.sqrt(np.mean((filled - samples)[np.isnan(holed)] ** 2))


@pytest.mark.parametrize(("graph", "tolerance"), [("ring", 3e-4), ("complete", 1e-4)])
@pytest.mark.parametrize(
    "missing",
    [
        pytest.param(0.05, marks=pytest.mark.slow),
        pytest.param(0.1, marks=pytest.mark.slow),
        0.3,
        "blocks",
    ],
)
def test_the_network_is_as_good_as_em_on_pooled_data(missing, graph, tolerance):
    """The likelihood of the observed entries to 1e-6, and what is filled in to 1 %."""
    samples, holed, central = gappy(missing)
    problems = [PPCA(rows, 2) for rows in split(holed, NODES)]
    topology = getattr(dadmm.Topology, graph)(NODES)

    result = solve(problems, topology, tolerance=tolerance, max_iter=3000, record=False)

    views = result.layout.views
    best = metrics.ppca_log_likelihood(holed, *views(central))
    assert result.converged
    for theta in (result.theta[0], result.theta[-1]):
        reached = metrics.ppca_log_likelihood(holed, *views(theta))
        assert reached == pytest.approx(best, rel=1e-6)
        assert error(samples, holed, theta) < 1.01 * error(samples, holed, central)
    assert metrics.subspace_angle(views(theta).W, views(central).W) < 0.2


@pytest.mark.parametrize("lost", ["points", "block"])
def test_cameras_that_lose_tracks_agree_on_the_cube(lost):
    tracks, points = dadmm.datasets.turntable(20, 60)
    holed = remove_entries(tracks, 0.1, seed=0, together=2)
    if lost == "block":
        holed = tracks.copy()
        holed[8:16, 10:30] = np.nan
    cameras = [StructureFromMotion(rows) for rows in split_frames(holed, 5)]

    result = solve(cameras, dadmm.Topology.ring(5), max_iter=2000, record=False)

    count = sum(isinstance(camera, LostTracks) for camera in cameras)
    assert count == (1 if lost == "block" else 5)
    assert result.converged
    for i, rows in enumerate(split_frames(tracks, 5)):
        W = result.parts(i).W
        assert metrics.subspace_angle(W - W.mean(axis=0), points - points.mean(0)) < 0.5
        if isinstance(cameras[i], LostTracks):
            own = split_frames(holed, 5)[i]
            filled, variances = cameras[i].impute(result.theta[i], own)
            off = (filled - rows)[np.isnan(own)]
            assert np.sqrt(np.mean(off**2)) < 1.0  # pixels; the tracks' noise is 0.5
            assert 0.2 < np.mean(off**2 / variances[np.isnan(own)]) < 3.0


# The main job


@pytest.fixture(autouse=True)
def somewhere(tmp_path, monkeypatch):
    """Work in a folder of one's own."""
    monkeypatch.chdir(tmp_path)


SMALL = ("--nodes", "4", "--n-samples", "60", "--dimension", "6", "--n-components", "2")


def test_a_run_fills_in_what_is_missing(tmp_path):
    assert main([*SMALL, "--missing-fraction", "0.2", "--out", "run"]) == 0

    found = json.loads((tmp_path / "run" / "summary.json").read_text())["metrics"]
    assert "angle_to_truth_degrees" in found
    assert "angle_to_centralised_degrees" not in found
    samples, _ = dadmm.datasets.synthetic(60, 6, 2)
    holed = remove_entries(samples, 0.2, seed=0)
    with np.load("run/result.npz") as arrays:
        parts = [arrays[name] for name in ("W", "mu", "a")]
    mean = [part.mean(axis=0) for part in parts]
    expected = metrics.ppca_log_likelihood(holed, *mean)
    assert found["log_likelihood"] == pytest.approx(expected, rel=1e-12)
    assert found["missing"] == np.isnan(holed).mean()
    for i, rows in enumerate(split(holed, 4)):
        own = PPCA(rows, 2)
        theta = own.layout.pack(W=parts[0][i], mu=parts[1][i], a=parts[2][i])
        with np.load(f"run/imputed-{i:05d}.npz") as arrays:
            filled, variances = own.impute(theta, rows)
            assert_array_equal(arrays["samples"], filled)
            assert_array_equal(arrays["variances"], variances)
            assert arrays["latent"].shape == (15, 2)


@pytest.mark.parametrize(
    ("spoil", "culprit"), [(np.s_[:, 3], "column 3"), (np.s_[15:30], "node 1")]
)
def test_what_nobody_knows_is_refused(spoil, culprit, capsys):
    samples, _ = dadmm.datasets.synthetic(60, 6, 2)
    samples[spoil] = np.nan
    np.save("x.npy", samples)

    assert culprit in refused(capsys, *SMALL, "--data", "x.npy")


def test_infinite_values_are_refused_with_or_without_gaps():
    samples = np.ones((4, 3))
    samples[1, 2] = np.nan
    check(Rows(samples), 0, gaps=True)
    with pytest.raises(dadmm.ShardError, match="row 1, column 2"):
        check(Rows(samples), 0)
    samples[2, 0] = np.inf
    with pytest.raises(dadmm.ShardError, match="row 2, column 0"):
        check(Rows(samples), 0, gaps=True)
