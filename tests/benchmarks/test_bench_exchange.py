"""The benchmark of the exchange: a tiny run of it, and its rows as a network."""

from __future__ import annotations

import pytest

from benchmarks import bench_exchange
from benchmarks.shared.experiment import read_rows
from dadmm.timing.network import Network
from tests.support.processes import ROOT, find_mpiexec, python

TRANSPORTS = ("dadmm", "persistent", "nonblocking", "Ineighbor_alltoallv")


@pytest.mark.slow
@pytest.mark.mpi
def test_a_tiny_run_leaves_rows_and_a_network(tmp_path):
    """Three ranks on a ring, two sizes; every transport with either wait."""
    if find_mpiexec() is None:
        pytest.skip("no mpiexec beside this Python, and no DADMM_MPIEXEC")
    choices = ("--ranks", 3, "--graphs", "ring", "--sizes", 64, 4096)
    files = ("--csv", "rows.csv", "--network", "net.toml")
    bench = ("-m", "benchmarks.bench_exchange", "--rounds", 2)
    job = python(*bench, *choices, *files, cwd=tmp_path)
    ended = job.end()

    assert ended.code == 0, ended.err
    rows = read_rows(tmp_path / "rows.csv")
    both = {(name, wait) for name in TRANSPORTS for wait in ("block", "poll")}
    both |= {("Neighbor_alltoall", "block")}
    swaps = [row for row in rows if row["graph"]]
    for size in ("64", "4096"):
        own = [row for row in swaps if row["bytes"] == size]
        assert sorted((row["transport"], row["wait"]) for row in own) == sorted(both)
        assert all(row["degree"] == "2" and float(row["dadmm_over"]) > 0 for row in own)
    echoes = [row for row in rows if row["transport"] == "ping-pong"]
    assert [row["class"] for row in echoes] == ["host"] * 2
    assert list(Network.read(tmp_path / "net.toml").links) == ["host"]


def test_the_page_has_the_stored_rows():
    """Ours over the bare call against which it does worst, by graph and size."""
    rows = read_rows(ROOT / "benchmarks" / "results" / "exchange.csv")
    swaps = [row for row in rows if row["graph"]]
    for row in swaps:
        row |= {name: int(row[name]) for name in ("ranks", "degree", "bytes")}
        row |= {name: float(row[name]) for name in ("seconds", "dadmm_over")}
        row["waits_alike"] = row["waits_alike"] == "True"
    found: dict[tuple, list[str]] = {}
    for ranks, graph, *cells in bench_exchange.compared(swaps):
        found.setdefault((ranks, graph), []).append(cells[-1])
    page = (ROOT / "benchmarks" / "README.md").read_text("utf-8")

    assert len(found) == 4
    for ratios in found.values():
        assert f" | {' | '.join(ratios)} |\n" in page
