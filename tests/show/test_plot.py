"""Figures: every kind is drawn from the run's numbers, or one sentence says why not."""

import shutil
from functools import partial
from itertools import product

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="the extra `plot` is not installed")

from dadmm import run
from dadmm.__main__ import main_of
from dadmm.graphs.topology import GRAPHS
from dadmm.runs.stored import StoredRun
from dadmm.show import panels, plot, style
from dadmm.show.figure import Axis, Bars, Curve, Panel, log_ticks
from dadmm.show.panels import moments, places
from dadmm.show.to_matplotlib import draw, save
from tests.support.pages import make_run
from tests.support.processes import python
from tests.support.runs import refused

main = main_of("plot")
sentence = partial(refused, main=main)
# a structure is drawn of structure from motion only, see test_sfm.py
OF_ALL = [kind for kind in plot.KINDS if kind != "structure"]


@pytest.mark.parametrize(
    ("names", "end", "start"),
    [(["nap"], "png", b"\x89PNG"), (["snap", "ring"], "svg", b"<?xml")],
)
def test_every_kind_is_drawn(names, end, start, run_named, tmp_path, capsys):
    folders = [str(run_named(name)) for name in names]
    assert main([*folders, "--out", str(tmp_path), "--format", end]) == 0

    prefix = "" if len(names) == 1 else "compare-"
    paths = [tmp_path / f"{prefix}{kind}.{end}" for kind in OF_ALL]
    assert capsys.readouterr().out.split() == [str(path) for path in paths]
    for path in paths:
        assert path.read_bytes().startswith(start)
        assert path.stat().st_size > 10_000


def test_pictures_go_into_the_first_run_s_folder_and_are_the_same_again(tmp_path):
    folder = make_run(tmp_path / "run", "--nodes", "2")
    words = [str(folder), "--kind", "cost", "--format", "png,svg,pdf"]
    assert main(words) == 0
    names = [f"cost.{end}" for end in ("png", "svg", "pdf")]
    first = [(folder / name).read_bytes() for name in names]
    assert main(words) == 0
    assert [(folder / name).read_bytes() for name in names] == first


@pytest.mark.parametrize("name", ["bare", "one"])
def test_a_run_without_edges_has_the_other_pictures(name, run_named, tmp_path, capsys):
    folder, out = str(run_named(name)), ["--out", str(tmp_path), "--format", "svg"]
    assert main([folder, *out]) == 0
    assert "edges" in capsys.readouterr().err
    assert {p.stem for p in tmp_path.iterdir()} == {"convergence", "cost", "traffic"}
    assert "edges" in sentence(capsys, folder, "--kind", "eta", *out)


def test_bad_input_is_one_sentence(run_named, tmp_path, capsys):
    (tmp_path / "file").touch()
    nap = run_named("nap")
    damaged = shutil.copytree(nap, tmp_path / "damaged")
    (damaged / "edges.csv").write_text("x\n")
    for culprit, words in {
        "99": (nap, "--kind", "network", "--at", "1,99"),
        "soon": (nap, "--at", "soon"),
        "gif": (nap, "--format", "png,gif"),
        "pie": (nap, "--kind", "pie"),
        str(tmp_path / "file"): (nap, "--kind", "cost", "--out", tmp_path / "file"),
        str(tmp_path): (tmp_path,),
        "structure": (nap, "--kind", "structure"),
        "edges.csv": (damaged, run_named("vp")),
    }.items():
        assert culprit in sentence(capsys, *words)


def test_runs_are_named_by_what_differs(run_named):
    for first, second, names in (
        ("vp", "ring", ["cluster, vp", "ring, nap"]),
        ("turns", "vp", ["schedule = matchings, nap", "schedule = static, vp"]),
        ("bare", "one", ["6 nodes", "1 nodes"]),
        ("nap", "nap", [str(run_named("nap"))] * 2),
        ("bare", "eta", ["default eta0", "eta0 = 2.5"]),
    ):
        runs = [StoredRun.read(run_named(name)) for name in (first, second)]
        assert panels.labels(runs) == names


def convergence(folder):
    """Return a run, and the panels of its convergence by title."""
    found = StoredRun.read(folder)
    return found, {own.title: own for own in panels.convergence([found])}


def test_convergence_is_what_the_rule_judged(tmp_path):
    """Relative to its limit, with the iterations of the last criterion and the stop."""
    words = ("--nodes", "4", "--max-iter", "900", "--tolerance", "0.01")
    words += ("--scheme", "snap", "--topology", "chain")
    run, found = convergence(make_run(tmp_path / "run", *words))
    end, met = run.summary["iterations"], run.summary["stopping"]["last_unmet"] + 1

    assert run.summary["converged"]
    assert end == met + 3 + 2 * 3  # four in a row, twice the diameter
    assert list(found) == [panels.OBJECTIVE, "Disagreement / limit", "Residual / limit"]
    figure = draw("", list(found.values()))
    for axis, panel in zip(figure.axes[1:], [*found.values()][1:], strict=True):
        values = run.column(f"{panel.title.split()[0].lower()}_over_limit")
        middle, limit, last, first = (own.get_xydata() for own in axis.lines)
        np.testing.assert_allclose(middle[1:, 1], np.median(values, axis=1)[1:])
        assert (limit[:, 1] == 1.0).all()
        assert (first[:, 0] == met).all()
        assert (last[:, 0] == end).all()
        assert (values[met - 1 : met + 3] < 1).all()
    total = run.column("objective").sum(axis=1)
    (curve,) = found[panels.OBJECTIVE].marks
    np.testing.assert_allclose(curve.y, np.abs(total - total[-1]))


def test_a_limit_that_is_lowered_is_marked(tmp_path):
    """A run in the metric first stops at a loose tolerance, then at its own."""
    rows = np.random.default_rng(0).normal(size=(90, 4))
    rows[:, 3] = rows[:, :3].sum(axis=1) + rows[:, 3] > 0
    np.save(tmp_path / "a.npy", rows)
    words = ["--data", str(tmp_path / "a.npy"), "--problem", "logistic", "--quiet"]
    assert run.main([*words, "--nodes", "3", "--out", str(tmp_path / "run")]) == 0
    found, by_title = convergence(tmp_path / "run")
    t = max(panels.lowered(found).values())
    (curve,) = by_title["Disagreement / limit"].marks

    assert t in by_title["Disagreement / limit"].moments.values()
    assert curve.y[t - 1] > 2 * curve.y[t - 2]  # it looks like divergence


@pytest.mark.parametrize(
    ("flags", "has_limits"),
    [
        (("--stopping", "residuals"), True),
        (("--tolerance", "0"), False),
        # which judges neither; a global one judges the sum over the nodes
        (("--stopping", "objective", "--agreement", "global"), False),
    ],
)
def test_a_panel_has_a_limit_if_the_rule_judges_it(tmp_path, flags, has_limits):
    run, found = convergence(make_run(tmp_path / "a", "--nodes", "3", *flags))
    names = list(found)[-2:]
    assert [name.endswith(" / limit") for name in names] == [has_limits] * 2
    assert [found[name].level is not None for name in names] == [has_limits] * 2
    if "global" in flags:
        (curve,) = found["Relative change of the objective / limit"].marks
        total = run.column("objective").sum(axis=1)
        change = np.abs(np.diff(total)) / np.maximum(np.abs(total[1:]), 1)
        np.testing.assert_allclose(curve.y[1:], change / run.config.tolerance)


def test_cost_is_the_largest_criterion_over_what_was_sent(run_named):
    run = StoredRun.read(run_named("vp"))
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
    for own, scheme in zip(found, schemes, strict=True):
        assert own["color"] == style.SCHEME_STYLE[scheme]["color"]
    many = style.looks(["nap"] * 40, [f"eta0 = {k // 2}" for k in range(40)])
    alike = style.looks(["nap"] * 2, ["eta0 = 1", "eta0 = 2"])
    for looks in (found, many, alike):
        shown = [(own["color"], str(own["linestyle"])) for own in looks]
        assert len(set(shown)) == len(shown)


def test_a_logarithmic_axis_has_at_least_three_ticks():
    for low, ratio in product((1e-9, 0.7, 1.01, 340), (5.1, 20, 80, 1.1e3, 1e9, 1e40)):
        high = low * ratio
        assert 3 <= sum(low <= tick <= high for tick in log_ticks(low, high)) <= 14


@pytest.mark.parametrize("name", GRAPHS)
def test_no_two_nodes_stand_on_the_same_place(name):
    for n in (1, 2, 7):
        where = places(GRAPHS[name](n, 0))
        assert where.shape == (n, 2)
        assert len(np.unique(where.round(6), axis=0)) == n


def test_moments_hold_the_first_the_most_and_the_last():
    """In which the edges differ most; one moment where nothing ever moves."""
    eta = np.full((40, 3), 10.0)
    eta[5:20, 1], eta[7, 2] = 12.0, 20.0

    first, most, later, last = moments(eta)
    assert (first, most, last) == (1, 8, 40)
    assert 8 < later < 40
    assert moments(np.full((40, 3), 10.0)) == [40]


def test_names_are_not_formulas_or_suffixes(tmp_path):
    """Matplotlib takes what is between two dollars for a formula."""
    name = "pay $x_{$ now"
    curve = Curve(name, np.arange(3), np.full(3, np.nan), {"color": "black"})
    bars = Panel(name, Axis(names=(name,) * 3), marks=[Bars({"a": np.ones(3)})])
    figure = draw(name, [Panel(name, y=Axis(name), marks=[curve]), bars])
    (path,) = save(figure, tmp_path / "new" / "angles.v1", ["svg"])
    assert path.name == "angles.v1.svg"
    assert path.exists()


@pytest.mark.parametrize(
    ("command", "missing"), [("plot", "matplotlib"), ("report", "plotly")]
)
def test_without_a_library_one_sentence_says_what_to_install(command, missing):
    """And neither the command line nor the main job imports it before."""
    code = (
        f"import sys; sys.modules['{missing}'] = None\n"
        "import dadmm.run\n"
        f"sys.exit(dadmm.__main__.main(['{command}', 'run']))"
    )
    ended = python("-c", code).end()
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert missing in ended.err
