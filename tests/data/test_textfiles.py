"""Tables in text files: delimiters, quotes, headers, comments and gaps."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dadmm.core.errors import ShardError
from dadmm.data.textfiles import read

NAN = np.nan


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
        ("a\n1\n2\n", ("a",), [[1], [2]]),
        ("", None, np.empty((0, 0))),
        ("a,b\n", ("a", "b"), np.empty((0, 2))),
        ("a,b\n# nothing\n", ("a", "b"), np.empty((0, 2))),
    ],
)
def test_tables_are_read(tmp_path, text, names, rows):
    path = tmp_path / "x.csv"
    path.write_bytes(text.encode())

    matrix, found = read(path)

    assert found == names
    assert_array_equal(matrix, rows)


def test_quoted_and_plain_files_give_the_same_bits(tmp_path):
    X = np.random.default_rng(0).standard_normal((50, 3)) ** 5
    lines = [",".join(map(repr, row)) for row in X.tolist()]
    (tmp_path / "plain.csv").write_text("\n".join(lines))
    (tmp_path / "gap.csv").write_text("\n".join([*lines, "1,,2"]))
    quoted = [",".join(f'"{cell}"' for cell in line.split(",")) for line in lines]
    (tmp_path / "quoted.csv").write_text("\n".join(quoted))

    assert_array_equal(read(tmp_path / "plain.csv")[0], X)
    assert_array_equal(read(tmp_path / "quoted.csv")[0], X)
    assert_array_equal(read(tmp_path / "gap.csv")[0][:-1], X)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a;b\n1,5;2,5\n", "line 2, column 0 (a): '1,5' is not a number; leave a mis"),
        ("# x\na,b\n\n1,2 # old\n", "line 4, column 1 (b): '2 # old' is not a number"),
        ("a,b\n1,2\n,\n1,2,3\n", "line 4: there are 3 cells, but 2 in the first line"),
        ("1,2\n3,4\nx,y\n", "line 3, column 0: 'x' is not a number"),
        ("2019,price\n1,2\n", "line 1, column 1: 'price' is not a number; leave a mis"),
        ("a,b, a\n", "two columns are called 'a'"),
        ("größe\n".encode("latin-1"), "x.csv is not UTF-8 text; save it as UTF-8"),
    ],
)
def test_the_place_of_a_mistake_is_told(tmp_path, text, sentence):
    path = tmp_path / "x.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())

    with pytest.raises(ShardError) as caught:
        read(path)

    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
