"""What a launch command prints after a failure: which node, why, how to resume."""

from __future__ import annotations

import re

import pytest

from launch.mpi import diagnosis
from tests.support.processes import ROOT, python
from tests.support.run_folders import write_checkpoint, write_run

RECORDED = ROOT / "tests" / "launch" / "recorded"
RESUME = "./launch/local -n 4 --resume"

pytestmark = pytest.mark.mpi


def recorded(name: str) -> str:
    """Return recorded output of an MPI or Slurm."""
    return (RECORDED / f"{name}.txt").read_text()


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run of four ranks on one host, in the current directory."""
    monkeypatch.chdir(tmp_path)
    return write_run(tmp_path / "run")


# Which rank failed

HINT = "(often the kernel, when memory runs out)"
KILLED = f"was killed by SIGKILL {HINT}"
PERHAPS_KILLED = f"was probably killed by SIGKILL {HINT}"
CRASHED = "was killed by SIGSEGV (an error in compiled code)"
PERHAPS_CRASHED = CRASHED.replace("was", "was probably", 1)
WITH_MONITOR = {
    "mpich-sigkill": PERHAPS_KILLED,
    "mpich-sigsegv": PERHAPS_CRASHED,
    "mpich-exit": "ended first, for an unknown reason",
    "openmpi-sigkill": KILLED,
    "openmpi-sigsegv": CRASHED,
    "openmpi-exit": "ended with code 5",
    "intel-sigkill": KILLED,
    "intel-sigsegv": CRASHED,
    "intel-exit": "exited by itself, for an unknown reason",
}
# If the monitor saw no rank, and the output does not name the right one
WITHOUT_MONITOR = {
    "mpich-sigkill": f"an unknown rank {PERHAPS_KILLED}",
    "mpich-sigsegv": f"an unknown rank {PERHAPS_CRASHED}",
    "mpich-exit": "the job failed for an unknown reason (exit code 9)",
    "intel-sigkill": f"an unknown rank {PERHAPS_KILLED}",
    "intel-exit": f"an unknown rank {PERHAPS_KILLED}",
}


def explain_recorded(tmp_path, name: str, first: int | None) -> str:
    """Return the first sentence about a recorded job."""
    text = recorded(name)
    pids = [int(re.search(f"rank {k} pid (\\d+)", text)[1]) for k in range(4)]
    folder = write_run(tmp_path / "run", pids)
    return diagnosis.explain(RESUME, text, folder, 9, first)[0]


@pytest.mark.parametrize("name", WITH_MONITOR)
def test_the_failed_rank_is_named(tmp_path, name):
    """MPICH and Intel MPI name other ranks too, so that the monitor is needed."""
    first = 2 if name in WITHOUT_MONITOR else None
    sentence = explain_recorded(tmp_path, name, first)

    assert sentence == f"node 2 (rank 2 on vm) {WITH_MONITOR[name]}"


@pytest.mark.parametrize("name", WITHOUT_MONITOR)
def test_no_rank_is_named_without_evidence(tmp_path, name):
    """MPICH prints the process of a rank that it ended itself."""
    assert explain_recorded(tmp_path, name, None) == WITHOUT_MONITOR[name]


@pytest.mark.parametrize("name", ["mpich", "openmpi", "intel"])
def test_an_exception_is_repeated(run, name):
    """It is the last line of the traceback, without what the MPI adds."""
    sentence = diagnosis.explain(RESUME, recorded(f"{name}-exception"), run, 1, 0)[0]

    assert sentence == (
        "node 2 (rank 2 on vm) failed: RuntimeError: this was to be expected"
    )


def test_the_first_of_several_exceptions_is_repeated(run):
    """Also after a progress line, and if it was raised by another exception."""
    text = "iteration 3\rdadmm: rank 1 failed:\nTraceback (most recent call last):\n"
    text += "  File x\nKeyError: 'a'\n\nDuring handling of the above exception, "
    text += "another exception occurred:\n\nTraceback (most recent call last):\n"
    text += "OSError: [Errno 28] No space left on device\ndadmm: rank 3 failed:\n"
    sentence = diagnosis.explain(RESUME, text, run, 1)[0]

    assert sentence == (
        "node 1 (rank 1 on vm) failed: OSError: [Errno 28] No space left on device"
    )


def test_an_exception_before_dadmm_runs_is_repeated():
    """As where dadmm is not installed, and no rank has printed its number."""
    text = (
        "Traceback (most recent call last):\n"
        '  File "<frozen runpy>", line 112, in _get_module_details\n'
        "ModuleNotFoundError: No module named 'dadmm'\n"
    )
    sentence = diagnosis.explain(RESUME, text * 2, None, 1)[0]

    assert sentence == (
        "an unknown rank failed: ModuleNotFoundError: No module named 'dadmm'"
    )


RANK_2 = "node 2 (rank 2 on vm)"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("sigkill", f"{RANK_2} {KILLED}"),
        ("memory", f"{RANK_2} was killed by the kernel when memory ran out"),
        ("time", "an unknown rank was ended by Slurm: time limit"),
        ("exit", f"{RANK_2} ended: Exited with exit code 1"),
    ],
)
def test_the_output_of_srun_is_understood(run, name, sentence):
    """The first rank that it names has failed; srun has ended the others."""
    assert diagnosis.explain(RESUME, recorded(f"slurm-{name}"), run, 137)[0] == sentence


@pytest.mark.parametrize("name", ["mpich", "openmpi", "intel"])
def test_a_lost_host_is_named(tmp_path, name):
    """MPICH does not name it, but there is only one other host."""
    hosts = ("host0", "host0", "host1", "host1")
    folder = write_run(tmp_path / "run", hosts=hosts)
    sentence = diagnosis.explain(RESUME, recorded(f"{name}-lost-host"), folder, 255)[0]

    assert sentence == "host host1 was lost, and its ranks with it"


def test_mpich_loses_one_of_several_hosts(tmp_path):
    """Without a folder, the hosts are not known."""
    text = recorded("mpich-lost-host")
    folder = write_run(tmp_path / "run", hosts=("host0", "host1", "host2", "host3"))
    several, unknown = (diagnosis.explain(RESUME, text, f, 255) for f in (folder, None))

    assert several[0].startswith("one of the hosts host1, host2, host3 was lost")
    assert unknown[0].startswith("mpiexec lost the connection to a host")


def test_the_kernel_is_named_if_it_has_killed_a_process(run):
    """Its counter of processes killed for memory has increased."""
    text = recorded("openmpi-sigkill")
    sentence = diagnosis.explain(RESUME, text, run, 137, out_of_memory=True)[0]

    assert "SIGKILL (the kernel killed it when memory ran out" in sentence


@pytest.mark.parametrize("code", [42, 2])
def test_without_output_the_exit_code_is_printed(run, code):
    """Also for code 2, if mpiexec has lost the message of the rank."""
    sentence = diagnosis.explain(RESUME, "\n", run, code)[0]

    assert sentence == f"the job failed for an unknown reason (exit code {code})"


# How to resume


def test_the_last_complete_checkpoint_is_named(run):
    """A later one without the file of a node is not complete."""
    for iteration in (80, 120):
        write_checkpoint(run, iteration, range(4))
    write_checkpoint(run, 160, (0, 1, 3))

    assert diagnosis.explain(RESUME, "", run, 1)[1] == (
        "run has a checkpoint of iteration 120; "
        "resume with ./launch/local -n 4 --resume run"
    )


def test_the_folder_is_quoted(tmp_path, monkeypatch):
    """So that the command can be copied."""
    monkeypatch.chdir(tmp_path)
    folder = write_run(tmp_path / "my run")
    write_checkpoint(folder, 5, range(4))
    advice = diagnosis.explain(RESUME, "", folder, 1)[1]

    assert advice.endswith("resume with ./launch/local -n 4 --resume 'my run'")


def test_without_a_checkpoint_the_run_must_start_again(run):
    """The advice differs if there is no folder, or if it is on another host."""
    advice = diagnosis.explain(RESUME, "", run, 1)[1]
    assert "no complete checkpoint; start again" in advice
    assert "a smaller --checkpoint-seconds (60 by default)" in advice
    assert "nothing to resume" in diagnosis.explain(RESUME, "", None, 1)[1]
    assert diagnosis.explain(RESUME, "", None, 1, here=False)[1] == (
        "the folder of the run is not known on this host; if there is one, resume with "
        f"{RESUME} FOLDER, else start it again"
    )


def test_some_ends_need_no_explanation(run):
    """Invalid input, a run that did not converge, and a run with results."""
    assert diagnosis.explain(RESUME, "dadmm: error: x", run, 2) == []
    assert diagnosis.explain(RESUME, "dadmm: error: x", None, 2) == []
    assert diagnosis.explain(RESUME, "", run, 3) == []
    (run / "summary.json").touch()
    assert diagnosis.explain(RESUME, "", run, 9) == []


def test_a_run_that_could_not_write_can_be_resumed(run):
    """A full disk has exit code 2 and its own message; only the advice is added."""
    write_checkpoint(run, 7, range(4))
    said = diagnosis.explain(RESUME, "dadmm: error: cannot write to run: No", run, 2)

    assert said == [
        "run has a checkpoint of iteration 7; "
        "resume with ./launch/local -n 4 --resume run"
    ]


def test_the_command_diagnose_reads_a_folder_and_a_file(tmp_path):
    """As a batch script may call it, with the output of srun."""
    folder = write_run(tmp_path / "run")
    write_checkpoint(folder, 40, range(4))
    file = RECORDED / "slurm-sigkill.txt"
    resume = "sbatch launch/slurm.sbatch --resume"
    command = (ROOT / "launch", "diagnose", folder, file, resume)
    ended = python(*command, cwd=tmp_path).end()

    assert ended.code == 0
    assert ended.out.splitlines() == [
        f"dadmm: node 2 (rank 2 on vm) {KILLED}",
        f"dadmm: run has a checkpoint of iteration 40; resume with {resume} run",
    ]
