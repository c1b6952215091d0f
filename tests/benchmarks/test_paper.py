"""The paper: its preset, its equations in the code, and what pages cite."""

import importlib.util
import re
import sys
from pathlib import Path
from pkgutil import resolve_name
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import dadmm
from benchmarks.shared.rejected import VPTau
from dadmm import run
from dadmm.graphs.incidence import Incidence
from tests.support.processes import ROOT
from tests.support.runs import arrays_of

MADE = {"runs", "build", "dist", "out", "_build", "gallery", "generated"}  # folders
SOURCES = {
    path: path.read_text("utf-8")
    for path in sorted([*ROOT.glob("*"), *ROOT.glob("[!.]*/**/*")])
    if path.suffix in (".md", ".py", ".toml", ".json") and path.is_file()
    if path != Path(__file__).resolve()
    if not MADE & {*path.relative_to(ROOT).parts}
}
PAGES = {path: text for path, text in SOURCES.items() if path.suffix == ".md"}


def test_the_preset_is_the_library_with_the_papers_settings(tmp_path):
    """Bit for bit, for thirty iterations of twelve nodes; each value stands here."""
    words = ["--config", "as-printed", "--nodes", "12", "--max-iter", "30"]

    assert run.main([*words, "--out", str(tmp_path / "a")]) == 0

    samples, _ = dadmm.datasets.synthetic(500, 20, 5, 0.2)
    problems = [dadmm.problems.PPCA(x, 5) for x in dadmm.shard.split(samples, 12)]
    scheme = dadmm.penalty.NAP(
        eta0=10.0, t_max=50, residual_ratio=10.0, budget0=5.0, budget_decay=0.5,
        budget_trigger=0.1, relaxation=1.0, coupling="own", probe="midpoint",
    )  # fmt: skip
    library = dadmm.solve(
        problems, dadmm.Topology.complete(12), scheme=scheme, init="independent",
        stopping=dadmm.Stopping("objective", 1e-3, agreement="global", max_iter=30),
        coordinates="raw",
    )  # fmt: skip
    assert library.iterations == 30
    arrays = arrays_of(tmp_path / "a")
    for part, values in library.layout.views(library.theta)._asdict().items():
        assert_array_equal(arrays[part], values)
    assert_array_equal(arrays["eta"], library.eta)


def test_the_page_of_the_paper_names_what_exists():
    """15 equations, with "In the code:", and 16 lines of Algorithm 1 in a table."""
    equations, _, algorithm = PAGES[ROOT / "docs" / "paper.md"].partition(
        "| line of Algorithm 1 |"
    )
    places = {}
    for section in re.split(r"^### ", equations, flags=re.M)[1:]:
        place = section.partition("In the code:")[2].partition("\n\n")[0]
        places[section.split()[0]] = place
    assert places.keys() >= {f"({k})" for k in range(1, 16)}
    rows = [line.strip("|").split("|") for line in algorithm.splitlines()[2:]]
    numbers = re.findall(r"\d+", " ".join(cells[0] for cells in rows))
    assert sorted(map(int, numbers)) == list(range(1, 17))
    places |= {cells[0]: cells[-1] for cells in rows}
    for what, place in places.items():
        names = [n for n in re.findall(r"`([^`]+)`", place) if not n.endswith(".py")]
        assert names, what
        for name in names:
            assert callable(resolve_name(f"dadmm.{name.removeprefix('dadmm.')}"))


def test_what_sources_cite_exists():
    """Equations by their numbers, and pages, also in docstrings."""
    cited = re.compile(r"[Ee]quations? \((\w+)\)(?:(?:, | and )\((\w+)\))*")
    here = {path.name for path in PAGES} | {"table.md"}  # which `dadmm compare` writes
    for path, text in SOURCES.items():
        for match in cited.finditer(text):
            numbers = re.findall(r"\((\w+)\)", match[0])
            assert all(n.isdecimal() and int(n) <= 15 for n in numbers), (path, match)
        assert {*re.findall(r"\b[\w-]+\.md\b", text)} <= here, path


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_benchmarks_of_a_page_exist(page):
    """Benchmarks are started as modules: as files they would not find each other."""
    assert not re.findall(r"(?:\$P|python) benchmarks/[a-z_]+\.py", PAGES[page])
    for name in re.findall(r"-m (benchmarks\.[a-z_.]*[a-z_])\b", PAGES[page]):
        assert importlib.util.find_spec(name), name
    for target in re.findall(r"\]\(([^)\s]+)\)", PAGES[page]):
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


NAMES = sorted(path.stem for path in (ROOT / "benchmarks").glob("[a-z]*_*.py"))
ABSENT = {
    "paper_tracks caltech": "--data",
    "paper_tracks hopkins --data .": "--data",
    "bench_gaps --data none": "--data",
    "paper_synthetic --data x.mat": "x.mat",
}


@pytest.mark.parametrize("program", [*(f"{name} --help" for name in NAMES), *ABSENT])
def test_a_benchmark_shows_its_help_and_names_absent_data(program, monkeypatch, capsys):
    name, *arguments = program.split()
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"benchmarks.{name}").main()
    out, err = capsys.readouterr()

    assert ended.value.code == (2 if program in ABSENT else 0)
    assert ABSENT.get(program, name) in out + err
    assert len(err.splitlines()) == (program in ABSENT)


def test_vp_tau_is_equation_4_with_tau_of_the_edge():
    """A rule that the paper rejects. One node with two edges: f_i is 4; probes 3, 6."""
    factor = (4.0 / 3.0) / np.array([1.0, 2.0])  # 1 + tau, of kappas of 4 and probes
    eta, eta0 = np.array([5.0, 20.0]), np.array([10.0, 10.0])
    seen = {"objective": 4.0, "f_min": 3.0, "f_max": 6.0, "probes": [3.0, 6.0]}
    for t, primal, dual, expected in (
        (1, 11.0, 1.0, eta * factor),
        (1, 1.0, 11.0, eta / factor),
        (1, 9.0, 1.0, eta),
        (50, 11.0, 1.0, eta0),
    ):
        numbers = seen | {"primal": primal, "dual": dual}
        obs = {name: np.atleast_1d(value) for name, value in numbers.items()}
        obs = SimpleNamespace(t=t, incidence=Incidence(np.array([2])), **obs)
        found = VPTau(t_max=50).update({"eta": eta, "eta0": eta0}, obs)
        assert_allclose(found["eta"], expected)
