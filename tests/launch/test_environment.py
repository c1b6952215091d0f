"""Environments are built once, completed, rebuilt when needed, and never half made."""

import sys
from pathlib import Path

import pytest

from launch.base import environment
from launch.base.environment import Environment
from launch.base.messages import SetupError

EDITABLE = ("--config-settings", "editable_mode=compat", "--editable")


class Project:
    """A project in its own folder, where calls of pip are recorded and not run."""

    error = None  # that pip raises

    def __init__(self, folder):
        self.folder, self.installs = folder, []
        for name in ("setup.cfg", "pyproject.toml"):
            (folder / name).write_text(f"# {name}\n")

    def create(self, folder):
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "python").symlink_to(sys.executable)
        (folder / "bin" / "dadmm").write_text(f"#!{folder}/bin/python\n")
        (folder / "bin" / "libfabric").mkdir()  # as in Intel MPI's wheel
        (folder / "pyvenv.cfg").write_text(f"command = venv {folder}\n")

    def pip(self, folder, *requirements):
        if self.error:
            raise self.error
        self.installs.append(requirements)

    def ensure(self, *extras):
        environment.ensure(self.environment(*extras))

    def environment(self, *extras):
        return Environment(self.folder / ".venv", frozenset(extras))

    def folders(self):
        return sorted(path.name for path in self.folder.glob(".venv*"))


@pytest.fixture
def project(monkeypatch, tmp_path):
    """A project without an environment."""
    project = Project(tmp_path)
    monkeypatch.setattr(environment, "PROJECT", tmp_path)
    monkeypatch.setattr(environment, "create", project.create)
    monkeypatch.setattr(environment, "pip", project.pip)
    return project


def test_an_environment_is_built_once(project, capsys):
    """Its scripts refer to the final path, and what a killed process left is gone."""
    (project.folder / ".venv-tmp-0123abcd" / "bin").mkdir(parents=True)
    project.ensure("mpi")
    assert "setting up .venv" in capsys.readouterr().err
    project.ensure("mpi")

    assert project.installs == [(*EDITABLE, f"{project.folder}[mpi]")]
    assert capsys.readouterr().err == ""
    assert project.folders() == [".venv"]
    venv = project.folder / ".venv"
    assert (venv / "bin" / "dadmm").read_text() == f"#!{venv}/bin/python\n"
    assert (venv / "pyvenv.cfg").read_text() == f"command = venv {venv}\n"


def test_missing_extras_are_added_without_a_rebuild(project):
    """`launch/test` after `launch/local` installs the difference only."""
    project.ensure()
    project.ensure("mpi")
    project.ensure("mpi", "test", "plot")
    project.ensure("mpi")

    added = [("dadmm[mpi]",), ("dadmm[plot,test]",)]
    assert project.installs == [(*EDITABLE, str(project.folder)), *added]


@pytest.mark.parametrize("what", ["setup.cfg", "pyproject.toml", "version", "python"])
def test_a_change_causes_a_rebuild(project, monkeypatch, what):
    """Of metadata or of Python, or if the Python of the environment is gone.

    A rebuild keeps the extras, and the previous environment, as running jobs may have
    loaded libraries from it; older ones are removed.
    """
    project.ensure("mpi", "plot")
    venv = project.folder / ".venv"
    for turn in range(3):
        (venv / f"library-{turn}").touch()
        if what == "version":
            monkeypatch.setattr(sys.implementation, "cache_tag", f"cpython-39{turn}")
        elif what == "python":
            (venv / "bin" / "python").unlink()
        else:
            (project.folder / what).write_text(f"{turn}")
        assert not project.environment("mpi").is_ready()
        project.ensure("mpi")

    assert project.installs == 4 * [(*EDITABLE, f"{project.folder}[mpi,plot]")]
    assert (venv / "before" / "library-2").exists()
    assert not (venv / "before" / "before").exists()
    assert project.folders() == [".venv"]


def test_a_failure_leaves_what_there_was(project):
    """Without a network, `launch/local` still works after `launch/test` failed."""
    project.error = SetupError("set-up failed", "no such package")
    with pytest.raises(SetupError):
        project.ensure("mpi")
    assert project.folders() == []
    project.error = None
    project.ensure("mpi")
    project.error = SetupError("set-up failed", "no such package")
    with pytest.raises(SetupError):
        project.ensure("mpi", "test")
    assert project.environment("mpi").is_ready()
    assert not project.environment("mpi", "test").is_ready()


def test_an_interrupted_addition_causes_a_rebuild(project):
    """A signal during pip leaves no valid stamp."""
    project.ensure("mpi")
    project.error = SystemExit(143)
    with pytest.raises(SystemExit):
        project.ensure("mpi", "test")
    assert not project.environment("mpi").is_ready()
    project.error = None
    project.ensure("mpi")
    assert project.installs[1:] == [(*EDITABLE, f"{project.folder}[mpi,test]")]


def test_an_environment_of_the_user_is_kept_aside(project, capsys):
    (project.folder / ".venv").mkdir()
    (project.folder / ".venv" / "mine").touch()
    project.ensure("mpi")

    (kept,) = project.folder.glob(".venv-kept-*/mine")
    assert f"it is now {kept.parent.name}" in capsys.readouterr().err
    assert project.environment("mpi").is_ready()


def test_the_second_of_two_starts_uses_the_environment_of_the_first(
    project, monkeypatch
):
    """The state is read again once the lock is held."""
    wanted = project.environment("mpi")
    answers = iter([False])  # not ready before the lock is held
    monkeypatch.setattr(Environment, "is_ready", lambda _: next(answers, True))
    monkeypatch.setattr(Environment, "installed", lambda _: frozenset({"mpi"}))
    environment.ensure(wanted)

    assert project.installs == []


def test_a_failed_step_shows_its_last_lines():
    script = "print(*range(100), sep='\\n'); raise SystemExit(1)"

    with pytest.raises(SetupError, match="start again") as caught:
        environment.run([sys.executable, "-c", script])
    assert caught.value.tail.split() == [str(line) for line in range(85, 100)]


def only(*modules):
    """Return a find_spec for which no other module exists."""
    return lambda name: name if name in modules else None


@pytest.mark.parametrize(
    ("module", "first_step"),
    [
        ("ensurepip", [sys.executable, "-m", "venv", "new"]),
        ("virtualenv", [sys.executable, "-m", "virtualenv", "new"]),
        ("pip", [sys.executable, "-m", "venv", "--without-pip", "new"]),
        ("uv", ["uv", "venv", "--seed", "--python", sys.executable, "new"]),
    ],
)
def test_an_environment_is_created_by_any_means(monkeypatch, module, first_step):
    """Whichever there is; without any, the package to install is named."""
    steps = []
    monkeypatch.setattr(environment.importlib.util, "find_spec", only())
    monkeypatch.setattr(environment.shutil, "which", only())
    with pytest.raises(SetupError, match=r"apt install python3\.\d+-venv"):
        environment.create(Path("unused"))
    monkeypatch.setattr(environment.importlib.util, "find_spec", only(module))
    monkeypatch.setattr(environment.shutil, "which", only(module))
    monkeypatch.setattr(environment, "run", steps.append)
    environment.create(Path("new"))

    assert steps[0] == first_step
