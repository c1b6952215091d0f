"""Host files, and the command lines of each MPI."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.emulation.network import AGENT
from launch.base.messages import UsageError
from launch.mpi import hostfile, mpiexec

pytestmark = pytest.mark.mpi


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
    assert hostfile.read(written(text)) == hosts.split()


@pytest.mark.parametrize("line", ["a:", "a:0", "a:two", "a slots=", "a b", "a:9999999"])
def test_an_invalid_line_is_an_error(written, line):
    file = written(f"ok:1\n{line}\n")
    with pytest.raises(UsageError) as raised:
        hostfile.read(file)

    assert str(raised.value) == (
        f"line 2 of {file} must be a host and its ranks, as node1:4 or "
        f"node1 slots=4, got {line!r}"
    )


def test_a_host_file_must_exist_and_name_a_host(written, tmp_path):
    with pytest.raises(UsageError, match=r"cannot read the host file .*: No su"):
        hostfile.read(str(tmp_path / "none"))
    with pytest.raises(UsageError, match="names no host; write one per line"):
        hostfile.read(written("# nobody\n"))


def test_a_host_file_may_have_more_slots_than_ranks():
    assert hostfile.first(["a", "a", "b"], 2) == ["a", "a"]
    assert hostfile.first(["a", "a", "b"], None) == ["a", "a", "b"]
    with pytest.raises(UsageError, match="3 slots, too few for -n 4; give"):
        hostfile.first(["a", "a", "b"], 4)


BLOCKS, CYCLIC = ["b", "b", "a"], ["b", "a", "b"]


@pytest.mark.parametrize(
    ("hosts", "version", "file", "options"),
    [
        (BLOCKS, "HYDRA build details:", "b:2\na:1\n", "-machinefile FILE"),
        (BLOCKS, "(Open MPI) 5", "b\nb\na\n", "--hostfile FILE --map-by seq -x V"),
        (CYCLIC, "HYDRA build details:", "b\na\n", "-f FILE -ppn 1"),
        (CYCLIC, "(Open MPI) 5", "b\na\nb\n", "--hostfile FILE --map-by seq -x V"),
    ],
)
def test_each_mpi_has_its_own_host_file(monkeypatch, hosts, version, file, options):
    """Open MPI must be told of each variable that ranks on other hosts need."""
    monkeypatch.setattr(mpiexec, "version_text", lambda _: version)
    variables = {"OMP_NUM_THREADS": "1", "HOME": "/root"}
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
