"""The pages have the numbers of the stored rows; the judge of public tables."""

from types import SimpleNamespace

import numpy as np
import pytest

import dadmm
from benchmarks import bench_real, paper_claims
from benchmarks.bench_real import Case
from benchmarks.peers import authors, compare, rows
from benchmarks.shared import pooled, tables
from benchmarks.shared.experiment import read_rows
from tests.support.processes import ROOT

BENCHMARKS = ROOT / "benchmarks"
PEERS = (BENCHMARKS / "peers" / "README.md").read_text("utf-8")


def stored(name: str) -> list[dict[str, str]]:
    return read_rows(BENCHMARKS / "results" / f"{name}.csv")


@pytest.mark.parametrize(
    ("name", "count"),
    [("real", 600), ("real-fresh", 300), ("real-ppca", 600), ("real-ppca-fresh", 300)],
)
def test_nothing_was_false_on_public_tables(name, count, capsys):
    found = stored(name)
    page = (BENCHMARKS / "README.md").read_text("utf-8").splitlines()

    cases = {tuple(row[word] for word in bench_real.Case._fields) for row in found}
    assert len(cases) == len(found) == count
    assert not any(row["false"] for row in found)
    assert all(tables.role(row["table"]) == row["role"] for row in found)
    known = [row for row in found if row["status"] != "no reference"]
    bench_real.by_group("problem", known)
    lines = capsys.readouterr().out.splitlines()[1:]
    if "fresh" in name:
        lines = [lines[-1].replace("| all |", "| fresh tables |")]
    assert [line for line in lines if line not in page] == []


def test_the_tables_of_the_paper(capsys):
    page = (BENCHMARKS / "PAPER.md").read_text("utf-8").splitlines()

    paper_claims.print_page(paper_claims.read_all())

    lines = capsys.readouterr().out.splitlines()
    found = [line for line in lines if line.startswith("|")]
    assert len(found) > 90
    assert [line for line in found if line not in page] == []


def test_rows_of_peers_are_medians_and_dadmm_sends_less():
    found, more = stored("peers"), stored("peers_busy")

    assert tuple(found[0]) == tuple(more[0])
    methods = {row["method"] for row in found + more}
    assert methods >= {entry.method for entry in compare.ENTRIES} - {"snap"}
    for row in found + more:
        times = rows.numbers(row["all_ms"])
        assert float(row["ms_per_iteration"]) == pytest.approx(np.median(times), 1e-3)
    for name in ("bytes_per_iteration", "wire_bytes_per_iteration", "bytes_to_1e-06"):
        of = {r["method"]: float(r[name]) for r in found if "20 ranks" in r["where"]}
        assert of["fixed"] < min(of["admm"], of["tracking"]), name


def test_dadmm_agrees_with_the_program_of_the_authors():
    """Parameters to rounding; every scheme on every graph, from both programs."""
    found = stored("peers_authors")

    assert tuple(found[0]) == authors.COLUMNS
    timed = [row for row in found if row["scheme"] in authors.NAMES]
    assert len(timed) == 2 * len(authors.NAMES) * len(authors.NETWORKS)
    assert max(float(row["apart"]) for row in timed) < 1e-10
    assert all(int(row["stop"]) > 0 for row in found)


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
