"""The stored rows of bench_communication.py, a slice of which is run again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import bench_communication as bench
from benchmarks.shared import communication_report as report
from benchmarks.shared.experiment import read_rows
from benchmarks.shared.trials import number_of

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
ROWS = read_rows(BENCHMARKS / "results" / "communication.csv")


def stored(problem, graph, scheme, sending):
    """Return the stored row of a run."""
    wanted = problem, graph, scheme, sending
    keys = "problem", "graph", "scheme", "sending"
    (row,) = [row for row in ROWS if tuple(row[key] for key in keys) == wanted]
    return row


@pytest.mark.slow
@pytest.mark.parametrize(
    ("problem", "graph", "scheme", "sending"),
    [
        ("ppca", "complete", "snap", "4 bits"),
        ("ppca", "ring", "snap", "4 bits, censored"),
        ("ppca", "complete", "nap", "float64"),
        ("logistic", "complete", "snap", "sleeping"),
    ],
)
def test_a_stored_row_is_what_a_run_gives(problem, graph, scheme, sending):
    """Bytes, messages and iterations to the last one; the model's seconds as well."""
    row = stored(problem, graph, scheme, sending)
    talk = bench.Talk(problem, graph, scheme, number_of(row["eta0"]), sending)
    found = bench.work(talk)

    for key in ("first", "for_good", "first_bytes", "messages", "bytes", "silent"):
        assert found[key] == int(row[key]), key
    for key in ("lan_seconds", "wan_seconds", "wireless_seconds"):
        assert np.isclose(found[key], float(row[key]), rtol=1e-4), key
    assert found["curves"]["bytes"] == sorted(found["curves"]["bytes"])


@pytest.mark.slow
def test_tables_and_figures_come_from_rows(tmp_path, capsys):
    """A row that did not arrive has dashes; a figure for each problem."""
    talk = bench.Talk("ppca", "complete", "snap", "auto", "float16")
    arrived = bench.work(talk)
    given_up = {**arrived, "sending": "2 bits", "first": None, "for_good": None}
    report.print_tables([arrived, given_up])
    lines = capsys.readouterr().out.splitlines()
    paths = report.draw_pareto([arrived, given_up], tmp_path)

    counts = f"{arrived['first']} | {arrived['for_good']}"
    assert any(f"| snap | float16 | {counts} |" in line for line in lines)
    assert any("not within" in line for line in lines)
    assert [path.name for path in paths] == ["communication-ppca.png"]
