"""The examples run, and show what they claim to show."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "examples"
pytest.importorskip("sklearn", reason="scikit-learn is not installed")
pytest.importorskip("matplotlib", reason="matplotlib is not installed")


def example(name):
    """Return an example as a module."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def digits(found):
    """Together the nodes find the components of all data, alone nobody does."""
    assert found["converged"]
    assert found["angle_together"] < 0.5
    assert min(found["angle_alone"]) > 30


def sensors(found):
    """Broken sensors ruin least squares and not Huber's fit."""
    assert found["errors"]["Huber"] < 0.5
    assert found["errors"]["least squares"] > 5
    assert all(ending.startswith("certified") for ending in found["endings"].values())


def cameras(found):
    """A third of the tracks is missing and predicted to the tracker's noise."""
    assert 0.3 < found["missing"] < 0.4
    assert found["with gaps"]["angle"] < 0.6
    assert 0.4 < found["error"] < 0.6
    assert abs(found["spread"] - found["error"]) < 0.15


def inpainting(found):
    """Lost pixels come back four times better than by the mean grey."""
    assert found["lost"] > 0.2
    assert found["error"] < found["plain"] / 4
    assert np.isfinite(found["repaired"]).all()


CHECKS = {check.__name__: check for check in (digits, sensors, cameras, inpainting)}


@pytest.mark.parametrize(
    "name",
    [*list(CHECKS)[1:], pytest.param("digits", marks=pytest.mark.slow)],
)
@pytest.mark.timeout(180)
def test_an_example_shows_what_it_claims(name, tmp_path, monkeypatch, capsys):
    module = example(name)
    kept = []
    original = module.run
    monkeypatch.setattr(module, "run", lambda: kept.append(original()) or kept[0])
    monkeypatch.setattr(sys, "argv", [name, "--out", str(tmp_path)])

    module.main()

    CHECKS[name](kept[0])
    assert (tmp_path / f"{name}.png").stat().st_size > 10_000
    assert f"picture: {tmp_path / name}.png" in capsys.readouterr().out


def test_every_example_is_checked():
    """A new one needs a check of its own, unless it is only a template."""
    names = {path.stem for path in FOLDER.glob("*.py")}
    assert {name for name in names if not name.startswith("template")} == set(CHECKS)
