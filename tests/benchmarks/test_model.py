"""The network model against measured runs: one here, all others in stored rows."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from statistics import median

import pytest

from benchmarks import check_model
from benchmarks.shared import experiment
from dadmm.timing.network import Link, Network, Overhead
from dadmm.timing.replay import replay
from tests.support.emulation import obstacle

ROOT = Path(__file__).parents[2]
# Of emulated hosts without rate and delay, from the stored rows.
BASE = Network(
    {"host": Link(1e-4, 1e9), "lan": Link(2e-4, 1e9)},
    overhead=Overhead(message=80, packet=66, payload=1448),
)
NARROW = check_model.Setting(
    "narrow", 2, 4, 2 * 10**6, 0.0, check_model.job("ring", 30, 60, 8)
)


@pytest.mark.slow
@pytest.mark.skipif(bool(obstacle()), reason=obstacle())
@pytest.mark.mpi
def test_a_run_on_a_narrow_network_takes_as_long_as_predicted(tmp_path):
    """Two ranks on each of two hosts of 2 Mbit/s; the median of three within 15 %."""
    network = check_model.limited(BASE, NARROW)
    runs = [check_model.run(NARROW, tmp_path / str(k)) for k in range(3)]
    found = [replay(trace, network, observe=True) for trace in runs]
    ratios = [
        played.loop_seconds / trace.seconds
        for played, trace in zip(found, runs, strict=True)
    ]

    assert min(check_model.network_share(played) for played in found) > 0.8
    assert 1 / 1.15 < median(ratios) < 1.15, ratios


def test_stored_predictions_are_right():
    """On three networks, each at least 80 % of the time: the median of five runs."""
    rows = experiment.read_rows(ROOT / "benchmarks" / "results" / "model.csv")
    groups = {k: list(v) for k, v in groupby(rows, key=lambda row: row["network"])}

    assert set(groups) == {"rate", "delay", "both"}
    for name, own in groups.items():
        assert len(own) == 5
        assert median(float(row["network_share"]) for row in own) > 0.8
        for key in ("predicted", "predicted_from_free"):
            off = median(float(row[key]) / float(row["measured"]) for row in own)
            assert 0.85 < off < 1.15, (name, key, off)
