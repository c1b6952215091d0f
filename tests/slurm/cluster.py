"""A real Slurm with two nodes on this machine, in a folder of its own.

It needs Debian's slurm-wlm and munge, but not root.
"""

import contextlib
import ctypes
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol")
PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge")
TEMPLATE = Path(__file__).with_name("slurm.conf")
SBIN = "/usr/sbin:/sbin"  # where the daemons are, and a user's PATH is not
CPUS = 32  # of a node
PATIENCE = 30  # seconds for a daemon to come up or go
INSTALLING = 180  # seconds for apt-get, at most
CANCELLING = 15  # seconds for jobs to end when the cluster closes
END_WITH_PARENT = (1, signal.SIGTERM)  # even if the tests are killed


class SlurmError(Exception):
    """There can be no Slurm here."""


def obstacle() -> str:
    """Return why this machine has no Slurm, or ""."""
    path = f"{os.environ.get('PATH', '')}:{SBIN}"
    lacking = [name for name in PROGRAMS if not shutil.which(name, path=path)]
    return f"Slurm is not installed: no {', '.join(lacking)}" if lacking else ""


def install() -> None:
    """Install Slurm with apt-get, as root on Debian or Ubuntu."""
    if os.geteuid() or not shutil.which("apt-get"):
        raise SlurmError(f"{obstacle()}, and only root with apt-get can install it")
    # RUNLEVEL=1 keeps the packages from starting services of their own
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    options = ["-q", "-y", "--no-install-recommends"]
    for words in (["update", "-q"], ["install", *options, *PACKAGES]):
        command = ["timeout", "-k", "5", str(INSTALLING), "apt-get", *words]
        if subprocess.run(command, env=quiet, capture_output=True).returncode:
            raise SlurmError(f"apt-get {words[0]} failed")


class Cluster:
    """A Slurm that runs from `start` to `close`.

    Configuration, sockets, state and logs are in ``folder``. Commands like ``sbatch``
    find this Slurm by ``variables``.
    """

    def __init__(self) -> None:
        if reason := obstacle():
            raise SlurmError(reason)
        self.folder = Path(tempfile.mkdtemp(prefix="dadmm-slurm-"))
        path = f"{os.environ.get('PATH', '')}:{SBIN}"
        kept = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_")}
        conf = self.folder / "slurm.conf"
        self.variables = {**kept, "PATH": path, "SLURM_CONF": str(conf)}
        self._daemons: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        self.folder.chmod(0o755)  # munge requires that its socket can be reached
        text = TEMPLATE.read_text().format(
            folder=self.folder, host=socket.gethostname().partition(".")[0],
            user=user_name(), cpus=CPUS, ports=free_ports(3),
            first_job=1 + secrets.randbelow(60_000_000),  # Slurm's own limit is 67
        )  # fmt: skip
        (self.folder / "slurm.conf").write_text(text)
        for name in ("state", "spool.n1", "spool.n2"):
            (self.folder / name).mkdir()
        key = self.folder / "munge.key"
        key.touch(0o600)
        key.write_bytes(secrets.token_bytes(128))
        names = ("key", "log", "pid", "seed")
        options = [f"--{name}-file={self.folder}/munge.{name}" for name in names]
        socket_path = self.folder / "munge.socket"
        self._daemon("munged", "--foreground", "--force", *options, f"-S{socket_path}")
        self._until(socket_path.exists, "munged has no socket")
        self._daemon("slurmctld", "-D")
        for node in ("n1", "n2"):
            self._daemon("slurmd", "-D", "-N", node)
        states = ("sinfo", "-h", "-N", "-o", "%T")
        ready = lambda: {*self.call(*states).stdout.split()} == {"idle"}  # noqa: E731
        self._until(ready, "nodes are not idle")

    def _daemon(self, name: str, *options: str) -> None:
        program = str(shutil.which(name, path=self.variables["PATH"]))
        with open(self.folder / f"{name}.out", "ab") as log:
            self._daemons.append(subprocess.Popen(
                [program, *options], env=self.variables, start_new_session=True,
                preexec_fn=partial(ctypes.CDLL(None).prctl, *END_WITH_PARENT),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            ))  # fmt: skip

    def _until(self, condition: Callable[[], bool], otherwise: str) -> None:
        end = time.monotonic() + PATIENCE
        while not condition():
            dead = [daemon for daemon in self._daemons if daemon.poll() is not None]
            if dead or time.monotonic() > end:
                raise SlurmError(f"{otherwise}: {self.logs()}")
            time.sleep(0.1)

    def call(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run one of Slurm's commands, with a time limit."""
        return subprocess.run(
            command, env=self.variables, capture_output=True, text=True, timeout=60
        )

    def logs(self, lines: int = 5) -> str:
        files = [*self.folder.glob("*.log"), *self.folder.glob("*.out")]
        tails = [(f.name, f.read_text().splitlines()[-lines:]) for f in sorted(files)]
        return "\n".join(f"{name}: {line}" for name, tail in tails for line in tail)

    def processes(self) -> list[int]:
        """Return all processes of jobs and daemons of this Slurm."""
        mark = f"SLURM_CONF={self.folder / 'slurm.conf'}".encode()
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):  # it has ended, or is another user's
                if mark in path.read_bytes().split(b"\0"):
                    found.append(int(path.parent.name))
        return [process for process in found if process != os.getpid()]

    def close(self) -> None:
        if len(self._daemons) > 1 and self._daemons[1].poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.call("scancel", "--user", user_name())
                limit = time.monotonic() + CANCELLING
                while self.call("squeue", "-h").stdout and time.monotonic() < limit:
                    time.sleep(0.1)
        for daemon in reversed(self._daemons):
            daemon.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(5)
        for process in self.processes():  # of jobs, or a daemon that did not end
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


def user_name() -> str:
    """Return the name of the user, whatever the variables say."""
    return pwd.getpwuid(os.geteuid()).pw_name


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("", 0))
        return [each.getsockname()[1] for each in sockets]
