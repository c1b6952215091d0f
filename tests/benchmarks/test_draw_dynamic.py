"""The picture of a network whose penalties change: what it says of a run."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from benchmarks import draw_dynamic
from dadmm import run
from dadmm.runs.stored import StoredRun

PRINTED = "--config as-printed --topology ring --nodes 5 --record-edges --max-iter 40"


def story_of(folder, words: str):
    run.main([*words.split(), "--quiet", "--out", str(folder)])
    return draw_dynamic.story(StoredRun.read(folder))


def test_ends_of_nap_without_budget_are_those_that_are_back_at_eta0(tmp_path):
    """NAP's penalty is eta0 exactly if the budget is spent, or if tau is zero."""
    told = story_of(tmp_path / "run", PRINTED)

    assert told.used_up.any()
    assert not told.used_up[0].any()
    np.testing.assert_array_equal(told.eta == 10.0, told.used_up)


def test_the_pictures_of_a_run(tmp_path, monkeypatch):
    """What an edge has spent grows, and stays within its budget."""
    told = story_of(tmp_path / "run", "--nodes 6 --max-iter 30")

    assert told.updates[:2] == [1, 3]
    assert (told.spent[-1] > 0).all()
    assert (np.diff(told.spent, axis=0) >= 0).all()
    assert (told.spent <= told.budget).all()
    words = ["x", "--run", str(tmp_path / "run"), "--out", str(tmp_path)]
    monkeypatch.setattr("sys.argv", words)
    draw_dynamic.main()
    for name in ("network.gif", "network.png"):
        assert (tmp_path / name).stat().st_size > 10_000
