"""Structure from motion: the local problem, the files, and the metric upgrade."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dadmm import run
from dadmm.data import datasets, shard
from dadmm.problems import PPCA, StructureFromMotion, sfm
from tests.support.runs import refused


def procrustes(found: np.ndarray, truth: np.ndarray) -> float:
    """Return the relative misfit after the best similarity and reflection."""
    found, truth = found - found.mean(axis=0), truth - truth.mean(axis=0)
    u, scales, vt = np.linalg.svd(found.T @ truth)
    scale = scales.sum() / (found**2).sum()
    return np.linalg.norm(scale * found @ u @ vt - truth) / np.linalg.norm(truth)


def test_the_metric_upgrade_finds_cube_and_cameras():
    """From any affine frame: the shape up to a similarity, the cameras orthonormal."""
    tracks, points = datasets.turntable(12, 30, noise=0.0)
    centred = tracks - tracks.mean(axis=1, keepdims=True)
    u, singular, vt = np.linalg.svd(centred, full_matrices=False)
    mix = np.random.default_rng(0).standard_normal((3, 3))

    found = sfm.upgrade(u[:, :3] * singular[:3] @ mix, vt[:3].T @ np.linalg.inv(mix).T)

    assert found.metric
    assert_allclose(found.motion @ found.structure.T, centred, atol=1e-8)
    assert procrustes(found.structure, points) < 1e-8
    for x, y in zip(found.motion[0::2], found.motion[1::2], strict=True):
        assert_allclose([x @ x, y @ y, x @ y], [1, 1, 0], atol=1e-8)


def test_too_few_views_leave_the_affine_frame():
    affine = np.eye(2, 3)

    found = sfm.upgrade(affine, np.ones((9, 3)))

    assert not found.metric
    assert_array_equal(found.motion, affine)


def test_the_problem_is_ppca_of_centred_rows_with_zero_mean():
    tracks, _ = datasets.turntable(4, 10)
    problem = StructureFromMotion(tracks, start="random")
    plain = PPCA(tracks - tracks.mean(axis=1, keepdims=True), 3, zero_mean=True)
    theta = plain.init(np.random.default_rng(1))

    assert problem.layout == plain.layout
    assert_array_equal(problem.init(np.random.default_rng(1)), theta)
    stats = plain.expect(theta)
    assert_array_equal(
        problem.prox(theta, problem.expect(theta), theta, 2.0),
        plain.prox(theta, stats, theta, 2.0),
    )


def test_the_authors_start_is_the_first_frame():
    """W = [x + 0.1, y + 0.1, 1], and 1/a is drawn from [1/2, 1]."""
    tracks, _ = datasets.turntable(4, 10)
    problem = StructureFromMotion(tracks, start="frame")

    parts = problem.layout.views(problem.init(np.random.default_rng(0)))

    x, y = problem.rows[:2]
    assert_allclose(parts.W, np.column_stack([x + 0.1, y + 0.1, np.ones(10)]))
    assert 1.0 <= parts.a <= 2.0
    assert_array_equal(parts.mu, 0.0)


def test_the_command_line_writes_structure_and_motion(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    code = run.main(
        ["--problem", "sfm", "--out", "cube", "--quiet", "--max-iter", "50"]
    )

    with np.load("cube/result.npz") as arrays:
        assert arrays["structure"].shape == (100, 3)
        assert arrays["motion"].shape == (60, 3)
        assert arrays["W"].shape == (5, 100, 3)
        assert arrays["metric"]
    assert code == 0
    plot = pytest.importorskip("dadmm.plot", reason="drawing needs the extra 'plot'")
    pytest.importorskip("matplotlib", reason="drawing needs the extra 'plot'")
    run.main(["--out", "plain", "--quiet", "--max-iter", "5"])
    assert plot.main(["cube", "--kind", "structure"]) == 0
    assert (tmp_path / "cube" / "structure.png").stat().st_size > 10_000
    for folders in (["plain"], ["cube", "plain"]):
        assert plot.main([*folders, "--kind", "structure"]) == 2


def test_frames_are_split_whole_and_evenly():
    tracks = np.arange(22.0 * 4).reshape(22, 4)

    blocks = shard.split_frames(tracks, 4)

    assert [len(block) // 2 for block in blocks] == [3, 3, 3, 2]
    assert_array_equal(np.vstack(blocks), tracks)


MATRIX = "measurement_matrix"


@pytest.mark.parametrize(
    ("name", "tracks", "more", "culprit"),
    [
        ("other", np.ones((4, 5)), [], MATRIX),
        (MATRIX, np.ones((5, 6)), [], "(5, 6)"),
        (MATRIX, np.ones((4, 3)), [], "(4, 3)"),
        (MATRIX, np.where(np.eye(4, 6), np.inf, 1.0), [], "finite"),
        (MATRIX, np.ones((8, 6)), ["--nodes", "5"], "5 nodes"),
        (MATRIX, np.ones((8, 6)), ["--n-components", "4"], "--n-components"),
    ],
)
def test_bad_tracks_are_refused(name, tracks, more, culprit, tmp_path, capsys):
    file = tmp_path / "tracks.npz"
    np.savez(file, **{name: tracks})

    assert culprit in refused(capsys, "--problem", "sfm", "--data", file, *more)
