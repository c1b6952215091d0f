"""Environments are built once, completed, rebuilt when needed, and never half made."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from launch import environment
from launch.console import SetupError
from launch.environment import Environment
from tests.support.processes import ROOT, TIMEOUT
from tests.support.runs import write_program


class Project:
    """A project without an environment, where calls of pip are recorded and not run."""

    def __init__(self, folder):
        self.folder, self.installs, self.error = folder, [], None
        for name in ("setup.cfg", "pyproject.toml"):
            (folder / name).write_text(f"# {name}\n")

    def create(self, folder, aside):
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "python").symlink_to(sys.executable)

    def run(self, command):
        if self.error:
            raise self.error
        self.installs.append(command[-1].removeprefix(str(self.folder)))

    def environment(self, *extras):
        return Environment(self.folder / ".venv", frozenset(extras))


@pytest.fixture
def project(monkeypatch, tmp_path):
    project = Project(tmp_path)
    monkeypatch.setattr(environment, "PROJECT", tmp_path)
    monkeypatch.setattr(environment, "create", project.create)
    monkeypatch.setattr(environment, "run", project.run)
    return project


def test_an_environment_is_built_once_and_completed(project, capsys):
    """`launch/test` after `launch/local` adds its extras, and nothing is rebuilt."""
    for extras in (["mpi"], ["mpi"], ["mpi", "test", "plot"], ["mpi"]):
        project.environment(*extras).ensure()

    assert project.installs == ["[mpi]", "[mpi,plot,test]"]
    assert len(capsys.readouterr().err.splitlines()) == 2
    assert [path.name for path in project.folder.glob(".venv*")] == [".venv"]


@pytest.mark.parametrize("what", ["setup.cfg", "pyproject.toml", "version", "python"])
def test_a_change_causes_a_rebuild(project, monkeypatch, what):
    """It keeps the extras, and the environment before, which jobs may use."""
    project.environment("mpi", "plot").ensure()
    venv = project.folder / ".venv"
    for turn in range(2):
        (venv / f"library-{turn}").touch()
        if what == "version":
            monkeypatch.setattr(sys.implementation, "cache_tag", f"cpython-39{turn}")
        elif what == "python":
            (venv / "bin" / "python").unlink()
        else:
            (project.folder / what).write_text(f"{turn}")
        assert not project.environment("mpi").is_ready()
        project.environment("mpi").ensure()

    assert project.installs == 3 * ["[mpi,plot]"]
    assert [p.name for p in project.folder.glob("*/library-*")] == ["library-1"]


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("error", [SetupError("no network"), SystemExit(143)])
def test_a_failure_leaves_what_there_was_and_a_signal_no_valid_stamp(
    project, before, error
):
    """Without a network, `launch/local` still works after `launch/test` failed."""
    if before:
        project.environment("mpi").ensure()
    project.error = error
    with pytest.raises(type(error)):
        project.environment("mpi", "test").ensure()

    failed = isinstance(error, SetupError)
    assert project.environment("mpi").is_ready() == (before and failed)
    assert not project.environment("mpi", "test").is_ready()
    project.error = None
    project.environment("mpi").ensure()
    assert project.installs[before:] == ["[mpi,test]"] * (not (before and failed))


def test_an_environment_of_the_user_is_kept_aside(project, capsys):
    (project.folder / ".venv").mkdir()
    (project.folder / ".venv" / "mine").touch()
    project.environment("mpi").ensure()

    (kept,) = project.folder.glob(".venv-kept-*/mine")
    assert kept.parent.name in capsys.readouterr().err
    assert project.environment("mpi").is_ready()


def write_python(path, code=0):
    """Write a program that claims to be new enough (code 0) or not, and its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_program(path, f"test $1 = -c && exit {code}\necho {path}")


def test_a_python_is_chosen_for_the_launch_commands(tmp_path):
    """Another one than the environment's would rebuild it while jobs run from it."""
    project = tmp_path / "a project"
    (project / "launch").mkdir(parents=True)
    for name in ("local", "with-python"):
        shutil.copy(ROOT / "launch" / name, project / "launch")
    usual, named, mine, own, external = (
        project / folder / "bin" / "python"
        for folder in ("", "named", "mine", ".venv", ".venv-external")
    )
    on_path = usual.with_name("python3")
    for path in (on_path, named, mine, own, external):
        write_python(path)
    (project / "bin" / "dirname").symlink_to(shutil.which("dirname"))

    def local(**variables):
        ended = subprocess.run(
            ["/bin/sh", str(project / "launch" / "local")],
            env={"PATH": str(project / "bin"), **variables},
            capture_output=True, text=True, timeout=TIMEOUT,
        )  # fmt: skip
        return Path(ended.stdout.strip()) if ended.returncode == 0 else ended.stderr

    assert local() == on_path  # launch/setup has created no environment
    (external.parents[1] / "dadmm-stamp.json").touch()
    assert local() == external
    (own.parents[1] / "dadmm-stamp.json").touch()
    assert local() == own
    given = {"DADMM_ENVIRONMENT": str(mine.parents[1])}
    assert local(**given) == mine
    assert local(**given, DADMM_PYTHON=str(named)) == named
    # the Python of an image cannot start ranks
    assert local(**given, DADMM_IMAGE="x.sif") == own
    for broken, used in ((own, external), (external, on_path), (on_path, None)):
        write_python(broken, code=1)
        assert used is None or local() == used
    for name in ("", "DADMM_PYTHON", "DADMM_ENVIRONMENT"):
        said = local(**({name: "/no/python"} if name else {}))
        assert len(said.splitlines()) == 1
        assert (name or "PATH") in said
