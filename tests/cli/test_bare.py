"""The bare command over 20 ranks: the paper's experiment, and what leaves a node."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from dadmm import Topology
from tests.support.processes import mpiexec
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
