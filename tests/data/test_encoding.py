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
ILL = {"n_classes": 2, "target": "ill"}


def agreed(tables, **choice):
    edges = [(i, i + 1) for i in range(len(tables) - 1)]
    graph = Topology.from_edges(len(tables), [*edges, *((j, i) for i, j in edges)])
    frames = {i: [Frame.of(table)] for i, table in enumerate(tables)}
    return agree(TreeReduction(graph).reduce, frames, Choice(**choice))


EMPTY = [{"a": ["F", "M"], "b": [NAN, NAN], "y": [1, 2]},
         {"a": [NAN, NAN], "b": [1, 2], "y": [1, 2]}]  # fmt: skip
NUMBERS = [{"k": [1, 2.5], "y": [3, -1]}, {"k": [2.5, 7], "y": [3, 8]}]
UNSUPERVISED = {"supervised": False, "on_missing": "keep", "features": ["sex", "age"]}
DATED = [{"id": ["P", "Q"], "when": ["2020-01-02"] * 2, "a": [1, 2], "y": [1, 2]}] * 2
WARDS = "age sex=M sex=X ward=B ward=C"


@pytest.mark.parametrize(
    ("tables", "choice", "names", "X", "y"),
    [
        (HOSPITALS, ILL | {"on_missing": "drop"}, WARDS, [[70, 0, 1, 0, 0]], [0]),
        (HOSPITALS, ILL | {"on_missing": "mean"}, WARDS,
         [[20, 0.5, 1 / 6, 0, 1], [70, 0, 1, 0, 0]], [1, 0]),
        (HOSPITALS, UNSUPERVISED | {"intercept": False}, "sex=F sex=M sex=X age",
         [[NAN, NAN, NAN, 20], [0, 0, 1, 70]], None),
        (HOSPITALS, UNSUPERVISED, "sex=M sex=X age", [[NAN, NAN, 20], [0, 1, 70]],
         None),
        (NUMBERS, {"categories": ["k"], "n_classes": 3}, "k=2.5 k=7", [[1, 0], [0, 1]],
         [1, 2]),
        (EMPTY, {"on_missing": "mean"}, "a=M b", [[0.5, 1], [0.5, 2]], [1, 2]),
        (DATED, {"leave_out": ["id", "1"]}, "a", [[1], [2]], [1, 2]),
        ([np.eye(2, 3)] * 2, {"target": "0"}, "x1 x2", [[0, 0], [1, 0]], [1, 0]),
    ],
)  # fmt: skip
def test_nodes_agree_on_columns(tables, choice, names, X, y):
    """Categories are those of all nodes, without the first if there is an intercept."""
    encoding = agreed(tables, **choice)
    found = encoding.encode(Frame.of(tables[-1]), fit=True)

    assert encoding.feature_names == tuple(names.split())
    assert_allclose(found.X, X)
    assert_array_equal(found.y, y)
    assert found.kept.sum() == len(X)
    assert found.n_filled == (np.mod(X, 1) > 0).any(axis=1).sum()  # means


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


def test_weights_and_means_are_those_of_the_rows_that_are_kept():
    """A row without target is kept, and counts, where gaps are kept."""
    table = {"a": [1, NAN, 3, 4], "w": [1, 2, 4, 8], "y": [1, 2, 3, NAN]}
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
    bounds = Encoding(
        {"a": (), "b": ()}, means=np.array([-3.0, 0.5]), scales=np.ones(2)
    )
    parts = {"coef": np.array([0.1, 0.1]), "intercept": np.array(1.0)}
    found = bounds.to_table_units(parts, bounds=True)
    assert_allclose(found["intercept"], 1.0 + 0.3 + 0.05)  # not lower by a mean below 0


def test_rows_to_predict_may_lack_the_target_and_have_other_categories():
    encoding = agreed([np.eye(4, 3)] * 2, target="0")
    assert_array_equal(encoding.encode(Frame.of(np.ones((1, 2)))).X, [[1, 1]])
    assert encoding.encode(Frame.of(np.ones((1, 2)))).y is None
    new = Frame.of({"age": [1.0], "sex": ["?"], "ward": ["A"]})
    ignoring = agreed(HOSPITALS, **ILL, on_missing="drop", unknown="ignore")
    assert_array_equal(ignoring.encode(new).X, [[1, 0, 0, 0, 0]])
    refusing = agreed(HOSPITALS, **ILL, on_missing="drop")
    with pytest.raises(ShardError, match=r"'sex' .*'\?'"):
        refusing.encode(new)
    with pytest.raises(ShardError, match="'ward'"):
        refusing.encode(Frame.of({"age": [1.0], "sex": ["F"]}))


def test_sparse_rows_stay_sparse_unless_they_are_standardised_or_have_categories():
    rows = sparse.random_array((30, 5), density=0.3, rng=np.random.default_rng(0))
    frame = Frame.of(rows)
    encoding = agreed([frame.take(slice(0, 10)), frame.take(slice(10, 30))])
    found = encoding.encode(frame, fit=True)

    assert sparse.issparse(found.X)
    assert_array_equal(found.X.toarray(), rows.toarray()[:, :4])
    assert_array_equal(found.y, rows.toarray()[:, 4])
    scaled = agreed([frame, frame], standardise=True)
    assert_allclose(scaled.encode(frame).X.std(axis=0), 1)
    codes = sparse.csr_array([[1.0, 3.0], [0.0, 2.0]])
    encoding = Encoding({"x0": (), "x1": ("2", "3", "4")})
    assert_array_equal(encoding.encode(Frame.of(codes)).X, [[1, 1, 0], [0, 0, 0]])
    with pytest.raises(ShardError, match="'6'"):
        encoding.encode(Frame.of(2 * codes))


A, B = {"a": [1.0, 2], "y": [1.0, 2]}, {"a": [3.0, 4], "y": [3.0, 4]}
IDS = {"a": [f"P{k}" for k in range(20)], "y": [*range(20)]}
WEIGHED = {"weight": "w", "features": ["a"], "supervised": False}


@pytest.mark.parametrize(
    ("change", "choice", "culprits"),
    [
        ({"b": [1, 2]}, {}, "node 0|'b'|node 1"),
        ({"a": ["x", "z"]}, {}, "'a'|node 1|node 0"),
        ({"a": ["1", "oh"]}, {}, "node 1|'a'|'oh'|row 1"),
        ({"a": ["1_0", "2"]}, {}, "node 1|'a'|'1_0'|row 0"),
        ({"a": ["1,5", "2,5"]}, {}, "'1,5'|--decimal"),
        ({"y": ["2", "1,5"]}, {}, "'y'|'1,5'|--decimal"),
        ({"y": ["2", "?"]}, {}, "'y'|'?'|row 1|--problem"),
        ({"a": [NAN, 4]}, {}, "node 1|'a'|row 0|--on-missing"),
        (IDS, {}, "node 1|'a'|--leave-out"),
        ({"a": ["2020-01-02", "24.12.2021"]}, {}, "'a'|dates"),
        ({"y": ["p", "q"]}, {"n_classes": 2}, "'y'|node 1|node 0"),
        ({}, {"n_classes": 2}, "'y'|(1, 2, 3, 4)|multinomial"),
        ({}, {"n_classes": 3, "max_categories": 3}, "'y'|3|--max-categories"),
        ({"y": [3, 4.5]}, {"n_classes": 3}, "'y'|4.5"),
        ({}, {"categories": ["a"], "max_categories": 3}, "'a'|3|--max-categories"),
        ({}, {"target": "z"}, "node 0|'z'|'a', 'y'|--separator"),
        ({}, {"features": ["a", "a"]}, "'a'|features"),
        ({}, {"features": ["a", "y"]}, "'y'|target|features"),
        ({}, {"features": []}, "feature"),
        ({}, {"weight": "y", "target": "y"}, "'y'|target|weight"),
        ({}, {"labels": "a", "features": ["a"]}, "'a'|labels|features"),
        ({}, {"leave_out": ["a"], "features": ["a"]}, "'a'|leave_out|features"),
        ({"w": [1, 2]}, {"weight": "w", "target": "y"}, "node 0|'w'|weight"),
        ({"w": [1, -2]}, WEIGHED, "'w'"),
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


def test_texts_that_all_differ_are_not_sent_unless_they_are_listed():
    """They are names or identifiers."""
    assert "P7" not in json.dumps(describe(Frame.of(IDS), Choice(target="y")))
    assert len(agreed([IDS, IDS], categories=["a"]).feature_names) == 19
    assert len(agreed([IDS | {"a": [*IDS["a"][1:], "P1"]}]).feature_names) == 18


def test_classes_are_those_of_rows_that_are_used():
    table = {"a": [1, 2, NAN], "b": ["p", None, "p"], "y": ["no", "maybe", "yes"]}
    other = table | {"a": [1, 2, 3]}
    encoding = agreed([table, other], n_classes=2, on_missing="drop")

    assert encoding.classes == ("no", "yes")
    assert_array_equal(encoding.encode(Frame.of(other), fit=True).y, [0, 1])
    with pytest.raises(ShardError, match=r"'y' .*\(no\)"):
        agreed([table, table], n_classes=2, on_missing="drop")


def test_columns_may_have_another_order_but_then_the_target_needs_a_name():
    with pytest.raises(ShardError, match=r"node 0 .*'a', .*'y', .*node 1 .*'y', .*'a'"):
        agreed([A, {"y": [1, 2], "a": [1, 2]}])
    assert agreed([A, {"y": [1, 2], "a": [1, 2]}], target="y").feature_names == ("a",)
    with pytest.raises(ShardError, match=r"'a' .*text.* node 0, .* node 1;"):
        agreed([A | {"a": ["x", "z"]}, B])


def test_descriptions_merge_in_any_order():
    """The result depends on neither the order nor the shape of the tree."""
    tables = [
        *HOSPITALS,
        {"age": ["old"], "sex": ["F"], "ward": ["D"], "ill": [1.0]},
        {"age": [1.0], "sex": ["F"], "ill": ["no"], "bed": ["1"]},
        {"age": [1.0], "sex": [NAN], "ward": [NAN], "ill": ["no"]},
    ]
    choice = Choice(**ILL, on_missing="drop", max_categories=3)
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


def test_an_encoding_survives_json_and_a_damaged_one_is_refused():
    encoding = agreed(HOSPITALS, **ILL, on_missing="mean", standardise=True)
    whole = encoding.to_json()
    again = Encoding.from_json(json.loads(json.dumps(whole)))
    assert again.to_json() == whole
    frame = Frame.of(HOSPITALS[2])
    assert_array_equal(again.encode(frame).X, encoding.encode(frame).X)
    strange = [-1, {}, [], [None], [1, "a"], [NAN], ["b", "a"], [1.0], [-1.0] * 5]
    changes = [*itertools.product(whole, strange), ("scales", [0.0] * 5)]
    changes.remove(("means", [-1.0] * 5))
    for name, value in changes:
        with pytest.raises(dadmm.DadmmError, match=name):
            Encoding.from_json(whole | {name: value})
    for name in whole:
        with pytest.raises(ConfigError, match=name):
            Encoding.from_json({k: v for k, v in whole.items() if k != name})
    with pytest.raises(ShardError, match="scales"):
        Encoding.from_json(whole | {"means": None})


def test_frames_are_made_of_many_kinds_of_tables():
    import pyarrow

    columns = {"n": [1, 2], "t": ["a", "b"]}
    records = np.array([(1, "a"), (2, "b")], dtype=[("n", int), ("t", "U1")])
    for table in (records, columns, pyarrow.table(columns)):
        frame = Frame.of(table)
        assert {name: x.tolist() for name, x in frame.columns.items()} == columns
    frame = Frame.of(np.array([[1, "a"], [None, "b"]], dtype=object), ["n", "t"])
    assert_array_equal(frame.columns["n"], [1, NAN])
    assert frame.columns["t"].tolist() == ["a", "b"]
    assert_array_equal(Frame.of({"t": ["a", None]}).take(slice(1, 2)).numbers("t"), NAN)
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
    assert np.concatenate([part.y for part in parts]).tolist() == [0, 1, 0, 0, 0, 1, 0]
    assert encoding.classes == ("no", "yes")
    with pytest.raises(ConfigError, match="2 tables"):
        dadmm.encode(HOSPITALS[:2], graph)
    with pytest.raises(ConfigError, match="'fill'"):
        dadmm.encode(HOSPITALS, graph, on_missing="fill")
