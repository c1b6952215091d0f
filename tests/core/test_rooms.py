"""Imports between rooms point one way, are few in the main job, and never unpickle."""

import ast
import json
from functools import partial
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import dadmm
from tests.support.processes import mpi_python, python

PACKAGE = Path(dadmm.__file__).parent
HEAVY = {"scipy", "networkx", "matplotlib", "plotly", "sklearn", "pyarrow"}
FILES = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path
         for path in PACKAGE.rglob("*.py")}  # fmt: skip
TREES = {name.removesuffix(".__init__"): ast.parse(path.read_text())
         for name, path in FILES.items()}  # fmt: skip
NODES = {name: [*ast.walk(tree)] for name, tree in TREES.items()}


def imports(module):
    found = set()
    for statement in NODES[module]:
        if isinstance(statement, ast.Import):
            found |= {alias.name for alias in statement.names}
        elif isinstance(statement, ast.ImportFrom):
            assert not statement.level, f"{module}: use absolute imports"
            for alias in statement.names:
                inner = f"{statement.module}.{alias.name}"
                found.add(inner if inner in TREES else statement.module)
    return found


def room(module):
    """Return the room of a module; the package itself is the room "dadmm"."""
    name = module.split(".")[1:2]
    return name[0] if name and (PACKAGE / name[0]).is_dir() else "dadmm"


IMPORTS = {module: imports(module) for module in TREES}
ROOMS = {room(module): set() for module in TREES}
for module, found in IMPORTS.items():
    inner = {room(name) for name in found & TREES.keys()}
    ROOMS[room(module)] |= inner - {room(module)}


def test_imports_point_one_way_and_a_room_says_what_it_may_import():
    """The root imports rooms, and no room imports the root; only comm mpi4py."""
    order = list(TopologicalSorter(ROOMS).static_order())  # or CycleError
    assert order[0] == "core"
    assert not [name for name, others in ROOMS.items() if "dadmm" in others]
    users = [m for m, found in IMPORTS.items() if {"mpi4py", "mpi4py.MPI"} & found]
    assert {room(module) for module in users} == {"comm"}
    for name in ROOMS.keys() - {"dadmm", "core"}:
        words = " ".join(ast.get_docstring(TREES[f"dadmm.{name}"]).split())
        rule = words.rpartition("may import ")[2]
        named = {room for room in ROOMS if f"`{room}`" in rule}
        if "every room but" in rule:
            named = ROOMS.keys() - named - {name, "dadmm"}
        assert ROOMS[name] <= named, name


def test_nothing_is_pickled():
    """Neither read, which could run code, nor written, nor sent."""
    for module, nodes in NODES.items():
        assert not {"pickle", "dill", "shelve", "joblib", "marshal"} & IMPORTS[module]
        for call in (node for node in nodes if isinstance(node, ast.Call)):
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


@pytest.mark.parametrize("n_ranks", [0, pytest.param(3, marks=pytest.mark.mpi)])
def test_the_main_job_loads_little(tmp_path, n_ranks):
    """In one process not even MPI; a graph file needs no networkx."""
    (tmp_path / "path.edges").write_text("0 1\n1 2\n")
    words = ["--topology", "path.edges", "--max-iter", "3", "--out", "a", "--quiet"]
    heavy = sorted(HEAVY if n_ranks else HEAVY | {"mpi4py"})
    given = ("-c", REPORT, json.dumps(words), json.dumps(heavy))
    start = partial(mpi_python, n_ranks) if n_ranks else python
    ended = start(*given, cwd=tmp_path).end()

    lines = [line for line in ended.err.splitlines() if line.startswith("[")]
    assert [json.loads(line) for line in lines] == [[0, []]] * max(n_ranks, 1)
