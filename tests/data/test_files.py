"""Tables in files: separators, quotes, headers, encodings, gaps, and rows of a node."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import io, sparse

from dadmm.core.errors import ShardError
from dadmm.data import datasets
from dadmm.data.files import count_rows, read_frame

NAN = np.nan


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def frame_of(text: str | bytes, **how):
    """Return a frame read from the text of a .csv file."""
    content = text if isinstance(text, bytes) else text.encode()
    Path("x.csv").write_bytes(content)
    return read_frame("x.csv", **how)


def lists(frame):
    return [column.tolist() for column in frame.columns.values()]


@pytest.mark.parametrize(
    ("text", "names", "rows"),
    [
        ('"size, m2",rooms\n1,2\n3,4\n', ("size, m2", "rooms"), [[1, 2], [3, 4]]),
        ('\ufeff"a;b";"say ""c"""\n1;2\n', ("a;b", 'say "c"'), [[1, 2]]),
        ("a b\tc\n1\t2\n", ("a b", "c"), [[1, 2]]),
        ("a , b\r\n 1 , 2 \r\n", ("a", "b"), [[1, 2]]),
        ('"a\nb",c\n1,2\n', ("a\nb", "c"), [[1, 2]]),
        ('"1","2"\n3,"4"\n', None, [[1, 2], [3, 4]]),
        ("\n\n1,2\n\n3,4\n  \n", None, [[1, 2], [3, 4]]),
        ("# made by hand\na,b\n1,2\n# half\n3,4\n", ("a", "b"), [[1, 2], [3, 4]]),
        ("# made by hand\n# a,b\n1,2\n", ("a", "b"), [[1, 2]]),
        ("# made in 2020\n1,2\n", None, [[1, 2]]),
        ("a,b\n1,\n,2\nnan, \n", ("a", "b"), [[1, NAN], [NAN, 2], [NAN, NAN]]),
        (",2\n1e-3,-inf\n", None, [[NAN, 2], [1e-3, -np.inf]]),
        ("a\n1\n+2\n", ("a",), [[1], [2]]),
    ],
)
def test_tables_of_numbers_are_read(text, names, rows):
    frame = frame_of(text)

    assert frame.named == (names is not None)
    assert frame.names == (names or tuple(f"x{k}" for k in range(len(rows[0]))))
    assert_array_equal(np.column_stack(list(frame.columns.values())), rows)


def test_a_column_with_a_word_is_text():
    frame = frame_of('id,sex,note\n1, F ,"a\nb"\n2,NA,"say ""c"""\n3,M,1.5\n')

    assert lists(frame) == [
        [1, 2, 3], ["F", None, "M"], ["a\nb", 'say "c"', "1.5"],
    ]  # fmt: skip
    assert frame_of("a,b\ntrue,2020-01-02\n").columns["a"].tolist() == ["true"]


def test_a_name_with_an_underscore_is_no_number():
    """Python takes 2020_21 for a number; pyarrow and spreadsheets do not."""
    frame = frame_of("ward,2020_21\nA,1\nB,2\n")

    assert frame.names == ("ward", "2020_21")
    assert lists(frame) == [["A", "B"], [1.0, 2.0]]


def test_large_integers_of_a_parquet_file_are_numbers():
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"id": [2**60 + 1, 3]}), "x.parquet")

    assert lists(read_frame("x.parquet")) == [[float(2**60), 3.0]]


def test_separator_decimal_comma_and_encoding_are_chosen():
    latin = frame_of("größe|y\n1,5|ä\n-2|ö\n".encode("latin-1"), separator="|",
                     decimal=",", encoding="latin-1")  # fmt: skip

    assert latin.names == ("größe", "y")
    assert lists(latin) == [[1.5, -2], ["ä", "ö"]]
    points = frame_of("a;b\n1.234,5;1\n", decimal=",")
    assert lists(points) == [["1.234,5"], [1]]


def test_quoted_and_plain_files_give_the_same_bits():
    X = np.random.default_rng(0).standard_normal((50, 3)) ** 5
    lines = [",".join(map(repr, row)) for row in X.tolist()]
    quoted = [",".join(f'"{cell}"' for cell in line.split(",")) for line in lines]

    for text in (lines, [*lines, "1,,2"], quoted):
        frame = frame_of("\n".join(text))
        found = np.column_stack(list(frame.columns.values()))
        assert_array_equal(found[:50], X)


@pytest.mark.parametrize(
    ("text", "how", "sentence"),
    [
        ("a,b\n1,2\n\n,\n1,2,3\n", {}, "x.csv, line 5: there are 3 cells, but 2 in "),
        ("a,b, a\n", {}, "x.csv: two columns are called 'a'"),
        (",b\n1,2\n", {}, "x.csv: column 0 has no name in the header; name it, or"),
        ("größe\n1\n".encode("latin-1"), {}, "x.csv is not UTF-8 text; save it as UTF"),
        ("a\nö\n".encode("latin-1"), {}, "name its encoding with --encoding"),
        ("a\nö\n", {"encoding": "ascii"}, "x.csv is not ASCII text; save it as UTF-8"),
        ('a,"b,y\n', {}, "x.csv is not a valid .csv file: unexpected end of data"),
        ("a,b\n1,2\n", {"decimal": ","}, "the separator and the decimal mark are both"),
        ("", {}, "x.csv is empty, of shape (0, 0); save some samples"),
        ("a,b\n", {}, "x.csv is empty, of shape (0, 2)"),
        ("a,b\n# nothing\n", {}, "x.csv is empty, of shape (0, 2)"),
    ],
)
def test_what_is_wrong_is_told_in_one_sentence(text, how, sentence):
    with pytest.raises(ShardError) as caught:
        frame_of(text, **how)

    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_without_pyarrow_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    for name in ("x.csv", "x.parquet"):
        Path(name).write_text("a\n1\n")
        with pytest.raises(ShardError, match=r"needs pyarrow; .*'dadmm\[tables\]'"):
            read_frame(name)
    Path("x.txt").write_text("a b\n1 F\n2 nan\n")
    assert lists(read_frame("x.txt")) == [[1, 2], ["F", None]]


@pytest.mark.parametrize("packed", [False, True])
def test_numbers_of_a_mat_file_are_of_a_known_type(packed):
    """scipy would end the process."""
    X = np.arange(20.0).reshape(10, 2)
    for given in (X, X + 1j):
        io.savemat("x.mat", {"y": X, "X": given}, do_compression=packed)
        content = Path("x.mat").read_bytes()
        if not packed and given is X:
            name = b"\1\0\1\0X\0\0\0"
            place = content.index(name) + len(name)
            assert content[place] == 9
            changed = content[:place] + b"\xf0" + content[place + 1 :]
            Path("x.mat").write_bytes(changed)
            with pytest.raises(ShardError, match="X are of an unknown type 240"):
                read_frame("x.mat::X")
        elif given is not X:
            with pytest.raises(ShardError, match="complex values in X; save real"):
                read_frame("x.mat::X")
        assert_array_equal(read_frame("x.mat::y").columns["x1"], X[:, 1])


def test_a_matrix_of_numbers_is_refused_if_a_column_is_text():
    frame_of("a,b\n1,\n2,x\n")

    with pytest.raises(ShardError, match="column 'b' has text, such as 'x' in row 1;"):
        datasets.load_matrix("x.csv")


def write_parquet(path: str) -> None:
    import pyarrow
    from pyarrow import parquet

    table = pyarrow.table(
        {
            "age": pyarrow.array([1, None, 3, 4, 5], pyarrow.int32()),
            "sex": pyarrow.array(["F", "M", None, "", "F"]).dictionary_encode(),
            "old": [True, False, None, True, False],
            "y": [0.5, 1.5, NAN, 3.5, 4.5],
        }
    )
    parquet.write_table(table, path, row_group_size=2)


def test_rows_of_a_parquet_file_are_read_by_row_group():
    write_parquet("x.parquet")
    frame = read_frame("x.parquet")

    assert frame.names == ("age", "sex", "old", "y")
    assert_array_equal(frame.columns["age"], [1, NAN, 3, 4, 5])
    assert frame.columns["sex"].tolist() == ["F", "M", None, None, "F"]
    assert frame.columns["old"].tolist() == ["True", "False", None, "True", "False"]
    assert_array_equal(frame.columns["y"], [0.5, 1.5, NAN, 3.5, 4.5])
    assert count_rows("x.parquet") == 5
    for rows in (slice(1, 4), slice(4, 5), slice(0, 2)):
        part = read_frame("x.parquet", rows=rows)
        assert_array_equal(part.columns["age"], frame.columns["age"][rows])
    Path("x.parquet").write_bytes(Path("x.parquet").read_bytes()[:100])
    with pytest.raises(ShardError, match=r"x\.parquet is not a valid \.parquet file: "):
        read_frame("x.parquet")


def test_a_sparse_array_of_scipy_stays_sparse():
    dense = np.array([[0.0, 2.0], [0.0, 0.0], [3.0, 0.0]])
    sparse.save_npz("x.npz", sparse.csc_array(dense))
    frame = read_frame("x.npz")

    assert (frame.names, frame.n_rows) == (("x0", "x1"), 3)
    assert_array_equal(frame.sparse.toarray(), dense)
    assert_array_equal(frame.take(slice(1, 3)).column("x0"), [0, 3])


def test_arrays_of_an_archive_are_columns_beside_X():
    X = np.arange(6.0).reshape(3, 2)
    np.savez("x.npz", X=X, y=["a", "b", "a"], w=[1, 2, 3], s=[1, 2])
    np.savez("y.npz", X=X, y=[1, 2, 3], feature_names=["y", "z"])
    frame = read_frame("x.npz", beside=["y", "w"])

    assert frame.names == ("x0", "x1", "y", "w")
    assert lists(frame)[2:] == [["a", "b", "a"], [1, 2, 3]]
    with pytest.raises(ShardError, match=r"s has shape \(2,\), but X has 3 rows; give"):
        read_frame("x.npz", beside=["s"])
    with pytest.raises(ShardError, match="column of X is called 'y', as is an array"):
        read_frame("y.npz", beside=["y"])
