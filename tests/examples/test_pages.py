"""The Python blocks of the pages run, and what a page quotes is in the code."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import dadmm
from tests.support.processes import mpi_python

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EMULATION = "from benchmarks.emulation"  # needs namespaces; see tests/benchmarks


def blocks(page: Path, language: str = "python") -> list[str]:
    """Return the blocks of a page in this language."""
    text = page.read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def serial(page: Path) -> list[str]:
    """Return the Python blocks of a page that need one process."""
    return [
        block
        for block in blocks(page)
        if "mpi4py" not in block and EMULATION not in block
    ]


OVER_MPI = [
    pytest.param(block, id=page.stem)
    for page in PAGES
    for block in blocks(page)
    if "mpi4py" in block
]


def follow(name: str) -> dict:
    """Return what the Python blocks of a page define, one after the other."""
    found: dict = {}
    for block in serial(ROOT / name):
        exec(compile(block, name, "exec"), found)
    return found


@pytest.mark.parametrize(
    "page", [p for p in PAGES if serial(p)], ids=lambda page: page.stem
)
def test_the_python_blocks_of_a_page_run(page):
    if "sklearn" in page.name:
        pytest.importorskip("sklearn", reason="scikit-learn is not installed")

    assert follow(str(page.relative_to(ROOT)))


@pytest.mark.mpi
@pytest.mark.parametrize("block", OVER_MPI)
def test_the_blocks_for_mpi_run(block, tmp_path):
    if "sklearn" in block:
        pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    (tmp_path / "program.py").write_text(block)

    ended = mpi_python(4, "-m", "mpi4py", tmp_path / "program.py").end()

    assert ended.code == 0, ended.err


def test_the_callbacks_of_the_page_measure_and_stop():
    """The distances fall to the tolerance; the stop is at a multiple of D = 3."""
    found = follow("docs/callbacks.md")

    assert found["distances"][-1] < 1e-2 < found["distances"][0]
    assert found["result"].reason == "stop"
    close = next(t for t, d in enumerate(found["distances"], 1) if d < 1e-2)
    assert found["result"].iterations == 3 * (close // 3 + 2)


def test_the_scheme_of_the_page_adapts_and_reaches_the_optimum():
    found = follow("docs/penalties.md")
    rows = np.column_stack([found["X"], np.ones(60)])
    best = np.linalg.lstsq(rows, found["y"])[0]

    assert found["result"].converged
    assert len(np.unique(found["result"].eta)) > 2
    assert np.abs(found["result"].theta - best).max() < 1e-3


def test_a_request_that_does_not_exist_gets_one_sentence():
    problems = [dadmm.problems.LeastSquares(np.eye(2), np.ones(2))] * 3

    with pytest.raises(dadmm.ConfigError, match="unknown request 'converged'; choose"):
        dadmm.solve(
            problems, dadmm.Topology.ring(3), callbacks=[lambda t, run: "converged"]
        )
