"""Environments are built once, completed, rebuilt when needed, and never half made."""

import shutil
import subprocess
import sys

import pytest

from launch import environment
from launch.console import SetupError
from launch.environment import Environment
from tests.support.processes import ROOT, TIMEOUT


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


def test_the_end_of_the_output_of_a_failed_step_is_shown():
    script = "print(*range(100), sep='\\n'); raise SystemExit(1)"
    with pytest.raises(SetupError) as caught:
        environment.run([sys.executable, "-c", script])
    assert caught.value.tail.split() == [str(line) for line in range(85, 100)]


def test_an_environment_of_the_user_is_kept_aside(project, capsys):
    (project.folder / ".venv").mkdir()
    (project.folder / ".venv" / "mine").touch()
    project.environment("mpi").ensure()

    (kept,) = project.folder.glob(".venv-kept-*/mine")
    assert kept.parent.name in capsys.readouterr().err
    assert project.environment("mpi").is_ready()


def write_python(path, name="", code=0):
    """Write a program that claims to be new enough (code 0) or not, and its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\ntest $1 = -c && exit {code}\necho {name}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("venv", "code", "stamped", "used"),
    [
        (".venv", 0, True, "own"),
        (".venv-external", 0, True, "own"),
        (".venv", 1, True, "python3"),  # its Python does not work any more
        (".venv", 0, False, "python3"),  # not created by launch/setup
    ],
)
def test_a_python_is_chosen_for_the_launch_commands(
    tmp_path, venv, code, stamped, used
):
    """Another one than the environment's would rebuild it while jobs run from it."""
    project = tmp_path / "a project"
    write_python(project / venv / "bin" / "python", "own", code)
    if stamped:
        (project / venv / "dadmm-stamp.json").touch()
    (project / "bin").mkdir()
    (project / "bin" / "dirname").symlink_to(shutil.which("dirname"))
    (project / "launch").mkdir()
    for name in ("local", "with-python"):
        shutil.copy(ROOT / "launch" / name, project / "launch")

    def local(on_path=0, **variables):
        write_python(project / "bin" / "python3", "python3", on_path)
        return subprocess.run(
            ["/bin/sh", str(project / "launch" / "local")],
            env={"PATH": str(project / "bin"), **variables},
            capture_output=True, text=True, timeout=TIMEOUT,
        )  # fmt: skip

    assert local().stdout == f"{used}\n"
    for name in ("named", "mine/bin/python"):
        write_python(project / name, name[:5])
    mine = {"DADMM_ENVIRONMENT": str(project / "mine")}
    assert local(**mine).stdout == "mine/\n"
    assert local(**mine, DADMM_PYTHON=str(project / "named")).stdout == "named\n"
    # the Python of an image cannot start ranks
    assert local(**mine, DADMM_IMAGE="x.sif").stdout == f"{used}\n"
    for name in ("DADMM_PYTHON", "DADMM_ENVIRONMENT", *[""] * (used != "own")):
        done = local(on_path=1, **({name: "/no/python"} if name else {}))
        assert (done.returncode, done.stdout) == (1, "")
        assert len(done.stderr.splitlines()) == 1
        assert (name or "PATH") in done.stderr
