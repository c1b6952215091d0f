"""A run with missing entries: what it leaves, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import dadmm
from dadmm.data.patterns import remove_entries
from dadmm.data.shard import split
from dadmm.problems import PPCA, metrics
from dadmm.run import main
from tests.support.runs import refused, summary_of

SMALL = ("--nodes", "4", "--n-samples", "60", "--dimension", "6", "--n-components", "2")


def test_a_run_fills_in_what_is_missing(tmp_path):
    run = tmp_path / "run"
    assert main([*SMALL, "--missing-fraction", "0.2", "--out", str(run)]) == 0

    found = summary_of(run)["metrics"]
    assert "angle_to_truth_degrees" in found
    assert "angle_to_centralised_degrees" not in found
    holed = remove_entries(dadmm.datasets.synthetic(60, 6, 2)[0], 0.2, seed=0)
    with np.load(run / "result.npz") as arrays:
        parts = {name: arrays[name] for name in ("W", "mu", "a")}
    mean = [part.mean(axis=0) for part in parts.values()]
    expected = metrics.ppca_log_likelihood(holed, *mean)
    assert found["log_likelihood"] == pytest.approx(expected, rel=1e-12)
    assert found["missing"] == np.isnan(holed).mean()
    for i, rows in enumerate(split(holed, 4)):
        own = PPCA(rows, 2)
        theta = own.layout.pack(**{name: part[i] for name, part in parts.items()})
        with np.load(run / f"imputed-{i:05d}.npz") as arrays:
            for name, want in zip(
                ("samples", "variances"), own.impute(theta, rows), strict=True
            ):
                assert_array_equal(arrays[name], want)
            assert arrays["latent"].shape == (15, 2)


@pytest.mark.parametrize(
    ("spoil", "culprit"), [(np.s_[:, 3], "column 3"), (np.s_[15:30], "node 1")]
)
def test_what_nobody_knows_is_refused(spoil, culprit, capsys, tmp_path):
    samples, _ = dadmm.datasets.synthetic(60, 6, 2)
    samples[spoil] = np.nan
    np.save(tmp_path / "x.npy", samples)

    assert culprit in refused(capsys, *SMALL, "--data", str(tmp_path / "x.npy"))
