"""The picture of a network whose penalties change: what it says of a run."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from benchmarks import draw_dynamic
from dadmm import run
from dadmm.core.errors import ConfigError
from dadmm.drawing.run_reader import Run

SMALL = "--config as-printed --topology ring --nodes 5 --record-edges --max-iter 40"


@pytest.fixture(scope="module")
def ring(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "ring"
    assert run.main([*SMALL.split(), "--out", str(folder)]) == 0
    return folder


def test_ends_without_budget_are_those_that_are_back_at_eta0(ring):
    """NAP's penalty is eta0 exactly if the budget is spent, or if tau is zero."""
    told = draw_dynamic.story(Run.read(ring))

    assert told.blocked.any()
    assert not told.blocked.all()
    assert not told.blocked[0].any()
    np.testing.assert_array_equal(told.eta == 1.0, told.blocked)
    last = draw_dynamic.end_of_change(told)
    assert (told.eta[last - 2] != told.eta[last - 1]).any()
    assert (told.eta[last - 1 :] == told.eta[last - 1]).all()


def test_the_pictures_are_written(ring, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(draw_dynamic, "end_of_change", lambda told: 3)
    given = ["x", "--printed", "--run", str(ring), "--out", str(tmp_path)]
    monkeypatch.setattr("sys.argv", given)

    draw_dynamic.main()

    from PIL import Image

    with Image.open(tmp_path / "dynamic.gif") as film:
        assert film.n_frames == 3
    assert (tmp_path / "dynamic.png").stat().st_size > 10_000
    assert "10 ends of edges, 40 iterations" in capsys.readouterr().out


def test_the_picture_of_a_run_with_budgets(tmp_path, monkeypatch):
    """Each edge once; what it has spent grows with every change of its penalty."""
    folder = tmp_path / "run"
    assert run.main(["--nodes", "6", "--max-iter", "30", "--out", str(folder)]) in (
        0,
        1,
    )
    told = draw_dynamic.budgets(Run.read(folder))

    assert told.updates == list(range(3, 31, 3)) or told.updates[:2] == [1, 3]
    assert (told.spent[-1] > 0).all()
    assert (np.diff(told.spent, axis=0) >= 0).all()
    assert (told.spent <= told.budget).all()
    given = ["x", "--run", str(folder), "--out", str(tmp_path)]
    monkeypatch.setattr("sys.argv", given)
    draw_dynamic.main()
    assert (tmp_path / "network.gif").stat().st_size > 10_000
    assert (tmp_path / "network.png").stat().st_size > 10_000


def test_a_run_without_budgets_is_refused(tmp_path):
    folder = str(tmp_path / "ap")
    flags = "--nodes 3 --scheme ap --record-edges --max-iter 2 --out"
    run.main([*flags.split(), folder])

    with pytest.raises(ConfigError, match="budgets"):
        draw_dynamic.budgets(Run.read(folder))


def test_a_run_of_another_scheme_is_refused(tmp_path):
    folder = str(tmp_path / "ap")
    flags = "--nodes 3 --scheme ap --record-edges --max-iter 2 --out"
    assert run.main([*flags.split(), folder]) == 0

    with pytest.raises(ConfigError, match="scheme 'ap'; give one of --scheme nap"):
        draw_dynamic.story(Run.read(folder))
