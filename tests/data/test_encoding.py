"""Encodings: what nodes agree on, what becomes of gaps, and what is refused."""

from __future__ import annotations

import functools
import itertools
import json
import random

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

import dadmm
from dadmm.comm.tree import TreeReduction
from dadmm.core.errors import ConfigError, ShardError
from dadmm.data.agreement import Choice, agree, describe, merge
from dadmm.data.encoding import Encoding
from dadmm.data.frame import Frame
from dadmm.graphs.topology import Topology

NAN = np.nan
HOSPITALS = [
    {"age": [30, 40, 50], "sex": ["F", "M", "F"], "ward": ["A", "B", None],
     "ill": ["no", "yes", "no"]},
    {"age": [60, NAN], "sex": ["M", "M"], "ward": ["A", "A"], "ill": ["no", "no"]},
    {"ill": ["yes", "no"], "ward": ["C", "A"], "sex": [None, "X"], "age": [20, 70]},
]  # fmt: skip


def frames_of(tables):
    return {i: Frame.of(table) for i, table in enumerate(tables)}


def agreed(tables, **choice):
    frames = tables if isinstance(tables, dict) else frames_of(tables)
    edges = np.array([[i, i + 1] for i in range(len(frames) - 1)]).reshape(-1, 2)
    graph = Topology.from_edges(len(frames), np.vstack([edges, edges[:, ::-1]]))
    tables = {i: [frame] for i, frame in frames.items()}
    return agree(TreeReduction(graph).reduce, tables, Choice(**choice))


def test_nodes_agree_on_the_union_of_their_categories():
    encoding = agreed(HOSPITALS, n_classes=2, target="ill", on_missing="drop")
    first = encoding.encode(Frame.of(HOSPITALS[0]), fit=True)

    assert encoding.feature_names == ("age", "sex=M", "sex=X", "ward=B", "ward=C")
    assert encoding.classes == ("no", "yes")
    assert_array_equal(first.X, [[30, 0, 0, 0, 0], [40, 1, 0, 1, 0]])
    assert_array_equal(first.y, [0, 1])
    assert_array_equal(first.kept, [True, True, False])
    last = encoding.encode(Frame.of(HOSPITALS[2]), fit=True)
    assert_array_equal(last.X, [[70, 0, 1, 0, 0]])


def test_gaps_are_filled_with_the_mean_of_all_nodes():
    encoding = agreed(HOSPITALS, n_classes=2, target="ill", on_missing="mean")

    assert_allclose(encoding.means, [45, 3 / 6, 1 / 6, 1 / 6, 1 / 6])
    second = encoding.encode(Frame.of(HOSPITALS[1]), fit=True)
    assert_allclose(second.X[1], [45, 1, 0, 0, 0])
    assert second.n_filled == 1
    assert encoding.encode(Frame.of(HOSPITALS[0]), fit=True).n_filled == 1


def test_standardised_columns_are_those_of_scikit_learn():
    impute = pytest.importorskip("sklearn.impute").SimpleImputer()
    scaler = pytest.importorskip("sklearn.preprocessing").StandardScaler()
    rng = np.random.default_rng(1)
    X = np.column_stack([1e6 + rng.normal(size=40), rng.normal(size=40), np.ones(40)])
    X[rng.random(X.shape) < 0.1] = NAN
    tables = [
        dict(zip("abcy", [*part.T, np.zeros(len(part))], strict=True))
        for part in np.split(X, [5, 6, 30])
    ]
    encoding = agreed(tables, on_missing="mean", standardise=True)
    found = np.vstack([encoding.encode(Frame.of(t), fit=True).X for t in tables])

    expected = scaler.fit_transform(impute.fit_transform(X))
    assert_allclose(found, expected, atol=1e-9)
    scaled = {"coef": np.array([1.0, 2.0, 3.0]), "intercept": np.array(4.0)}
    units = encoding.to_table_units(scaled)
    again = impute.transform(X) @ units["coef"] + units["intercept"]
    assert_allclose(found @ [1, 2, 3] + 4, again, atol=1e-8)


EMPTY = [{"a": ["F", "M"], "b": [NAN, NAN], "y": [1, 2]},
         {"a": [NAN, NAN], "b": [1, 2], "y": [1, 2]}]  # fmt: skip
NUMBERS = [{"k": [1, 2.5], "y": [3, -1]}, {"k": [2.5, 7], "y": [3, 8]}]
UNSUPERVISED = {"supervised": False, "on_missing": "keep", "features": ["sex", "age"]}


@pytest.mark.parametrize(
    ("tables", "choice", "names", "X"),
    [
        (HOSPITALS, UNSUPERVISED | {"intercept": False}, "sex=F sex=M sex=X age",
         [[NAN, NAN, NAN, 20], [0, 0, 1, 70]]),
        (HOSPITALS, UNSUPERVISED, "sex=M sex=X age", [[NAN, NAN, 20], [0, 1, 70]]),
        (NUMBERS, {"categories": ["k"], "n_classes": 3}, "k=2.5 k=7", [[1, 0], [0, 1]]),
        (EMPTY, {"on_missing": "mean"}, "a=M b", [[0.5, 1], [0.5, 2]]),
    ],
    ids=["no intercept", "intercept", "numbers", "empty on a node"],
)  # fmt: skip
def test_categories_have_columns(tables, choice, names, X):
    """All of them without an intercept, else all but the first."""
    encoding = agreed(tables, **choice)

    assert encoding.feature_names == tuple(names.split())
    found = encoding.encode(Frame.of(tables[-1]), fit=True)
    assert_array_equal(found.X, X)
    if tables is NUMBERS:
        assert encoding.classes == (-1.0, 3.0, 8.0)
        assert_array_equal(found.y, [1, 2])


def test_weights_and_means_are_those_of_the_rows_that_are_kept():
    """A row without target is kept, and counts, where gaps are kept."""
    table = {"a": [1.0, NAN, 3.0], "w": [1.0, 2.0, 4.0], "y": [1.0, 2.0, 3.0]}
    encoding = agreed([table], weight="w", target="y", on_missing="drop")
    assert_array_equal(encoding.encode(Frame.of(table), fit=True).weight, [1.0, 4.0])
    table = {"a": [1.0, 3.0, 8.0], "y": [1.0, 2.0, NAN]}
    encoding = agreed([table], target="y", standardise=True, on_missing="keep")
    assert_array_equal(encoding.means, [4.0])


def test_units_of_a_constant_column_and_without_an_intercept():
    """The standard deviation of a constant is a rounding error of its mean."""
    table = {"a": [0.1] * 3 + [0.1 + 2e-17, 0.1 - 2e-17], "y": [1.0, 2, 3, 4, 5]}
    other = {"a": [0.1 + 2e-16], "y": [1.0]}
    encoding = agreed([table, other], target="y", standardise=True)
    assert_array_equal(encoding.scales, [1.0])
    table = {"a": [1.0, 5.0], "y": [1.0, 2.0]}
    encoding = agreed([table], target="y", standardise=True, intercept=False)
    scaled = {"coef": np.array([3.0]), "intercept": np.array(1.0)}
    assert encoding.to_table_units(scaled) == {"coef": [1.5], "intercept": 1.0}


def test_tables_without_names_go_by_position():
    rng = np.random.default_rng(0)
    frames = {i: Frame.of(rng.normal(size=(4, 3))) for i in range(2)}
    encoding = agreed(frames, target="0")

    assert encoding.feature_names == ("x1", "x2")
    assert encoding.target == "x0"
    whole = encoding.encode(frames[0], fit=True)
    alone = encoding.encode(Frame.of(np.column_stack([whole.X])))
    assert_array_equal(alone.X, whole.X)
    assert alone.y is None


def test_a_category_of_a_sparse_table_is_looked_up():
    columns = {"x0": (), "x1": ("2", "3", "4")}
    rows = np.array([[1.0, 3.0], [0.0, 2.0]])
    encoding = Encoding(columns, None)
    found = encoding.encode(Frame.of(sparse.csr_array(rows)))
    assert_array_equal(found.X, [[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    with pytest.raises(ShardError, match="'6'"):
        encoding.encode(Frame.of(sparse.csr_array(2 * rows)))


def test_sparse_rows_stay_sparse_unless_they_are_standardised():
    rows = sparse.random_array((30, 5), density=0.3, rng=np.random.default_rng(0))
    frame = Frame.of(rows)
    encoding = agreed({0: frame.take(slice(0, 10)), 1: frame.take(slice(10, 30))})
    found = encoding.encode(frame, fit=True)

    assert sparse.issparse(found.X)
    assert_array_equal(found.X.toarray(), rows.toarray()[:, :4])
    assert_array_equal(found.y, rows.toarray()[:, 4])
    scaled = agreed({0: frame, 1: frame}, standardise=True)
    assert_allclose(scaled.encode(frame).X.std(axis=0), 1)


def test_a_new_category_is_an_error_or_ignored():
    new = Frame.of({"age": [1.0], "sex": ["?"], "ward": ["A"]})
    for unknown in ("error", "ignore"):
        encoding = agreed(
            HOSPITALS, n_classes=2, target="ill", on_missing="drop", unknown=unknown
        )
        if unknown == "ignore":
            assert_array_equal(encoding.encode(new).X, [[1, 0, 0, 0, 0]])
        else:
            with pytest.raises(ShardError, match=r"'sex' .*'\?'"):
                encoding.encode(new)


A, B = {"a": [1.0, 2], "y": [1.0, 2]}, {"a": [3.0, 4], "y": [3.0, 4]}


@pytest.mark.parametrize(
    ("change", "choice", "culprits"),
    [
        ({"b": [1, 2]}, {}, "node 0|'b'|node 1"),
        ({"a": ["x", "z"]}, {}, "'a'|node 1|node 0"),
        ({"a": ["1", "oh"]}, {}, "node 1|'a'|'oh'|row 1"),
        ({"a": ["1_0", "2"]}, {}, "node 1|'a'|'1_0'|row 0"),
        ({"a": ["1,5", "2"]}, {}, "'1,5'|--decimal"),
        ({"y": ["2", "1,5"]}, {}, "'y'|'1,5'|--decimal"),
        ({"y": ["2", "?"]}, {}, "'y'|'?'|row 1|--problem"),
        ({"a": [NAN, 4]}, {}, "node 1|'a'|row 0|--on-missing"),
        ({"y": ["p", "q"]}, {"n_classes": 2}, "'y'|node 1|node 0"),
        ({}, {"n_classes": 2}, "'y'|(1, 2, 3, 4)|multinomial"),
        ({}, {"n_classes": 3, "max_categories": 3}, "'y'|3|--max-categories"),
        ({"y": [3, 4.5]}, {"n_classes": 3}, "'y'|4.5"),
        ({}, {"categories": ["a"], "max_categories": 3}, "'a'|3|--max-categories"),
        ({}, {"target": "z"}, "node 0|'z'|'a', 'y'"),
        ({}, {"features": ["a", "a"]}, "'a'|features"),
        ({}, {"features": ["a", "y"]}, "'y'|target|features"),
        ({}, {"features": []}, "feature"),
        ({}, {"weight": "y", "target": "y"}, "'y'|target|weight"),
        ({}, {"labels": "y", "target": "y"}, "'y'|target|labels"),
        ({}, {"labels": "a", "features": ["a"]}, "'a'|labels|features"),
        ({"w": [1, 2]}, {"weight": "w", "target": "y"}, "node 0|'w'|weight"),
        (
            {"w": [1, -2]},
            {"weight": "w", "features": ["a"], "supervised": False},
            "'w'",
        ),
        ({}, {"weight": "a", "target": "y"}, "feature"),
        ({}, {"categories": ["y"]}, "'y'|categories"),
        ({"y": [NAN, np.inf]}, {"n_classes": 2, "on_missing": "drop"}, "'y'|inf"),
        ({"a": [NAN, np.inf]}, {"on_missing": "mean"}, "'a'|inf"),
    ],
)
def test_tables_that_do_not_fit_are_refused(change, choice, culprits):
    """The error names the node, the column, the entry and the remedy."""
    with pytest.raises(ShardError) as caught:
        agreed([A, B | change], **choice)

    for word in culprits.split("|"):
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def test_texts_that_all_differ_are_no_categories():
    """They are names or identifiers, which are not sent unless they are listed."""
    table = {"id": [f"P{k}" for k in range(20)], "a": range(20), "y": range(20)}
    with pytest.raises(ShardError, match="node 0: column 'id'"):
        agreed([table, table], target="y")

    told = describe(Frame.of(table), Choice(target="y"))
    assert "P7" not in json.dumps(told)
    assert len(agreed([table, table], target="y", categories=["id"]).columns) == 2
    table["id"][3] = table["id"][4]
    assert len(agreed([table, table], target="y").columns) == 2


def test_a_column_can_be_left_out():
    """An id or a date is then never described."""
    when = ["2020-01-02", "2021-12-24"]
    table = {"id": ["P1", "P2"], "when": when, "a": [1, 2], "y": [1, 2]}
    with pytest.raises(ShardError, match=r"'when' has dates"):
        agreed([table, table])
    encoding = agreed([table, table], leave_out=["id", "1"])
    assert encoding.feature_names == ("a",)
    assert encoding.encode(Frame.of(table)).X.tolist() == [[1], [2]]
    with pytest.raises(ShardError, match="leave_out"):
        agreed([table], leave_out=["id"], features=["id"])


def test_classes_are_those_of_rows_that_are_used():
    table = {"a": [1, 2, NAN], "b": ["p", None, "p"], "y": ["no", "maybe", "yes"]}
    other = table | {"a": [1, 2, 3]}
    encoding = agreed([table, other], n_classes=2, on_missing="drop")

    assert encoding.classes == ("no", "yes")
    assert_array_equal(encoding.encode(Frame.of(other), fit=True).y, [0, 1])
    with pytest.raises(ShardError, match=r"'y' .*\(no\)"):
        agreed([table, table], n_classes=2, on_missing="drop")


def test_a_table_of_one_column_may_have_another_separator():
    with pytest.raises(ShardError, match="--separator"):
        agreed([{"a|y": ["1|2"]}], target="y")


def test_columns_may_have_another_order_but_then_the_target_needs_a_name():
    with pytest.raises(ShardError, match=r"node 0 .*'a', .*'y', .*node 1 .*'y', .*'a'"):
        agreed([A, {"y": [1, 2], "a": [1, 2]}])
    assert agreed([A, {"y": [1, 2], "a": [1, 2]}], target="y").feature_names == ("a",)


def test_descriptions_merge_in_any_order():
    """The result depends on neither the order nor the shape of the tree."""
    tables = [
        *HOSPITALS,
        {"age": ["old"], "sex": ["F"], "ward": ["D"], "ill": [1.0]},
        {"age": [1.0], "sex": ["F"], "ill": ["no"], "bed": ["1"]},
        {"age": [1.0], "sex": [NAN], "ward": [NAN], "ill": ["no"]},
    ]
    choice = Choice(n_classes=2, on_missing="drop", max_categories=3, target="ill")
    told = [describe(Frame.of(t), choice, i) for i, t in enumerate(tables)]
    told = json.loads(json.dumps(told))
    pair = functools.partial(merge, most=3)
    shuffle = random.Random(0)
    for size in (3, 5, 6):
        for some in itertools.combinations(told, size):
            expected = functools.reduce(pair, some)
            for _ in range(5):
                parts = list(some)
                while len(parts) > 1:
                    shuffle.shuffle(parts)
                    parts.append(pair(parts.pop(), parts.pop()))
                assert parts == [expected]


def test_an_encoding_survives_json():
    for choice in ({"on_missing": "mean", "standardise": True}, {"on_missing": "drop"}):
        encoding = agreed(HOSPITALS, n_classes=2, target="ill", **choice)
        text = json.dumps(encoding.to_json())
        again = Encoding.from_json(json.loads(text))
        assert json.dumps(again.to_json()) == text
        for table in HOSPITALS:
            frame = Frame.of(table)
            assert_array_equal(again.encode(frame).X, encoding.encode(frame).X)


def test_a_damaged_encoding_is_refused():
    choice = {"n_classes": 2, "on_missing": "mean", "standardise": True}
    whole = agreed(HOSPITALS, target="ill", **choice).to_json()
    strange = [-1, {}, [], [None], [1, "a"], [NAN], ["b", "a"], [1.0]]
    for name, value in itertools.product(whole, strange):
        with pytest.raises(dadmm.DadmmError, match=name):
            Encoding.from_json(whole | {name: value})
    for name in whole:
        with pytest.raises(ConfigError, match=name):
            Encoding.from_json({k: v for k, v in whole.items() if k != name})
    for change in ({"scales": [0.0] * 5}, {"scales": [-1.0] * 5}, {"means": None}):
        with pytest.raises(dadmm.DadmmError, match="scales"):
            Encoding.from_json(whole | change)


def test_frames_are_made_of_many_kinds_of_tables():
    import pyarrow

    numbers = np.array([(1, "a"), (2, "b")], dtype=[("n", int), ("t", "U1")])
    mixed = np.array([[1, "a"], [None, "b"]], dtype=object)
    for table in (numbers, {"n": [1, 2], "t": ["a", "b"]},
                  pyarrow.table({"n": [1, 2], "t": ["a", "b"]})):  # fmt: skip
        frame = Frame.of(table)
        assert frame.names == ("n", "t")
        assert frame.columns["n"].tolist() == [1, 2]
        assert frame.columns["t"].tolist() == ["a", "b"]
    frame = Frame.of(mixed, ["n", "t"])
    assert_array_equal(frame.columns["n"], [1, NAN])
    assert frame.columns["t"].tolist() == ["a", "b"]
    with pytest.raises(ShardError, match="'b'"):
        Frame.of({"a": [1, 2], "b": [1]})
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"n": pandas.array([1, None], dtype="Int64"),
                              "t": pandas.Categorical(["a", None]),
                              "b": [True, False]})  # fmt: skip
    frame = Frame.of(table)
    assert_array_equal(frame.columns["n"], [1, NAN])
    assert frame.columns["t"].tolist() == ["a", None]
    assert frame.columns["b"].tolist() == ["True", "False"]


def test_the_library_encodes_the_tables_of_all_nodes():
    graph = Topology.ring(3)
    encoding, parts = dadmm.encode(
        HOSPITALS, graph, "ill", classify=True, on_missing="mean", standardise=True
    )

    assert [part.X.shape for part in parts] == [(3, 5), (2, 5), (2, 5)]
    assert_allclose(np.vstack([part.X for part in parts]).mean(axis=0), 0, atol=1e-15)
    assert_array_equal(
        np.concatenate([part.y for part in parts]), [0, 1, 0, 0, 0, 1, 0]
    )
    assert encoding.classes == ("no", "yes")
    with pytest.raises(ConfigError, match="2 tables"):
        dadmm.encode(HOSPITALS[:2], graph)
    with pytest.raises(ConfigError, match="'fill'"):
        dadmm.encode(HOSPITALS, graph, on_missing="fill")
