"""Figures: every kind is drawn, and what cannot be drawn is said in one sentence."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="the extra `plot` is not installed")

from benchmarks.shared.report import angles
from dadmm import run
from dadmm.graphs.topology import GRAPHS
from dadmm.runs.stored import StoredRun
from dadmm.show import panels, plot, style
from dadmm.show.figure import log_ticks
from dadmm.show.graph import moments, places
from dadmm.show.to_matplotlib import draw, save
from tests.support.runs import refused

RECORD = ("--record-edges", "--record-angle")
SHORT = ("--quiet", "--max-iter", "12", "--n-samples", "60", "--dimension", "6")
SMALL = (*SHORT, "--n-components", "2")

sentence = partial(refused, main=plot.main)

# a structure is drawn of structure from motion only, see test_sfm.py
OF_ALL = [kind for kind in plot.KINDS if kind != "structure"]


def make(folder, *flags):
    """Make a tiny run, of nap unless said, and return its folder."""
    assert run.main([*SMALL, "--scheme", "nap", "--out", str(folder), *flags]) == 0
    return str(folder)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return the folders of tiny runs by name; do not write into them."""
    root, cluster = tmp_path_factory.mktemp("runs"), ("--topology", "cluster")
    six = ("--nodes", "6")
    return {
        "nap": make(root / "nap", *RECORD, *cluster, *six),
        "vp": make(root / "vp", *RECORD, *cluster, *six, "--scheme", "vp"),
        "ring": make(root / "ring", *RECORD, "--topology", "ring", *six),
        "bare": make(root / "bare", *six, "--no-record-edges"),
        "one": make(root / "one", *RECORD, "--nodes", "1"),
        "snap": make(root / "snap", *RECORD, *cluster, *six, "--scheme", "snap"),
    }


@pytest.mark.parametrize("kind", OF_ALL)
@pytest.mark.parametrize("names", [("nap",), ("nap", "snap", "ring")])
def test_every_kind_is_drawn(kind, names, runs, tmp_path, capsys):
    folders = [runs[name] for name in names]
    assert plot.main([*folders, "--kind", kind, "--out", str(tmp_path)]) == 0

    stem = kind if len(names) == 1 else f"compare-{kind}"
    paths = [tmp_path / f"{stem}.png", tmp_path / f"{stem}.svg"]
    assert capsys.readouterr().out.split() == [str(path) for path in paths]
    assert paths[0].read_bytes().startswith(b"\x89PNG")
    assert paths[0].stat().st_size > 10_000
    assert "</svg>" in paths[1].read_text("utf-8")[-20:]


def test_pictures_go_into_the_first_run_s_folder(tmp_path):
    folder = make(tmp_path / "run", "--nodes", "3", *RECORD)
    assert plot.main([folder, "--format", "svg"]) == 0

    assert {path.stem for path in (tmp_path / "run").glob("*.svg")} == set(OF_ALL)


@pytest.mark.parametrize("name", ["bare", "one"])
def test_a_run_without_edges_has_the_other_pictures(name, runs, tmp_path, capsys):
    folder, out = runs[name], ["--out", str(tmp_path), "--format", "png"]
    assert plot.main([folder, *out]) == 0
    assert "edges" in capsys.readouterr().err
    assert {p.stem for p in tmp_path.iterdir()} == {"convergence", "cost", "traffic"}

    assert "edges" in sentence(capsys, folder, "--kind", "eta", *out)


def test_the_same_run_gives_the_same_picture(runs, tmp_path):
    formats = ("--format", "png,svg,pdf")
    for out in "ab":
        plot.main(
            [runs["nap"], "--out", str(tmp_path / out), "--kind", "eta", *formats]
        )

    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


@pytest.mark.parametrize(
    ("option", "value"),
    [("--at", "1,99"), ("--at", "soon"), ("--format", "png,gif"), ("--kind", "pie")],
)
def test_bad_input_is_one_sentence(runs, tmp_path, capsys, option, value):
    out = ("--out", tmp_path / "out")
    culprit = value.rpartition(",")[2]
    assert culprit in sentence(capsys, runs["nap"], option, value, *out)
    (tmp_path / "file").touch()
    for words in ((tmp_path,), (runs["nap"], "--out", tmp_path / "file")):
        assert str(tmp_path) in sentence(capsys, *words)


def test_runs_are_named_by_what_differs(runs, tmp_path):

    def names(*folders):
        return panels.labels([StoredRun.read(folder) for folder in folders])

    assert names(runs["nap"], runs["vp"]) == ["nap", "vp"]
    assert names(runs["nap"], runs["ring"]) == ["cluster", "ring"]
    assert names(runs["vp"], runs["ring"]) == ["cluster, vp", "ring, nap"]
    assert names(runs["nap"], runs["nap"]) == [runs["nap"]] * 2
    assert names(runs["bare"], runs["one"]) == ["6 nodes", "1 nodes"]
    other = make(tmp_path / "eta", "--nodes", "6", "--eta0", "2.5")
    assert names(runs["bare"], other) == ["default eta0", "eta0 = 2.5"]


def convergence(folder):
    """Return the panels of a run's convergence by title, and those in its figure."""
    found = {own.title: own for own in panels.convergence([StoredRun.read(folder)])}
    figure = draw("", list(found.values()))
    drawn = {axis.get_title(loc="left"): axis for axis in figure.axes if axis.axison}
    return found, drawn


def test_convergence_is_what_the_rule_judged(tmp_path):
    """Relative to its limit, with the iterations of the last criterion and the stop."""
    words = ("--nodes", "4", "--max-iter", "900", "--tolerance", "0.01")
    words += ("--scheme", "snap", "--topology", "chain")
    make(tmp_path / "run", *words)
    run = StoredRun.read(tmp_path / "run")
    found, drawn = convergence(tmp_path / "run")
    end, met = run.summary["iterations"], run.summary["stopping"]["last_unmet"] + 1

    assert run.summary["converged"]
    assert end == met + 3 + 2 * 3  # four in a row, twice the diameter
    over = {
        "Disagreement / limit": "disagreement_over_limit",
        "Residual / limit": "residual_over_limit",
    }
    assert list(found) == list(drawn) == [panels.OBJECTIVE, *over]
    for name, column in over.items():
        middle, limit, last, first = (own.get_xydata() for own in drawn[name].lines)
        whole = np.median(run.column(column), axis=1)
        np.testing.assert_allclose(middle[1:, 1], whole[1:])
        assert (limit[:, 1] == 1.0).all()
        assert (first[:, 0] == met).all()
        assert (last[:, 0] == end).all()
        assert (run.column(column)[met - 1 : met + 3] < 1).all()
        assert [*found[name].moments.values()] == [met, end]
    total = run.column("objective").sum(axis=1)
    (curve,) = found[panels.OBJECTIVE].marks
    np.testing.assert_allclose(curve.y, np.abs(total - total[-1]))


def test_a_limit_that_is_lowered_is_marked(tmp_path):
    """A run in the metric first stops at a loose tolerance, then at its own."""
    rows = np.random.default_rng(0).normal(size=(90, 4))
    rows[:, 3] = rows[:, :3].sum(axis=1) + rows[:, 3] > 0
    np.savetxt(tmp_path / "a.csv", rows, delimiter=",", header="a,b,c,y", comments="")
    words = ["--data", str(tmp_path / "a.csv"), "--problem", "logistic", "--quiet"]
    assert run.main([*words, "--nodes", "3", "--out", str(tmp_path / "run")]) == 0
    found, _ = convergence(tmp_path / "run")
    t = max(panels.lowered(StoredRun.read(tmp_path / "run")).values())
    panel = found["Disagreement / limit"]
    (curve,) = panel.marks

    assert t in panel.moments.values()
    assert curve.y[t - 1] > 2 * curve.y[t - 2]  # it looks like divergence


@pytest.mark.parametrize(
    ("flags", "has_limits"),
    [
        (("--stopping", "residuals"), True),
        (("--stopping", "objective"), False),  # which judges neither
        (("--tolerance", "0"), False),
    ],
)
def test_a_panel_has_a_limit_if_the_rule_judges_it(tmp_path, flags, has_limits):
    found, _ = convergence(make(tmp_path / "a", "--nodes", "3", *flags))
    names = list(found)[-2:]
    assert len(names) == 2
    assert [name.endswith(" / limit") for name in names] == [has_limits] * 2
    assert [found[name].level is not None for name in names] == [has_limits] * 2


def test_cost_is_the_largest_criterion_over_what_was_sent(runs):
    run = StoredRun.read(runs["nap"])
    sent, spent = panels.costs([run])
    (curve,) = sent.marks
    over = [run.column(f"{name}_over_limit") for name in ("disagreement", "residual")]

    np.testing.assert_allclose(curve.y, np.max(over, axis=(0, 2)))
    total = run.column("bytes").sum(axis=1).cumsum()
    np.testing.assert_allclose(curve.x / curve.x[-1], total / total[-1])
    assert (np.diff(spent.marks[0].x) > 0).all()


def test_no_two_runs_have_the_same_look():
    """Colour by method, dash by seed; also of more runs than there are colours."""
    schemes = ["nap", "nap", "vp", "vp", "snap"]
    found = style.looks(schemes, schemes)
    assert [own["color"] for own in found] == [
        style.SCHEME_STYLE[scheme]["color"] for scheme in schemes
    ]
    many = style.looks(["nap"] * 40, [f"eta0 = {k // 2}" for k in range(40)])
    for looks in (found, many, style.looks(["nap", "vp"], ["nap", "vp"])):
        shown = [(own["color"], str(own["linestyle"])) for own in looks]
        assert len(set(shown)) == len(shown)


@pytest.mark.parametrize("ratio", [5.1, 20, 80, 1.1e3, 1e9, 1e40])
@pytest.mark.parametrize("low", [1e-9, 0.7, 1.01, 340.0])
def test_a_logarithmic_axis_has_at_least_three_ticks(low, ratio):
    high = low * ratio
    assert 3 <= sum(low <= tick <= high for tick in log_ticks(low, high)) <= 14


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("n", [1, 2, 5, 12])
def test_no_two_nodes_stand_on_the_same_place(name, n):
    where = places(GRAPHS[name](n, 0))

    assert where.shape == (n, 2)
    assert len(np.unique(where.round(6), axis=0)) == n


def test_moments_hold_the_first_the_most_and_the_last():
    """In which the edges differ most; one moment where nothing ever moves."""
    eta = np.full((40, 3), 10.0)
    eta[5:20, 1], eta[7, 2] = 12.0, 20.0

    first, most, later, last = moments(eta)
    assert (first, most, last) == (1, 8, 40)
    assert 8 < later < 20
    assert moments(np.full((40, 3), 10.0)) == [40]


def test_a_run_that_has_ended_keeps_its_angle():
    """The median over the starts is one over all of them; the marker is at its end."""
    starts = np.array([[80, 40, np.nan, np.nan], [60, 20, 10, np.nan], [50, 30, 5, 2]])
    figure = angles({"Ring 5": {"nap": starts}, "Ring 20": {"odd": starts}}, "")
    line = figure.axes[0].lines[0]

    assert line.get_ydata().tolist() == [60, 30, 10, 10]
    assert line.get_markevery() == [2]
    titles = [axis.get_title(loc="left") for axis in figure.axes]
    assert titles == ["Ring 5", "Ring 20"]


def test_a_figure_is_saved_under_its_whole_name(tmp_path):
    """A dot in the name is no suffix; and a curve without numbers can be drawn."""
    figure = angles({"Ring": {"nap": np.full((2, 3), np.nan)}}, "Angle")
    png, svg = save(figure, tmp_path / "new" / "angles.v1")
    assert (png.name, svg.name) == ("angles.v1.png", "angles.v1.svg")


@pytest.mark.parametrize(
    ("command", "missing"),
    [("plot", "matplotlib"), ("report", "plotly")],
)
def test_without_a_library_one_sentence_says_what_to_install(command, missing):
    """And neither the command line nor the main job imports it before."""
    code = (
        f"import sys; sys.modules['{missing}'] = None\n"
        "import dadmm.run\n"
        f"from dadmm import {command}; sys.exit({command}.main(['run']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2
    assert missing in done.stderr
    assert done.stderr.count("\n") == 1


def test_names_are_not_formulas(runs, tmp_path):
    """Matplotlib takes what is between two dollars for a formula."""
    names = ["pay $x_$", "pay $y{$"]
    folders = [str(shutil.copytree(runs["nap"], tmp_path / name)) for name in names]
    for given in (folders, folders[:1]):
        words = [*given, "--kind", "eta", "--kind", "convergence"]
        assert plot.main([*words, "--out", str(tmp_path / "out")]) == 0
