"""launch imports the standard library, and its packages import one another one way."""

import ast
import sys

import pytest

from tests.support.processes import ROOT

ALLOWED = {
    "base": {"base"},
    "mpi": {"base", "mpi"},
    "batch": {"base", "mpi", "batch"},
    "site": {"base", "mpi", "site"},
}
IN_ENVIRONMENT = "print_settings.py"  # the program that may import dadmm


@pytest.mark.parametrize("package", ALLOWED)
def test_a_package_imports_only_earlier_ones(package):
    for file in (ROOT / "launch" / package).glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module]
            for first, _, rest in (name.partition(".") for name in names):
                if first == "launch":
                    assert rest.partition(".")[0] in ALLOWED[package], file
                elif file.name != IN_ENVIRONMENT:
                    assert first in sys.stdlib_module_names, file


def test_the_folder_shows_only_what_a_person_runs():
    names = {path.name for path in (ROOT / "launch").iterdir()} - {"__pycache__"}

    assert names == {
        *("local", "test", "docs", "setup", "sweep", "slurm.sbatch", "pbs.sh"),
        *("container", "with-python", "__init__.py", "__main__.py", *ALLOWED),
    }
