"""Imports between rooms point one way, are few in the main job, and never unpickle."""

from __future__ import annotations

import ast
import json
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import dadmm
from tests.support.processes import mpiexec, python

PACKAGE = Path(dadmm.__file__).parent
HEAVY = {"scipy", "networkx", "matplotlib", "plotly", "sklearn", "pyarrow"}


def sources() -> dict[str, Path]:
    """Return the files of the package by module name."""
    files = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        files[".".join(part for part in parts if part != "__init__")] = path
    return files


SOURCES = sources()
TREES = {module: ast.parse(path.read_text()) for module, path in SOURCES.items()}


@cache
def imports(module: str) -> set[str]:
    """Return the modules that a module imports, at its top or inside functions."""
    found = set()
    for statement in ast.walk(TREES[module]):
        if isinstance(statement, ast.Import):
            found |= {alias.name for alias in statement.names}
        elif isinstance(statement, ast.ImportFrom):
            assert not statement.level, f"{module}: use absolute imports"
            for alias in statement.names:
                inner = f"{statement.module}.{alias.name}"
                found.add(inner if inner in SOURCES else statement.module)
    return found


def room(module: str) -> str:
    """Return the room of a module; the package itself is the room "dadmm"."""
    name = module.split(".")[1:2]
    return name[0] if name and (PACKAGE / name[0]).is_dir() else "dadmm"


@cache
def imported_rooms() -> dict[str, set[str]]:
    """Return the other rooms that each room imports."""
    graph: dict[str, set[str]] = {}
    for module in SOURCES:
        others = {room(name) for name in imports(module) & SOURCES.keys()}
        graph.setdefault(room(module), set()).update(others - {room(module)})
    return graph


def test_imports_between_rooms_have_no_cycle():
    """The root imports rooms, and no room imports the root."""
    graph = imported_rooms()
    order = list(TopologicalSorter(graph).static_order())  # or CycleError

    assert order[0] == "core"
    assert not [name for name, others in graph.items() if "dadmm" in others]


@pytest.mark.parametrize("name", sorted(imported_rooms().keys() - {"dadmm"}))
def test_a_room_says_what_it_may_import(name):
    """The sentence at the end of its docstring names the rooms that it imports."""
    graph = imported_rooms()
    words = ast.get_docstring(TREES[f"dadmm.{name}"]).split()
    _, _, rule = " ".join(words).rpartition("may import ")
    named = {room for room in graph if f"`{room}`" in rule}
    if name == "core":
        named = set()
        assert "imports no other room" in " ".join(words)
    if "every room but" in rule:
        named = graph.keys() - named - {name, "dadmm"}

    assert graph[name] <= named


def test_only_comm_imports_mpi4py():
    """Everything else is given a communicator or an exchange."""
    users = {m for m in SOURCES if any(n.startswith("mpi4py") for n in imports(m))}

    assert users
    assert {room(module) for module in users} == {"comm"}


def test_nothing_is_pickled():
    """Neither read, which could run code, nor written, nor sent."""
    for module, tree in TREES.items():
        assert not {"pickle", "dill", "shelve", "joblib", "marshal"} & imports(module)
        for call in (step for step in ast.walk(tree) if isinstance(step, ast.Call)):
            name = ast.unparse(call.func)
            given = {word.arg: ast.unparse(word.value) for word in call.keywords}
            assert given.get("allow_pickle", "False") == "False", module
            if "comm." in name:  # mpi4py's methods that pickle start in lower case
                assert name.rpartition(".")[2][0].isupper(), (module, name)


REPORT = """
import json, sys
from dadmm.__main__ import main
code = main(["run", *json.loads(sys.argv[1])])
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
