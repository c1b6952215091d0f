"""What a launch command prints after a failure: which node, why, how to resume."""

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


RANK_2 = "node 2 (rank 2 on vm)"
EXPECTED = f"{RANK_2} failed: RuntimeError: this was to be expected"
TRACEBACK = "Traceback (most recent call last):\n"
FIRST = f"iteration 3\rdadmm: rank 1 failed:\n{TRACEBACK}  File x\nKeyError: 'a'\n\n"
FIRST += "During handling of the above exception, another exception occurred:\n\n"
FIRST += TRACEBACK + "OSError: [Errno 28] No space left\ndadmm: rank 3 failed:\n"
ABSENT = "ModuleNotFoundError: No module named 'dadmm'"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("mpich-exception", EXPECTED),
        ("openmpi-exception", EXPECTED),
        ("intel-exception", EXPECTED),
        (FIRST, "node 1 (rank 1 on vm) failed: OSError: [Errno 28] No space left"),
        (2 * f'{TRACEBACK}  File "x"\n{ABSENT}\n', f"an unknown rank failed: {ABSENT}"),
        ("slurm-sigkill", f"{RANK_2} {KILLED}"),
        ("slurm-memory", f"{RANK_2} was killed by the kernel when memory ran out"),
        ("slurm-time", "an unknown rank was ended by Slurm: time limit"),
        ("slurm-exit", f"{RANK_2} ended: Exited with exit code 1"),
    ],
)
def test_the_first_failure_in_the_output_is_repeated(run, name, sentence):
    """As the end of a traceback, without what an MPI adds, or as srun says it."""
    text = name if "\n" in name else recorded(name)
    first = 0 if name.endswith("-exception") else None  # for the monitor

    assert diagnosis.explain(RESUME, text, run, 1, first)[0] == sentence


@pytest.mark.parametrize(
    ("host", "who"),
    [
        ("south", "node 2 (rank 2 on south)"),
        ("north", "an unknown rank on north"),
        ("10.0.0.2", "an unknown rank on 10.0.0.2"),
    ],
)
def test_a_rank_of_another_machine_is_named_by_its_host(tmp_path, host, who):
    """The ranks of other machines do not reach the monitor; MPICH names the host."""
    text = recorded("mpich-sigkill").replace("RUNNING AT vm", f"RUNNING AT {host}")
    run = write_run(tmp_path / "run", hosts=("north", "north", "south", "east"))

    assert diagnosis.explain(RESUME, text, run, 9)[0] == f"{who} {PERHAPS_KILLED}"


@pytest.mark.parametrize("name", ["mpich", "openmpi", "intel"])
def test_a_lost_host_is_named(tmp_path, name):
    """MPICH does not name it, but there may be only one other host."""
    text = recorded(f"{name}-lost-host")
    hosts = ("host0", "host0", "host1", "host1")
    two = write_run(tmp_path / "two", hosts=hosts)
    four = write_run(tmp_path / "four", hosts=("host0", "host1", "host2", "host3"))
    said = [diagnosis.explain(RESUME, text, f, 255)[0] for f in (two, four, None)]

    assert said[0] == "host host1 was lost, and its ranks with it"
    if name == "mpich":
        assert said[1].startswith("one of the hosts host1, host2, host3 was lost")
        assert said[2].startswith("mpiexec lost the connection to a host")


def test_the_kernel_is_named_if_it_has_killed_a_process(run):
    text = recorded("openmpi-sigkill")
    sentence = diagnosis.explain(RESUME, text, run, 137, out_of_memory=True)[0]

    assert "SIGKILL (the kernel killed it when memory ran out" in sentence


def test_the_last_complete_checkpoint_is_named(tmp_path, monkeypatch):
    """A later one lacks the file of a node; the folder is quoted for a shell.

    A full disk has its own message, so that only the advice is added.
    """
    monkeypatch.chdir(tmp_path)
    run = write_run(tmp_path / "my run")
    for iteration in (80, 120):
        write_checkpoint(run, iteration, range(4))
    write_checkpoint(run, 160, (0, 1, 3))
    advice = (
        "'my run' has a checkpoint of iteration 120; "
        "resume with ./launch/local -n 4 --resume 'my run'"
    )
    full = "dadmm: error: cannot write to my run: No"

    assert diagnosis.explain(RESUME, "", run, 1)[1] == advice
    assert diagnosis.explain(RESUME, full, run, 2) == [advice]


def test_without_a_checkpoint_the_run_must_start_again(run):
    """The advice differs if there is no folder, or if it is on another host."""
    reason, advice = diagnosis.explain(RESUME, "\n", run, 2)
    assert reason == "the job failed for an unknown reason (exit code 2)"
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


def test_the_command_diagnose_reads_a_folder_and_a_file(tmp_path):
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
    ended = python(ROOT / "launch", "diagnose", "--help").end()
    assert (ended.code, ended.err) == (0, "")
    assert "python launch diagnose RUN [FILE [COMMAND]]" in ended.out
    ended = python(ROOT / "launch", "diagnose").end()
    assert (ended.code, len(ended.said)) == (2, 1)
