"""The report page: what is in it, where it goes, and what it never lets through."""

from __future__ import annotations

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

from dadmm import report, run
from dadmm.runs.config import RunConfig
from dadmm.runs.folder import RunFolder
from dadmm.runs.stored import read_run as read
from dadmm.show import panels
from dadmm.show.document import command, embedded
from dadmm.show.style import LIGHT
from tests.support.pages import Parsed, make_run, unpacked
from tests.support.runs import refused

sentence = partial(refused, main=report.main)
EVIL = "</script><script>alert(1)</script>"
PLOTLY = len(get_plotlyjs().encode())


def written(*words: object) -> Parsed:
    """Write a page and return its content; the last word is its path."""
    folders, out = words[:-1], words[-1]
    assert report.main([*map(str, folders), "--out", str(out)]) == 0
    return Parsed(Path(out).read_text("utf-8"))


def themed(value):
    """Return a figure with colours instead of their names, as `plots.js` does."""
    if value == "@scale":
        return [[0, LIGHT["paper"]], [1, LIGHT["blue"]]]
    if isinstance(value, str) and value.startswith("@"):
        return LIGHT[value[1:].partition("/")[0]]
    if isinstance(value, dict):
        return {key: themed(inner) for key, inner in value.items()}
    return [themed(inner) for inner in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return the folders of small runs by name; do not write into them."""
    root, edges = tmp_path_factory.mktemp("runs"), "--record-edges"
    return {
        "turns": make_run(root / "turns", edges, "--schedule", "matchings"),
        "nap": make_run(root / "nap", edges, "--record-angle", "--edge-sleep", "0.9"),
        "vp": make_run(root / "vp", edges, "--scheme", "vp"),
        "bare": make_run(root / "bare", "--no-record-edges"),

        "star": make_run(
            root / "star", edges, "--censor", "0.5", "--init", "independent",
            "--topology", "star", "--max-iter", "40",
        ),
    }  # fmt: skip


@pytest.fixture(scope="module")
def page(runs, tmp_path_factory):
    """The page of the run by nap."""
    return written(runs["nap"], tmp_path_factory.mktemp("page") / "a.html")


def figure_of(page, title):
    """Return the figure that has this title on a page."""
    (name,) = [a["id"] for _, a in page.tags if a.get("aria-label") == title]
    (figure,) = [own for own in page.data["figures"] if own["id"] == name]
    return figure


def test_the_page_goes_into_the_folder_and_belongs_to_the_run(tmp_path, capsys):
    folder = make_run(tmp_path / "run")
    assert report.main([str(folder)]) == 0

    assert capsys.readouterr().out == f"{(folder / 'report.html').as_uri()}\n"
    assert "report.html" in RunFolder.open(folder).names
    assert report.main([str(folder)]) == 0  # again
    make_run(tmp_path / "run", "--overwrite")
    assert not (folder / "report.html").exists()


def test_files_of_the_user_are_left_alone(runs, tmp_path, capsys):
    folder = make_run(tmp_path / "run")
    mine = folder / "report.html"
    mine.write_text("mine")

    for words in ((folder,), (folder, "--out", mine)):
        assert str(mine) in sentence(capsys, *words)
    assert mine.read_text() == "mine"
    mine.unlink()
    mine.symlink_to(tmp_path / "other.html")
    assert str(mine) in sentence(capsys, folder)
    assert not (tmp_path / "other.html").exists()
    for wrong in ((folder, "--out", tmp_path / "no" / "a"), (tmp_path,)):
        sentence(capsys, *wrong)
    assert "absent" in sentence(capsys, tmp_path / "absent")


def test_the_page_is_one_file_that_loads_nothing(page):
    for tag, attributes in page.tags:
        assert tag not in ("link", "iframe", "object", "embed", "base")
        for name in ("src", "href", "action", "data"):
            value = attributes.get(name) or ""
            assert value[:1] in ("", "#")
    styles = [text for tag, text in page.texts if tag == "style"]
    assert not re.search(r"@import|url\(", "".join(styles))


def test_the_browser_runs_the_scripts_of_the_page_only(runs, tmp_path):
    (policy,) = [
        a["content"]
        for _, a in written(runs["bare"], tmp_path / "a.html").tags
        if "http-equiv" in a
    ]
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


@pytest.mark.parametrize("scheme", ["snap", "nap"])
def test_the_network_has_the_budgets_of_both_directions(tmp_path, scheme):
    flags = ("--scheme", scheme, "--budget0", "0.5", "--max-iter", "90")
    folder = make_run(tmp_path / "a", *flags, "--tolerance", "0")
    found, page = read(folder), written(folder, tmp_path / "a.html")
    (own,) = page.data["network"]["runs"]
    ends = np.append(found.pairs, found.topology.reverse[found.pairs])
    rows = np.array(page.data["network"]["frames"]) - 1

    for name in ("used_up", "spent", "budget", "raised"):
        values = found.edge_column(name)[rows]
        if name == "spent":
            values = np.minimum(values, found.edge_column("budget")[rows])
        np.testing.assert_allclose(unpacked(own[name]), values[:, ends], rtol=1e-6)
        assert unpacked(own[name]).any()
    assert ("th", "raised") in page.texts


def test_every_figure_is_one_of_plotly(page):
    names = [figure["id"] for figure in page.data["figures"]]
    assert len(names) == len(set(names))
    for figure in page.data["figures"]:
        go.Figure(themed({k: figure[k] for k in ("data", "layout")}))  # or ValueError


def test_convergence_is_that_of_the_rows(runs, page):
    found = read(runs["nap"])
    for title, column in (
        ("Disagreement / limit", "disagreement_over_limit"),
        ("Angle to the true subspace (degrees)", "angle_to_truth"),
    ):
        figure = figure_of(page, title)
        (line,) = [own for own in figure["data"] if "name" in own]
        median = np.median(found.column(column), axis=1)
        np.testing.assert_allclose(unpacked(line["y"]), median)
        assert figure["layout"]["yaxis"]["type"] == "log"


@pytest.mark.parametrize(("name", "least"), [("nap", 16), ("turns", 0)])
def test_the_network_has_the_penalties_and_silent_edges(runs, tmp_path, name, least):
    """An edge is silent that sends a header only, or out of its turn nothing."""
    found, page = read(runs[name]), written(runs[name], tmp_path / "a.html")
    (own,) = page.data["network"]["runs"]
    assert page.data["network"]["frames"] == list(range(1, 13))
    ends = np.append(found.pairs, found.topology.reverse[found.pairs])
    np.testing.assert_allclose(unpacked(own["eta"]), found.eta[:, ends], rtol=1e-6)
    silent = (found.edge_column("bytes") == least)[:, ends]
    assert silent.any()
    np.testing.assert_array_equal(unpacked(own["silent"]), silent)
    shown = unpacked(own["nodes"]["disagreement"])
    np.testing.assert_allclose(shown, found.column("disagreement"), rtol=1e-6)


def test_bytes_and_seconds_are_those_of_the_rows(runs, tmp_path):
    """Bytes by sender and receiver; seconds are sums over the iterations."""
    page, found = written(runs["star"], tmp_path / "a.html"), read(runs["star"])
    (shown,) = figure_of(page, "Bytes by directed edge")["data"]
    wanted = np.full((6, 6), np.nan)
    wanted[tuple(found.topology.edges.T)] = found.arrays["edge_bytes"]

    np.testing.assert_allclose(unpacked(shown["z"]), wanted, rtol=1e-6)
    assert not np.array_equal(wanted, wanted.T, equal_nan=True)
    for shown in figure_of(page, "Time by phase")["data"]:
        wanted = found.column(f"{shown['name']}_seconds").sum(axis=0)
        np.testing.assert_allclose(unpacked(shown["y"]), wanted, rtol=1e-6)


def test_equal_bytes_of_all_edges_are_a_sentence(runs, page):
    """And a map is drawn only where they differ, see above."""
    found = read(runs["bare"])
    sent = int(found.arrays["edge_bytes"][0])
    titles = [attributes.get("aria-label") for _, attributes in page.tags]
    assert (found.arrays["edge_bytes"] == sent).all()
    assert "Bytes by directed edge" in titles  # of edges that sleep
    assert panels.sent(found).note == f"{sent:,} bytes on each of 14 directed edges"


def test_one_number_is_rounded_once(runs, tmp_path):
    """The tiles have what the run has printed."""
    page, found = written(runs["bare"], tmp_path / "a.html"), read(runs["bare"])
    tiles = [text for tag, text in page.texts if tag == "b"]
    (printed,) = [text for tag, text in page.texts if tag == "pre" and "agree" in text]
    assert len(tiles) == 6
    assert tiles[0] == str(found.summary["iterations"])
    for value in tiles:
        assert value.strip("°") in printed, value


def test_several_runs_are_compared(runs, tmp_path, capsys):
    names = ("nap", "vp", "bare")
    page = written(*(runs[name] for name in names), tmp_path / "a.html")
    assert "nap, edge_sleep = 0.9" in page.words
    assert len(page.data["network"]["runs"]) == 3
    lines = [own for own in page.data["figures"][0]["data"] if "name" in own]
    looks = [(own["line"]["color"], own["line"]["dash"]) for own in lines]
    assert len(set(looks)) == len(looks) == 3
    assert ("table", {"class": "sortable"}) in page.tags

    make_run(tmp_path / "sweep" / "b")
    make_run(tmp_path / "sweep" / "c", "--seed", "1")
    (tmp_path / "sweep" / "logs").mkdir()
    assert report.main([str(tmp_path / "sweep")]) == 0  # stands for its runs
    assert capsys.readouterr().out.endswith("sweep/b/compare-report.html\n")
    assert "compare-report.html" in RunFolder.open(tmp_path / "sweep" / "b").names


def test_coefficients_have_intervals(tmp_path):
    rows = np.random.default_rng(0).normal(size=(60, 3))
    np.savetxt(tmp_path / "a.csv", rows, delimiter=",", header="a,b,y", comments="")
    words = ["--quiet", "--nodes", "2", "--data", str(tmp_path / "a.csv")]
    words += ["--problem", "least_squares", "--out", str(tmp_path / "r")]
    assert run.main(words) == 0
    drawn = written(tmp_path / "r", tmp_path / "a.html")
    assert sum(a.get("class") == "interval" for _, a in drawn.tags) == 2  # of a and b


def test_names_from_files_are_never_markup(tmp_path):
    """A column and a folder are called like the end of a script."""
    rows = np.random.default_rng(0).normal(size=(40, 3))
    head = f'"{EVIL}",<i>x2</i>,y\n'
    lines = "".join(",".join(map(repr, row)) + "\n" for row in rows.tolist())
    (tmp_path / "a.csv").write_text(head + lines)
    folder = tmp_path / "<script>alert(2)<" / "script>"
    words = ("--quiet", "--nodes", "2", "--data", str(tmp_path / "a.csv"))
    for problem in ("least_squares", "ppca"):
        more = ["--problem", problem, "--out", str(folder / problem)]
        more += ["--n-components", "2"] if problem == "ppca" else []
        assert run.main([*words, *more]) == 0
        page = written(folder / problem, tmp_path / f"{problem}.html")

        scripts = [a for tag, a in page.tags if tag == "script"]
        assert scripts == [{"type": "application/json", "id": "data"}, {}, {}]
        assert not any(tag == "i" for tag, _ in page.tags)
        assert EVIL in page.words
        assert str(folder) in page.words
        figures = json.dumps(page.data["figures"])
        assert EVIL not in figures  # plotly knows some markup


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
    folder = make_run(tmp_path / "it's a run", *flags)
    found = read(folder)
    words = shlex.split(command(found))

    assert words[:3] == ["python", "-m", "dadmm.run"]
    again = RunConfig.from_argv(words[3:]).config
    again.settle(6)
    assert again.to_toml() == replace(found.config, quiet=False, out=None).to_toml()


def test_a_page_of_20_nodes_and_all_edges_is_small(tmp_path):
    """Below 6 MB with a plotly of 4.8, whose versions differ in size."""
    words = ("--nodes", "20", "--topology", "complete", "--n-samples", "200")
    folder = make_run(tmp_path / "a", *words, "--max-iter", "300", "--tolerance", "0")
    page = written(folder, tmp_path / "a.html")

    assert (tmp_path / "a.html").stat().st_size - PLOTLY < 1.2e6
    frames = page.data["network"]["frames"]
    assert 90 <= len(frames) <= 100
    assert (frames[0], frames[-1]) == (1, 300)


def test_a_large_run_is_thinned_out_and_the_page_says_so(tmp_path):
    words = ("--nodes", "1200", "--topology", "erdos-renyi", "--max-iter", "4",
             "--n-samples", "2400", "--dimension", "3", "--record", "--no-checkpoint",
             "--record-edges")  # fmt: skip
    folder = make_run(tmp_path / "a", *words)
    page = written(folder, tmp_path / "a.html")

    assert (tmp_path / "a.html").stat().st_size - PLOTLY < 1.7e6
    assert re.search(r"1,000 of [\d,]+ edges", page.words)
    assert "100 of 1,200 nodes" in page.words
