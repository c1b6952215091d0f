"""The benchmark of an iteration: what its ranks measure."""

from __future__ import annotations

import json

import pytest

from tests.support.processes import ROOT, mpi_python


@pytest.mark.mpi
def test_ranks_measure_an_iteration_and_its_floor():
    """On two graphs, with either wait."""
    job = ("-m", "benchmarks.bench_iteration", "--on-ranks", "--quick")
    ended = mpi_python(3, *job, cwd=ROOT).end()

    assert ended.code == 0, ended.err
    rows = json.loads(ended.out)
    graphs = [row["what"].partition(",")[0] for row in rows]
    assert graphs == ["ring", "ring", "complete", "complete"]
    assert {"bare block, us", "bare poll, us"} <= rows[0].keys()
