"""The examples run, and what their texts say is so."""

import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.support.processes import ROOT, python

FOLDER = ROOT / "examples"
SLOW = ("paper_figure2", "paper_figure3", "inpainting", "network_replay")
matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed")


class Checks:
    """For each example, what it must leave."""

    def cameras(found):
        """A third of the positions is missing and predicted to the tracker's noise."""
        assert 0.3 < found.missing < 0.4
        assert found.angles["with gaps"] < 0.6
        assert abs(found.spread - found.error) < 0.15

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

    def hospitals(found):
        """The model is that of the page of commands, and covers all wards."""
        page = (FOLDER / "hospitals" / "README.md").read_text("utf-8")
        shown = re.findall(r"^ {15}(\S+) +(\S+)$", page, re.M)[:-1]  # no intercept
        assert found.result.status == "certified"
        assert tuple(found.names) == tuple(name for name, _ in shown)
        np.testing.assert_allclose(found.coef, [float(x) for _, x in shown], atol=1e-3)
        told = re.findall(r"^(no|yes),(\S+),(\S+)$", page, re.M)
        expected = [float(p) for *_, p in told]
        np.testing.assert_allclose(found.odds[: len(told)], expected, atol=1e-3)
        has = ["cardiology" in table.column("ward") for table in found.tables]
        assert has == [False, True, False]

    def inpainting(found):
        """Lost pixels come back four times better than by the mean grey."""
        assert found.lost.mean() > 0.2
        assert found.error(found.repaired) < found.error(found.plain) / 4
        assert found.result.status == "not converged"

    def network_replay(found):
        """Latency decides over long lines; radio reaches all neighbours at once."""
        seconds = {key: played.seconds for key, played in found.found.items()}
        ring, short, whole = found.traces
        assert seconds["wan", whole] < min(seconds["wan", short], seconds["wan", ring])
        radio = [seconds["wireless", name] for name in (whole, short, ring)]
        assert radio == sorted(radio)
        parts = found.found["wan", ring].breakdown
        assert parts.latency + parts.sums > 0.9 * seconds["wan", ring]

    def own_problem(found):
        assert found.result.status == "certified"
        assert found.error <= found.bound < 1e-3

    def own_scheme(found):
        """The rule finds the bridge and beats a fixed penalty; snap is faster."""
        last = [found.errors[name][-1] for name in ("snap", "RaiseWideEdges", "fixed")]
        assert last[0] < last[1] / 100 < last[2] / 1e4
        assert found.bridge.tolist() == [5, 6]

    def paper_figure2(found):
        """`fixed` stops on a plateau, `vp` arrives first; the ring is hard."""
        fixed, *others = [("complete", scheme) for scheme in found.schemes]
        assert found.ends[fixed] > 50.0
        assert all(found.ends[key] < 5.0 for key in others)
        assert min(others, key=found.stops.get) == ("complete", "vp")
        ring = {scheme: found.ends["ring", scheme] for scheme in found.schemes}
        assert 5.0 < ring["fixed"] == min(ring.values())

    def paper_figure3(found):
        """Schemes with a small t_max do not beat `fixed`; those with budgets may."""
        first, long, short = found.first, "complete, t_max = 50", "complete, t_max = 5"
        for scheme in ("vp", "ap", "vp_ap"):
            assert first[short, scheme] > 0.95 * first[short, "fixed"]
        for scheme in ("vp", "vp_ap", "vp_nap"):
            assert first[long, scheme] < 0.5 * first[long, "fixed"]
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


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(path.stem, marks=[pytest.mark.slow] * (path.stem in SLOW))
        for path in sorted(FOLDER.glob("*.py"))
        if path.stem != "mpi_program"
    ],
)
@pytest.mark.timeout(300)
def test_an_example_shows_what_it_says(name):
    import matplotlib.pyplot as plt

    plt.switch_backend("Agg")
    with matplotlib.rc_context():
        found = runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    plt.close("all")

    getattr(Checks, name)(SimpleNamespace(**found))
    assert [path.name for path in Path().iterdir()] == [f"{name}.png"]


@pytest.mark.mpi
def test_the_program_for_mpi_finds_the_same_bits_in_one_process(tmp_path):
    ended = python(FOLDER / "mpi_program.py", cwd=tmp_path).end()

    assert ended.code == 0, ended.err
    if "number of processes: 5" not in ended.out:
        pytest.skip(f"mpiexec does not run here: {ended.out[-300:]}")
    assert "the same bits: True" in ended.out
    assert (tmp_path / "mpi_program.png").exists()
