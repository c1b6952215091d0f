"""The benchmark of large networks: small cases of it, and the rows that are kept."""

from __future__ import annotations

import pytest

from benchmarks import bench_scale, bench_scaling
from benchmarks.shared.experiment import read_rows
from tests.support.processes import ROOT


@pytest.mark.parametrize("graph", ["grid", "random_geometric"])
def test_a_case_stops_at_the_optimum(graph):
    row = bench_scale.measure(graph, 30, 2000, 1e-3)

    assert row["reason"] == "converged"
    assert row["median_error"] <= row["worst_error"] < 1e-3
    assert row["nodes"] == 30


def test_two_ranks_take_half_the_time():
    """And the page has the numbers of the stored rows."""
    assert bench_scaling.measure("grid", 30, None)["iterations"] == 50
    rows = read_rows(ROOT / "benchmarks" / "results" / "scaling.csv")
    page = (ROOT / "docs" / "running.md").read_text("utf-8")
    times = {}
    for row in rows:
        times[row["nodes"], row["ranks"]] = float(row["iteration"])
        for name, scale in (("iteration", 1e3), ("memory_mb", 1.0)):
            assert f"{scale * float(row[name]):.{int(scale > 1)}f} |" in page, row

    assert times["20000", "0"] / times["20000", "2"] > 1.6


def test_the_rows_kept_meet_the_aims():
    """At 100,000 nodes, and wherever the run was to stop by itself."""
    rows = read_rows(ROOT / "benchmarks" / "results" / "scale.csv")
    large = [row for row in rows if row["nodes"] == "100000"]

    assert large
    for row in large:
        assert bench_scale.setup_seconds(row) < 60
        assert float(row["node_iteration_us"]) < 10
        assert float(row["memory_mb"]) < 2000
    for row in rows:
        if row["graph"] != "ring":
            assert row["reason"] == "converged"
            assert float(row["worst_error"]) < float(row["tolerance"])


def test_the_page_has_the_stored_rows(capsys):
    """Of networks of 1,000 nodes and more."""
    rows = read_rows(ROOT / "benchmarks" / "results" / "scale.csv")
    page = (ROOT / "benchmarks" / "README.md").read_text("utf-8").splitlines()

    bench_scale.print_table([row for row in rows if int(row["nodes"]) >= 1000])

    assert [x for x in capsys.readouterr().out.splitlines() if x not in page] == []
