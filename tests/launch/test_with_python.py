"""launch/with-python chooses a Python for the launch commands."""

import shutil
import subprocess

import pytest

from tests.support.processes import ROOT, TIMEOUT


def write_python(path, name="", code=0):
    """Write a program that claims to be new enough (code 0) or not, and its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\ntest $1 = -c && exit {code}\necho {name}\n")
    path.chmod(0o755)


def start_local(folder, code=1, **variables):
    """Run a copy of launch/local whose only Python on PATH is too old (code 1)."""
    write_python(folder / "bin" / "python3", "python3", code)
    if not (folder / "launch").exists():
        (folder / "bin" / "dirname").symlink_to(shutil.which("dirname"))
        (folder / "launch").mkdir()
        for name in ("local", "with-python"):
            shutil.copy(ROOT / "launch" / name, folder / "launch")
    return subprocess.run(
        ["/bin/sh", str(folder / "launch" / "local")],
        env={"PATH": str(folder / "bin"), **variables},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )


def test_without_a_new_python_there_is_one_sentence(tmp_path):
    done = start_local(tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "dadmm: needs Python 3.11 or newer and found none on PATH; "
        "install one, or name it with DADMM_PYTHON=/path/python3\n"
    )
    done = start_local(tmp_path, DADMM_PYTHON="/no/python")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "dadmm: DADMM_PYTHON must be Python 3.11 or newer, got '/no/python'\n"
    )


@pytest.mark.parametrize(
    ("venv", "code", "stamped", "used"),
    [
        (".venv", 0, True, "own"),
        (".venv-external", 0, True, "own"),
        (".venv", 1, True, "python3"),  # its Python does not work any more
        (".venv", 0, False, "python3"),  # not created by launch/setup
    ],
)
def test_the_python_of_the_environment_comes_first(tmp_path, venv, code, stamped, used):
    """Another Python would rebuild the environment while jobs run from it."""
    project = tmp_path / "a project"
    write_python(project / venv / "bin" / "python", "own", code)
    if stamped:
        (project / venv / "dadmm-stamp.json").touch()

    assert start_local(project, code=0).stdout == f"{used}\n"
    write_python(project / "named", "named")
    done = start_local(project, DADMM_PYTHON=str(project / "named"))
    assert done.stdout == "named\n"
