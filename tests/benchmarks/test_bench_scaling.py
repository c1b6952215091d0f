"""The benchmark of large networks: a small case of it, and the rows that are kept."""

from __future__ import annotations

from benchmarks import bench_scaling
from benchmarks.shared.experiment import read_rows
from tests.support.processes import ROOT


def test_the_page_has_the_stored_rows_and_a_case_can_be_measured():
    assert bench_scaling.measure("grid", 30, None)["iterations"] == 50
    rows = read_rows(ROOT / "benchmarks" / "results" / "scaling.csv")
    page = (ROOT / "docs" / "running.md").read_text("utf-8")
    for row in rows:
        for name, scale in (("iteration", 1e3), ("memory_mb", 1.0)):
            assert f"{scale * float(row[name]):,.{int(scale > 1)}f} |" in page, row
