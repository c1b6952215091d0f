"""The benchmark on public tables: its pooled solutions and its judge."""

from types import SimpleNamespace

import numpy as np
import pytest

import dadmm
from benchmarks import bench_real
from benchmarks.bench_real import Case
from benchmarks.shared import pooled, tables
from tests.benchmarks.test_stored_rows import stored

COLUMNS = stored("real")[0].keys()


def table(units="raw"):
    """Return columns (80, 4) and a target."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 4)) + rng.standard_normal((80, 1))
    y = X @ [2.0, -1.0, 0.1, 0.0] + 3.0 + 0.5 * rng.standard_normal(80)
    return tables.change_units(X, y, units, rng)


@pytest.mark.parametrize("units", tables.UNITS)
@pytest.mark.parametrize("problem", bench_real.PROBLEMS)
def test_the_pooled_solution_is_a_minimum(problem, units):
    """No step along an entry, nor the whole way to zero, lowers the objective."""
    X, y = table(units)
    if problem == "logistic":
        y = (y > np.median(y)).astype(float)
    model, best = bench_real.pooled_solution(problem, X, y)
    steps = [k * entry for entry in np.eye(5) for k in (-1e-3, -1e-6, 1e-6, 1e-3)]
    value = model.over(X, y).objective
    points = [best.theta + step * best.scale for step in steps]

    assert best.determined.all()
    least = min(value(point) for point in points)
    assert least >= best.objective * (1 - 1e-15)
    assert value(np.zeros(5)) > 1.2 * best.objective


def test_a_case_is_measured_and_reported(monkeypatch, capsys):
    monkeypatch.setattr(tables, "load", lambda name: table())
    row = bench_real.measure(
        Case("iris", "least_squares", "ring-6", "raw", "shuffled"), "abc"
    )
    bench_real.print_report([row])

    assert row["right"] == row["near"] == 1
    assert (row["false"], row["determined"]) == ("", 5)
    assert row["once_bytes"] == 2 * 5 * 8 * (15 + 5)
    assert row.keys() == COLUMNS
    assert "| least_squares | 1 | 1 (100 %) | 0 |" in capsys.readouterr().out


@pytest.mark.parametrize("units", ["raw", "far", "mixed"])
def test_ppca_is_judged_by_angle_and_length(units, monkeypatch):
    monkeypatch.setattr(tables, "load", lambda name: table())
    case = Case("iris", "ppca-2", "ring-6", units, "sorted")
    row = bench_real.measure(case, "here")

    assert (row["near"], row["right"], row["false"]) == (1, 1, "")
    assert row.keys() <= COLUMNS
    X, _ = bench_real.data_of(case)
    best = bench_real.pooled_ppca(X, 2)
    layout = dadmm.problems.PPCA(X, 2).layout
    theta = np.array([layout.pack(W=1.02 * best.W, mu=best.mu, a=best.a)])
    said = SimpleNamespace(theta=theta, layout=layout, converged=True)
    found = bench_real.judge_ppca(said, best)
    assert (found["near"], found["false"]) == (0, "answer")
    assert found["fit_error"] < 1e-6
    with pytest.raises(pooled.NotProved):
        bench_real.pooled_ppca(np.vstack([np.eye(4), -np.eye(4)]), 2)


@pytest.mark.parametrize(
    ("off", "gap", "bound", "status", "above", "expected"),
    [
        (0.0, 0.0, 0.0, "certified", 0.0, ""),
        (0.1, 0.0, 0.0, "certified", 0.0, "gap+coefficient+answer"),
        (0.1, 1e9, 1e9, "certified", 0.0, "answer"),
        (1e-4, 0.0, 0.0, "certified", 0.0, "gap+coefficient"),
        (1e-4, 1e9, 1.0, "certified", 0.0, ""),
        (0.1, 1e9, 1e9, "not converged", 0.0, ""),
        (0.0, 0.0, 0.0, "certified", 1e-6, "objective"),
    ],
)
def test_false_statements_are_found(off, gap, bound, status, above, expected):
    """All entries are off by a part of their scale; the nodes agree."""
    X, y = table()
    model, best = bench_real.pooled_solution("ridge", X, y)
    value = model.over(X, y).objective
    there, certified = best.theta + off * best.scale, status == "certified"
    bounds = {"gap": gap, "coefficients": bound * best.scale, "holds": certified}
    result = SimpleNamespace(
        status=status, theta=np.tile(there, (6, 1)), solution=there,
        objective=value(there) * (1 + above), converged=certified,
        certificate=SimpleNamespace(**bounds),
    )  # fmt: skip

    errors = bench_real.errors_of(X, best, result.theta)
    found, *_ = bench_real.false_statements(result, errors, best, value)

    assert found == expected
    assert errors.near() == (off <= 1e-2)
