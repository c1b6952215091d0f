"""The benchmark of the exchange: a tiny run of it, and its rows as a network."""

from __future__ import annotations

import argparse

import pytest

from benchmarks import bench_exchange
from benchmarks.shared.experiment import read_rows
from dadmm.timing import calibrate
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
        found.setdefault((ranks, graph), []).append(cells[-2])
    page = (ROOT / "benchmarks" / "README.md").read_text("utf-8")

    assert len(found) == 4
    for ratios in found.values():
        assert f" | {' | '.join(ratios)} |\n" in page


def test_the_rows_calibrate_the_network_of_two_ranks(tmp_path):
    """Ranks that share cores also wait for each other, which is no link's."""
    echo = {"transport": "ping-pong", "class": "host", "mpi": "MPI", "mpi4py": "4"}
    echo["wait"] = "block"
    times = {(2, 64): 2e-6, (2, 65600): 4e-6, (20, 64): 1e-4, (20, 65600): 2e-4}
    rows = [
        {**echo, "ranks": ranks, "bytes": size, "seconds": seconds}
        for (ranks, size), seconds in times.items()
    ]
    given = argparse.Namespace(csv=tmp_path / "rows.csv", network=tmp_path / "n.toml")
    bench_exchange.report(rows, given)

    found = calibrate.calibrated(calibrate.read(tmp_path / "rows.csv"))
    assert found.links == Network.read(tmp_path / "n.toml").links
    assert found.links["host"].latency == pytest.approx(2e-6, rel=1e-2)
    stored = calibrate.read(ROOT / "benchmarks" / "results" / "exchange.csv")
    (host,) = calibrate.calibrated(stored).links.values()  # see docs/communication.md
    assert host.latency == pytest.approx(2.8e-6, rel=0.05)
    assert host.bandwidth == pytest.approx(2.9e9, rel=0.05)
