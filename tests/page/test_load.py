"""The sections on traffic and time: their plots have the numbers of the rows."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("plotly", reason="the extra `report` is not installed")
pytest.importorskip("matplotlib", reason="the extra `report` is not installed")

from dadmm import report
from dadmm.page.runs import read
from tests.support.pages import Parsed, make_run, unpacked


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run whose edges carry other bytes in each direction."""
    place = tmp_path_factory.mktemp("load") / "run"
    flags = ("--censor", "0.5", "--init", "independent", "--record-edges")
    return make_run(place, *flags, "--topology", "star", "--max-iter", "40")


@pytest.fixture
def traces(folder, tmp_path):
    """Return a function from the title of a plot to its traces."""
    file = tmp_path / "a.html"
    assert report.main([str(folder), "--out", str(file)]) == 0
    page = Parsed(file.read_text("utf-8"))

    def find(title):
        (name,) = [a["id"] for _, a in page.tags if a.get("aria-label") == title]
        (figure,) = [own for own in page.data["figures"] if own["id"] == name]
        return figure["data"]

    return find


def test_bytes_are_those_of_senders_and_receivers(folder, traces):
    (shown,) = traces("Bytes by directed edge")
    run = read(folder)
    wanted = np.full((6, 6), np.nan)
    for (sender, receiver), count in zip(
        run.topology.edges, run.arrays["edge_bytes"], strict=True
    ):
        wanted[sender, receiver] = count

    np.testing.assert_allclose(unpacked(shown["z"]), wanted, rtol=1e-6)
    assert not np.array_equal(wanted, wanted.T, equal_nan=True)
    assert "%{y} to %{x}" in shown["hovertemplate"]


def test_seconds_are_sums_over_the_iterations(folder, traces):
    run = read(folder)
    for shown in traces("Time by phase"):
        wanted = run.column(f"{shown['name']}_seconds").sum(axis=0)
        np.testing.assert_allclose(unpacked(shown["y"]), wanted, rtol=1e-6)
