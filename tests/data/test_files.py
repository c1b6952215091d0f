"""Data files: each format gives the same table, bad ones are refused; shards."""

import struct
import sys
import zlib
from datetime import datetime
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal, assert_equal
from scipy import io, sparse

from dadmm.core.errors import ShardError
from dadmm.data import agreement, shard
from dadmm.data.datasets import load_array, load_tracks, synthetic
from dadmm.data.encoding import Rows
from dadmm.data.files import READERS, extent, read_frame
from dadmm.data.frame import Frame
from dadmm.problems import PPCA
from dadmm.problems.metrics import subspace_angle

NAN, ALL = np.nan, list(HealthCheck)
MATRIX = np.arange(12.0).reshape(4, 3) / 7


def write_parquet(name: str, columns: dict) -> str:
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.table(columns), name, row_group_size=2)
    return name


def save(name: str, matrix: np.ndarray, **more: np.ndarray) -> str:
    """Save a matrix in the format of the name; further arrays in an archive."""
    match Path(name).suffix:
        case ".npy":
            np.save(name, matrix)
        case ".npz":
            np.savez(name, X=matrix, **more)
        case ".mat":
            io.savemat(name, {"X": matrix, "word": "a word", **more})
        case ".parquet":
            write_parquet(name, {f"x{k}": column for k, column in enumerate(matrix.T)})
        case suffix:
            mark = "," if suffix == ".csv" else " "
            np.savetxt(name, matrix, delimiter=mark, fmt="%.17g")
    return name


def write(content: str | bytes, name: str = "x.csv") -> str:
    Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return name


def refuses(path: str, *culprits: str, read=read_frame, **how) -> None:
    """Check that a file is refused in one line, which names it and the culprits."""
    with pytest.raises(ShardError) as caught:
        read(path, **how)
    for word in (path.partition("::")[0], *culprits):
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def lists(frame: Frame) -> list:
    return [column.tolist() for column in frame.columns.values()]


# the contract of a reader

SHAPES, ENDS = st.tuples(st.integers(1, 6), st.integers(1, 4)), st.integers(0, 6)
FLOATS = st.floats(allow_infinity=False) | st.just(NAN)


@pytest.mark.parametrize("suffix", READERS)
@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=ALL)
@given(matrix=arrays(float, SHAPES, elements=FLOATS), ends=st.tuples(ENDS, ENDS))
def test_every_format_gives_the_same_numbers(suffix, matrix, ends):
    path = save(f"x{suffix}", matrix)
    rows, frame, size = slice(min(ends), max(ends)), read_frame(path), extent(path)

    assert_array_equal(load_array(path), matrix)
    assert load_array(path).dtype == np.float64
    assert frame.names == tuple(f"x{k}" for k in range(matrix.shape[1]))
    assert_equal(lists(frame), matrix.T.tolist())
    assert size is None or (size.n_rows, size.width) == matrix.shape
    if len(matrix[rows]):
        assert_equal(lists(read_frame(path, rows=rows)), matrix[rows].T.tolist())


@pytest.mark.parametrize("suffix", READERS)
def test_every_reader_refuses_what_it_cannot_read(suffix):
    """It is absent, a folder, no such file, empty or cut; or the array has no name."""
    whole = Path(save(f"y{suffix}", MATRIX)).read_bytes()
    Path(f"folder{suffix}").mkdir()
    contents = [b"\x93\xff", b"", whole[: min(200, len(whole) - 40)]]
    for path in (f"none{suffix}", f"folder{suffix}", "x.doc"):
        refuses(path)
    for content in contents[: 2 if suffix in (".csv", ".txt") else 3]:
        refuses(write(content, f"x{suffix}"))
    if not READERS[suffix].archive:
        refuses(f"y{suffix}::X", "::X")


@pytest.fixture(params=["with pyarrow", "without pyarrow"])
def with_or_without_pyarrow(request, monkeypatch):
    if request.param == "without pyarrow":
        monkeypatch.setitem(sys.modules, "pyarrow", None)


# arrays


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.float32, ">f8"])
def test_numbers_of_any_type_and_shape_can_be_loaded(dtype):
    for array in (np.eye(3).astype(dtype), np.eye(3)[0].astype(dtype)):
        found = load_array(save("x.npy", array))
        assert found.dtype == dtype
        assert isinstance(found, np.memmap)
        assert_array_equal(found, array)


def promise(*shape):
    """Write the head of an array that is not there."""
    with open("x.npy", "wb") as file:
        head = {"descr": "<f8", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, head)
        file.write(b"x" * 100)
    return "x.npy"


def matlab(chosen="", **arrays):
    io.savemat("x.mat", arrays)
    return f"x.mat{chosen}"


def of_kind_240(packed=False):
    """Write a MATLAB file whose numbers are of no known type: scipy would crash."""
    content, name = Path(matlab(X=MATRIX)).read_bytes(), b"\1\0\1\0X\0\0\0"
    place = content.index(name) + len(name)
    assert content[place] == 9
    body = content[128:place] + b"\xf0" + content[place + 1 :]
    if packed:
        small = zlib.compress(body)
        body = struct.pack("=II", 15, len(small)) + small
    return write(content[:128] + body, "x.mat") + "::X"


def named(*names, dtype=str):
    return save("x.npz", MATRIX[:, :2], feature_names=np.array(names, dtype))


HDF5 = (b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM").ljust(512, b"\x00")
BAD = [
    (partial(save, f"x{suffix}", array), culprit)
    for suffix in (".npy", ".npz")
    for array, culprit in [
        (np.zeros(5), "(5,)"),
        (np.zeros((2, 3, 4)), "(2, 3, 4)"),
        (np.zeros((0, 3)), "(0, 3)"),
        (np.zeros((2, 2), dtype=complex), "complex128"),
        (np.array([["a"]]), "<U1"),
        (np.array([[{}]]), ""),  # never unpickled
    ]
]
BAD += [
    (partial(promise, 10**12, 4), ""),
    (partial(promise, -3, 4), ""),
    (partial(promise, 2**62, 2**62), ""),
    (partial(matlab, X=MATRIX, n=4, c=np.array([["a", 1.0]], object)), "X, n"),
    (partial(matlab, "::c", c=np.array([["a", 1.0]], object)), "'c'"),
    (partial(matlab, "::X", X=MATRIX + 1j), "complex"),
    (of_kind_240, "240"),
    (partial(of_kind_240, packed=True), "240"),
    (partial(write, HDF5, "x.mat"), "-v7"),
    (partial(named, "a"), "1 names"),
    (partial(named, "a", "b", dtype=object), "feature_names"),
    (partial(named, 1, 2, dtype=int), "feature_names"),
    (partial(named, ["a"]), "feature_names"),
]


@pytest.mark.parametrize(("make", "culprit"), BAD)
def test_bad_arrays_are_refused(make, culprit):
    refuses(make(), culprit)


def test_arrays_of_an_archive_are_columns_beside_X():
    X = np.arange(6.0).reshape(3, 2)
    np.savez("x.npz", X=X, y=["a", "b", "a"], w=[1, 2, 3], s=[1, 2])
    np.savez("y.npz", X=X, y=[1, 2, 3], feature_names=["y", "z"])
    frame = read_frame("x.npz", beside=["y", "w"])

    assert frame.names == ("x0", "x1", "y", "w")
    assert lists(frame)[2:] == [["a", "b", "a"], [1, 2, 3]]
    assert read_frame("y.npz::X").names == ("y", "z")
    refuses("x.npz", "s", "(2,)", beside=["s"])
    refuses("y.npz", "'y'", beside=["y"])
    dense = np.array([[0.0, 2.0], [0.0, 0.0], [3.0, 0.0]])
    sparse.save_npz("x.npz", sparse.csc_array(dense))  # stays sparse
    frame = read_frame("x.npz")
    assert (frame.names, frame.n_rows) == (("x0", "x1"), 3)
    assert_array_equal(frame.sparse.toarray(), dense)
    assert_array_equal(frame.take(slice(1, 3)).column("x0"), [0, 3])
    assert_array_equal(read_frame("x.npz", rows=slice(2, 3)).column("x0"), [3])


def test_tracks_are_pairs_of_rows_of_four_points():
    np.savez("x.npz", measurement_matrix=MATRIX.reshape(2, 6), other=MATRIX)
    assert load_tracks("x.npz").shape == (2, 6)
    refuses(save("x.npz", MATRIX), "measurement_matrix", read=load_tracks)
    for tracks, culprit in (
        (np.ones((3, 9)), "(3, 9)"),
        (np.ones((4, 3)), "(4, 3)"),
        (np.full((4, 4), np.inf), "finite"),
    ):
        refuses(save("x.npy", tracks), culprit, read=load_tracks)


# text

GROESSE = "größe|y\n1,5|ä\n-2|ö\n".encode("latin-1")
LATIN = {"separator": "|", "decimal": ",", "encoding": "latin-1"}


@pytest.mark.parametrize(
    ("text", "how", "names", "columns"),
    [
        ('"size, m2",rooms\n1,2\n3,4\n', {}, ["size, m2", "rooms"], [[1, 3], [2, 4]]),
        ('\ufeff"a;b";"say ""c"""\n1;2\n', {}, ["a;b", 'say "c"'], [[1], [2]]),
        ("a b\tc\n1\t2\n", {}, ["a b", "c"], [[1], [2]]),
        ("a , b\r\n 1 , 2 \r\n", {}, ["a", "b"], [[1], [2]]),
        ('"a\nb",c\n1,2\n', {}, ["a\nb", "c"], [[1], [2]]),
        ('"1","2"\n3,"4"\n', {}, None, [[1, 3], [2, 4]]),
        ("\n\n1,2\n\n3,4\n  \n", {}, None, [[1, 3], [2, 4]]),
        ("# by hand\na,b\n1,2\n# half\n3,4\n", {}, ["a", "b"], [[1, 3], [2, 4]]),
        ("# made by hand\n# a,b\n1,2\n", {}, ["a", "b"], [[1], [2]]),
        ("# made in 2020\n1,2\n", {}, None, [[1], [2]]),
        ("a,b\n1,\n,2\nnan, \n", {}, ["a", "b"], [[1, NAN, NAN], [NAN, 2, NAN]]),
        (",2\n1e-3,-inf\n", {}, None, [[NAN, 1e-3], [2, -np.inf]]),
        ("a\n1\n+2\n", {}, ["a"], [[1, 2]]),
        ("2020_21,2021_22\n1,2\n", {}, ["2020_21", "2021_22"], [[1], [2]]),
        ('id,sex,note\n1, F ,"a\nb"\n2,NA,"say ""c"""\n3,M,1.5\n', {},
         ["id", "sex", "note"],
         [[1, 2, 3], ["F", None, "M"], ["a\nb", 'say "c"', "1.5"]]),
        ("a,b\ntrue,2020-01-02\n", {}, ["a", "b"], [["true"], ["2020-01-02"]]),
        (GROESSE, LATIN, ["größe", "y"], [[1.5, -2], ["ä", "ö"]]),
        ("a;b\n1.234,5;1\n", {"decimal": ","}, ["a", "b"], [["1.234,5"], [1]]),
        ("a,b\n1.5,2\n", {"decimal": ","}, ["a", "b"], [[1.5], [2]]),  # of one site
    ],
)  # fmt: skip
@pytest.mark.usefixtures("with_or_without_pyarrow")
def test_text_is_read_as_numbers_and_columns_with_a_word_as_text(
    text, how, names, columns
):
    frame = read_frame(write(text), **how)

    assert frame.named == (names is not None)
    assert frame.names == tuple(names or (f"x{k}" for k in range(len(columns))))
    assert_equal(lists(frame), columns)
    assert lists(read_frame(write("a b\n1 F\n2 nan\n", "x.txt")))[1] == ["F", None]


@pytest.mark.parametrize(
    ("text", "how", "culprit"),
    [
        ("a,b\n1,2\n\n,\n1,2,3\n", {}, "line 5"),
        ("a,b, a\n", {}, "'a'"),
        (",b\n1,2\n", {}, "column 0"),
        ("größe\n1\n".encode("latin-1"), {}, "UTF-8"),
        ("a\nö\n".encode("latin-1"), {}, "--encoding"),
        ("a\nö\n", {"encoding": "ascii"}, "ASCII"),
        ('a,"b,y\n', {}, ".csv"),
        ("a,b\n1,2\n", {"decimal": ",", "separator": ","}, "--decimal"),
        ("1,2\n3,4\n", {"decimal": ","}, "--decimal"),
        ("a,b\n", {}, "(0, 2)"),
        ("a,b\n# nothing\n", {}, "(0, 2)"),
        (",".join(["0.5"] * 200_000), {}, "200,000"),  # before it is parsed
    ],
)
@pytest.mark.usefixtures("with_or_without_pyarrow")
def test_text_that_is_no_table_is_refused(text, how, culprit):
    refuses(write(text), culprit, **how)


def test_a_parquet_file_has_numbers_texts_and_columns_that_cannot_be_used(monkeypatch):
    """These may be in the file, so that others can be chosen."""
    import pyarrow

    when = [datetime(2020, 1, day) for day in (1, 2, 3)]
    code = pyarrow.array([b"a", b"b", b"a"]).dictionary_encode()
    good = {
        "age": (pyarrow.array([1, None, 3], pyarrow.int32()), [1, NAN, 3]),
        "sex": (pyarrow.array(["F", None, ""]).dictionary_encode(), ["F", None, None]),
        "old": ([True, False, None], ["True", "False", None]),
        "large": ([2**60 + 1, 3, 4], [float(2**60), 3, 4]),
    }
    odd = {"lists": [[1.0], [], None], "raw": [b"a", b"b", None], "when": when}
    odd["day"] = [one.date() for one in when]
    columns = {name: column for name, (column, _) in good.items()}
    found = read_frame(write_parquet("x.parquet", columns | odd | {"code": code}))

    assert_equal(lists(found)[:4], [wanted for _, wanted in good.values()])
    refuses("x.parquet", "'sex'", read=load_array)
    plain = {name: np.array(column, object) for name, column in odd.items()}
    for frame in (found.take(slice(1, 3)), Frame.of({"age": [1, 2, 3], **plain})):
        for name in {*frame.names} - {*good}:
            used = agreement.Choice(features=("age", name), supervised=False)
            assert repr(name) in str(agreement.describe(frame, used)["error"])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    refuses("x.parquet", "pip install pyarrow")


# shards

ROWS = np.arange(30.0).reshape(10, 3)


def test_labels_say_whose_a_sample_is():
    """Without them, nodes have the blocks of `numpy.array_split`."""
    labels = np.random.default_rng(0).permutation(np.arange(10) % 4)
    for i, own in enumerate(shard.split(ROWS, 4, labels)):
        assert_array_equal(own, ROWS[labels == i])
    for n_nodes in range(1, 11):
        parts = np.array_split(np.arange(10), n_nodes)
        own = [shard.bounds(10, n_nodes, i) for i in range(n_nodes)]
        assert own == [(part[0], part[-1] + 1) for part in parts]
        assert_array_equal(np.vstack(shard.split(ROWS, n_nodes)), ROWS)
    frames = shard.split_frames(np.vstack([ROWS, ROWS, ROWS[:2]]), 4)
    assert [len(block) for block in frames] == [6, 6, 6, 4]  # two rows of each frame
    assert_array_equal(np.vstack(frames)[:10], ROWS)


def test_bad_labels_are_refused():
    for labels, culprit in (
        ([0, 1, 3], "sample 2 is 3"), ([0, -1, 2], "sample 1 is -1"),
        ([0.0, 1.5, 2.0], "sample 1 is 1.5"), ([0.0, NAN, 2.0], "sample 1 is nan"),
        ([0, 2, 2], "node 1"), ([0, 1], r"\(2,\)"), ([[0], [1], [2]], r"\(3, 1\)"),
    ):  # fmt: skip
        for samples in (ROWS[:3], Frame.of(ROWS[:3])):
            with pytest.raises(ShardError, match=culprit):
                shard.split(samples, 3, labels)
    with pytest.raises(ShardError, match=r"3 nodes .* 2"):
        shard.split(ROWS[:2], 3)


def test_each_node_can_have_its_own_file():
    for i in range(3):
        np.save(f"part-{i}.npy", ROWS[: i + 1])
    tables = shard.open_tables("part-{rank}.npy", 3, [0, 2])

    assert {i: own.n_rows for i, (own,) in tables.items()} == {0: 1, 2: 3}
    with pytest.raises(ShardError, match=r"node 3: .*part-3\.npy"):
        shard.open_tables("part-{rank}.npy", 4, [3])


X = np.ones((3, 2))


@pytest.mark.parametrize(
    ("rows", "gaps", "culprit"),
    [
        (Rows(np.diag([1.0, NAN])), False, "row 1, column 1 is nan"),
        (Rows(np.diag([1e80, 1.0])), False, "row 0, column 0 is 1e"),
        (Rows(X, np.array([1.0, 2.0, np.inf])), False, "row 2, the target is inf"),
        (Rows(X, np.array([1.0, 1e80, 2.0])), False, "row 1, the target is 1e"),
        (Rows(np.diag([np.inf, NAN])), True, "inf"),
        (Rows(np.full((2, 2), NAN)), True, ""),
    ],
)
def test_rows_that_no_problem_can_use_are_refused(rows, gaps, culprit):
    """Entries may be missing where that is allowed, but not all."""
    with pytest.raises(ShardError, match=f"node 5: .*{culprit}"):
        shard.check(rows, 5, gaps=gaps)
    shard.check(Rows(np.diag([1.0, NAN])), 5, gaps=True)


def test_samples_are_those_of_the_model_and_follow_their_seed():
    """The covariance is W W' + noise_variance I; a start is not drawn as they are."""
    samples, W = synthetic(200_000, dimension=4, n_components=2, noise_variance=0.5)
    expected = W @ W.T + 0.5 * np.eye(4)
    assert_allclose(samples.mean(axis=0), 0, atol=0.03)
    assert_allclose(np.cov(samples.T), expected, atol=0.02 * np.abs(expected).max())
    samples, W = synthetic(seed=4)
    assert_array_equal(samples, synthetic(seed=4)[0])
    assert (samples != synthetic(seed=3)[0]).all()
    start = PPCA(samples, 5).init(np.random.default_rng([4, 0]))
    assert subspace_angle(start[:100].reshape(20, 5), W) > 45
