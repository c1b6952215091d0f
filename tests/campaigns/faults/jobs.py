"""The processes of a campaign: started, found, signalled, and swept away."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from launch.mpi import default_variables, version_text
from tests.support import processes

MARK = "DADMM_FAULTS_RUN"  # in the environment of all processes of a run
LIMIT = float(os.environ.get("DADMM_FAULTS_LIMIT", "100"))  # seconds of one start
GRACE = 20.0  # seconds that ranks may outlive their mpiexec
RANKS = re.compile(rb"\0(?:PMI_RANK|OMPI_COMM_WORLD_RANK)=(\d+)\0")
BANNERS = {"mpich": "HYDRA", "openmpi": "Open MPI", "impi": "Intel"}


class MPI(NamedTuple):
    """An MPI to run with: its mpiexec, and the variables that it needs."""

    mpiexec: str
    variables: Mapping[str, str]


def find_mpi(name: str) -> MPI | None:
    """Return an MPI of this name, if there is one.

    It is looked for in ``DADMM_MPIEXEC``, beside this Python, in the folder
    ``DADMM_OPENMPI`` (and so on), and where ``launch/test --mpi openmpi`` puts it.
    """
    beside = str(Path(sys.executable).with_name("mpiexec"))
    own = os.environ.get(f"DADMM_{name.upper()}", "") + "/bin/mpiexec"
    installed = str(processes.ROOT / f".venv-{name}" / "bin" / "mpiexec")
    for mpiexec in (os.environ.get("DADMM_MPIEXEC", ""), beside, own, installed):
        if os.access(mpiexec, os.X_OK) and BANNERS[name] in version_text(mpiexec):
            return MPI(mpiexec, default_variables(mpiexec, mpiexec != beside))
    return None


class Ended(NamedTuple):
    """How a start ended."""

    code: int
    said: list[str]  # by dadmm; the launcher may add words of its own
    text: str  # all that was printed
    hung: bool  # it had to be ended
    left: int  # ranks that outlived mpiexec, and had to be ended

    @property
    def errors(self) -> list[str]:
        return [line for line in self.said if line.startswith("dadmm: error: ")]


class Job(processes.Job):
    """One start of a command; ``plan`` is for ``rank.py``.

    All processes of the campaign are found by ``name``.
    """

    def __init__(
        self, mpi: MPI, command: list[str], folder: Path, name: str,
        plan: Mapping[str, Any], more: Mapping[str, str],
    ) -> None:  # fmt: skip
        self.mark = f"{name}-{os.getpid()}-{time.monotonic_ns()}"
        given = {MARK: self.mark, "DADMM_FAULTS_PLAN": json.dumps(plan), **more}
        own = {k: v for k, v in mpi.variables.items() if k not in os.environ}
        super().__init__(command, folder, processes.variables(**given) | own)
        self.began = time.monotonic()

    def ranks(self) -> dict[int, int]:
        """Return the process of each rank."""
        found = marked(self.mark).items()
        return {rank: pid for pid, rank in found if rank is not None}

    def err(self) -> str:
        """Return what was printed so far."""
        return os.pread(self._err.fileno(), 1 << 20, 0).decode(errors="replace")

    def comes_to(self, happens: Callable[[], Any]) -> bool:
        """Return whether something happens while the job runs, and in time."""
        while self.process.poll() is None and time.monotonic() - self.began < LIMIT:
            if happens():
                return True
            time.sleep(0.01)
        return False

    def goes_on_for(self, seconds: float) -> bool:
        """Wait; return whether the job still runs."""
        end = time.monotonic() + seconds
        return self.comes_to(lambda: time.monotonic() > end)

    def outcome(self, grace: float = GRACE) -> Ended:
        """Wait for the end of all processes, or end them when their time is up."""
        hung, left = False, 0
        try:
            self.process.wait(max(0.0, self.began + LIMIT - time.monotonic()))
            end = time.monotonic() + grace
            while (left := len(marked(self.mark))) and time.monotonic() < end:
                time.sleep(0.05)
        except subprocess.TimeoutExpired:
            hung = True
        finally:
            sweep(self.mark)
            self.process.wait()
        found = self._ended()
        return Ended(found.code, found.said, found.out + found.err, hung, left)


def marked(mark: str) -> dict[int, int | None]:
    """Return the processes with a mark that begins so, each with its rank if any."""
    wanted, found = f"\0{MARK}={mark}".encode(), {}
    for file in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            environment = b"\0" + file.read_bytes()
            if wanted in environment:
                rank = RANKS.search(environment)
                found[int(file.parent.name)] = None if rank is None else int(rank[1])
    return found


def sweep(mark: str) -> None:
    """Kill all processes with a mark that begins so."""
    end = time.monotonic() + GRACE
    while (found := marked(mark)) and time.monotonic() < end:
        for pid in found:
            send(pid, signal.SIGKILL)
        time.sleep(0.02)


def catches_term(pid: int) -> bool:
    """Return whether a process catches TERM, as a rank does once it has begun."""
    with contextlib.suppress(OSError):
        status = Path(f"/proc/{pid}/status").read_text()
        caught = int(status.partition("SigCgt:")[2].split()[0], 16)
        return bool(caught >> signal.SIGTERM - 1 & 1)
    return False


def send(pid: int, number: int) -> bool:
    """Send a signal; return whether there was anybody to take it."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False
