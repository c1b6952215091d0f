"""The examples run, and what their texts say is so."""

from __future__ import annotations

import re
import runpy
from inspect import signature
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from dadmm import datasets
from tests.support.processes import python

FOLDER = Path(__file__).parents[2] / "examples"
pytest.importorskip("sklearn", reason="scikit-learn is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")
matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed")


def cameras(found):
    """A third of the positions is missing and predicted to the tracker's noise."""
    assert 0.3 < found.missing < 0.4
    assert found.angles["with gaps"] < 0.6
    assert 0.4 < found.error < 0.6
    assert abs(found.spread - found.error) < 0.15
    assert signature(datasets.turntable).parameters["noise"].default == 0.5


def compressed_messages(found):
    """All payloads reach the solution, and fewer bits are fewer bytes."""
    results = found.results.values()
    assert {result.status for result in results} == {"certified"}
    assert max(r.history["distance"][-1].max() for r in results) < 1e-6
    sent = [result.traffic.bytes for result in results]
    assert sent == sorted(sent, reverse=True)
    assert found.results["2 bits"].iterations > found.results["float64"].iterations


def digits(found):
    """Together the nodes find the components of all rows, alone none does."""
    assert found.result.status == "stationary"
    assert found.angle < found.result.subspace_bound.angle < 0.5
    assert found.angles_alone.min() > 30
    assert len(found.samples) == 1797


def hospitals(found):
    """The model is that of the page of commands, and covers all wards."""
    page = (FOLDER / "hospitals" / "README.md").read_text("utf-8")
    shown = re.findall(r"^ {15}(\S+) +(\S+)$", page, re.M)[:-1]  # without intercept
    assert found.result.status == "certified"
    assert tuple(found.names) == tuple(name for name, _ in shown)
    np.testing.assert_allclose(found.coef, [float(x) for _, x in shown], atol=1e-3)
    told = re.findall(r"^(no|yes),(\S+),(\S+)$", page, re.M)
    assert found.labels[: len(told)].tolist() == [label for label, *_ in told]
    expected = [float(p) for *_, p in told]
    np.testing.assert_allclose(found.odds[: len(told)], expected, atol=1e-3)
    first = {name: words[0] for name, words in found.encoding.columns.items() if words}
    assert first["ward"] == "cardiology"
    has = ["cardiology" in table.column("ward") for table in found.tables]
    assert has == [False, True, False]


def inpainting(found):
    """Lost pixels come back four times better than by the mean grey."""
    assert found.lost.mean() > 0.2
    assert found.error(found.repaired) < found.error(found.plain) / 4
    assert found.result.status == "not converged"
    assert np.isfinite(found.repaired).all()


def network_replay(found):
    """Latency decides over long lines; by radio one message reaches all neighbours."""
    seconds = {key: played.seconds for key, played in found.found.items()}
    ring, short, complete = found.traces
    assert seconds["wan", complete] < min(seconds["wan", short], seconds["wan", ring])
    radio = [seconds["wireless", name] for name in (complete, short, ring)]
    assert radio == sorted(radio)
    parts = found.found["wan", ring].breakdown
    assert parts.latency + parts.sums > 0.9 * seconds["wan", ring]
    for bars, preset in zip(found.figure.axes, found.networks, strict=True):
        tops = [
            max(bar.get_y() + bar.get_height() for bar in column)
            for column in zip(*bars.containers, strict=True)
        ]
        np.testing.assert_allclose(
            tops, [seconds[preset, name] for name in found.traces]
        )
    assert "radio: 5 ms, 1 Mbit/s" in found.networks.values()


def own_problem(found):
    """The error is within its bound."""
    assert found.result.status == "certified"
    assert found.error <= found.bound < 1e-3


def own_scheme(found):
    """The rule finds the bridge and beats a fixed penalty; snap is still faster."""
    last = [found.errors[name][-1] for name in ("snap", "RaiseWideEdges", "fixed")]
    assert last[0] < last[1] / 100 < last[2] / 1e4
    assert found.bridge.tolist() == [5, 6]


def paper_figure2(found):
    """`fixed` stops on a plateau, `vp` is the quickest to arrive; the ring is hard."""
    stops, ends = found.stops, found.ends
    assert stops["complete", "fixed"] < 20
    assert ends["complete", "fixed"] > 50.0
    others = [("complete", scheme) for scheme in found.schemes[1:]]
    assert all(ends[key] < 5.0 for key in others)
    assert stops["complete", "vp"] == min(stops[key] for key in others)
    assert ends["complete", "vp"] > max(ends["complete", s] for s in ("ap", "nap"))
    ring = {scheme: ends["ring", scheme] for scheme in found.schemes}
    assert all(5.0 < angle < 15.0 for angle in ring.values())
    assert ring["fixed"] == min(ring.values())
    assert found.samples.shape == (25 * found.n_nodes, 20)


def paper_figure3(found):
    """Schemes with t_max do not beat `fixed` if it is small; those with budgets may."""
    assert found.tracks.shape[0] == 2 * 6 * found.n_cameras
    assert all(curve.min() < 5.0 for curve in found.curves.values())
    first, long, short = found.first, "complete, t_max = 50", "complete, t_max = 5"
    for scheme in ("vp", "ap", "vp_ap"):
        assert first[short, scheme] > 0.95 * first[short, "fixed"]
        assert first[short, scheme] > first[long, scheme]
    for scheme in ("vp", "vp_ap", "vp_nap"):
        assert first[long, scheme] < 0.5 * first[long, "fixed"]
    for scheme in ("ap", "nap"):
        assert first[long, scheme] > first[long, "fixed"]
    for scheme in ("fixed", "nap", "vp_nap"):
        assert first[short, scheme] == first[long, scheme]


def resume(found):
    """The resumed run has the bits of the one that was never stopped."""
    assert found.same
    assert found.again.start == 20 < found.crash_at
    assert found.result.iterations == found.whole.iterations > found.crash_at


def schedules(found):
    """Fewer edges at a time take more iterations and fewer messages."""
    results = found.results.values()
    assert {result.status for result in results} == {"certified"}
    iterations = [result.iterations for result in results]
    messages = [result.traffic.messages for result in results]
    assert iterations == sorted(iterations)
    assert messages == sorted(messages, reverse=True)
    for edges in found.schedules["matchings"].rounds:
        assert len({i for i, _ in edges}) == len(edges)


def sensors(found):
    """Broken sensors spoil least squares and not Huber's fit."""
    assert set(found.statuses.values()) == {"certified"}
    assert found.errors["Huber"] < 0.5
    assert found.errors["least squares"] > 5


def sklearn_estimators(found):
    """The grid search finds what scikit-learn finds."""
    assert found.search.best_params_ == found.pooled.best_params_
    assert found.fitted.result_.status == "certified"
    assert found.difference < found.bound
    assert found.same


CHECKS = {
    check.__name__: check
    for check in (
        cameras, compressed_messages, digits, hospitals, inpainting, network_replay,
        own_problem, own_scheme, paper_figure2, paper_figure3, resume, schedules,
        sensors, sklearn_estimators,
    )
}  # fmt: skip


SLOW = ("paper_figure2", "paper_figure3")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name
     for name in CHECKS],
)  # fmt: skip
@pytest.mark.timeout(300)
def test_an_example_shows_what_it_says(name, tmp_path, monkeypatch):
    import matplotlib.pyplot as plt

    monkeypatch.chdir(tmp_path)
    plt.switch_backend("Agg")
    with matplotlib.rc_context():
        found = runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    plt.close("all")

    CHECKS[name](SimpleNamespace(**found))
    assert [path.name for path in tmp_path.iterdir()] == [f"{name}.png"]


@pytest.mark.mpi
def test_the_program_for_mpi_finds_the_same_bits_in_one_process(tmp_path):
    ended = python(FOLDER / "mpi_program.py", cwd=tmp_path).end()

    assert ended.code == 0, ended.err
    if "number of processes: 5" not in ended.out:
        pytest.skip(f"mpiexec does not run here: {ended.out[-300:]}")
    assert "the same bits: True" in ended.out
    assert (tmp_path / "mpi_program.png").exists()


def test_every_example_is_checked():
    names = {path.stem for path in FOLDER.glob("*.py")}
    assert names == CHECKS.keys() | {"mpi_program"}
