"""A run with missing entries: what it leaves, and what it refuses."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import dadmm
from dadmm.data.patterns import remove_entries
from dadmm.problems import PPCA, metrics
from dadmm.run import main
from tests.support.runs import arrays_of, refused, summary_of

SMALL = ("--nodes", "4", "--n-samples", "60", "--dimension", "6", "--n-components", "2")


def test_a_run_fills_in_what_is_missing(tmp_path):
    assert main([*SMALL, "--missing-fraction", "0.2", "--out", str(tmp_path)]) == 0

    found, arrays = summary_of(tmp_path)["metrics"], arrays_of(tmp_path)
    holed = remove_entries(dadmm.datasets.synthetic(60, 6, 2)[0], 0.2, seed=0)
    parts = {name: arrays[name] for name in ("W", "mu", "a")}
    means = [part.mean(axis=0) for part in parts.values()]
    expected = metrics.ppca_log_likelihood(holed, *means)
    assert_allclose(found["log_likelihood"], expected, rtol=1e-12)
    assert found["missing"] == np.isnan(holed).mean()
    assert "angle_to_centralised_degrees" not in found
    for i, rows in enumerate(dadmm.shard.split(holed, 4)):
        own = PPCA(rows, 2)
        theta = own.layout.pack(**{name: part[i] for name, part in parts.items()})
        with np.load(tmp_path / f"imputed-{i:05d}.npz") as imputed:
            both = (imputed["samples"], imputed["variances"])
            for array, want in zip(both, own.impute(theta, rows), strict=True):
                assert_array_equal(array, want)
            assert imputed["latent"].shape == (15, 2)


@pytest.mark.parametrize(
    ("spoil", "culprit"), [(np.s_[:, 3], "column 3"), (np.s_[15:30], "node 1")]
)
def test_what_nobody_knows_is_refused(spoil, culprit, capsys, tmp_path):
    samples, _ = dadmm.datasets.synthetic(60, 6, 2)
    samples[spoil] = np.nan
    np.save(tmp_path / "x.npy", samples)

    assert culprit in refused(capsys, *SMALL, "--data", str(tmp_path / "x.npy"))
