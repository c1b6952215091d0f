"""The report page: what is in it, where it goes, and what it never lets through."""

from __future__ import annotations

import csv
import json
import re
import shlex
from base64 import b64encode
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("plotly", reason="the extra `report` is not installed")

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from dadmm import compare, report, run
from dadmm.runs.config import RunConfig
from dadmm.runs.folder import RunFolder
from dadmm.runs.stored import read_run as read
from dadmm.show import network, panels
from dadmm.show.document import command, embedded
from dadmm.show.style import LIGHT
from tests.support.pages import Parsed, make_run, unpacked
from tests.support.runs import refused

sentence = partial(refused, main=report.main)
EVIL = "</script><script>alert(1)</script>"
PLOTLY = len(get_plotlyjs().encode())
EDGES = "--record-edges"
RUNS = {
    "turns": (EDGES, "--schedule", "matchings"),
    "nap": (EDGES, "--record-angle", "--edge-sleep", "0.9"),
    "vp": (EDGES, "--scheme", "vp"),
    "bare": ("--no-record-edges",),
    "star": (EDGES, "--censor", "0.5", "--init", "independent", "--topology", "star",
             "--max-iter", "40"),
    "snap": (EDGES, "--scheme", "snap", "--budget0", "0.5", "--max-iter", "90",
             "--tolerance", "0"),
}  # fmt: skip


def written(*words: object) -> Parsed:
    """Write a page and return its content; the last word is its path."""
    assert report.main([*map(str, words[:-1]), "--out", str(words[-1])]) == 0
    return Parsed(Path(str(words[-1])).read_text("utf-8"))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return the folders of small runs by name; do not write into them."""
    root = tmp_path_factory.mktemp("runs")
    return {name: make_run(root / name, *flags) for name, flags in RUNS.items()}


@pytest.fixture(scope="module")
def pages(runs, tmp_path_factory):
    """Return runs with their pages by name."""
    root = tmp_path_factory.mktemp("pages")
    return {
        name: (read(folder), written(folder, root / f"{name}.html"))
        for name, folder in runs.items()
    }


def figure_of(page, title):
    """Return the figure that has this title on a page."""
    (name,) = [a["id"] for _, a in page.tags if a.get("aria-label") == title]
    (figure,) = [own for own in page.data["figures"] if own["id"] == name]
    return figure


def test_the_page_goes_into_the_folder_and_belongs_to_the_run(tmp_path, capsys):
    folder = make_run(tmp_path / "run")
    for _ in range(2):
        assert report.main([str(folder)]) == 0
        assert capsys.readouterr().out == f"{(folder / 'report.html').as_uri()}\n"
    assert "report.html" in RunFolder.open(folder).names
    make_run(tmp_path / "run", "--overwrite")
    assert not (folder / "report.html").exists()


def test_bad_input_is_one_sentence_and_files_of_the_user_stay(tmp_path, capsys):
    folder = make_run(tmp_path / "run")
    mine = folder / "report.html"
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


def test_the_page_is_one_file_that_loads_nothing(pages):
    _, page = pages["nap"]
    for tag, attributes in page.tags:
        assert tag not in ("link", "iframe", "object", "embed", "base")
        for name in ("src", "href", "action", "data"):
            value = attributes.get(name) or ""
            assert value[:1] in ("", "#")
    (style,) = [text for tag, text in page.texts if tag == "style"]
    assert not re.search(r"@import|url\(", style)


def test_the_browser_runs_the_scripts_of_the_page_only(runs, tmp_path):
    page = written(runs["bare"], tmp_path / "a.html")
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
    found = embedded({"a": text})
    assert not set("<>&\u2028\u2029") & set(found)
    assert json.loads(found) == {"a": text}


def themed(value):
    """Return a figure with colours instead of their names, as `plots.js` does."""
    if value == "@scale":
        return [[0, LIGHT["paper"]], [1, LIGHT["blue"]]]
    if isinstance(value, str) and value.startswith("@"):
        return LIGHT[value[1:].partition("/")[0]]
    if isinstance(value, dict):
        return {key: themed(inner) for key, inner in value.items()}
    return [themed(inner) for inner in value] if isinstance(value, list) else value


def test_every_figure_is_one_of_plotly(pages):
    figures = pages["nap"][1].data["figures"]
    assert len({figure["id"] for figure in figures}) == len(figures)
    for figure in figures:
        go.Figure(themed({k: figure[k] for k in ("data", "layout")}))  # or ValueError


def test_convergence_is_that_of_the_rows(pages):
    found, page = pages["nap"]
    for title, column in (
        ("Disagreement / limit", "disagreement_over_limit"),
        ("Angle to the true subspace (degrees)", "angle_to_truth"),
    ):
        figure = figure_of(page, title)
        (line,) = [own for own in figure["data"] if "name" in own]
        median = np.median(found.column(column), axis=1)
        np.testing.assert_allclose(unpacked(line["y"]), median)
        assert figure["layout"]["yaxis"]["type"] == "log"


@pytest.mark.parametrize("name", ["nap", "turns", "snap"])
def test_the_network_has_both_directions_of_all_edges(pages, name):
    """An edge is silent that sends a header only, or out of its turn nothing."""
    found, page = pages[name]
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
        shown, wanted = unpacked(own[column]), values[rows][:, ends].ravel()
        np.testing.assert_allclose(shown, wanted, rtol=1e-6)
    axis = figure_of(page, "Penalty η of the edges")["layout"]["yaxis"]
    if "range" in axis:  # it is logarithmic
        low, high = 10 ** np.array(axis["range"])
        assert low < found.eta.min() < found.eta.max() < high
    assert ("range" in axis) == (name != "snap")
    wanted = found.column("disagreement")[rows].ravel()
    shown = unpacked(own["nodes"]["disagreement"])
    np.testing.assert_allclose(shown, wanted, rtol=1e-6)


def test_bytes_and_seconds_are_those_of_the_rows(pages):
    """Bytes by sender and receiver; seconds are sums over the iterations."""
    found, page = pages["star"]
    (shown,) = figure_of(page, "Bytes by directed edge")["data"]
    wanted = np.full((6, 6), np.nan)
    wanted[tuple(found.topology.edges.T)] = found.arrays["edge_bytes"]

    np.testing.assert_allclose(unpacked(shown["z"]), wanted, rtol=1e-6)
    assert not np.array_equal(wanted, wanted.T, equal_nan=True)
    for shown in figure_of(page, "Time by phase")["data"]:
        wanted = found.column(f"{shown['name']}_seconds").sum(axis=0)
        np.testing.assert_allclose(unpacked(shown["y"]), wanted, rtol=1e-6)


def test_equal_bytes_of_all_edges_are_a_sentence(pages):
    """And a map is drawn only where they differ, see above."""
    found, page = pages["bare"]
    (sent,) = set(found.arrays["edge_bytes"].tolist())
    assert f"{sent:,.0f} bytes on each of 14 directed edges" in page.words


def test_one_number_is_rounded_once(pages):
    """The tiles have what the run has printed."""
    found, page = pages["bare"]
    tiles = [text for tag, text in page.texts if tag == "b"]
    (printed,) = [text for tag, text in page.texts if tag == "pre" and "agree" in text]
    assert len(tiles) == 6
    assert tiles[0] == str(found.summary["iterations"])
    for value in tiles:
        assert value.strip("°") in printed, value


def test_several_runs_are_compared(runs, tmp_path, capsys):
    page = written(runs["nap"], runs["vp"], runs["bare"], tmp_path / "a.html")
    assert "nap, edge_sleep = 0.9" in page.words
    assert len(page.data["network"]["runs"]) == 3
    lines = [own for own in page.data["figures"][0]["data"] if "name" in own]
    looks = [(own["line"]["color"], own["line"]["dash"]) for own in lines]
    assert len(set(looks)) == len(looks) == 3
    assert ("table", {"class": "sortable"}) in page.tags

    make_run(tmp_path / "sweep" / "b")
    make_run(tmp_path / "sweep" / "c", "--seed", "1")
    (tmp_path / "sweep" / "logs").mkdir()
    capsys.readouterr()
    assert report.main([str(tmp_path / "sweep")]) == 0  # stands for its runs
    assert capsys.readouterr().out.endswith("sweep/b/compare-report.html\n")
    assert "compare-report.html" in RunFolder.open(tmp_path / "sweep" / "b").names


def test_compared_methods_have_a_page(tmp_path, capsys):
    out = tmp_path / "out"
    words = "--nodes 3 --n-samples 60 --dimension 6 --n-components 2 --seeds 1 --report"
    words += f" --method nap --method fixed --network lan --out {out}"
    assert compare.main(words.split()) == 0
    assert capsys.readouterr().out.endswith(f"{(out / 'report.html').as_uri()}\n")
    page = Parsed((out / "report.html").read_text("utf-8"))
    rows = list(csv.DictReader((out / "curves.csv").open()))

    lines = [own for own in page.data["figures"][0]["data"] if "name" in own]
    assert [own["name"] for own in lines] == ["nap float64", "fixed float64"]
    for line, method in zip(lines, ("nap", "fixed"), strict=True):
        errors = [float(row["error"]) for row in rows if row["method"] == method]
        shown = unpacked(line["y"])
        np.testing.assert_allclose(shown[[0, -1]], [errors[0], errors[-1]])
    assert len(page.data["figures"]) == 3  # over iterations, bytes and seconds
    assert ("table", {"class": "sortable"}) in page.tags


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
    found = read(make_run(tmp_path / "it's a run", *flags))
    words = shlex.split(command(found))

    assert words[:3] == ["python", "-m", "dadmm.run"]
    again = RunConfig.from_argv(words[3:]).config
    again.settle(6)
    assert again.to_toml() == replace(found.config, quiet=False, out=None).to_toml()


def test_a_large_run_is_thinned_out_and_the_page_says_so(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(network, "MOST_EDGES", 5)
    monkeypatch.setattr(network, "MOST_FRAMES", 4)
    monkeypatch.setattr(panels, "MOST_NODES", 4)
    for name in ("nap", "bare"):
        page = written(runs[name], tmp_path / "a.html")
        assert (tmp_path / "a.html").stat().st_size - PLOTLY < 2e5
        assert re.search("[45] of 7 edges", page.words)
        assert "4 of 6 nodes" in page.words
        assert "4 of 12 iterations" in page.words
        frames = page.data["network"]["frames"]
        assert (len(frames), frames[0], frames[-1]) == (4, 1, 12)
        drawn = [a for _, a in page.tags if a.get("class", "").startswith("edge ")]
        assert 4 <= len(drawn) <= 5 + 7  # with the legend
