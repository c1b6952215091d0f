"""A run with missing entries: what it leaves, and what it refuses."""

from __future__ import annotations

import json

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import dadmm
from dadmm.data.patterns import remove_entries
from dadmm.data.shard import split
from dadmm.problems import PPCA, metrics
from dadmm.run import main
from tests.support.runs import refused


@pytest.fixture(autouse=True)
def somewhere(tmp_path, monkeypatch):
    """Work in a folder of one's own."""
    monkeypatch.chdir(tmp_path)


SMALL = ("--nodes", "4", "--n-samples", "60", "--dimension", "6", "--n-components", "2")


def test_a_run_fills_in_what_is_missing(tmp_path):
    assert main([*SMALL, "--missing-fraction", "0.2", "--out", "run"]) == 0

    found = json.loads((tmp_path / "run" / "summary.json").read_text())["metrics"]
    assert "angle_to_truth_degrees" in found
    assert "angle_to_centralised_degrees" not in found
    samples, _ = dadmm.datasets.synthetic(60, 6, 2)
    holed = remove_entries(samples, 0.2, seed=0)
    with np.load("run/result.npz") as arrays:
        parts = [arrays[name] for name in ("W", "mu", "a")]
    mean = [part.mean(axis=0) for part in parts]
    expected = metrics.ppca_log_likelihood(holed, *mean)
    assert found["log_likelihood"] == pytest.approx(expected, rel=1e-12)
    assert found["missing"] == np.isnan(holed).mean()
    for i, rows in enumerate(split(holed, 4)):
        own = PPCA(rows, 2)
        theta = own.layout.pack(W=parts[0][i], mu=parts[1][i], a=parts[2][i])
        with np.load(f"run/imputed-{i:05d}.npz") as arrays:
            filled, variances = own.impute(theta, rows)
            assert_array_equal(arrays["samples"], filled)
            assert_array_equal(arrays["variances"], variances)
            assert arrays["latent"].shape == (15, 2)


@pytest.mark.parametrize(
    ("spoil", "culprit"), [(np.s_[:, 3], "column 3"), (np.s_[15:30], "node 1")]
)
def test_what_nobody_knows_is_refused(spoil, culprit, capsys):
    samples, _ = dadmm.datasets.synthetic(60, 6, 2)
    samples[spoil] = np.nan
    np.save("x.npy", samples)

    assert culprit in refused(capsys, *SMALL, "--data", "x.npy")
