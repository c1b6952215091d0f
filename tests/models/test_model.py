"""Models in memory and in files: predictions, units, and files that are damaged."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import dadmm
from dadmm import ConfigError, Model, Topology, load_model, problems
from dadmm.data.encoding import Encoding
from dadmm.models.model import Origin
from tests.support.solving import solve

ORIGIN = Origin("certified", "", 12, 1e-3, 90)
TABLE = {
    "age": [30.0, 60.0, 45.0],
    "sex": ["F", "M", "F"],
    "note": ["not", "a", "feature"],
}


def encoding(**more):
    return Encoding({"age": (), "sex": ("F", "M")}, "sick", **more)


def logistic(**more):
    """Return a model of two classes, of the columns age and sex=M."""
    fit = {"coef": np.array([0.05, -1.0]), "intercept": np.array(-2.0)}
    return Model(
        "logistic", encoding(classes=("no", "yes"), **more), fit, ORIGIN, {"alpha": 0.5}
    )


def subspace(rng):
    W, mu = rng.standard_normal((4, 2)), rng.standard_normal(4)
    fit = {"W": W, "mu": mu, "a": np.array(50.0)}
    return Model("ppca", Encoding.plain(4, on_missing="keep"), fit, ORIGIN)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


X = np.array([[30.0, 0.0], [60.0, 1.0], [45.0, 0.0]])  # of TABLE


@pytest.mark.parametrize("classes", [("no", "yes"), (1.0, 2.0, 7.0)])
def test_a_classification_predicts_labels_and_probabilities(rng, classes):
    """By the softmax; of two classes, the first has the score 0."""
    model = logistic()
    scores = np.column_stack([np.zeros(3), X @ model.parameters["coef"] - 2.0])
    if len(classes) > 2:
        fit = {"coef": rng.standard_normal((3, 2)), "intercept": rng.standard_normal(3)}
        model = Model("multinomial", encoding(classes=classes), fit, ORIGIN)
        scores = X @ fit["coef"].T + fit["intercept"]
    odds = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)

    assert_allclose(model.predict_proba(TABLE), odds, rtol=1e-9)
    assert model.classes.tolist() == [*classes]
    best = model.classes[odds.argmax(axis=1)]
    assert_array_equal(model.predict(TABLE)[[0, 2]], best[[0, 2]])
    words = [f"p({name:g})" if len(classes) > 2 else f"p({name})" for name in classes]
    assert [*model.columns(TABLE)] == ["prediction", *words]


@pytest.mark.parametrize("problem", ["lasso", "poisson"])
def test_regressions_predict_values_and_counts_means(problem):
    model = Model(problem, encoding(), {"coef": np.array([0.05, -1.0])}, ORIGIN)
    values = np.array([1.5, 2.0, 2.25])

    expected = np.exp(values) if problem == "poisson" else values
    assert_allclose(model.predict(TABLE), expected, rtol=1e-12)


def test_a_subspace_gives_scores_errors_and_filled_gaps(rng):
    """Scores are projections; a gap is filled by its conditional expectation."""
    model = subspace(rng)
    W, mu, a = (model.parameters[name] for name in ("W", "mu", "a"))
    rows = rng.standard_normal((5, 4))
    axes = np.linalg.svd(W, full_matrices=False)[0]
    again = mu + (rows - mu) @ axes @ axes.T

    assert_allclose(np.abs(model.transform(rows)), np.abs((rows - mu) @ axes))
    assert_allclose(model.reconstruct(rows), again)
    error = np.sqrt(((rows - again) ** 2).mean(axis=1))
    assert_allclose(model.reconstruction_error(rows), error)
    rows[0, 1] = np.nan
    seen, covariance = [0, 2, 3], W @ W.T + np.eye(4) / a
    given = np.linalg.solve(covariance[np.ix_(seen, seen)], (rows[0] - mu)[seen])
    filled = model.impute(rows)
    assert_allclose(filled[0, 1], mu[1] + covariance[1, seen] @ given, rtol=1e-9)
    assert_array_equal(filled[1:], rows[1:])
    left = (rows - model.reconstruct(rows))[0, seen]
    error = np.sqrt((left**2).mean())  # of the observed entries
    assert_allclose(model.reconstruction_error(rows)[0], error)
    names = ["score0", "score1", "reconstruction_error", "x0", "x1", "x2", "x3"]
    assert [*model.columns(rows)] == names
    others = {f"score{k}": () for k in range(4)}
    model = replace(model, encoding=replace(model.encoding, columns=others))
    with pytest.raises(ConfigError, match="score0"):
        model.columns(rows)


def test_rows_that_are_dropped_have_no_prediction():
    """So that rows of the predictions are those of the table."""
    table = TABLE | {"age": [30.0, np.nan, 45.0]}
    model = logistic(on_missing="drop")

    assert model.predict(table).tolist() == ["no", None, "yes"]
    assert np.isnan(model.predict_proba(table)).tolist() == [[0, 0], [1, 1], [0, 0]]


def test_a_standardised_subspace_is_rebuilt_in_the_units_of_the_table(rng):
    means, scales = np.full(4, 100.0), np.array([1.0, 10.0, 100.0, 0.1])
    model = subspace(rng)
    scaled = replace(
        model, encoding=replace(model.encoding, means=means, scales=scales)
    )
    rows = rng.standard_normal((3, 4))
    rows[1, 2] = np.nan

    for method in ("impute", "reconstruct"):
        found = getattr(scaled, method)(rows * scales + means)
        assert_allclose(found, getattr(model, method)(rows) * scales + means)
    assert scaled.table_parameters.keys() == {"W", "mu"}


def test_a_file_has_all_of_a_model(tmp_path, rng):
    """To the last bit; a folder stands for the model.json in it."""
    for model in (logistic(), subspace(rng), logistic(on_missing="drop")):
        model.save(tmp_path / "model.json")
        for place in (tmp_path, str(tmp_path / "model.json")):
            found = load_model(place)
            assert found.to_json() == model.to_json()
            assert found.origin == ORIGIN
            for name, part in model.parameters.items():
                assert_array_equal(found.parameters[name], part)


def test_choices_of_the_fit_can_be_changed_where_the_model_allows(tmp_path, rng):
    logistic().save(tmp_path / "model.json")
    table = TABLE | {"sex": ["F", "M", "X"]}
    ignored = load_model(tmp_path, unknown="ignore").predict_proba(table)

    assert_array_equal(ignored, logistic().predict_proba(TABLE))
    for culprit, attempt in {
        "'X'": lambda: load_model(tmp_path).predict(table),
        "'drop'": lambda: load_model(tmp_path, unknown="drop"),
        "'none'": lambda: load_model(tmp_path, on_missing="none"),
        "means": lambda: load_model(tmp_path, on_missing="mean"),
        "'keep'": lambda: load_model(tmp_path, on_missing="keep"),
        "transform": lambda: logistic().transform(TABLE),
        "predict": lambda: subspace(rng).predict(np.ones((2, 4))),
        "none": lambda: load_model(tmp_path / "none"),
        r"empty.model\.json": lambda: load_model(tmp_path / "empty"),
    }.items():
        (tmp_path / "empty").mkdir(exist_ok=True)
        with pytest.raises(dadmm.DadmmError, match=culprit):
            attempt()


def test_a_result_becomes_a_model(rng):
    """Columns without names are x0, x1 and so on, and classes 0 and 1."""
    X = rng.standard_normal((60, 2))
    y = (X[:, 0] + 0.5 * rng.standard_normal(60) > 0).astype(float)
    made = [problems.LogisticRegression(X[k::3], y[k::3]) for k in range(3)]
    result = solve(made, Topology.ring(3))

    model = Model.of(result, "logistic", settings={"alpha": 3.0})

    margins = X @ result.solution[:2] + result.solution[2]
    assert_array_equal(model.predict(X), (margins > 0).astype(float))
    assert model.feature_names == ("x0", "x1")
    assert (model.origin.status, model.origin.n_rows) == ("certified", None)
    with pytest.raises(ConfigError, match="coef"):
        Model.of(result, "logistic", Encoding.plain(3, classes=(0.0, 1.0)))
    with pytest.raises(ConfigError, match="'sfm'"):
        Model.of(result, "sfm")


def test_the_subspace_of_a_result_is_in_its_principal_axes(rng):
    rows = rng.standard_normal((80, 2)) @ rng.standard_normal((2, 5))
    rows += 0.1 * rng.standard_normal(rows.shape)
    made = [problems.PPCA(rows[k::2], 2) for k in range(2)]
    result = solve(made, Topology.chain(2))

    W = Model.of(result, "ppca").parameters["W"]

    own = result.layout.views(result.solution).W
    assert_allclose(W @ W.T, own @ own.T, rtol=1e-9, atol=1e-12)
    assert abs(W[:, 0] @ W[:, 1]) < 1e-9


def text_of(model):
    return json.loads(model.to_json())


COEF = {"coef": [0.05, -1.0], "intercept": -2.0}
CHANGES = {  # a field, and values that it must not have
    "format": ["pickle", None],
    "version": [2, True, "1"],
    "problem": ["sfm", ["ridge"]],
    "code": ["import os"],
    "settings": [{"alpha": [1]}, []],
    "status": ["done", ["certified"]],
    "iterations": [-1, 1.5],
    "tolerance": ["small", 10**400],
    "n_rows": [True],
    "feature_names": [[1, 2], ["age", "sex=F"]],
    "parameters": [[1.0], {"W": [[1.0]]}],
    "coef": [[1.0], [[1.0, 2.0]], [[1], [1, 2]], [[[1.0]]], ["1", 2], [True, 2]],
    "intercept": [np.nan, 10**400, None, "1", 1.0],
    "table_parameters": [COEF | {"coef": [0.05, -1.001]}, {"coef": [0.05, -1.0]}],
    "encoding": [{}, None],
    "missing": ["mean", "keep"],
    "classes": [["a", "b", "c"], None],
}


def changed(name, value):
    """Return the content of a file with one change."""
    good = text_of(logistic())
    if name in COEF:
        return good | {"parameters": COEF | {name: value}}
    if name in ("missing", "classes"):
        field = "on_missing" if name == "missing" else name
        return good | {"encoding": good["encoding"] | {field: value}}
    return good | {name: value}


@pytest.mark.parametrize("name", [*(CHANGES | text_of(logistic()))])
def test_a_damaged_file_is_refused(tmp_path, name):
    """The error names the field."""
    file, good = tmp_path / "model.json", text_of(logistic())
    contents = [changed(name, value) for value in CHANGES.get(name, ())]
    contents += [{k: v for k, v in good.items() if k != name}] if name in good else []
    for content in contents:
        file.write_text(json.dumps(content))
        with pytest.raises(ConfigError) as caught:
            load_model(file)
        assert str(file) in str(caught.value)
        assert name in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_file_that_is_not_json_gets_one_sentence(tmp_path):
    long = b'{"format": ' + b"9" * 5000 + b"}"
    for content in (b"", b"{", b"\xff\xfe", b"[" * 10**5, long):
        (tmp_path / "model.json").write_bytes(content)
        with pytest.raises(ConfigError, match="JSON"):
            load_model(tmp_path)
