"""Samples: what is drawn, what is read, and what is said about bad files."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import io

from dadmm.core.errors import ShardError
from dadmm.data.datasets import load_array, load_matrix, synthetic
from dadmm.problems import PPCA
from dadmm.problems.metrics import subspace_angle

MATRIX = np.arange(12.0).reshape(4, 3) / 7


def test_samples_have_the_covariance_of_the_model():
    """It is W W' + noise_variance I, and the mean is zero."""
    samples, W = synthetic(200_000, dimension=4, n_components=2, noise_variance=0.5)
    expected = W @ W.T + 0.5 * np.eye(4)

    assert_allclose(samples.mean(axis=0), 0, atol=0.03)
    assert_allclose(np.cov(samples.T), expected, atol=0.02 * np.abs(expected).max())


def test_samples_without_noise_lie_in_the_subspace():
    samples, W = synthetic(noise_variance=0.0)

    assert np.linalg.matrix_rank(samples) == 5
    assert np.linalg.matrix_rank(np.vstack([samples, W.T])) == 5


def test_samples_follow_their_seed():
    assert_array_equal(synthetic(seed=3)[0], synthetic(seed=3)[0])
    assert (synthetic(seed=3)[0] != synthetic(seed=4)[0]).all()


@pytest.fixture
def saved(tmp_path):
    """Return a function that saves MATRIX in a format and returns the path."""

    def save(suffix):
        path = tmp_path / f"data{suffix}"
        match suffix:
            case ".npy":
                np.save(path, MATRIX)
            case ".npz":
                np.savez(path, X=MATRIX)
            case ".csv":
                np.savetxt(path, MATRIX, delimiter=",", fmt="%.17g")
            case ".txt":
                np.savetxt(path, MATRIX, fmt="%.17g")
            case ".mat":
                io.savemat(
                    path, {"X": MATRIX, "name": "a word", "cube": np.ones(3 * (2,))}
                )
        return path

    return save


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".txt", ".mat"])
def test_every_format_gives_the_same_matrix(saved, suffix):
    for path in (saved(suffix), str(saved(suffix))):
        matrix = load_matrix(path)
        assert matrix.dtype == np.float64
        assert_array_equal(matrix, MATRIX)


def test_npy_is_mapped_and_read_only(saved):
    assert isinstance(load_array(saved(".npy")), np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        load_matrix(saved(".npy"))[0, 0] = 1


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.float32, ">f8"])
def test_numbers_of_any_type_and_shape_can_be_loaded(tmp_path, dtype):
    np.save(tmp_path / "x.npy", np.eye(3).astype(dtype))
    np.save(tmp_path / "labels.npy", np.arange(5))

    assert load_array(tmp_path / "x.npy").dtype == dtype
    assert load_matrix(tmp_path / "x.npy").dtype == np.float64
    assert_array_equal(load_matrix(tmp_path / "x.npy"), np.eye(3))
    assert_array_equal(load_array(tmp_path / "labels.npy"), np.arange(5))


@pytest.mark.parametrize("suffix", [".npz", ".mat"])
def test_one_of_several_arrays_is_chosen_by_its_name(tmp_path, suffix):
    path, arrays = tmp_path / f"x{suffix}", {"A": MATRIX, "B": 2 * MATRIX}
    np.savez(path, **arrays) if suffix == ".npz" else io.savemat(path, arrays)

    assert_array_equal(load_matrix(path, "B"), 2 * MATRIX)
    assert_array_equal(load_matrix(f"{path}::A"), MATRIX)
    with pytest.raises(ShardError, match=r"holds A.*, B.*; choose one as x\..*::name"):
        load_matrix(path)
    with pytest.raises(ShardError, match=r"has no matrix 'C'; it holds A.*, B"):
        load_matrix(path, "C")


def test_matrices_of_matlab_files_are_named(tmp_path):
    cells = np.array([["a", 1.0]], dtype=object)
    io.savemat(tmp_path / "x.mat", {"X": MATRIX, "n": 4, "c": cells, "t": "word"})
    io.savemat(tmp_path / "text.mat", {"t": "word"})

    with pytest.raises(ShardError, match="holds X of shape 4 x 3, n of shape 1 x 1;"):
        load_matrix(tmp_path / "x.mat")
    with pytest.raises(ShardError, match="has no matrix 'c'"):
        load_matrix(tmp_path / "x.mat", "c")
    with pytest.raises(ShardError, match=r"text\.mat holds no matrix"):
        load_matrix(tmp_path / "text.mat")
    head = b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM"  # that is HDF5
    (tmp_path / "x.mat").write_bytes(head.ljust(512, b"\x00"))
    with pytest.raises(ShardError, match=r"x\.mat is a MATLAB 7\.3 .*save it with -v7"):
        load_matrix(tmp_path / "x.mat")


@pytest.mark.parametrize("suffix", [".npy", ".csv", ".txt"])
def test_a_name_is_refused_where_there_are_none(saved, suffix):
    with pytest.raises(ShardError, match="without a name; leave out ::X"):
        load_matrix(f"{saved(suffix)}::X")


@pytest.mark.parametrize(
    ("array", "sentence"),
    [
        (np.zeros(5), r"array of shape \(5,\); samples are a matrix"),
        (np.zeros((2, 3, 4)), r"array of shape \(2, 3, 4\)"),
        (np.zeros((0, 3)), r"is empty, of shape \(0, 3\)"),
        (np.zeros((2, 2), dtype=complex), "values of type complex128; save numbers"),
        (np.array([["a"]]), "values of type <U1; save numbers"),
        (np.array([[{}]]), "is not a valid .* file of numbers: .*[Oo]bject"),
    ],
)
def test_bad_arrays_get_one_sentence(tmp_path, array, sentence):
    np.save(tmp_path / "bad.npy", array)
    np.savez(tmp_path / "bad.npz", x=array)

    for suffix in ("npy", "npz"):
        with pytest.raises(ShardError, match=rf"bad\.{suffix} .*{sentence}"):
            load_matrix(tmp_path / f"bad.{suffix}")


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".mat"])
def test_files_cut_short_get_one_sentence(saved, suffix):
    path = saved(suffix)
    path.write_bytes(path.read_bytes()[:200])

    with pytest.raises(ShardError, match="is not a valid"):
        load_matrix(path)


@pytest.mark.parametrize("shape", [(10**12, 4), (-3, 4), (2**62, 2**62)])
def test_an_array_that_promises_more_than_there_is_gets_one_sentence(tmp_path, shape):
    with (tmp_path / "x.npy").open("wb") as file:
        head = {"descr": "<f8", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, head)
        file.write(b"x" * 100)

    with pytest.raises(ShardError, match=r"x\.npy"):
        load_matrix(tmp_path / "x.npy")


def test_starts_and_samples_of_one_seed_are_unrelated():
    """A shared start drawn from the samples' stream would be the true subspace."""
    samples, W = synthetic(seed=4)
    start = PPCA(samples, 5).init(np.random.default_rng([4, 0]))

    assert subspace_angle(start[:100].reshape(20, 5), W) > 45
