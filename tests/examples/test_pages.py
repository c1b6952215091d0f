"""The Python blocks of the pages run, and what a page quotes is in the code."""

import re
import shlex
from dataclasses import fields
from pathlib import Path
from textwrap import indent

import numpy as np
import pytest

from dadmm.admm.state import State, Work
from dadmm.runs.config import RunConfig
from tests.support.processes import ROOT, mpi_python

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path) -> list[str]:
    """Return the Python blocks of a page."""
    return re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)


def serial(page: Path) -> list[str]:
    """Return the Python blocks of a page that need one process."""
    needs = ("mpi4py", "from benchmarks.emulation")  # which needs namespaces
    return [block for block in blocks(page) if not any(n in block for n in needs)]


def follow(page: Path) -> dict:
    """Return what the Python blocks of a page define, one after the other."""
    found: dict = {}
    for block in serial(page):
        exec(compile(block, str(page), "exec"), found)
    return found


OTHERS = [p for p in PAGES if serial(p) and p.stem not in ("callbacks", "penalties")]


@pytest.mark.parametrize("page", OTHERS, ids=lambda page: page.stem)
def test_the_python_blocks_of_a_page_run(page):
    assert follow(page)


OVER_MPI = [block for page in PAGES for block in blocks(page) if "mpi4py" in block]


@pytest.mark.mpi
@pytest.mark.parametrize("block", OVER_MPI)
def test_the_blocks_for_mpi_run(block, tmp_path):
    (tmp_path / "program.py").write_text(block)

    ended = mpi_python(4, "-m", "mpi4py", tmp_path / "program.py").end()

    assert ended.code == 0, ended.err


def test_the_callbacks_of_the_page_measure_and_stop():
    """The distances fall to the tolerance; the stop is at a multiple of D = 3."""
    found = follow(ROOT / "docs" / "callbacks.md")

    assert found["distances"][-1] < 1e-2 < found["distances"][0]
    assert found["result"].reason == "stop"
    close = next(t for t, d in enumerate(found["distances"], 1) if d < 1e-2)
    assert found["result"].iterations == 3 * (close // 3 + 2)


def test_the_scheme_of_the_page_adapts_and_reaches_the_optimum():
    found = follow(ROOT / "docs" / "penalties.md")
    rows = np.column_stack([found["X"], np.ones(60)])
    best = np.linalg.lstsq(rows, found["y"])[0]

    assert found["result"].converged
    assert len(np.unique(found["result"].eta)) > 2
    assert np.abs(found["result"].theta - best).max() < 1e-3


COMMANDS = [*PAGES, ROOT / "examples" / "hospitals" / "README.md"]


@pytest.mark.parametrize("page", COMMANDS, ids=lambda page: page.stem)
def test_the_settings_in_the_commands_of_a_page_exist(page):
    """Those of the launch commands and of a run to resume are left out."""
    module = r"(?:mpiexec .*)?(?:\.venv/bin/)?(?:python -m dadmm\.run|dadmm run)"
    start = rf"(?:\./launch/local|{module})"
    text = page.read_text("utf-8").replace("\\\n", " ")
    for line in re.findall(rf"^{start}\b(?: -n \d+)?(.*)$", text, re.M):
        words = shlex.split(line.replace("--report", ""), comments=True)
        if not {"--resume", "--hostfile", "--mpi", "--help", ":"} & {*words}:
            assert RunConfig.from_argv(words).config


CONTRIBUTING = ROOT / "CONTRIBUTING.md"


def test_the_loop_is_quoted_as_it_is():
    (quoted,) = blocks(CONTRIBUTING)
    source = (ROOT / "dadmm" / "admm" / "loop.py").read_text("utf-8")

    assert indent(quoted, "    ") in source


def test_the_record_lists_every_array():
    """Those of `State`, and those of `Work` that have a name."""
    rows = CONTRIBUTING.read_text("utf-8").partition("| step | writes")[2]
    listed = set(re.findall(r"`(\w+)`", rows.partition("\n\n")[0]))

    work = vars(Work(1, 1, 1, 1)).keys() - {"vectors", "numbers"}
    assert listed == work | {field.name for field in fields(State)}


def test_the_tests_that_the_list_of_features_names_exist():
    file = ""
    words = (ROOT / "tests" / "FEATURES.md").read_text("utf-8")
    for path, name in re.findall(r"([\w/]+\.py)?::(test_\w+)", words):
        file = path or file
        text = (ROOT / "tests" / file).read_text("utf-8")
        assert re.search(rf"^def {name}\(", text, re.M), (file, name)


def test_the_places_that_the_page_names_exist():
    """A path, and the names that follow it until the next path or semicolon."""
    for line in CONTRIBUTING.read_text("utf-8").splitlines():
        file = None
        for word in re.findall(r"`([^`]+)`|(;)", line):
            name = word[0]
            if re.fullmatch(r"[\w/]+\.(py|md|toml)", name) and "/" in name:
                top = name.partition("/")[0]
                outside = top in ("launch", "tests", "docs", "benchmarks")
                file = ROOT / ("" if outside else "dadmm") / name
                assert file.exists(), name
            elif file is None or word[1] or not line.startswith("|"):
                file = None
            else:
                last = name.rpartition(".")[2]
                defined = rf"(def|class) {last}\b|^{last}\b.* = "
                assert re.search(defined, file.read_text("utf-8"), re.M), name
