"""The benchmark of an iteration: its two measurements that run the algorithm."""

from __future__ import annotations

import json

import pytest

from benchmarks import bench_iteration
from tests.support.processes import ROOT, mpi_python


def test_nodes_meet_before_they_iterate():
    """Else they would read messages that nobody sent."""
    row = bench_iteration.sample_count(iterations=3, repeats=1, most=200)

    assert row["ratio"] > 0
    assert row["microseconds"].keys() == {"100", "200"}


@pytest.mark.mpi
def test_ranks_measure_an_iteration_and_its_floor():
    """On two graphs, with either wait."""
    job = ("-m", "benchmarks.bench_iteration", "--on-ranks", "--quick")
    ended = mpi_python(3, *job, cwd=ROOT).end()

    assert ended.code == 0, ended.err
    rows = json.loads(ended.out)
    graphs = [row["what"].partition(",")[0] for row in rows]
    assert graphs == ["ring", "ring", "complete", "complete"]
    assert {"bare block", "bare poll"} <= rows[0]["microseconds"].keys()
