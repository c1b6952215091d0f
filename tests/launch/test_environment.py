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
    """A project in its own folder, where calls of pip are recorded and not run."""

    error = None  # that pip raises

    def __init__(self, folder):
        self.folder, self.installs = folder, []
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
    """A project without an environment."""
    project = Project(tmp_path)
    project.really_run = environment.run
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
    """Of metadata or of Python, or if the Python of the environment is gone.

    A rebuild keeps the extras, and the previous environment, as running jobs may have
    loaded libraries from it.
    """
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


def test_a_failure_leaves_what_there_was(project):
    """Without a network, `launch/local` still works after `launch/test` failed."""
    project.environment("mpi").ensure()
    script = "print(*range(100), sep='\\n'); raise SystemExit(1)"
    with pytest.raises(SetupError) as caught:
        project.really_run([sys.executable, "-c", script])
    assert caught.value.tail.split() == [str(line) for line in range(85, 100)]
    project.error = caught.value
    with pytest.raises(SetupError):
        project.environment("mpi", "test").ensure()

    assert project.environment("mpi").is_ready()
    assert not project.environment("mpi", "test").is_ready()


@pytest.mark.parametrize("extras", [["mpi"], ["mpi", "test"]])
def test_an_interrupted_installation_is_done_again(project, extras):
    """A signal during pip leaves no valid stamp."""
    if len(extras) > 1:
        project.environment("mpi").ensure()
    project.error, before = SystemExit(143), len(project.installs)
    with pytest.raises(SystemExit):
        project.environment(*extras).ensure()
    assert not project.environment("mpi").is_ready()
    project.error = None
    project.environment("mpi").ensure()

    assert project.installs[before:] == [f"[{','.join(extras)}]"]


def test_an_environment_of_the_user_is_kept_aside(project, capsys):
    (project.folder / ".venv").mkdir()
    (project.folder / ".venv" / "mine").touch()
    project.environment("mpi").ensure()

    (kept,) = project.folder.glob(".venv-kept-*/mine")
    assert kept.parent.name in capsys.readouterr().err
    assert project.environment("mpi").is_ready()


# launch/with-python chooses a Python for the launch commands


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
        capture_output=True, text=True, timeout=TIMEOUT,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["", "DADMM_PYTHON", "DADMM_ENVIRONMENT"])
def test_without_a_new_python_there_is_one_sentence(tmp_path, name):
    done = start_local(tmp_path, **({name: "/no/python"} if name else {}))

    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
    assert (name or "PATH") in done.stderr


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
    write_python(project / "mine" / "bin" / "python", "mine")
    mine = str(project / "mine")
    assert start_local(project, DADMM_ENVIRONMENT=mine).stdout == "mine\n"
    write_python(project / "named", "named")
    more = {"DADMM_PYTHON": str(project / "named"), "DADMM_ENVIRONMENT": mine}
    assert start_local(project, **more).stdout == "named\n"
    image = start_local(project, 0, DADMM_IMAGE="x.sif", DADMM_ENVIRONMENT=mine)
    assert image.stdout == f"{used}\n"  # the Python of an image cannot start ranks
