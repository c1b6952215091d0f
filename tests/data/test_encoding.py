"""Encodings: what nodes agree on, what becomes of gaps, and what is refused."""

import itertools
import json
from functools import partial, reduce

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal, assert_equal
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
    tree = TreeReduction(Topology.chain(len(tables)))
    frames = {i: [Frame.of(table)] for i, table in enumerate(tables)}
    return agree(tree.reduce, frames, Choice(**choice))


EMPTY = [{"a": ["F", "M"], "b": [NAN, NAN], "y": [1, 2]},
         {"a": [NAN, NAN], "b": [1, 2], "y": [1, 2]}]  # fmt: skip
NUMBERS = [{"k": [1, 2.5], "y": [3, -1]}, {"k": [2.5, 7], "y": [3, 8]}]
UNSUPERVISED = {"supervised": False, "on_missing": "keep", "features": ["sex", "age"]}
DATED = [{"id": ["P", "Q"], "when": ["2020-01-02"] * 2, "a": [1, 2], "y": [1, 2]}] * 2
WARDS = "age sex=M sex=X ward=B ward=C"
MAYBE = {"a": [1, 2, NAN], "b": ["p", None, "p"], "y": ["no", "maybe", "yes"]}
A, B = {"a": [1.0, 2], "y": [1.0, 2]}, {"a": [3.0, 4], "y": [3.0, 4]}
IDS = {"a": [f"P{k}" for k in range(20)], "y": [*range(20)]}


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
        ([MAYBE, MAYBE | {"a": [1, 2, 3]}], {"n_classes": 2, "on_missing": "drop"}, "a",
         [[1], [3]], [0, 1]),  # classes of rows that are used
        ([A, {"y": [1, 2], "a": [3, 4]}], {"target": "y"}, "a", [[3], [4]], [1, 2]),
    ],
)  # fmt: skip
def test_nodes_agree_on_columns(tables, choice, names, X, y):
    encoding = agreed(tables, **choice)
    found = encoding.encode(Frame.of(tables[-1]), fit=True)

    assert encoding.feature_names == tuple(names.split())
    assert_allclose(found.X, X)
    assert_array_equal(found.y, y)
    assert found.kept.sum() == len(X)
    assert found.n_filled == (np.mod(X, 1) > 0).any(axis=1).sum()  # means


def test_standardised_columns_have_no_mean_and_unit_variance():
    """Gaps are means; the deviation of a constant is a rounding error of its mean."""
    rng = np.random.default_rng(1)
    X = np.column_stack([1e6 + rng.normal(size=40), rng.normal(size=40), np.ones(40)])
    X[rng.random(X.shape) < 0.1] = NAN
    tables = [
        dict(zip("abcy", [*part.T, np.zeros(len(part))], strict=True))
        for part in np.split(X, [5, 6, 30])
    ]
    encoding = agreed(tables, on_missing="mean", standardise=True)
    found = np.vstack([encoding.encode(Frame.of(t), fit=True).X for t in tables])

    filled = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    spread = np.append(filled.std(axis=0)[:2], 1.0)
    assert_allclose(found, (filled - filled.mean(axis=0)) / spread, atol=1e-9)
    scaled = {"coef": np.array([1.0, 2.0, 3.0]), "intercept": np.array(4.0)}
    units = encoding.to_table_units(scaled)
    again = filled @ units["coef"] + units["intercept"]
    assert_allclose(found @ [1, 2, 3] + 4, again, atol=1e-8)
    constant = {"a": [0.1] * 3 + [0.1 + 2e-17, 0.1 - 2e-17], "y": [1.0, 2, 3, 4, 5]}
    other = {"a": [0.1 + 2e-16], "y": [1.0]}
    assert agreed([constant, other], standardise=True).scales == [1.0]
    bare = agreed([{"a": [1.0, 5.0], "y": [1, 2]}], standardise=True, intercept=False)
    assert bare.to_table_units({"coef": np.array([3.0])}) == {"coef": [1.5]}
    bounds = Encoding({"a": (), "b": ()}, means=np.array([-3, 0.5]), scales=np.ones(2))
    parts = {"coef": np.array([0.1, 0.1]), "intercept": np.array(1.0)}
    found = bounds.to_table_units(parts, bounds=True)
    assert_allclose(found["intercept"], 1.0 + 0.3 + 0.05)  # not lower by a mean below 0


def test_weights_and_means_are_those_of_the_rows_that_are_kept():
    """A row without target is kept, and counts, where gaps are kept."""
    table = {"a": [1, NAN, 3, 4], "w": [1, 2, 4, 8], "y": [1, 2, 3, NAN]}
    encoding = agreed([table], weight="w", target="y", on_missing="drop")
    assert_array_equal(encoding.encode(Frame.of(table), fit=True).weight, [1.0, 4.0])
    table = {"a": [1.0, 3.0, 8.0], "y": [1.0, 2.0, NAN]}
    encoding = agreed([table], target="y", standardise=True, on_missing="keep")
    assert_array_equal(encoding.means, [4.0])


def test_rows_to_predict_may_lack_the_target_and_have_other_categories():
    found = agreed([np.eye(4, 3)] * 2, target="0").encode(Frame.of(np.ones((1, 2))))
    assert found.y is None
    assert_array_equal(found.X, [[1, 1]])
    new = Frame.of({"age": [1.0], "sex": ["?"], "ward": ["A"]})
    ignoring = agreed(HOSPITALS, **ILL, on_missing="drop", unknown="ignore")
    assert_array_equal(ignoring.encode(new).X, [[1, 0, 0, 0, 0]])
    refusing = agreed(HOSPITALS, **ILL, on_missing="drop")
    with pytest.raises(ShardError, match=r"'sex' .*'\?'"):
        refusing.encode(new)
    with pytest.raises(ShardError, match="'ward'"):
        refusing.encode(Frame.of({"age": [1.0], "sex": ["F"]}))
    with pytest.raises(ShardError, match=r"'a' .*'old' in row 1"):
        Encoding({"a": ()}).encode(Frame.of({"a": ["1", "old"]}))


def test_sparse_rows_stay_sparse_unless_they_are_standardised_or_have_categories():
    rows = sparse.random_array((30, 5), density=0.3, rng=np.random.default_rng(0))
    frame = Frame.of(rows)
    encoding = agreed([frame.take(slice(0, 10)), frame.take(slice(10, 30))])
    found = encoding.encode(frame, fit=True)

    assert sparse.issparse(found.X)
    assert_array_equal(np.column_stack([found.X.toarray(), found.y]), rows.toarray())
    scaled = agreed([frame, frame], standardise=True)
    assert_allclose(scaled.encode(frame).X.std(axis=0), 1)
    codes = sparse.csr_array([[1.0, 3.0], [0.0, 2.0]])
    found = agreed([codes, 2 * codes], supervised=False, categories=["x1"])
    assert found.columns == {"x0": (), "x1": ("2", "3", "4", "6")}
    encoding = Encoding({"x0": (), "x1": ("2", "3", "4")})
    assert_array_equal(encoding.encode(Frame.of(codes)).X, [[1, 1, 0], [0, 0, 0]])
    with pytest.raises(ShardError, match="'6'"):
        encoding.encode(Frame.of(2 * codes))
    with pytest.raises(ShardError, match=r"'x0' .* row 1"):
        agreed([sparse.csr_array([[1.0, 3.0], [NAN, 2.0]])])


TEXT, SWAPPED = {"a": ["x", "z"]}, {"y": [1, 2], "a": [1, 2]}
TWO, THREE = {"n_classes": 2}, {"n_classes": 3}
WEIGHED = {"weight": "w", "features": ["a"], "supervised": False}
MISFITS = [
    (B | {"b": [1, 2]}, {}, "node 0|'b'|node 1"),
    (B | TEXT, {}, "'a'|node 1|node 0"),
    (SWAPPED, {}, "node 0|'a'|'y'|node 1"),
    (B | {"a": ["1", "oh"]}, {}, "node 1|'a'|'oh'|row 1"),
    (B | {"a": ["1_0", "2"]}, {}, "node 1|'a'|'1_0'|row 0"),
    (B | {"a": ["1,5", "2,5"]}, {}, "'1,5'|--decimal"),
    (B | {"y": ["2", "1,5"]}, {}, "'y'|'1,5'|--decimal"),
    (B | {"y": ["2", "?"]}, {}, "'y'|'?'|row 1|--problem"),
    (B | {"a": [NAN, 4]}, {}, "node 1|'a'|row 0|--on-missing"),
    (IDS, {}, "node 1|'a'|--leave-out"),
    (B | {"a": ["2020-01-02", "24.12.2021"]}, {}, "'a'|dates"),
    (B | {"y": ["p", "q"]}, TWO, "'y'|node 1|node 0"),
    (B, TWO, "'y'|(1, 2, 3, 4)|multinomial"),
    (B, THREE | {"max_categories": 3}, "'y'|3|--max-categories"),
    (B | {"y": [3, 4.5]}, THREE, "'y'|4.5"),
    (B, {"categories": ["a"], "max_categories": 3}, "'a'|3|--max-categories"),
    (B, {"target": "z"}, "node 0|'z'|'a', 'y'|--separator"),
    (B, {"features": ["a", "a"]}, "'a'|features"),
    (B, {"features": ["a", "y"]}, "'y'|target|features"),
    (B, {"features": []}, "feature"),
    (B, {"weight": "y", "target": "y"}, "'y'|target|weight"),
    (B, {"labels": "a", "features": ["a"]}, "'a'|labels|features"),
    (B, {"leave_out": ["a"], "features": ["a"]}, "'a'|leave_out|features"),
    (B | {"w": [1, 2]}, {"weight": "w", "target": "y"}, "node 0|'w'|weight"),
    (B | {"w": [1, -2]}, WEIGHED, "'w'"),
    (B, {"weight": "a", "target": "y"}, "feature"),
    (B, {"categories": ["y"]}, "'y'|categories"),
    (B | {"y": [NAN, np.inf]}, TWO | {"on_missing": "drop"}, "'y'|inf"),
    (B | {"a": [NAN, np.inf]}, {"on_missing": "mean"}, "'a'|inf"),
    (MAYBE, {"n_classes": 2, "on_missing": "drop"}, "'y'|no"),
]


@pytest.mark.parametrize(("other", "choice", "culprits"), MISFITS)
def test_tables_that_do_not_fit_are_refused(other, choice, culprits):
    with pytest.raises(ShardError) as caught:
        agreed([MAYBE if other is MAYBE else A, other], **choice)

    for word in culprits.split("|"):
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def test_texts_that_all_differ_are_not_sent_unless_they_are_listed():
    assert "P7" not in json.dumps(describe(Frame.of(IDS), Choice(target="y")))
    assert len(agreed([IDS, IDS], categories=["a"]).feature_names) == 19
    assert len(agreed([IDS | {"a": [*IDS["a"][1:], "P1"]}]).feature_names) == 18


def test_descriptions_merge_in_any_order():
    tables = [
        *HOSPITALS,
        {"age": ["old"], "sex": ["F"], "ward": ["D"], "ill": [1.0]},
        {"age": [1.0], "sex": ["F"], "ill": ["no"], "bed": ["1"]},
        {"age": [1.0], "sex": [NAN], "ward": [NAN], "ill": ["no"]},
    ]
    choice = Choice(**ILL, on_missing="drop", max_categories=3)
    told = [describe(Frame.of(t), choice, i) for i, t in enumerate(tables)]
    pair = partial(merge, most=3)
    parts = [*told, pair(told[0], told[3]), pair(told[4], told[5])]
    parts = json.loads(json.dumps([*parts, reduce(pair, told[:4])]))
    for a, b, c in itertools.permutations(parts, 3):
        assert pair(a, pair(b, c)) == pair(pair(b, a), c)


def test_an_encoding_survives_json_and_a_damaged_one_is_refused():
    encoding = agreed(HOSPITALS, **ILL, on_missing="mean", standardise=True)
    whole = encoding.to_json()
    again = Encoding.from_json(json.loads(json.dumps(whole)))
    assert again.to_json() == whole
    frame = Frame.of(HOSPITALS[2])
    assert_array_equal(again.encode(frame).X, encoding.encode(frame).X)
    strange = [-1, {}, [], [None], [1, "a"], [NAN], ["b", "a"], [1.0], [-1.0] * 5]
    changes = [*itertools.product(whole, strange), ("scales", [0.0] * 5)]
    changes.append(("means", [NAN] * 5))
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
    gaps = np.array([[1, "a"], [None, "b"]], dtype=object)
    for table, names, n in (
        (records, None, [1, 2]), (columns, None, [1, 2]),
        (pyarrow.table(columns), None, [1, 2]), (gaps, ["n", "t"], [1, NAN]),
    ):  # fmt: skip
        found = Frame.of(table, names).columns.values()
        assert_equal([*map(list, found)], [n, ["a", "b"]])
    assert [*Frame.of({"t": np.array(["a", NAN], object)}).column("t")] == ["a", None]
    assert_array_equal(Frame.of({"t": ["a", None]}).take(slice(1, 2)).numbers("t"), NAN)
    assert not Frame.of(np.eye(2)).take(slice(1)).named
    for table, names in ({"a": [1, 2], "b": [1]}, None), (np.eye(2), ["b", "b"]):
        with pytest.raises(ShardError, match="'b'"):
            Frame.of(table, names)
    pandas = pytest.importorskip("pandas")
    n, t = pandas.array([1, None], dtype="Int64"), pandas.Categorical(["a", None])
    frame = Frame.of(pandas.DataFrame({"n": n, "t": t, "b": [True, False]}))
    wanted = [[1, NAN], ["a", None], ["True", "False"]]
    assert_equal([*map(list, frame.columns.values())], wanted)


def test_the_library_encodes_the_tables_of_all_nodes():
    graph, choices = Topology.ring(3), {"on_missing": "mean", "standardise": True}
    encoding, parts = dadmm.encode(HOSPITALS, graph, "ill", classify=True, **choices)

    assert_allclose(np.vstack([part.X for part in parts]).mean(axis=0), 0, atol=1e-15)
    assert [part.y.tolist() for part in parts] == [[0, 1, 0], [0, 0], [1, 0]]
    assert encoding.classes == ("no", "yes")
    for tables, choice in ((HOSPITALS[:2], "keep"), (HOSPITALS, "fill")):
        with pytest.raises(ConfigError, match=r"2 tables|'fill'"):
            dadmm.encode(tables, graph, on_missing=choice)
