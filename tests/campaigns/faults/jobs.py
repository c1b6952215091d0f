"""The processes of a campaign, and where a case is played: folder, disk and hosts."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.emulation.network import AGENT, EmulatedNetwork
from launch.mpi import default_variables, version_text
from tests.support import processes
from tests.support.emulation import reached_by

MARK = "DADMM_FAULTS_RUN"  # in the environment of all processes of a run
LIMIT = float(os.environ.get("DADMM_FAULTS_LIMIT", "100"))  # seconds of one start
GRACE = 20.0  # seconds that ranks may outlive their mpiexec
RANKS = re.compile(rb"\0(?:PMI_RANK|OMPI_COMM_WORLD_RANK)=(\d+)\0")
BANNERS = {"mpich": "HYDRA", "openmpi": "Open MPI", "impi": "Intel"}
PRIVATE = "DADMM_FAULTS_PRIVATE"  # set in a mount namespace of our own
MOUNTS = ("full_disk", "readonly")  # kinds that need one
ROOM = 64 << 20  # bytes of a disk with room
STALL = 14  # seconds after which launch/local names a hanging rank, in place of 60
STOPPED = 12  # --stall-seconds
RANK = str(processes.FAULTY)


class MPI(NamedTuple):
    mpiexec: str
    variables: dict[str, str]


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
    """One start of a command; ``plan`` is for faulty ranks, and ``name`` marks it."""

    def __init__(self, mpi, command, folder, name, plan, more) -> None:
        self.mark = f"{name}-{os.getpid()}-{time.monotonic_ns()}"
        given = {MARK: self.mark, **processes.planned(plan), **more}
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

    def comes_to(self, happens) -> bool:
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
    found = processes.environments(f"{MARK}={mark}")
    ranks = {pid: RANKS.search(text) for pid, text in found.items()}
    return {pid: None if rank is None else int(rank[1]) for pid, rank in ranks.items()}


def sweep(mark: str) -> None:
    """Kill all processes with a mark that begins so."""
    end = time.monotonic() + GRACE
    while (found := marked(mark)) and time.monotonic() < end:
        for pid in found:
            send(pid, signal.SIGKILL)
        time.sleep(0.02)


def send(pid: int, number: int) -> bool:
    """Send a signal; return whether there was anybody to take it."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False


class Play:
    """A case in its own folder, whose processes the campaign finds by ``name``.

    Each exchange takes ``pace`` seconds more: on a fast machine a run is else over
    before a signal from outside comes.
    """

    def __init__(self, case, mpi: MPI, folder: Path, name: str, pace=0.0) -> None:
        self.case, self.mpi, self.folder, self.name = case, mpi, folder, name
        self.pace = pace
        self.disk, self.run = folder / "disk", folder / "disk" / "run"
        self.network: EmulatedNetwork | None = None
        self.early = False  # a signal came before the ranks listened
        self.second: Ended | None = None  # job in the same folder

    @contextlib.contextmanager
    def prepared(self):
        """Make the disk and the hosts of the case, until the end of a block."""
        kind, room = self.case.kind, f"size={ROOM},nr_inodes=100k"
        self.disk.mkdir()
        try:
            if kind in MOUNTS:
                self._mount("-t", "tmpfs", "-o", room, "faults")
            if kind in ("cut", "lag"):
                delay = self.case.draw(2).uniform(2e-4, 5e-3) * (kind == "lag")
                self.network = EmulatedNetwork(2, delay=delay)
            yield
        finally:
            if self.network is not None:
                self.network.close()
            self._unmount(left=0)

    def _mount(self, *words: str) -> None:
        assert os.environ.get(PRIVATE), "mounts are made in a namespace of our own only"
        subprocess.run(["mount", *words, str(self.disk)], check=True, timeout=60)

    def _unmount(self, left: int) -> None:
        """Take away what is mounted on the disk, but for the disk itself."""
        text = Path("/proc/self/mounts").read_text()
        for _ in range(text.count(f" {self.disk} ") - left):
            command = ["umount", "-l", str(self.disk)]
            subprocess.run(command, timeout=60, check=False)

    def protect(self) -> bool:
        """Make the disk read-only."""
        self._mount("--bind", str(self.disk))
        self._mount("-o", "remount,bind,ro", str(self.disk))
        return True

    def fill(self, spare: int) -> bool:
        """Fill the disk up to some spare bytes; it is not yet known to hit."""
        filler = self.disk / "filler"
        with contextlib.suppress(OSError), open(filler, "ab", buffering=0) as file:
            while (free := shutil.disk_usage(self.disk).free) > spare:
                file.write(bytes(min(1 << 20, free - spare)))
        return False

    def on_host(self, host: int, command: str) -> None:
        """Run a shell command on an emulated host."""
        if self.network is not None:
            words = self.network.command(host, ["sh", "-c", command])
            subprocess.run(words, capture_output=True, timeout=60, check=False)

    def join_hosts(self) -> None:
        """Undo what cut the second host off."""
        self.on_host(1, "ip link set eth0 up; ip route replace 10.77.0.0/16 dev eth0")
        self.on_host(0, "ip route del blackhole 10.77.0.2/32")

    def repair(self) -> None:
        """Undo what befell the disk and the hosts, as a user does before a start."""
        self.join_hosts()
        self._unmount(left=1)
        (self.disk / "filler").unlink(missing_ok=True)

    def arguments(self, resume: bool = False) -> list[str]:
        case, own = self.case, ["--resume", str(self.run)]
        if not resume:
            own = [*case.settings.split(), *case.saving.split(), "--overwrite"]
            own += ["--nodes", str(case.nodes), "--out", str(self.run)]
        return own + ["--on-failure", "continue"] * (case.kind == "loss")

    def start(self, arguments: list[str], plan, ranks: int = 0, **more: str) -> Job:
        """Start a job of the case, with more variables."""
        n = ranks or self.case.ranks
        if self.pace:
            everyone = map(str, range(n))
            plan = {k: {"pace": self.pace} | plan.get(k, {}) for k in everyone}
        if self.case.kind in MOUNTS:  # results may be rescued
            more |= {"TMPDIR": str(self.folder)}
        command, options = [self.mpi.mpiexec], ["-n", str(n)]
        if self.network is not None:
            hosts = self.folder / "hosts.txt"
            hosts.write_text(f"host0:{n - n // 2}\nhost1:{n // 2}\n")
            options, more = ["--hostfile", str(hosts)], more | reached_by(AGENT)
        if self.case.watched:
            command = [sys.executable, str(processes.PROGRAMS / "local.py"), *command]
            options += ["--stall-seconds", str(STOPPED)]
            more |= {"DADMM_LOCAL_STALL": str(STALL), "DADMM_LOCAL_RANK": RANK}
        else:
            command += ["--with-ft", "ulfm"] * (self.case.kind == "loss")
            options += [sys.executable, *([RANK] if plan else ["-m", "dadmm.run"])]
        command += [*options, *arguments, "--quiet"]
        if self.network is not None:
            command = self.network.command(0, command)
        return Job(self.mpi, command, self.folder, self.name, plan, more)
