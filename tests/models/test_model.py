"""Models: predictions, units, damaged files, scores and standard errors."""

import json
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal, assert_equal

import dadmm
from dadmm import ConfigError, Model, Topology, load_model, problems
from dadmm.data.encoding import Encoding
from dadmm.models.model import Origin
from dadmm.models.scores import BINS, Rows, score, standard_errors
from tests.support.shards import total_of
from tests.support.solving import solve

ORIGIN = Origin("certified", "", 12, 1e-3, 90)
TABLE = {"age": [30.0, 60.0, 45.0], "sex": ["F", "M", "F"], "note": ["no", "such", "x"]}
X = np.array([[30.0, 0.0], [60.0, 1.0], [45.0, 0.0]])  # of TABLE
FIT = {"coef": np.array([0.05, -1.0]), "intercept": np.array(-2.0)}
RNG = np.random.default_rng(0)
MANY = {"coef": RNG.standard_normal((3, 2)), "intercept": RNG.standard_normal(3)}
W, MU = RNG.standard_normal((4, 2)), RNG.standard_normal(4)


def model(problem="logistic", fit=FIT, classes=("no", "yes"), **more):
    """Return a model of the columns age and sex=M."""
    encoding = Encoding({"age": (), "sex": ("F", "M")}, "sick", classes=classes, **more)
    return Model(problem, encoding, fit, ORIGIN, {"alpha": 0.5})


NUMBERED = model("multinomial", MANY, (1.0, 2.0, 7.0))
PLANE = {"W": W, "mu": MU, "a": np.array(50.0)}
SUBSPACE = Model("ppca", Encoding.plain(4, on_missing="keep"), PLANE, ORIGIN)


def probabilities(X, fit):
    """Return those of two or of several classes, by the formula."""
    margins = X @ fit["coef"].T + fit["intercept"]
    if margins.ndim == 1:
        margins = np.column_stack([np.zeros(len(X)), margins])
    powers = np.exp(margins)
    return powers / powers.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("made", "fit", "labels"),
    [(model(), FIT, ["no", "yes"]), (NUMBERED, MANY, ["1", "2", "7"])],
)
def test_a_classification_predicts_labels_and_probabilities(made, fit, labels):
    odds = probabilities(X, fit)

    assert_allclose(made.predict_proba(TABLE), odds, rtol=1e-9)
    best = made.classes[odds.argmax(axis=1)]
    assert_array_equal(made.predict(TABLE)[[0, 2]], best[[0, 2]])
    words = [f"p({name})" for name in labels]
    assert [*made.columns(TABLE)] == ["prediction", *words]


def test_regressions_predict_values_and_counts_means_and_dropped_rows_nothing():
    fit, values = {"coef": FIT["coef"]}, np.array([1.5, 2.0, 2.25])
    assert_allclose(model("lasso", fit, None).predict(TABLE), values)
    assert_allclose(model("poisson", fit, None).predict(TABLE), np.exp(values))
    dropping, table = model(on_missing="drop"), TABLE | {"age": [30.0, np.nan, 45.0]}
    assert dropping.predict(table).tolist() == ["no", None, "yes"]
    assert np.isnan(dropping.predict_proba(table)).tolist() == [[0, 0], [1, 1], [0, 0]]


def test_a_subspace_gives_scores_errors_and_filled_gaps():
    """Scores are projections; a gap is filled by its conditional expectation."""
    rows = np.random.default_rng(1).standard_normal((5, 4))
    axes = np.linalg.svd(W, full_matrices=False)[0]
    again = MU + (rows - MU) @ axes @ axes.T

    assert_allclose(np.abs(SUBSPACE.transform(rows)), np.abs((rows - MU) @ axes))
    assert_allclose(SUBSPACE.reconstruct(rows), again)
    error = np.sqrt(((rows - again) ** 2).mean(axis=1))
    assert_allclose(SUBSPACE.reconstruction_error(rows), error)
    found = score(total, "subspace", PLANE, [*map(Rows, np.array_split(rows, 4))])
    share = 1.0 - ((rows - again) ** 2).sum() / ((rows - MU) ** 2).sum()
    assert_allclose(found.values["explained_variance"], share, rtol=1e-12)
    assert found.n_rows == 5
    rows[0, 1] = np.nan
    seen, covariance = [0, 2, 3], W @ W.T + np.eye(4) / 50.0
    given = np.linalg.solve(covariance[np.ix_(seen, seen)], (rows[0] - MU)[seen])
    filled = SUBSPACE.impute(rows)
    assert_allclose(filled[0, 1], MU[1] + covariance[1, seen] @ given, rtol=1e-9)
    assert_array_equal(filled[1:], rows[1:])
    left = (rows - SUBSPACE.reconstruct(rows))[0, seen]
    error = np.sqrt((left**2).mean())  # of the observed entries
    assert_allclose(SUBSPACE.reconstruction_error(rows)[0], error)
    names = ["score0", "score1", "reconstruction_error", "x0", "x1", "x2", "x3"]
    assert [*SUBSPACE.columns(rows)] == names
    others = replace(SUBSPACE.encoding, columns={f"score{k}": () for k in range(4)})
    with pytest.raises(ConfigError, match="score0"):
        replace(SUBSPACE, encoding=others).columns(rows)
    # standardised: rebuilt in the units of the table
    means, scales = np.full(4, 100.0), np.array([1.0, 10.0, 100.0, 0.1])
    units = replace(SUBSPACE.encoding, means=means, scales=scales)
    scaled = replace(SUBSPACE, encoding=units)
    assert_allclose(scaled.impute(rows * scales + means), filled * scales + means)
    again = SUBSPACE.reconstruct(rows) * scales + means
    assert_allclose(scaled.reconstruct(rows * scales + means), again)
    assert scaled.table_parameters.keys() == {"W", "mu"}


@pytest.mark.parametrize("made", [model(), SUBSPACE, NUMBERED])
def test_a_file_has_all_of_a_model(tmp_path, made):
    """To the last bit; a folder stands for the model.json in it."""
    made.save(tmp_path / "model.json")
    for place in (tmp_path, str(tmp_path / "model.json")):
        found = load_model(place)
        assert found.to_json() == made.to_json()
        assert found.origin == ORIGIN
        assert_equal(found.parameters, made.parameters)


def test_choices_of_the_fit_can_be_changed_where_the_model_allows(tmp_path):
    model().save(tmp_path / "model.json")
    table = TABLE | {"sex": ["F", "M", "X"]}
    ignored = load_model(tmp_path, unknown="ignore").predict_proba(table)

    assert_array_equal(ignored, model().predict_proba(TABLE))
    (tmp_path / "empty").mkdir()
    for culprit, attempt in {
        "'X'": lambda: load_model(tmp_path).predict(table),
        "'drop'": lambda: load_model(tmp_path, unknown="drop"),
        "'none'": lambda: load_model(tmp_path, on_missing="none"),
        "means": lambda: load_model(tmp_path, on_missing="mean"),
        "'keep'": lambda: load_model(tmp_path, on_missing="keep"),
        "transform": lambda: model().transform(TABLE),
        "predict": lambda: SUBSPACE.predict(np.ones((2, 4))),
        "none": lambda: load_model(tmp_path / "none"),
        r"empty.model\.json": lambda: load_model(tmp_path / "empty"),
    }.items():
        with pytest.raises(dadmm.DadmmError, match=culprit):
            attempt()


def test_a_result_becomes_a_model():
    """Columns without names are x0, x1 and so on; a subspace is in principal axes."""
    rng = np.random.default_rng(2)
    X = rng.standard_normal((60, 2))
    y = (X[:, 0] + 0.5 * rng.standard_normal(60) > 0).astype(float)
    made = [problems.LogisticRegression(X[k::3], y[k::3]) for k in range(3)]
    result = solve(made, Topology.ring(3))
    found = Model.of(result, "logistic", settings={"alpha": 3.0})

    margins = X @ result.solution[:2] + result.solution[2]
    assert_array_equal(found.predict(X), (margins > 0).astype(float))
    assert found.feature_names == ("x0", "x1")
    assert (found.origin.status, found.origin.n_rows) == ("certified", None)
    with pytest.raises(ConfigError, match="coef"):
        Model.of(result, "logistic", Encoding.plain(3, classes=(0.0, 1.0)))
    with pytest.raises(ConfigError, match="'sfm'"):
        Model.of(result, "sfm")
    rows = X @ rng.standard_normal((2, 5)) + 0.1 * rng.standard_normal((60, 5))
    result = solve([problems.PPCA(rows[k::2], 2) for k in range(2)], Topology.chain(2))
    W, own = Model.of(result, "ppca").parameters["W"], result.solution[:10]
    own = own.reshape(5, 2)
    assert_allclose(W @ W.T, own @ own.T, rtol=1e-9, atol=1e-12)
    assert abs(W[:, 0] @ W[:, 1]) < 1e-9


GOOD = json.loads(model().to_json())
COEF = {"coef": [0.05, -1.0], "intercept": -2.0}
CHANGES = {  # a field, and values that it must not have
    "format": ["pickle", None],
    "version": [2, True, "1"],
    "problem": ["sfm", ["ridge"]],
    "code": ["import os"],
    "settings": [{"alpha": [1]}, {"alpha": np.inf}, []],
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
    "on_missing": ["mean", "keep"],
    "classes": [["a", "b", "c"], None],
}


def with_change(name, value):
    """Return the content of a file with one change."""
    if name in COEF:
        return GOOD | {"parameters": COEF | {name: value}}
    if name in ("on_missing", "classes"):
        return GOOD | {"encoding": GOOD["encoding"] | {name: value}}
    return GOOD | {name: value}


@pytest.mark.parametrize("name", [*(CHANGES | GOOD)])
def test_a_damaged_file_is_refused(tmp_path, name):
    """The error names the field, or says that it is not JSON."""
    contents = [with_change(name, value) for value in CHANGES.get(name, ())]
    contents += [{k: v for k, v in GOOD.items() if k != name}] if name in GOOD else []
    damaged = [(json.dumps(content).encode(), name) for content in contents]
    if name == "format":
        long = b'{"format": ' + b"9" * 5000 + b"}"
        for content in (b"", b"{", b"\xff\xfe", b"[" * 10**5, long):
            damaged.append((content, "JSON"))
    for content, culprit in damaged:
        (tmp_path / "model.json").write_bytes(content)
        with pytest.raises(ConfigError) as caught:
            load_model(tmp_path / "model.json")
        for word in (str(tmp_path / "model.json"), culprit.removeprefix("on_")):
            assert word in str(caught.value)
        assert "\n" not in str(caught.value)


# scores over the rows of all nodes, against scikit-learn and plain formulas

total, _ = total_of(Topology.chain(4))
RNG = np.random.default_rng(0)
ROWS, WEIGHT = RNG.standard_normal((120, 3)) + 5.0, RNG.random(120)
DESIGN = np.column_stack([ROWS, np.ones(120)])
LINE = {"coef": np.array([1.0, -1.0, 0.5]), "intercept": np.array(-2.5)}
THREE = {"coef": 0.3 * RNG.standard_normal((3, 3)), "intercept": RNG.standard_normal(3)}
FITTED, LABELS = ROWS @ LINE["coef"] - 2.5, RNG.integers(0, 2, 120).astype(float)


def split(X, y=None, weight=None):
    """Return rows of four nodes, the last of which has three only."""
    cuts = [10, 40, len(X) - 3]
    blocks = [np.split(a, cuts) if a is not None else [None] * 4 for a in (y, weight)]
    return [Rows(*own) for own in zip(np.split(X, cuts), *blocks, strict=True)]


@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_regressions_and_counts_have_the_scores_of_scikit_learn(weight):
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(1)
    y = FITTED + 1e3 + rng.standard_normal(120)
    shifted = LINE | {"intercept": np.array(1e3)}
    found = score(total, "regression", shifted, split(ROWS, y, weight))
    given = {"y_true": y, "y_pred": FITTED + 1002.5, "sample_weight": weight}
    assert found.values["r2"] == pytest.approx(metrics.r2_score(**given), rel=1e-10)
    assert_allclose(found.values["rmse"], metrics.root_mean_squared_error(**given))
    assert found.n_rows == 120
    y = rng.poisson(np.exp(FITTED)).astype(float)
    found = score(total, "counts", LINE, split(ROWS, y, weight)).values
    given = {"y_pred": np.exp(FITTED), "sample_weight": weight, "power": 1}
    expected = metrics.d2_tweedie_score(y, **given)
    assert_allclose(found["deviance_explained"], expected, rtol=1e-10)


@pytest.mark.parametrize("weight", [None, WEIGHT])
@pytest.mark.parametrize("fit", [LINE, THREE])
def test_classes_have_accuracy_and_log_loss_and_two_an_auc(fit, weight):
    """The area from histograms is off by no more than its bound."""
    metrics = pytest.importorskip("sklearn.metrics")
    p = probabilities(ROWS, fit)
    y = LABELS if fit is LINE else np.arange(120.0) % 3

    scores = score(total, "classification", fit, split(ROWS, y, weight))

    found, best = scores.values, p.argmax(axis=1)
    expected = {"accuracy": metrics.accuracy_score(y, best, sample_weight=weight)}
    expected["log_loss"] = metrics.log_loss(y, p, sample_weight=weight)
    if fit is LINE:
        assert_allclose(scores.by_class, np.bincount(y.astype(int), weight))
        area = metrics.roc_auc_score(y, p[:, 1], sample_weight=weight)
        error = found.pop("auc_error")
        assert abs(found.pop("auc") - area) <= error + 1e-12
        assert 0.0 < error < 3.0 / BINS
    assert found == pytest.approx(expected, rel=1e-10)


def test_what_is_not_defined_is_none():
    """R2 of a constant target, AUC of one class, and any score of another problem."""
    fit = {"coef": np.zeros(3), "intercept": np.array(0.3)}
    same = split(ROWS, np.ones(120))

    assert score(total, "regression", fit, same).values["r2"] is None
    assert score(total, "classification", fit, same).values["auc"] is None
    assert score(total, None, fit, same).values == {}
    equal = score(total, "classification", fit, split(ROWS, LABELS)).values
    assert (equal["auc"], equal["auc_error"]) == (0.5, 0.0)


@pytest.mark.parametrize(
    ("kind", "fit"),
    [(kind, LINE) for kind in ("regression", "classification", "counts")]
    + [("classification", THREE)],
)
def test_standard_errors_in_other_units(kind, fit):
    """The root of the diagonal of s A H^+ A', H the sum of v x x' times a curvature.

    s is RSS / (N - p) for least squares, else 1. The pseudo-inverse is of centred
    coefficients: the Hessian of softmax lacks common shifts.
    """
    p, variance, bends = probabilities(ROWS, fit), 1.0, np.ones(120)
    if kind == "regression":
        variance = (WEIGHT * (LABELS - FITTED) ** 2).sum() / (120 - 4)
    else:
        bends = np.exp(FITTED) if kind == "counts" else p[:, 0] * p[:, 1]
    blocks = [np.atleast_2d(bend) for bend in bends]
    if fit is THREE:
        blocks = [np.diag(q) - np.outer(q, q) for q in p]
    A = np.diag([0.5, 0.1, 2.0, 1.0])
    A[3, :3] = [1.0, 2.0, -3.0]
    rows = zip(WEIGHT, blocks, DESIGN, strict=True)
    hessian = sum(np.kron(v * block, np.outer(x, x)) for v, block, x in rows)
    wanted, own = np.kron(np.eye(len(blocks[0])), A), split(ROWS, LABELS, WEIGHT)
    squares = variance * wanted @ np.linalg.pinv(hessian, rcond=1e-12) @ wanted.T

    found = score(total, kind, fit, own).variance
    errors = standard_errors(total, kind, fit, own, A, found)

    assert_allclose(found, variance, rtol=1e-10)
    assert_allclose(errors, np.sqrt(np.diag(squares)), rtol=1e-8)


def test_open_coefficients_have_no_standard_error():
    """Two columns are the same, and one is zero; the others are determined."""
    rows = np.column_stack([ROWS[:, 0], ROWS[:, :2], np.zeros(120)])
    inverse = np.linalg.inv(ROWS[:, :2].T @ ROWS[:, :2])

    fit = {"coef": np.zeros(4)}
    errors = standard_errors(total, "regression", fit, split(rows), np.eye(4))

    assert_allclose(errors, [np.nan, np.nan, np.sqrt(inverse[1, 1]), np.nan])
