"""Runs that tests of figures and pages share; each is made when it is asked for."""

from functools import cache

import pytest

from tests.support.pages import make_run

EDGES, LONGER = "--record-edges", ("--max-iter", "30")
FLAGS = {
    "nap": (EDGES, "--record-angle", "--edge-sleep", "0.9"),
    "vp": (EDGES, "--scheme", "vp"),
    "ring": (EDGES, "--topology", "ring", "--record-angle"),
    "turns": (EDGES, "--schedule", "matchings"),
    "bare": ("--no-record-edges",),
    "one": (EDGES, "--nodes", "1"),
    "eta": ("--eta0", "2.5"),
    "star": (EDGES, "--censor", "0.5", "--init", "independent", "--topology", "star",
             "--max-iter", "40"),
    "snap": (EDGES, "--scheme", "snap", "--budget0", "0.5", "--max-iter", "90",
             "--tolerance", "0"),
}  # fmt: skip


@pytest.fixture(scope="session")
def run_named(tmp_path_factory):
    """Return a function from a name to the folder of a run; do not write into it."""
    root = tmp_path_factory.mktemp("runs")
    return cache(lambda name: make_run(root / name, *LONGER, *FLAGS[name]))
