"""The paper: its preset, its equations in the code, its data, and pages about it."""

from __future__ import annotations

import importlib.util
import re
import sys
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import dadmm
from dadmm import run
from dadmm.runs.config import RunConfig
from dadmm.runs.flags import PRESETS

ROOT = Path(__file__).resolve().parents[2]
OUTPUT = ("runs", "build", "dist", "out")
BUILT = {"_build", "gallery", "generated"}  # folders of docs/ that launch/docs makes
SOURCES = sorted(
    path
    for top in ROOT.iterdir()
    if not top.name.startswith(".") and top.name not in OUTPUT
    for path in (top.rglob("*") if top.is_dir() else [top])
    if path.suffix in (".md", ".py", ".toml", ".json") and path.parent.name != "out"
    if path != Path(__file__).resolve() and path.is_file()
    if not BUILT & {*path.relative_to(ROOT).parts}
)
PAGES = [path for path in SOURCES if path.suffix == ".md"]
# Labels of the paper's LaTeX source, which no reader can look up.
LABELS = ("he2000", "eta_update_ap", "eta_update_nap", "T_update", "posterior_zx")


def test_the_preset_is_the_library_with_the_papers_settings(tmp_path, monkeypatch):
    """Bit for bit, for thirty iterations of twelve nodes; each value stands here."""
    monkeypatch.chdir(tmp_path)

    code = run.main(
        ["--config", "as-printed", "--nodes", "12", "--max-iter", "30", "--out", "a"]
    )

    assert code == 0
    samples, _ = dadmm.datasets.synthetic(500, 20, 5, 0.2)
    problems = [dadmm.problems.PPCA(x, 5) for x in dadmm.shard.split(samples, 12)]
    scheme = dadmm.penalty.NAP(
        eta0=10.0, t_max=50, residual_ratio=10.0, budget0=5.0, budget_decay=0.5,
        budget_trigger=0.1, relaxation=1.0, coupling="own", probe="midpoint",
    )  # fmt: skip
    library = dadmm.solve(
        problems,
        dadmm.Topology.complete(12),
        scheme=scheme,
        init="independent",
        coordinates="raw",
        stopping=dadmm.Stopping("objective", 1e-3, agreement="global", max_iter=30),
    )
    assert library.iterations == 30
    with np.load(tmp_path / "a" / "result.npz") as arrays:
        for part, values in library.layout.views(library.theta)._asdict().items():
            assert_array_equal(arrays[part], values)
        assert_array_equal(arrays["eta"], library.eta)


def test_every_setting_of_the_preset_has_a_source(tmp_path, monkeypatch):
    """On its line or in the lines above; flags override it, and a file of its name."""
    given = ["--scheme", "vp", "--config", "as-printed", "--eta0", "3"]
    config = RunConfig.from_argv([*given, "--problem", "sfm"]).config
    assert (config.scheme, config.eta0, config.problem) == ("vp", 3.0, "sfm")
    assert config.coupling == "own"
    assert "presets/*.toml" in (ROOT / "setup.cfg").read_text()
    text = ""
    for line in PRESETS["as-printed"].read_text().splitlines():
        text = "" if not line else text + line
        if re.match(r"\w+ =", line):
            assert re.search(r"[Ss]ection|[Ee]quation|Algorithm|[Oo]pen", text), line
    monkeypatch.chdir(tmp_path)
    Path("as-printed").write_text("eta0 = 2.0\n")
    assert RunConfig.from_argv(["--config", "as-printed"]).config.eta0 == 2.0


def places() -> dict[str, str]:
    """Return where each equation and each line of Algorithm 1 is, from docs/paper.md.

    An equation is a heading such as "### (7) ...", and its place the paragraph that
    begins with "In the code:". A line is a row of the table.
    """
    page = (ROOT / "docs" / "paper.md").read_text("utf-8")
    equations, _, algorithm = page.partition("| line of Algorithm 1 |")
    found = {}
    for section in re.split(r"^### ", equations, flags=re.M)[1:]:
        found[section.splitlines()[0]] = section.partition("In the code:")[2]
    for line in algorithm.splitlines()[2:]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        found[f"line {cells[0]}"] = cells[-1]
    return found


def found(name: str) -> object:
    """Return what a dotted name below dadmm means."""
    words = name.split(".")
    for k in range(len(words), -1, -1):
        try:
            module = importlib.import_module(".".join(["dadmm", *words[:k]]))
        except ModuleNotFoundError:
            continue
        return attrgetter(".".join(words[k:]))(module) if words[k:] else module
    raise AttributeError(name)


@pytest.mark.parametrize("what", places())
def test_the_page_names_what_exists(what):
    place = places()[what].partition("\n\n")[0]
    names = [n for n in re.findall(r"`([^`]+)`", place) if not n.endswith(".py")]

    assert names
    for name in names:
        assert callable(found(name.removeprefix("dadmm."))), name


def test_the_page_has_all_equations_and_lines():
    """15 equations, and 16 lines of Algorithm 1."""
    lines = " ".join(what for what in places() if what.startswith("line"))

    assert {what.partition(" ")[0] for what in places()} >= {
        f"({k})" for k in range(1, 16)
    }
    assert sorted(map(int, re.findall(r"\d+", lines))) == list(range(1, 17))


def test_equations_are_cited_by_numbers_that_exist():
    cited = re.compile(r"[Ee]quations? \((\w+)\)(?:(?:, | and )\((\w+)\))*")
    for path in SOURCES:
        text = path.read_text("utf-8")
        assert not [name for name in LABELS if f"({name})" in text], path
        for match in cited.finditer(text):
            numbers = re.findall(r"\((\w+)\)", match[0])
            assert all(n.isdecimal() and int(n) <= 15 for n in numbers), (path, match)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if "://" in target:
            continue
        name, _, heading = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), target
        assert ROOT in (file, *file.parents), target
        if heading:
            titles = re.findall(r"^#+ (.*)$", file.read_text("utf-8").lower(), re.M)
            anchors = {re.sub(r"[^\w -]", "", t).replace(" ", "-") for t in titles}
            assert heading in anchors, target


def test_no_page_is_cited_that_is_not_here():
    """Nor in a docstring: whoever has a clone can look up what it names."""
    here = {path.name for path in PAGES} | {"table.md"}  # which `dadmm compare` writes
    for path in SOURCES:
        for name in re.findall(r"\b[\w-]+\.md\b", path.read_text("utf-8")):
            assert name in here, (path, name)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_benchmarks_are_started_as_modules_that_exist(page):
    """As files they would not find each other."""
    text = page.read_text("utf-8")

    assert not re.findall(r"(?:\$P|python) benchmarks/[a-z_]+\.py", text)
    for name in re.findall(r"-m (benchmarks\.[a-z_.]*[a-z_])\b", text):
        assert importlib.util.find_spec(name), name


@pytest.mark.parametrize(
    "name", sorted(path.stem for path in (ROOT / "benchmarks").glob("[a-z]*_*.py"))
)
def test_a_benchmark_shows_its_help(name, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"benchmarks.{name}").main()

    assert ended.value.code == 0
    assert name in capsys.readouterr().out


@pytest.mark.parametrize(
    ("program", "culprit"),
    [
        ("paper_tracks caltech", "--data"),
        ("paper_tracks hopkins --data .", "--data"),
        ("bench_gaps --data none", "--data"),
        ("paper_synthetic --data x.mat", "x.mat"),
    ],
)
def test_absent_data_get_one_sentence(program, culprit, monkeypatch, tmp_path, capsys):
    name, *arguments = program.split()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"benchmarks.{name}").main()

    assert ended.value.code == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert culprit in said
