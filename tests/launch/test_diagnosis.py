"""What a launch command prints after a failure: which node, why, how to resume."""

import time

import pytest

from dadmm.core import files
from dadmm.runs.folder import LOCK
from launch.diagnosis import explain
from tests.support.processes import ROOT, python
from tests.support.run_folders import write_checkpoint, write_run

RECORDED = ROOT / "tests" / "launch" / "recorded"
RESUME = "./launch/local -n 4 --resume"

pytestmark = pytest.mark.mpi


def recorded(name):
    """Return recorded output of an MPI or Slurm."""
    return (RECORDED / f"{name}.txt").read_text()


RANK_2, ANY = "node 2 (rank 2 on vm)", "an unknown rank"
RAISED = "RuntimeError: this was to be expected"
TRACEBACK = "Traceback (most recent call last):\n"
FIRST = f"iteration 3\rdadmm: rank 1 failed:\n{TRACEBACK}  File x\nKeyError: 'a'\n\n"
FIRST += "During handling of the above exception, another exception occurred:\n\n"
FIRST += TRACEBACK + "OSError: [Errno 28] No space left\ndadmm: rank 3 failed:\n"
ABSENT = "ModuleNotFoundError: No module named 'dadmm'"
SPREAD = ("north", "north", "south", "east")  # ranks that do not reach the monitor
TWO, FOUR = ("host0", "host0", "host1", "host1"), ("host0", "host1", "host2", "host3")
# what is printed, the rank that the monitor saw end first, the start and words of the
# sentence, and the hosts of the run, if there are several
CASES = [
    ("mpich-sigkill", 2, RANK_2, "SIGKILL or ended by itself"),
    ("mpich-sigsegv", 2, RANK_2, "SIGINT or SIGQUIT or SIGSEGV"),
    ("mpich-exit", 2, RANK_2, "ended first"),
    ("openmpi-sigkill", None, RANK_2, "was killed by SIGKILL"),
    ("openmpi-sigsegv", None, RANK_2, "was killed by SIGSEGV"),
    ("openmpi-exit", None, RANK_2, "code 5"),
    ("intel-sigkill", 2, RANK_2, "was killed by SIGKILL"),
    ("intel-sigsegv", None, RANK_2, "was killed by SIGSEGV"),
    ("intel-exit", 2, RANK_2, "exited by itself"),
    # MPICH and Intel MPI name ranks that they ended themselves
    ("mpich-sigkill", None, ANY, "SIGKILL or ended by itself"),
    ("mpich-sigsegv", None, ANY, "SIGINT or SIGQUIT or SIGSEGV"),
    ("mpich-exit", None, "the job", "exit code 9"),
    ("intel-sigkill", None, ANY, "probably killed by SIGKILL"),
    ("intel-exit", None, ANY, "probably killed by SIGKILL"),
    # dadmm's own report is more precise
    ("mpich-exception", 0, RANK_2, RAISED),
    ("openmpi-exception", 0, RANK_2, RAISED),
    ("intel-exception", 0, RANK_2, RAISED),
    (FIRST, None, "node 1 (rank 1 on vm)", "OSError: [Errno 28] No space left"),
    (2 * f'{TRACEBACK}  File "x"\n{ABSENT}\n', None, ANY, ABSENT),
    ("slurm-sigkill", None, RANK_2, "was killed by SIGKILL"),
    ("slurm-memory", None, RANK_2, "memory ran out"),
    ("slurm-time", None, ANY, "time limit"),
    ("slurm-exit", None, RANK_2, "exit code 1"),
    # MPICH names the host
    ("mpich-sigkill at south", None, "node 2 (rank 2 on south)", "SIGKILL", SPREAD),
    ("mpich-sigkill at north", None, ANY, "on north", SPREAD),
    ("mpich-sigkill at 10.0.0.2", None, ANY, "on 10.0.0.2", SPREAD),
    # but not one that was lost, unless there is only one other
    ("mpich-lost-host", None, "host host1 was lost", "ranks", TWO),
    ("mpich-unreachable", None, "host host1 was lost", "ranks", TWO),
    ("openmpi-lost-host", None, "host host1 was lost", "ranks", TWO),
    ("intel-lost-host", None, "host host1 was lost", "ranks", TWO),
    ("mpich-lost-host", None, "one of the hosts", "host1, host2, host3", FOUR),
]


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_the_failed_rank_is_named_if_it_is_known(tmp_path, case):
    name, first, who, words, *hosts = case
    name, _, host = name.partition(" at ") if "\n" not in name else (name, "", "")
    text = name if "\n" in name else recorded(name)
    text = text.replace("RUNNING AT vm", f"RUNNING AT {host or 'vm'}")
    run = write_run(tmp_path / "run", *hosts)
    sentence, advice = explain(RESUME, text, run, 9, first)

    assert sentence.startswith(who)
    assert words in sentence
    assert "no complete checkpoint" in advice
    if name == "openmpi-sigkill":  # by the kernel, if that has killed a process
        assert "memory ran out" in explain(RESUME, text, run, 9, out_of_memory=True)[0]


def test_the_advice_names_the_last_complete_checkpoint(tmp_path, monkeypatch):
    """A later one lacks the file of a node; the folder is quoted for a shell."""
    monkeypatch.chdir(tmp_path)
    run = write_run(tmp_path / "my run")
    refused = (RESUME, "dadmm: error: x", run, 2)
    assert explain(*refused) == explain(RESUME, "", run, 3) == []  # not converged
    for iteration, nodes in ((80, range(4)), (120, range(4)), (160, (0, 1, 3))):
        write_checkpoint(run, iteration, nodes)
    _, advice = explain(RESUME, "", run, 1)

    assert "iteration 120" in advice
    assert advice.endswith(f"{RESUME} 'my run'")
    assert RESUME not in explain(RESUME, "", None, 1)[1]
    assert f"{RESUME} FOLDER" in explain(RESUME, "", None, 1, here=False)[1]
    assert explain(RESUME, "dadmm: error: x", None, 2) == []
    # a full disk has its own message, so that only the advice is added
    assert explain(*refused) == [advice]
    assert explain(*refused, since=time.time() + 9) == []  # it was resumed and refused
    with (run / LOCK).open("w") as file:  # the run of another job
        assert files.lock(file.fileno())
        assert explain(*refused) == []
    (run / "summary.json").touch()
    assert explain(*refused) == []


def test_the_command_diagnose_reads_a_folder_and_a_file(tmp_path):
    folder = write_run(tmp_path / "run")
    write_checkpoint(folder, 40, range(4))
    diagnose = (ROOT / "launch", "diagnose")
    words = (folder, RECORDED / "slurm-sigkill.txt", "sbatch x --resume")
    ended = python(*diagnose, *words, cwd=tmp_path).end()

    assert ended.code == 0
    reason, advice = ended.out.splitlines()
    assert RANK_2 in reason
    assert advice.endswith("sbatch x --resume run")
    ended = python(*diagnose).end()
    assert (ended.code, len(ended.said)) == (2, 1)
