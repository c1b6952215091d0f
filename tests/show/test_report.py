"""The report page: what is in it, where it goes, and what it never lets through."""

import json
import re
import shlex
import shutil
from base64 import b64encode
from dataclasses import replace
from functools import cache, partial
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("plotly", reason="the extra `report` is not installed")

import plotly.graph_objects as go
from numpy.testing import assert_allclose, assert_array_equal
from plotly.offline import get_plotlyjs

from dadmm import run
from dadmm.__main__ import main_of
from dadmm.runs.config import RunConfig
from dadmm.runs.folder import RunFolder
from dadmm.runs.stored import read_run
from dadmm.show import network
from dadmm.show.document import command, embedded
from dadmm.show.html import packed
from dadmm.show.style import LIGHT
from tests.support.pages import Parsed, make_run, unfinish, unpacked
from tests.support.runs import refused, rows_of

report = main_of("report")
sentence = partial(refused, main=report)
EVIL = "</script><script>alert(1)</script>"


def written(*words: object) -> Parsed:
    """Write a page and return its content; the last word is its path."""
    assert report([*map(str, words[:-1]), "--out", str(words[-1])]) == 0
    return Parsed(Path(str(words[-1])).read_text("utf-8"))


@pytest.fixture(scope="module")
def page_named(run_named, tmp_path_factory):
    """Return a function from a name to a run and its page."""
    root = tmp_path_factory.mktemp("pages")

    @cache
    def find(name):
        folder = run_named(name)
        return read_run(folder), written(folder, root / f"{name}.html")

    return find


def figure_of(page, title):
    """Return the figure that has this title on a page."""
    (name,) = [a["id"] for _, a in page.tags if a.get("aria-label") == title]
    (figure,) = [own for own in page.data["figures"] if own["id"] == name]
    return figure


def named(figure):
    return [own for own in figure["data"] if "name" in own]


def test_the_page_belongs_to_the_run_and_files_of_the_user_stay(tmp_path, capsys):
    folder = make_run(tmp_path / "run")
    mine = folder / "report.html"
    for _ in range(2):
        assert report([str(folder)]) == 0
        assert capsys.readouterr().out == f"{mine.as_uri()}\n"
    make_run(tmp_path / "run", "--overwrite")
    assert not mine.exists()

    mine.write_text("mine")
    assert str(mine) in sentence(capsys, folder)
    assert mine.read_text() == "mine"
    mine.unlink()
    mine.symlink_to(tmp_path / "other.html")
    assert str(mine) in sentence(capsys, folder)
    assert not (tmp_path / "other.html").exists()
    for culprit, words in {
        "absent": (tmp_path / "absent",),
        str(tmp_path): (tmp_path,),
        str(tmp_path / "no"): (folder, "--out", tmp_path / "no" / "a"),
        "--every": (folder, "--every", "0.5"),
        "soon": (folder, "--every", "soon"),
    }.items():
        assert culprit in sentence(capsys, *words)


def test_the_page_is_one_file_that_loads_nothing(run_named, tmp_path):
    """And the browser runs no other script than those of the page."""
    page = written(run_named("bare"), tmp_path / "a.html")
    for tag, attributes in page.tags:
        assert tag not in ("link", "iframe", "object", "embed", "base")
        for name in ("src", "href", "action", "data"):
            assert (attributes.get(name) or "")[:1] in ("", "#")
    (style,) = [text for tag, text in page.texts if tag == "style"]
    assert not re.search(r"@import|url\(", style)

    (policy,) = [a["content"] for _, a in page.tags if "http-equiv" in a]
    text = (tmp_path / "a.html").read_text("utf-8")
    scripts = re.findall(r"<script>(.*?)</script>", text, re.S)
    digests = [sha256(script.encode()).digest() for script in scripts]
    hashes = " ".join(f"'sha256-{b64encode(each).decode()}'" for each in digests)
    assert len(scripts) == 2
    assert policy.startswith(f"default-src 'none'; script-src {hashes}; style-src ")
    assert policy.count("script-src") == 1


def test_data_cannot_end_their_script():
    text = f"{EVIL}<!--&\u2028\u2029"
    assert not set("<>&\u2028\u2029") & set(embedded([text]))
    assert json.loads(embedded([text])) == [text]


def test_numbers_that_no_axis_has_are_not_known():
    values = unpacked(packed([1.0, np.inf, 1e300], "f4"))
    assert_array_equal(values, np.array([1.0, np.nan, np.nan], "f4"))


@pytest.mark.parametrize("problem", ["least_squares", "ppca"])
def test_names_from_files_are_never_markup(tmp_path, problem):
    """A column and a folder are called like the end of a script."""
    rows = np.random.default_rng(0).normal(size=(40, 3))
    head = f'"{EVIL}",<i>x2</i>,y'
    np.savetxt(tmp_path / "a.csv", rows, delimiter=",", header=head, comments="")
    folder = tmp_path / "<script>alert(2)<" / "script>"
    words = ["--quiet", "--nodes", "2", "--data", str(tmp_path / "a.csv")]
    words += ["--problem", problem, "--out", str(folder)]
    assert run.main([*words, *["--n-components", "2"] * (problem == "ppca")]) == 0
    page = written(folder, tmp_path / "a.html")

    scripts = [a for tag, a in page.tags if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "data"}, {}, {}]
    assert not any(tag == "i" for tag, _ in page.tags)
    assert EVIL in page.words
    assert str(folder) in page.words
    assert EVIL not in json.dumps(page.data["figures"])  # plotly knows some markup
    dots = sum(tag == "circle" and "fill" in a for tag, a in page.tags)
    assert dots == 2 * (problem == "least_squares")  # of intervals, for both columns


def themed(value):
    """Return a figure with colours instead of their names, as `plots.js` does."""
    if value == "@scale":
        return [[0, LIGHT["paper"]], [1, LIGHT["blue"]]]
    if isinstance(value, str) and value.startswith("@"):
        return LIGHT[value[1:].partition("/")[0]]
    if isinstance(value, dict):
        return {key: themed(inner) for key, inner in value.items()}
    return [themed(inner) for inner in value] if isinstance(value, list) else value


def test_figures_are_those_of_the_rows_and_known_to_plotly(page_named):
    found, page = page_named("nap")
    figures = page.data["figures"]
    assert len({figure["id"] for figure in figures}) == len(figures)
    for figure in figures:
        go.Figure(themed({k: figure[k] for k in ("data", "layout")}))  # or ValueError
    for title, column in (
        ("Disagreement / limit", "disagreement_over_limit"),
        ("Angle to the true subspace (degrees)", "angle_to_truth"),
    ):
        figure = figure_of(page, title)
        (line,) = named(figure)
        assert_allclose(unpacked(line["y"]), np.median(found.column(column), axis=1))
        assert figure["layout"]["yaxis"]["type"] == "log"


@pytest.mark.parametrize("name", ["nap", "turns", "snap"])
def test_the_network_has_both_directions_of_all_edges(page_named, name):
    """An edge is silent that sends a header only, or out of its turn nothing."""
    found, page = page_named(name)
    (own,) = page.data["network"]["runs"]
    rows = np.array(page.data["network"]["frames"]) - 1
    ends = np.append(found.pairs, found.topology.reverse[found.pairs])
    columns = {"eta": found.eta}
    if name == "snap":
        columns |= {k: found.edge_column(k) for k in ("used_up", "budget", "raised")}
        columns["spent"] = np.minimum(found.edge_column("spent"), columns["budget"])
        assert ("th", "raised") in page.texts
    else:
        columns["silent"] = found.edge_column("bytes") == {"nap": 16, "turns": 0}[name]
    for column, values in columns.items():
        assert values.any()
        wanted = values[rows][:, ends].ravel()
        assert_allclose(unpacked(own[column]), wanted, rtol=1e-6)
    axis = figure_of(page, "Penalty η of the edges")["layout"]["yaxis"]
    assert ("range" in axis) == (name != "snap")
    if "range" in axis:  # it is logarithmic
        low, high = 10 ** np.array(axis["range"])
        assert low < found.eta.min() < found.eta.max() < high
    wanted = found.column("disagreement")[rows].ravel()
    assert_allclose(unpacked(own["nodes"]["disagreement"]), wanted, rtol=1e-6)


def test_a_graph_without_rows_has_the_mean_of_both_directions(run_named):
    found = read_run(run_named("bare"))
    eta = found.arrays["eta"] = np.arange(1.0, 15.0)
    drawn = network._choose(0, found, found.n_iterations)
    back = eta[found.topology.reverse[found.pairs]]
    assert_allclose(drawn.eta, [(eta[found.pairs] + back) / 2])


def test_bytes_and_seconds_are_those_of_the_rows(page_named):
    """Bytes by sender and receiver, if they differ; sums of seconds."""
    found, page = page_named("star")
    (shown,) = figure_of(page, "Bytes by directed edge")["data"]
    wanted = np.full((6, 6), np.nan)
    wanted[tuple(found.topology.edges.T)] = found.arrays["edge_bytes"]
    assert_allclose(unpacked(shown["z"]), wanted, rtol=1e-6)
    assert not np.array_equal(wanted, wanted.T, equal_nan=True)
    for shown in figure_of(page, "Time by phase")["data"]:
        wanted = found.column(f"{shown['name']}_seconds").sum(axis=0)
        assert_allclose(unpacked(shown["y"]), wanted, rtol=1e-6)

    found, page = page_named("bare")
    (sent,) = set(found.arrays["edge_bytes"].tolist())
    assert f"{sent:,.0f} bytes on each of 14 directed edges" in page.words


def test_one_number_is_rounded_once(page_named):
    """The tiles have what the run has printed."""
    found, page = page_named("bare")
    tiles = [text for tag, text in page.texts if tag == "b"]
    (printed,) = [text for tag, text in page.texts if tag == "pre" and "agree" in text]
    assert len(tiles) == 6
    assert tiles[0] == str(found.summary["iterations"])
    for value in tiles:
        assert value.strip("°") in printed, value


def test_several_runs_are_compared(run_named, tmp_path, capsys):
    folders = [run_named(name) for name in ("nap", "bare", "vp")]
    page = written(*folders, tmp_path / "a.html")
    assert "nap, edge_sleep = 0.9" in page.words
    assert len(page.data["network"]["runs"]) == 3
    lines, edges = (
        [
            (own["name"], own["line"]["color"], own["line"]["dash"])
            for own in named(each)
        ]
        for each in (page.data["figures"][0], figure_of(page, "Penalty η of the edges"))
    )
    assert len({own[1:] for own in lines}) == 3
    assert edges == lines[::2]  # two of the runs have edges
    for folder in folders:  # in a table
        last = read_run(folder).column("disagreement_over_limit")[-1]
        assert f"{np.median(last):.4g}" in page.words
    assert ("table", {"class": "sortable"}) in page.tags

    make_run(tmp_path / "sweep" / "b")
    shutil.copytree(tmp_path / "sweep" / "b", tmp_path / "sweep" / "c")
    (tmp_path / "sweep" / "logs").mkdir()
    capsys.readouterr()
    assert report([str(tmp_path / "sweep")]) == 0  # stands for its runs
    assert capsys.readouterr().out.endswith("sweep/b/compare-report.html\n")
    assert "compare-report.html" in RunFolder.open(tmp_path / "sweep" / "b").names


def test_compared_methods_have_a_page(tmp_path, capsys):
    out = tmp_path / "out"
    words = "--nodes 3 --n-samples 60 --dimension 6 --n-components 2 --seeds 1 --report"
    words += f" --method nap --method fixed --network lan --out {out}"
    assert main_of("compare")(words.split()) == 0
    assert capsys.readouterr().out.endswith(f"{(out / 'report.html').as_uri()}\n")
    page = Parsed((out / "report.html").read_text("utf-8"))
    rows = rows_of(out / "curves.csv")

    for line in named(page.data["figures"][0]):
        method = line["name"].removesuffix(" float64")
        errors = [float(row["error"]) for row in rows if row["method"] == method]
        assert_allclose(unpacked(line["y"])[[0, -1]], [errors[0], errors[-1]])
    assert len(named(page.data["figures"][0])) == 2
    assert len(page.data["figures"]) == 3  # over iterations, bytes and seconds
    assert ("table", {"class": "sortable"}) in page.tags
    (out / "curves.csv").write_text("\n")  # no method made an iteration
    assert not written(out, tmp_path / "a.html").data["figures"]


@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("--scheme", "vp", "--eta0", "2.5", "--no-checkpoint", "--no-record-edges"),
        ("--scheme", "snap", "--missing-fraction", "0.1", "--budget0", "9"),
        ("--no-summaries", "--init", "shared", "--stopping", "objective"),
        ("--tolerance", "1e-05", "--payload", "quantised:6"),
    ],
)
def test_the_command_repeats_the_run(tmp_path, flags):
    found = read_run(make_run(tmp_path / "it's a run", *flags))
    words = shlex.split(command(found))

    assert words[:4] == ["python", "-m", "dadmm", "run"]
    again = RunConfig.from_argv(words[4:]).config
    again.settle(6)
    assert again.applied() == replace(found.config, quiet=False, out=None).applied()


def test_a_large_run_is_thinned_out_and_the_page_says_so(
    run_named, tmp_path, monkeypatch
):
    monkeypatch.setattr(network, "MOST_EDGES", 5)
    monkeypatch.setattr(network, "MOST_FRAMES", 4)
    monkeypatch.setattr("dadmm.show.figure.MOST_NODES", 4)
    for name in ("nap", "bare"):
        page = written(run_named(name), tmp_path / "a.html")
        library = len(get_plotlyjs().encode())
        assert (tmp_path / "a.html").stat().st_size - library < 2e5
        assert re.search("[45] of 7 edges", page.words)
        assert "4 of 6 nodes" in page.words
        last = read_run(run_named(name)).n_iterations
        assert f"4 of {last} iterations" in page.words
        frames = page.data["network"]["frames"]
        assert (len(frames), frames[0], frames[-1]) == (4, 1, last)
        drawn = [a for _, a in page.tags if a.get("class", "").startswith("edge ")]
        assert 4 <= len(drawn) <= 5 + 7  # with the legend


@pytest.fixture
def going(run_named, tmp_path):
    """A run after 7 iterations; the eighth is incomplete."""
    folder = tmp_path / "going"
    shutil.copytree(run_named("nap"), folder)
    unfinish(folder, 6, 7, edges=True)
    return folder


def fewer_edges(parts, rows):
    """Rows of edges end two iterations before those of nodes."""
    (parts / "edges-00000.csv").write_text("".join(rows["edges"][: 5 * 14 - 1]))
    return 4


def several_processes(parts, rows):
    """Each has one node, and they are not at the same iteration."""
    for node in range(6):
        own = [line for line in rows["history"] if line.split(",")[1] == str(node)]
        text = "".join(own[: 5 if node == 3 else 7])
        (parts / f"history-{node:05d}.csv").write_text(text)
    return 5


def resumed(parts, rows):
    """Rows up to the resume are in history.csv, later ones in part files."""
    for kind, n in (("history", 4 * 6), ("edges", 4 * 14)):
        ended = [f"{line.rpartition(',')[0]}\n" for line in rows[kind][:n]]
        (parts.parent / f"{kind}.csv").write_text(rows[f"{kind} head"] + "".join(ended))
        (parts / f"{kind}-00000.csv").write_text("".join(rows[kind][n:]))
    return 7


@pytest.mark.parametrize(
    "change", [lambda parts, rows: 7, fewer_edges, several_processes, resumed]
)
def test_rows_of_a_going_run_are_those_of_complete_iterations(run_named, going, change):
    whole, rows = run_named("nap"), {}
    for kind in ("history", "edges"):
        rows[f"{kind} head"] = (whole / f"{kind}.csv").read_text().split("\n")[0] + "\n"
        part = going / "parts" / f"{kind}-00000.csv"
        rows[kind] = part.read_text().splitlines(keepends=True)
    count = change(going / "parts", rows)
    found, ended = read_run(going), read_run(whole)

    assert found.is_going
    assert found.n_iterations == count
    assert found.topology == ended.topology
    for name in ("history", "edge_history"):
        ours, theirs = getattr(found, name), getattr(ended, name)
        assert set(ours) == set(theirs)
        for column, values in ours.items():
            assert_array_equal(values, theirs[column][:count])


def test_a_page_says_whether_the_run_is_going(run_named, going):
    """And the page of before the end is replaced after it."""

    def page() -> Parsed:
        assert report([str(going)]) == 0
        assert "report.html" in RunFolder.open(going).names
        return Parsed((going / "report.html").read_text("utf-8"))

    lock = RunFolder(going)
    lock.lock(first=True)
    try:
        found = page()
    finally:
        lock.release()
    assert "The run is still going (as of 2" in found.words
    assert "7 of at most 30 iterations have been written" in found.words
    assert found.data["network"]["frames"] == list(range(1, 8))
    assert "The run is interrupted" in page().words
    (going / ".lock").unlink()
    assert "The run is not finished (as of" in page().words
    for path in run_named("nap").iterdir():
        if path.is_file():
            shutil.copy(path, going)
    shutil.rmtree(going / "parts")
    assert "NOT converged" in page().words


def test_a_graph_that_cannot_be_built_again_is_one_sentence(tmp_path, capsys):
    edges = tmp_path / "own.edges"
    edges.write_text("0 1\n1 2\n")
    words = ("--topology", str(edges), "--nodes", "3", "--no-record-edges")
    folder = make_run(tmp_path / "a", *words)
    unfinish(folder, 3, 4, edges=False)
    assert read_run(folder).n_iterations == 4
    edges.unlink()
    assert "graph" in sentence(capsys, folder)
