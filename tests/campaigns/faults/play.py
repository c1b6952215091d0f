"""Where a case is played: its folder, its disk, its hosts, and how its job starts."""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.emulation.network import AGENT, EmulatedNetwork
from tests.campaigns.faults.cases import WATCHED, Case
from tests.campaigns.faults.jobs import MPI, Ended, Job
from tests.support.emulation import reached_by
from tests.support.processes import PROGRAMS

PRIVATE = "DADMM_FAULTS_PRIVATE"  # set in a mount namespace of our own
MOUNTS = ("full_disk", "readonly")  # kinds that need one
ROOM = 64 << 20  # bytes of a disk with room
STALL = 14  # seconds after which launch/local names a hanging rank, in place of 60
STOPPED = 12  # --stall-seconds
RANK = str(Path(__file__).with_name("rank.py"))


class Play:
    """One case in its own folder.

    The campaign finds its processes by ``name``. Each exchange takes ``pace`` seconds
    more: on a fast machine a run is else over before a signal from outside comes.
    """

    def __init__(
        self, case: Case, mpi: MPI, folder: Path, name: str, pace: float = 0.0
    ) -> None:
        self.case, self.mpi, self.folder, self.name = case, mpi, folder, name
        self.pace, self.watched = pace, case.kind in WATCHED
        self.disk, self.run = folder / "disk", folder / "disk" / "run"
        self.network: EmulatedNetwork | None = None
        self.early = False  # a signal came before the ranks listened
        self.second: Ended | None = None  # job in the same folder

    @contextlib.contextmanager
    def prepared(self) -> Iterator[None]:
        """Make the disk and the hosts of the case, until the end of a block."""
        kind = self.case.kind
        self.disk.mkdir()
        try:
            if kind in MOUNTS:
                self._mount(
                    "-t", "tmpfs", "-o", f"size={ROOM},nr_inodes=100k", "faults"
                )
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
        with (
            contextlib.suppress(OSError),
            open(self.disk / "filler", "ab", buffering=0) as file,
        ):
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
        """Return the arguments of the run, or those that resume it."""
        case, own = self.case, ["--resume", str(self.run)]
        if not resume:
            own = [*case.settings.split(), *case.saving.split(), "--overwrite"]
            own += ["--nodes", str(case.nodes), "--out", str(self.run)]
        return own + ["--on-failure", "continue"] * (case.kind == "loss")

    def start(
        self, arguments: list[str], plan: dict[str, Any], ranks: int = 0, **more: str
    ) -> Job:
        """Start a job of the case, with more variables."""
        n = ranks or self.case.ranks
        if self.pace:
            everyone = map(str, range(n))
            plan = {k: {"pace": self.pace} | plan.get(k, {}) for k in everyone}
        command, options = [self.mpi.mpiexec], ["-n", str(n)]
        if self.network is not None:
            hosts = self.folder / "hosts.txt"
            hosts.write_text(f"host0:{n - n // 2}\nhost1:{n // 2}\n")
            options, more = ["--hostfile", str(hosts)], more | reached_by(AGENT)
        if self.watched:
            command = [sys.executable, str(PROGRAMS / "local.py"), *command]
            options += ["--stall-seconds", str(STOPPED)]
            more |= {"DADMM_LOCAL_STALL": str(STALL), "DADMM_LOCAL_RANK": RANK}
        else:
            command += ["--with-ft", "ulfm"] * (self.case.kind == "loss")
            options += [sys.executable, *([RANK] if plan else ["-m", "dadmm.run"])]
        command += [*options, *arguments, "--quiet"]
        if self.network is not None:
            command = self.network.command(0, command)
        return Job(self.mpi, command, self.folder, self.name, plan, more)
