"""The processes of a campaign: started, found, signalled, and swept away."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from launch.mpi import default_variables, version_text
from tests.support.processes import FOREIGN, ROOT

HERE = Path(__file__).resolve().parent
MARK = "DADMM_FAULTS_RUN"  # in the environment of all processes of a run
LIMIT = float(os.environ.get("DADMM_FAULTS_LIMIT", "100"))  # seconds of one start
GRACE = 20.0  # seconds that ranks may outlive their mpiexec
RANKS = re.compile(rb"\0(?:PMI_RANK|OMPI_COMM_WORLD_RANK)=(\d+)\0")
BANNERS = {"mpich": "HYDRA", "openmpi": "Open MPI", "impi": "Intel"}


class MPI(NamedTuple):
    """An MPI to run with: its name, its mpiexec, and what it needs to be told."""

    name: str
    mpiexec: str
    variables: Mapping[str, str]


def find_mpi(name: str) -> MPI | None:
    """Return an MPI of this name, if there is one.

    It is looked for in ``DADMM_MPIEXEC``, beside this Python, in the variable
    ``DADMM_OPENMPI`` (and so on, a folder with bin and lib), and where
    ``launch/test --mpi openmpi`` puts it.
    """
    beside = Path(sys.executable).with_name("mpiexec")
    candidates = [
        (os.environ.get("DADMM_MPIEXEC", ""), True),
        (str(beside), False),
        (os.environ.get(f"DADMM_{name.upper()}", "") + "/bin/mpiexec", True),
        (str(ROOT / f".venv-{name}" / "bin" / "mpiexec"), True),
    ]
    for mpiexec, external in candidates:
        if os.access(mpiexec, os.X_OK) and BANNERS[name] in version_text(mpiexec):
            return MPI(name, mpiexec, default_variables(mpiexec, external))
    return None


class Ended(NamedTuple):
    code: int
    err: str
    hung: bool  # it had to be ended
    left: int  # ranks that outlived mpiexec, and had to be ended

    @property
    def said(self) -> list[str]:
        """What dadmm said; the launcher may add words of its own."""
        lines = self.err.splitlines()
        return [line for line in lines if line.startswith("dadmm: ")]


class Job:
    """One start of the main job under mpiexec, which has ``options``.

    All processes of the campaign are found by ``name``. Without a ``plan`` for
    ``rank.py`` the ranks are ``python -m dadmm.run``.
    """

    def __init__(
        self,
        mpi: MPI,
        ranks: int,
        arguments: Sequence[str],
        folder: Path,
        name: str,
        plan: Mapping[str, object] | None = None,
        options: Sequence[str] = (),
    ) -> None:
        self.mark = f"{name}-{os.getpid()}-{time.monotonic_ns()}"
        main = ["-m", "dadmm.run"] if not plan else [str(HERE / "rank.py")]
        command = [mpi.mpiexec, *options, "-n", str(ranks), sys.executable, *main]
        kept = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
        told = {MARK: self.mark, "PYTHONPATH": str(ROOT), "DADMM_PROGRESS": ""}
        told["DADMM_FAULTS_PLAN"] = json.dumps(plan or {})
        self._err = open(folder / "stderr.txt", "w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [*command, *arguments],
            cwd=folder,
            env={**mpi.variables, **kept, **told},
            stdin=subprocess.DEVNULL,
            stdout=self._err,
            stderr=self._err,
            start_new_session=True,
        )
        self.began = time.monotonic()
        self.heeds = True  # whether the ranks listened when a signal was sent to them

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def ranks(self) -> dict[int, int]:
        found = marked(self.mark).items()
        return {rank: pid for pid, rank in found if rank is not None}

    def wait_until(self, happens: Callable[[], bool]) -> bool:
        """Return whether something happens while the job runs, and in time."""
        while self.running and time.monotonic() - self.began < LIMIT:
            if happens():
                return True
            time.sleep(0.01)
        return False

    def end(self) -> Ended:
        """Wait for the end of all processes, or end them when their time is up."""
        hung, left = False, 0
        try:
            self.process.wait(max(0.0, self.began + LIMIT - time.monotonic()))
            end = time.monotonic() + GRACE
            while (found := marked(self.mark)) and time.monotonic() < end:
                time.sleep(0.05)
            left = len(found)
        except subprocess.TimeoutExpired:
            hung = True
        finally:
            self.sweep()
        self._err.seek(0)
        err = self._err.read()
        self._err.close()
        return Ended(self.process.returncode, err, hung, left)

    def sweep(self) -> None:
        sweep(self.mark)
        self.process.wait()


def marked(mark: str) -> dict[int, int | None]:
    """Return the processes with a mark that begins so, each with its rank if any."""
    wanted = f"\0{MARK}={mark}".encode()
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                environment = b"\0" + (entry / "environ").read_bytes()
                if wanted in environment:
                    rank = RANKS.search(environment)
                    found[int(entry.name)] = None if rank is None else int(rank[1])
    return found


def sweep(mark: str) -> None:
    end = time.monotonic() + GRACE
    while (found := marked(mark)) and time.monotonic() < end:
        for pid in found:
            send(pid, signal.SIGKILL)
        time.sleep(0.02)


def catches(pid: int) -> bool:
    """Return whether a process catches USR1, as a rank does once it has begun."""
    with contextlib.suppress(OSError):
        status = Path(f"/proc/{pid}/status").read_text()
        caught = re.search(r"^SigCgt:\s*([0-9a-f]+)$", status, re.MULTILINE)
        return caught is not None and bool(int(caught[1], 16) >> signal.SIGUSR1 - 1 & 1)
    return False


def send(pid: int, number: int) -> bool:
    """Send a signal; return whether there was anybody to take it."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False
