"""Problems on the command line: what a fit states, and classes of one's own."""

import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import linear_model as linear

import dadmm
from dadmm.__main__ import main_of
from dadmm.core.errors import ConfigError
from dadmm.data import datasets
from dadmm.problems import builder
from dadmm.run import main
from dadmm.runs.config import RunConfig
from tests.cli.test_sessions import MODULE
from tests.support.processes import ROOT
from tests.support.runs import arrays_of, refused, rows_of, run_job, summary_of

SMALL = ("--nodes", 3, "--tolerance", 1e-8)
MEAN = ("--problem", "mine:Mean")
HOSPITALS = ROOT / "examples" / "hospitals"
N = 140  # rows of all hospitals
TARGETS = {"logistic": "readmitted", "multinomial": "outcome", "poisson": "days"}
EXACT = {"solver": "newton-cholesky", "tol": 1e-12, "max_iter": 1000}
SAME = {  # the table of docs/problems.md: scikit-learn's model, and flags of a run
    "least_squares": (linear.LinearRegression(), {}),
    "ridge": (linear.Ridge(7.0), {"alpha": 7.0}),
    "lasso": (linear.Lasso(0.3, tol=1e-12), {"alpha": N * 0.3}),
    "elastic_net": (
        linear.ElasticNet(0.3, l1_ratio=0.7, tol=1e-12),
        {"alpha": N * 0.3, "l1-ratio": 0.7},
    ),
    "logistic": (linear.LogisticRegression(C=0.2, **EXACT), {"alpha": 5.0}),
    "multinomial": (linear.LogisticRegression(C=1.0, **EXACT), {}),
    "poisson": (linear.PoissonRegressor(alpha=0.1, **EXACT), {"alpha": N / 10}),
    "huber": (linear.HuberRegressor(epsilon=1.5, alpha=2.0, max_iter=999), {}),
}


@pytest.mark.parametrize("name", SAME)
def test_flags_mean_what_the_table_of_the_page_says(name):
    """By the commands of examples/hospitals, which also predict what it predicts."""
    target, (model, flags) = TARGETS.get(name, "cost"), SAME[name]
    has_classes = hasattr(model, "predict_proba")
    tables = [dadmm.read_table(HOSPITALS / f"site-{i}.csv") for i in range(3)]
    features = ["age", "sex", "ward", "pressure", "smoker"]
    encoding, _ = dadmm.encode(
        tables, dadmm.Topology.ring(3), target, classify=has_classes,
        on_missing="mean", features=features,
    )  # fmt: skip
    X = np.vstack([encoding.encode(table).X for table in tables])
    model.fit(X, np.concatenate([table.column(target) for table in tables]))
    if name == "huber":
        flags = {"delta": 1.5 * model.scale_, "alpha": 2.0 * model.scale_}
    words = [f"--{flag}={value}" for flag, value in flags.items()]
    words += ["--data", HOSPITALS / "site-{rank}.csv", "--target", target]
    words += ["--features", ",".join(features), "--on-missing", "mean"]
    folder = run_job("--problem", name, "--nodes", 3, "--tolerance", 1e-9, *words)
    summary, new = summary_of(folder), HOSPITALS / "new.csv"
    words = [str(folder), str(new), "--out", "predictions.csv"]
    assert main_of("predict")(words) == 0

    names, intercept = (
        [*encoding.feature_names, "intercept"],
        np.ravel(model.intercept_),
    )
    if name == "multinomial":
        intercept = intercept - intercept.mean()
        names = [f"{k}: {column}" for k in model.classes_ for column in names]
    wanted = np.column_stack([np.atleast_2d(model.coef_), intercept]).ravel()
    assert summary["status"] == "certified"
    assert [*summary["coefficients"]] == names
    close = 1e-2 if name == "huber" else 1e-6  # scikit-learn's ends early
    assert_allclose([*summary["coefficients"].values()], wanted, close, close)
    told, rows = rows_of("predictions.csv"), encoding.encode(dadmm.read_table(new)).X
    values, expected = [row["prediction"] for row in told], model.predict(rows)
    if not has_classes:
        assert_allclose(np.array(values, float), expected, rtol=close)
        return
    assert values == expected.tolist()
    odds = [[float(row[f"p({k})"]) for k in model.classes_] for row in told]
    assert_allclose(odds, model.predict_proba(rows), atol=1e-6)


@pytest.mark.parametrize("problem", ["logistic", "poisson"])
def test_coefficients_errors_and_scores_do_not_depend_on_units(problem):
    rng, head = np.random.default_rng(5), "age,size,ward,weight,y\n"
    for k, wards in enumerate(("AB", "BC", "AC")):
        own = zip(rng.uniform(20, 90, 40), rng.normal(0, 1e3, 40),
                  rng.choice([*wards], 40), rng.integers(1, 4, 40),
                  rng.integers(0, 2, 40), strict=True)  # fmt: skip
        rows = [",".join(map(str, row)) + "\n" for row in own]
        Path(f"part-{k}.csv").write_text("".join([head, *rows]))
    words = f"--problem {problem} --weight weight --data part-{{rank}}.csv --nodes 3 "
    words += "--tolerance 1e-10 --max-iter 3000 --alpha 0"
    plain = summary_of(run_job(*words.split()))
    scaled = summary_of(run_job(*words.split(), "--standardise", out="scaled"))

    for name in ("coefficients", "standard_errors", "scores"):
        assert [*plain[name]] == [*scaled[name]]
        values = [*plain[name].values()], [*scaled[name].values()]
        assert_allclose(*values, rtol=1e-5, atol=1e-8)
    names = ["age", "size", "ward=B", "ward=C", "intercept"]
    assert [*plain["standard_errors"]] == names


@pytest.fixture(autouse=True)
def package(home, monkeypatch):
    for name in ("site", "work"):
        (home / name).mkdir()
    (home / "site" / "mine.py").write_text(MODULE)
    monkeypatch.chdir(home / "work")
    monkeypatch.syspath_prepend(home / "site")
    yield home / "site"
    sys.modules.pop("mine", None)


def test_a_class_is_named_by_its_module_and_gets_its_settings():
    assert main([*map(str, (*MEAN, *SMALL)), "--dimension", "4", "--quiet"]) == 0
    (folder,) = Path("runs").iterdir()
    assert folder.name.startswith("Mean-")
    samples = datasets.synthetic(500, 4)[0]
    found = arrays_of(folder)["mean"]
    assert_allclose(found, np.tile(samples.mean(axis=0), (3, 1)), atol=1e-6)

    np.save("rows.npy", np.vstack([np.ones((6, 2)), [[1, np.nan]]]))
    Path("run.toml").write_text("[problem_settings]\nweight = 2\noffset = [1.0, 3.0]\n")
    words = (*MEAN, *SMALL, "--data", "rows.npy")
    given = ("--problem-settings", '{"weight": 2, "offset": [1.0, 3.0]}')
    flag = arrays_of(run_job(*words, *given, out="flag"))["mean"]
    assert_allclose(flag, [[2.0, 4.0]] * 3, atol=1e-7)
    run_job(*words, "--config", "run.toml", out="table")
    run_job("--config", "table/config.toml", "--trust", out="again")
    for other in ("table", "again"):
        assert_array_equal(arrays_of(other)["mean"], flag)
    assert builder.find("mine:Group.Inner").__name__ == "Mean"


def test_an_installed_package_may_offer_a_problem_by_a_name(package):
    info = package / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1")
    points = "[dadmm.problems]\nmean = mine:Mean\n"
    (info / "entry_points.txt").write_text(points)
    found = [run_job("--problem", name, *SMALL, out=name) for name in ("mean", MEAN[1])]

    assert_array_equal(*(arrays_of(folder)["mean"] for folder in found))
    with pytest.raises(ConfigError, match="mean"):
        RunConfig(problem="maen")


def test_only_a_module_that_is_named_may_lie_in_the_current_folder(monkeypatch):
    for name in ("beside", "theirs"):
        Path(f"{name}.py").write_text(MODULE)
    here = ("", ".", str(Path.cwd()))
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in here])
    monkeypatch.setattr(builder, "_from_packages", lambda: {"mean": "theirs:Mean"})

    assert RunConfig(problem="mean").is_plugin
    with pytest.raises(ConfigError, match="theirs"):
        builder.find("mean")
    assert "theirs" not in sys.modules
    assert builder.find("beside:Mean").__module__ == "beside"
    del sys.modules["beside"]


def test_a_class_need_not_keep_its_arguments(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    problem = "examples.own_problem:RidgeWithIntercept"

    assert "alpha" not in summary_of(run_job("--problem", problem, "--nodes", 3))


def test_a_file_does_not_name_code(capsys):
    Path("theirs.toml").write_text(f'problem = "{MEAN[1]}"\nmax_iter = 3\n')
    for words in ((), ("--dry-run",)):
        said = refused(capsys, "--config", "theirs.toml", *words)
        assert f"--problem {MEAN[1]}" in said
        assert "--trust" in said
    assert [path.name for path in Path().iterdir()] == ["theirs.toml"]
    assert "mine" not in sys.modules
    given = ("--config", "theirs.toml", "--nodes", 3, "--tolerance", 0)
    named, trusted = run_job(*given, *MEAN), run_job(*given, "--trust", out="trusted")
    assert_array_equal(arrays_of(trusted)["mean"], arrays_of(named)["mean"])
    assert "trust" not in (trusted / "config.toml").read_text()
    del sys.modules["mine"]
    resume = ("--resume", "run", "--max-iter")
    assert MEAN[1] in refused(capsys, *resume, 6)
    assert "mine" not in sys.modules
    for words in ((6, *MEAN), (7, "--trust")):
        assert main([*map(str, (*resume, *words)), "--quiet"]) == 0
