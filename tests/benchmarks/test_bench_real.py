"""The benchmark on public tables: its pooled solutions and its judge."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import dadmm
from benchmarks import bench_real
from benchmarks.bench_real import Case, by_group, print_report
from benchmarks.shared import pooled, tables
from benchmarks.shared.experiment import read_rows
from tests.support.processes import ROOT

STORED = read_rows(ROOT / "benchmarks" / "results" / "real.csv")


def table(units="raw", seed=0):
    """Return columns (80, 4) and a target."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((80, 4)) + rng.standard_normal((80, 1))
    y = X @ [2.0, -1.0, 0.1, 0.0] + 3.0 + 0.5 * rng.standard_normal(80)
    return tables.change_units(X, y, units, rng)


def solved(problem, units):
    """Return rows, targets, model and pooled solution of a synthetic table."""
    X, y = table(units)
    if problem == "logistic":
        y = (y > np.median(y)).astype(float)
    return X, y, *bench_real.pooled_solution(problem, X, y)


@pytest.mark.parametrize("units", tables.UNITS)
@pytest.mark.parametrize("problem", bench_real.PROBLEMS)
def test_the_pooled_solution_is_a_minimum(problem, units):
    """No step along an entry, nor the whole way to zero, lowers the objective."""
    X, y, model, best = solved(problem, units)

    values = [
        pooled.objective(model, X, y, best.theta + step * best.scale * entry)
        for entry in np.eye(5)
        for step in (-1e-3, -1e-6, 1e-6, 1e-3)
    ]

    assert best.determined.all()
    assert min(values) >= best.objective * (1 - 1e-15)
    assert pooled.objective(model, X, y, np.zeros(5)) > 1.2 * best.objective


def test_a_case_is_measured_and_reported(monkeypatch, capsys):
    monkeypatch.setattr(tables, "load", lambda name: table())
    case = Case("iris", "least_squares", "ring-6", "raw", "shuffled")

    row = bench_real.measure(case, "abc")
    print_report([row])

    assert row["right"] == row["near"] == 1
    assert (row["false"], row["determined"]) == ("", 5)
    assert row["once_bytes"] == 2 * 5 * 8 * (15 + 5)
    assert row.keys() == STORED[0].keys()
    assert "| least_squares | 1 | 1 (100 %) | 0 |" in capsys.readouterr().out


@pytest.mark.parametrize("units", ["raw", "far", "mixed"])
def test_ppca_is_judged_by_angle_and_length(units, monkeypatch):
    monkeypatch.setattr(tables, "load", lambda name: table())
    case = Case("iris", "ppca-2", "ring-6", units, "sorted")
    row = bench_real.measure(case, "here")

    assert (row["near"], row["right"], row["false"]) == (1, 1, "")
    assert row.keys() <= STORED[0].keys()
    X, _ = bench_real.data_of(case)
    best = bench_real.pooled_ppca(X, 2)
    layout = dadmm.problems.PPCA(X, 2).layout
    theta = np.array([layout.pack(W=1.02 * best.W, mu=best.mu, a=best.a)])
    said = SimpleNamespace(theta=theta, layout=layout, converged=True)
    found = bench_real.judge_ppca(said, best)
    assert (found["near"], found["false"]) == (0, "answer")
    assert found["fit_error"] < 1e-6
    with pytest.raises(pooled.NoReference, match="rounding decides"):
        bench_real.pooled_ppca(np.vstack([np.eye(4), -np.eye(4)]), 2)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, ""),
        ({"off": 0.1}, "gap+coefficient+answer"),
        ({"off": 0.1, "gap": 1e9}, "coefficient+answer"),
        ({"off": 0.1, "gap": 1e9, "bound": 1e9}, "answer"),
        ({"off": 1e-4}, "gap+coefficient"),
        ({"off": 1e-4, "gap": 1e9, "bound": 1.0}, ""),
        ({"off": 0.1, "status": "not converged", "holds": False}, ""),
        ({"off": 0.1, "status": "certified", "holds": False}, "answer"),
        ({"objective": 1e-6}, "objective"),
    ],
)
def test_false_statements_are_found(changed, expected):
    """All entries are off by a part of their scale; the nodes agree."""
    given = {"off": 0.0, "gap": 0.0, "bound": 0.0, "status": "certified"}
    given |= {"holds": True, "objective": 0.0} | changed
    X, y, model, best = solved("ridge", "raw")

    def value(theta):
        return pooled.objective(model, X, y, theta)

    there = best.theta + given["off"] * best.scale
    result = SimpleNamespace(
        status=given["status"], theta=np.tile(there, (6, 1)), solution=there,
        objective=value(there) * (1 + given["objective"]),
        certificate=SimpleNamespace(
            gap=given["gap"], coefficients=given["bound"] * best.scale,
            holds=given["holds"],
        ),
        converged=given["status"] == "certified",
    )  # fmt: skip

    errors = bench_real.errors_of(X, best, result.theta)
    found, *_ = bench_real.false_statements(result, errors, best, value)

    assert found == expected
    assert errors.near() == (given["off"] <= 1e-2)


@pytest.mark.parametrize(
    ("name", "count"),
    [("real", 600), ("real-fresh", 300), ("real-ppca", 600), ("real-ppca-fresh", 300)],
)
def test_the_page_has_the_stored_rows(name, count, capsys):
    """Nothing false, and each line of the table by problem."""
    rows = read_rows(ROOT / "benchmarks" / "results" / f"{name}.csv")
    page = (ROOT / "benchmarks" / "README.md").read_text("utf-8").splitlines()

    cases = {tuple(row[word] for word in Case._fields) for row in rows}
    assert len(cases) == len(rows) == count
    assert not any(row["false"] for row in rows)
    assert all(tables.role(row["table"]) == row["role"] for row in rows)
    by_group("problem", [row for row in rows if row["status"] != "no reference"])
    found = capsys.readouterr().out.splitlines()[1:]
    if "fresh" in name:
        found = [found[-1].replace("| all |", "| fresh tables |")]
    assert [line for line in found if line not in page] == []
