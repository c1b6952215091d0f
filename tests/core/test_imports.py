"""Imports point one way, are few where twenty ranks start, and unpickle nothing."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

import dadmm
from tests.support.processes import mpiexec, python

PACKAGE = Path(dadmm.__file__).parent

# A module may import from the rows above its own, and from its own folder. Every
# module stands here, so that a new one finds its place.
ORDER = (
    ("errors", "version", "launcher"),
    ("claim", "partfiles"),
    ("layout",),
    ("rows",),
    ("trace", "tomltable"),
    ("network", "waiting"),  # what a run's messages cost, here and elsewhere
    ("playback", "calibrate"),
    ("replay",),
    ("patterns",),
    ("interfaces", "metrics", "motion"),
    ("simulations",),
    ("distance", "graphfiles", "datasets", "consensus", "stopping"),
    ("topology", "shard", "wire"),  # where, and what
    ("schedule", "codec", "placement"),
    ("sending", "identity"),
    ("links",),
    ("tables",),
    ("problems",),  # solve
    ("builder",),
    ("exchange",),  # talk
    ("world",),
    ("penalty", "curvature"),  # adapt
    ("node",),
    ("crew",),
    ("testing",),
    ("state",),
    ("algorithm", "checkpoint", "recovery"),
    ("record", "certificate", "team"),
    ("solver",),
    ("dadmm",),  # the library's front door
    ("flags",),
    ("config",),
    ("output", "progress"),
    ("assemble", "report", "session"),
    ("run", "drawing"),
    ("plot", "sklearn"),
)
HEAVY = {"scipy", "networkx", "matplotlib", "sklearn"}


def sources() -> dict[str, Path]:
    """Return the files of the package by module."""
    files = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        words = path.relative_to(PACKAGE.parent).with_suffix("").parts
        files[".".join(word for word in words if word != "__init__")] = path
    return files


SOURCES = sources()


def imports(module: str) -> set[str]:
    """Return the modules that a module imports, at its top or inside functions."""
    found = set()
    for statement in ast.walk(ast.parse(SOURCES[module].read_text())):
        if isinstance(statement, ast.Import):
            found |= {alias.name for alias in statement.names}
        elif isinstance(statement, ast.ImportFrom):
            assert not statement.level, f"{module}: name the whole module"
            for alias in statement.names:
                inner = f"{statement.module}.{alias.name}"
                found.add(inner if inner in SOURCES else statement.module)
    return found


def family(module: str) -> str:
    """Return the name under which a module stands in the order."""
    words = module.split(".")
    return words[1] if len(words) > 1 else words[0]


def test_every_module_has_its_place():
    """And one only: what the order does not name, it cannot judge."""
    named = [name for row in ORDER for name in row]

    assert {family(module) for module in SOURCES} <= set(named)
    assert len(named) == len(set(named))


@pytest.mark.parametrize("module", SOURCES)
def test_imports_point_one_way(module):
    """From what is built to what it is built of."""
    place = {name: k for k, row in enumerate(ORDER) for name in row}
    own = family(module)
    for other in imports(module) & SOURCES.keys():
        assert family(other) == own or place[family(other)] < place[own], other


@pytest.mark.parametrize("module", SOURCES)
def test_only_one_file_knows_mpi(module):
    """Everything else is given a communicator, or an exchange."""
    knows = any(name.split(".")[0] == "mpi4py" for name in imports(module))

    assert knows == (module == "dadmm.exchange.mpi")


@pytest.mark.parametrize("module", SOURCES)
def test_nothing_is_pickled(module):
    """Neither read, which could run anything, nor written, nor sent."""
    assert not {"pickle", "dill", "shelve", "joblib", "marshal"} & imports(module)
    tree = ast.parse(SOURCES[module].read_text())
    for call in (step for step in ast.walk(tree) if isinstance(step, ast.Call)):
        name = ast.unparse(call.func)
        allowed = {word.arg: ast.unparse(word.value) for word in call.keywords}
        assert allowed.get("allow_pickle", "False") == "False"
        if "comm." in name:  # mpi4py's methods that pickle start in lower case
            assert name.rpartition(".")[2][0].isupper()


# What is loaded

REPORT = """
import json, sys
from dadmm.run import main
code = main(json.loads(sys.argv[1]))
heavy = {name.partition('.')[0] for name in sys.modules} & set(json.loads(sys.argv[2]))
sys.stderr.write(json.dumps([code, sorted(heavy)]) + '\\n')
"""


def loaded(job, n_jobs: int) -> list:
    """Return the exit code and the heavy modules of each process."""
    lines = [line for line in job.err.splitlines() if line.startswith("[")]
    assert len(lines) == n_jobs, job.err
    return [json.loads(line) for line in lines]


def arguments(path: Path, out: str) -> str:
    (path / "path.edges").write_text("0 1\n1 2\n")
    words = ["--topology", "path.edges", "--max-iter", "3", "--out", out, "--quiet"]
    return json.dumps(words)


def test_the_main_job_loads_little(tmp_path):
    """In one process not even MPI; a graph file needs no networkx."""
    heavy = json.dumps(sorted(HEAVY | {"mpi4py"}))
    job = python("-c", REPORT, arguments(tmp_path, "a"), heavy, cwd=tmp_path)

    assert loaded(job.end(), 1) == [[0, []]]


@pytest.mark.mpi
def test_the_main_job_loads_little_over_mpi(tmp_path):
    """Twenty ranks import at once, so what nobody needs costs twentyfold."""
    heavy = json.dumps(sorted(HEAVY))
    ended = mpiexec(3, "-c", REPORT, arguments(tmp_path, "a"), heavy, cwd=tmp_path)

    assert loaded(ended, 3) == [[0, []]] * 3


def test_importing_the_package_does_not_start_mpi():
    """A library user decides that; nor is anything slow loaded."""
    heavy = sorted(HEAVY | {"mpi4py"})
    code = f"import sys, dadmm; assert not set({heavy}) & set(sys.modules)"

    assert python("-c", code).end().code == 0
