"""Structure from motion: the local problem, lost tracks, and the metric upgrade."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import null_space
from scipy.spatial import procrustes
from scipy.stats import multivariate_normal

from dadmm import run
from dadmm.__main__ import main_of
from dadmm.data import datasets
from dadmm.data.patterns import remove_entries
from dadmm.problems import PPCA, LostTracks, StructureFromMotion, sfm
from tests.support.problems import differences
from tests.support.runs import refused


def rng(seed=0):
    return np.random.default_rng(seed)


def tracks(lost=0.2, n_frames=8, n_points=12):
    rows = datasets.turntable(n_frames, n_points, seed=0)[0]
    return remove_entries(rows, lost, 0, together=2)


def test_the_metric_upgrade_finds_cube_and_cameras():
    rows, points = datasets.turntable(12, 30, noise=0.0)
    centred = rows - rows.mean(axis=1, keepdims=True)
    u, singular, vt = np.linalg.svd(centred, full_matrices=False)
    mix = rng().standard_normal((3, 3))

    found = sfm.upgrade(u[:, :3] * singular[:3] @ mix, vt[:3].T @ np.linalg.inv(mix).T)

    assert found.metric
    assert_allclose(found.motion @ found.structure.T, centred, atol=1e-8)
    assert procrustes(points, found.structure)[2] < 1e-15
    for x, y in zip(found.motion[0::2], found.motion[1::2], strict=True):
        assert_allclose([x @ x, y @ y, x @ y], [1, 1, 0], atol=1e-8)
    few = sfm.upgrade(np.eye(2, 3), np.ones((9, 3)))  # views: an affine frame stays
    assert not few.metric
    assert_array_equal(few.motion, np.eye(2, 3))


def test_cameras_start_from_where_points_are_seen_first_and_last():
    """The authors start with W = [x + 0.1, y + 0.1, 1]; 1/a is in [1/2, 1]."""
    rows = tracks(0.0)
    frame = StructureFromMotion(rows, start="frame")
    parts = frame.layout.views(frame.init(rng()))
    assert_allclose(parts.W, np.vstack([frame.rows[:2] + 0.1, np.ones(12)]).T)
    assert 1.0 <= parts.a <= 2.0
    assert_array_equal(parts.mu, 0.0)
    rows[:4, 3] = rows[-2:, 5] = rows[:, 7] = np.nan
    problem, one = StructureFromMotion(rows), StructureFromMotion(rows[:2])
    centred = rows - np.nanmean(rows, axis=1, keepdims=True)
    wanted = np.column_stack([centred[0] + 0.1, centred[1] + 0.1, centred[-2]])
    wanted[3, :2], wanted[5, 2] = centred[4:6, 3] + 0.1, centred[-4, 5]
    wanted[7] = 0.1, 0.1, 0.0
    assert_allclose(problem.layout.views(problem.init(rng())).W, wanted)
    assert_array_equal(one.layout.views(one.init(rng())).W[:, 2], 1)
    drawn = StructureFromMotion(rows, start="random").init(rng())
    assert_array_equal(drawn, PPCA.init(problem, rng()))


def test_a_rows_translation_does_not_matter_and_an_empty_frame_has_no_place():
    rows = tracks()
    rows[4:6] = np.nan
    shift = 100.0 * np.arange(len(rows))[:, None]
    problems = LostTracks(rows), LostTracks(rows + shift)
    theta = problems[0].init(rng())

    steps = [p.prox(theta, p.expect(theta), theta, 1.0) for p in problems]
    here, variances = problems[0].impute(theta, rows)
    there, _ = problems[0].impute(theta, rows + shift)

    assert_allclose(steps[0], steps[1], rtol=1e-8)
    seen = np.delete(np.arange(len(rows)), [4, 5])
    wanted = np.broadcast_to(shift, rows.shape)[seen]
    assert_allclose((there - here)[seen], wanted, atol=1e-6)
    assert np.isnan(here[4:6]).all()
    assert np.isinf(variances[4:6]).all()
    assert not problems[0].motion(theta)[4:6].any()


def test_the_gradient_with_free_offsets_is_that_of_differences():
    rows = tracks(n_frames=5, n_points=8) / 100
    problem = StructureFromMotion(rows)
    theta = problem.init(rng())

    def value(at):
        (W, _, a), total = problem.layout.views(at), 0.0
        for x in rows:
            seen = ~np.isnan(x)
            basis = null_space(np.ones((1, seen.sum())))  # orthogonal to an offset
            C = basis.T @ (W[seen] @ W[seen].T) @ basis + np.eye(basis.shape[1]) / a
            total -= multivariate_normal.logpdf(basis.T @ x[seen], cov=C)
        return total

    wanted = differences(value, theta)
    assert_allclose(problem.gradient(theta), wanted, rtol=1e-5, atol=1e-4)
    prior = 0.5 * np.log((~np.isnan(rows)).sum(axis=1)).sum()  # flat, of translations
    assert_allclose(problem.neg_log_likelihood(theta), value(theta) + prior)


def test_the_command_line_writes_structure_and_motion(tmp_path, capsys):
    words = ["--problem", "sfm", "--out", "cube", "--quiet"]

    assert run.main([*words, "--max-iter", "50"]) == 0

    with np.load("cube/result.npz") as arrays:
        assert arrays["structure"].shape == (100, 3)
        assert arrays["motion"].shape == (60, 3)
        assert arrays["W"].shape == (5, 100, 3)
        assert arrays["metric"]
    np.savez("few.npz", measurement_matrix=np.ones((8, 6)))
    few = [*words[:2], "--data", "few.npz"]
    assert "5 nodes" in refused(capsys, *few, "--nodes", 5)
    assert "--n-components" in refused(capsys, *few, "--n-components", 4)
    pytest.importorskip("matplotlib", reason="drawing needs the extra 'plot'")
    assert main_of("plot")(["cube", "--kind", "structure"]) == 0
    assert (tmp_path / "cube" / "structure.png").stat().st_size > 10_000
