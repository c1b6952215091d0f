"""The bare command over 20 ranks: the paper's experiment, and what leaves a node."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from dadmm import Topology
from tests.support.processes import mpiexec, program
from tests.support.runs import summary_of

RANKS = 20
GRAPH = Topology.cluster(RANKS)
pytestmark = pytest.mark.mpi


def test_penalties_and_budgets_of_every_edge_change(tmp_path):
    """It ends with a true answer."""
    ended = mpiexec(RANKS, "-m", "dadmm.run", cwd=tmp_path)
    assert ended.code == 0, ended.err
    (folder,) = (tmp_path / "runs").iterdir()
    summary = summary_of(folder)
    with (folder / "edges.csv").open() as file:
        header, *rows = csv.reader(file)
    table = np.array(rows, float).reshape(-1, len(GRAPH.edges), len(header))
    column = {name: table[:, :, k] for k, name in enumerate(header)}

    assert summary["status"] == "stationary"
    assert summary["metrics"]["angle_to_centralised_degrees"] < 0.5
    assert len(table) == summary["iterations"] < 300
    assert (table[0, :, 1:3] == GRAPH.edges).all()
    assert (column["eta"] != column["eta"][0]).any(axis=0).all()
    assert (column["spent"][-1] > 0.0).all()
    assert (column["spent"] <= column["budget"]).all()
    assert (np.diff(column["spent"], axis=0) >= 0.0).all()
    eta = column["eta"]
    assert summary["penalties"]["eta0"] == [eta[0].min(), eta[0].max()]
    assert str(folder.relative_to(tmp_path)) in ended.out.splitlines()[-1]


def test_sums_for_the_units_leave_a_node_besides_parameters(tmp_path):
    """Along edges of the graph, and no row: a leaf of the tree sends its own sums.

    Rank 0 gathers parameters; little else is sent to others than neighbours. A gathered
    text is filled with zeros to 64 bytes, which do not count here.
    """
    ended = mpiexec(RANKS, *program("privacy.py"), "bare", cwd=tmp_path)
    assert ended.code == 0, ended.err
    ranks = json.loads(ended.out)["ranks"]
    parents = [[]] + [["Isend to rank 0"]] * 8 + [[], []] + [["Isend to rank 10"]] * 9

    assert [rank["entries"] for rank in ranks] == [[]] * RANKS
    assert [rank["summaries"] for rank in ranks] == parents
    for i, rank in enumerate(ranks):
        neighbours = GRAPH.edges[GRAPH.edges[:, 0] == i, 1]
        assert set(rank["whom"]) == {f"rank {j}" for j in neighbours}
    assert max(rank["public"] for rank in ranks[1:]) < 1000
    summary = summary_of(tmp_path / "run")
    counted = ("bytes", "collective_bytes", "outside_bytes")
    recorded = sum(rank["bytes"] for rank in ranks)
    assert sum(summary[k] for k in counted) + (2 * 8 + 64) * RANKS == recorded
