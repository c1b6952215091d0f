"""The paper's experiments: a slice of each, run again and compared with stored rows."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import dadmm
from benchmarks import paper_claims, paper_synthetic, paper_tracks
from benchmarks.shared import experiment
from tests.support.processes import mpiexec
from tests.support.solving import solve

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
SHARED = Path(os.environ.get("DADMM_SHARED", ROOT.parent / "shared")) / "data"


def stored(name: str, **wanted: object) -> dict[str, str]:
    """Return the one stored row that has these values."""
    rows = experiment.read_rows(RESULTS / f"{name}.csv")
    match = [r for r in rows if all(r[k] == str(v) for k, v in wanted.items())]
    assert len(match) == 1, (name, wanted, len(match))
    return match[0]


def assert_same(row: dict[str, str], again: dict) -> None:
    """Compare a stored row with a new outcome; another BLAS may round otherwise."""
    for column in ("iterations", "both_rules"):
        assert abs(int(row[column]) - again[column]) <= 1, column
    angles = [c for c in row if c.startswith("angle_") and c.endswith("ised")]
    for column in angles:
        assert float(row[column]) == pytest.approx(again[column], rel=0.02), column


@pytest.mark.parametrize("setting", experiment.SETTINGS)
@pytest.mark.parametrize("scheme", ["fixed", "vp", "nap"])
def test_synthetic_rows_can_be_had_again(setting, scheme):
    row = stored(
        "synthetic", setting=setting, scheme=scheme, graph="complete", n_nodes=12,
        start=0,
    )  # fmt: skip

    assert_same(row, paper_synthetic.outcome(experiment.case_of(row)))


@pytest.mark.slow
@pytest.mark.parametrize("experiment_name", ["caltech", "hopkins"])
@pytest.mark.parametrize("scheme", ["fixed", "vp_ap"])
def test_rows_of_real_tracks_can_be_had_again(experiment_name, scheme):
    folder = SHARED / experiment_name
    if not folder.is_dir():
        pytest.skip(f"no {folder}; set DADMM_SHARED to the folder that holds data/")
    row = stored(
        experiment_name, data="004", setting="printed", scheme=scheme, graph="complete",
        t_max=50, start=0,
    )  # fmt: skip

    patient = experiment_name == "caltech"
    assert_same(
        row, paper_tracks.outcome(experiment.case_of(row), folder, 300, patient)
    )


@pytest.mark.slow
@pytest.mark.mpi
def test_a_cell_of_the_synthetic_experiment_is_the_same_over_mpi(tmp_path):
    """12 ranks with the preset as-printed: the bits of one process, the stored row."""
    settings = {"scheme": "nap", "seed": 0, **experiment.SETTINGS["printed"]}
    preset = ("--config", "as-printed")

    ended = mpiexec(12, "-m", "dadmm.run", "--out", "cell", *preset, cwd=tmp_path)

    assert ended.code == 0, ended.err
    samples, _ = paper_synthetic.samples_and_truth("seed0")
    problems = [dadmm.problems.PPCA(x, 5) for x in dadmm.shard.split(samples, 12)]
    alone = solve(problems, dadmm.Topology.complete(12), **settings)
    with np.load(tmp_path / "cell" / "result.npz") as arrays:
        for part, values in alone.layout.views(alone.theta)._asdict().items():
            assert_array_equal(arrays[part], values)
    summary = json.loads((tmp_path / "cell" / "summary.json").read_text())
    row = stored(
        "synthetic", setting="printed", scheme="nap", graph="complete", n_nodes=12,
        start=0,
    )  # fmt: skip
    assert summary["iterations"] == alone.iterations
    assert abs(int(row["iterations"]) - alone.iterations) <= 1


def test_the_tables_of_the_page_are_those_of_the_rows(capsys):
    page = (ROOT / "benchmarks" / "PAPER.md").read_text("utf-8").splitlines()

    paper_claims.print_page(paper_claims.read_all())

    lines = capsys.readouterr().out.splitlines()
    tables = [line for line in lines if line.startswith("|")]
    assert len(tables) > 90
    assert [line for line in tables if line not in page] == []
