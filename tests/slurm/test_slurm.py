"""Batch jobs under a real Slurm: two nodes, arrays, time limits, cancelled jobs.

The Slurm is in a folder of its own. It needs Debian's slurm-wlm and munge, but not
root. Without Slurm these tests are skipped, unless the variable CI is set: then they
try to install it.
"""

import contextlib
import ctypes
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import pytest

from launch.mpi import version_text
from tests.support.processes import (
    ROOT,
    comes_true,
    environments,
    find_mpiexec,
    python,
    variables,
)
from tests.support.runs import SINCE_RESUME, assert_same_arrays, rows_of

pytestmark = pytest.mark.slow

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol")
PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge")
TEMPLATE = Path(__file__).with_name("slurm.conf")
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"  # where the daemons are
USER = pwd.getpwuid(os.geteuid()).pw_name  # whatever the variables say
END_WITH_PARENT = (1, signal.SIGTERM)  # even if the tests are killed
SCRIPT = ROOT / "launch" / "slurm.sbatch"
PATIENCE = 120  # seconds to wait for a daemon or a job, which takes a few
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"}
# 0.25 s per iteration, of which four nodes need 207
SLOW = ["--problem", "tests.slurm.slow:SlowPPCA"]
SLOW += ["--n-components", "5", "--topology", "ring"]
NOWHERE = {"DADMM_HOME": "/nowhere"}


class SlurmError(Exception):
    pass


def obstacle() -> str:
    """Return why this machine has no Slurm, or ""."""
    lacking = [name for name in PROGRAMS if not shutil.which(name, path=PATH)]
    return f"Slurm is not installed: no {', '.join(lacking)}" if lacking else ""


def install() -> None:
    """Install Slurm with apt-get, as root on Debian or Ubuntu."""
    if os.geteuid() or not shutil.which("apt-get"):
        raise SlurmError(f"{obstacle()}, and only root with apt-get can install it")
    # RUNLEVEL=1 keeps the packages from starting services of their own
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    options = ["-q", "-y", "--no-install-recommends"]
    for words in (["update", "-q"], ["install", *options, *PACKAGES]):
        command = ["timeout", "-k", "5", "180", "apt-get", *words]
        if subprocess.run(command, env=quiet, capture_output=True).returncode:
            raise SlurmError(f"apt-get {words[0]} failed")


class Slurm:
    """A Slurm from `start` to `close`, all of it in ``home``, and its user.

    Jobs are submitted from ``folder``; they are slow while the file ``slow`` exists.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.slow = folder, folder / "slow"
        self.slow.touch()
        self.home = Path(tempfile.mkdtemp(prefix="dadmm-slurm-"))
        self.conf = str(self.home / "slurm.conf")
        self._daemons: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        self.home.chmod(0o755)  # munge requires that its socket can be reached
        with contextlib.ExitStack() as stack:
            servers = [socket.create_server(("", 0)) for _ in range(3)]
            ports = [stack.enter_context(each).getsockname()[1] for each in servers]
        text = TEMPLATE.read_text().format(
            folder=self.home, host=socket.gethostname().partition(".")[0], user=USER,
            cpus=32, ports=ports,
            first_job=1 + secrets.randbelow(60_000_000),  # Slurm's own limit is 67
        )  # fmt: skip
        Path(self.conf).write_text(text)
        for name in ("state", "spool.n1", "spool.n2"):
            (self.home / name).mkdir()
        key = self.home / "munge.key"
        key.touch(0o600)
        key.write_bytes(secrets.token_bytes(128))
        names = ("key", "log", "pid", "seed")
        options = [f"--{name}-file={self.home}/munge.{name}" for name in names]
        socket_path = self.home / "munge.socket"
        self._daemon("munged", "--foreground", "--force", *options, f"-S{socket_path}")
        self._comes_up(socket_path.exists, "munged has no socket")
        self._daemon("slurmctld", "-D")
        for node in ("n1", "n2"):
            self._daemon("slurmd", "-D", "-N", node)
        states = ("sinfo", "-h", "-N", "-o", "%T")
        ready = lambda: {*self.call(*states).stdout.split()} == {"idle"}  # noqa: E731
        self._comes_up(ready, "nodes are not idle")

    def _daemon(self, name: str, *options: str) -> None:
        program = str(shutil.which(name, path=PATH))
        own = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_")}
        own |= {"PATH": PATH, "SLURM_CONF": self.conf}
        with open(self.home / f"{name}.out", "ab") as log:
            self._daemons.append(subprocess.Popen(
                [program, *options], env=own, start_new_session=True,
                preexec_fn=partial(ctypes.CDLL(None).prctl, *END_WITH_PARENT),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            ))  # fmt: skip

    def _comes_up(self, condition, otherwise: str) -> None:
        def ended() -> bool:
            return any(daemon.poll() is not None for daemon in self._daemons)

        if not comes_true(lambda: ended() or condition(), PATIENCE) or ended():
            raise SlurmError(f"{otherwise}: {self.logs()}")

    def logs(self, lines: int = 5) -> str:
        files = [*self.home.glob("*.log"), *self.home.glob("*.out")]
        tails = [(f.name, f.read_text().splitlines()[-lines:]) for f in sorted(files)]
        return "\n".join(f"{name}: {line}" for name, tail in tails for line in tail)

    def processes(self, *marks: str) -> list[int]:
        """Return all processes of jobs and daemons of this Slurm with these marks."""
        return [*environments(f"SLURM_CONF={self.conf}\0", *marks)]

    def close(self) -> None:
        if len(self._daemons) > 1 and self._daemons[1].poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.call("scancel", "--user", USER)
                comes_true(lambda: not self.call("squeue", "-h").stdout, 15)
        for daemon in reversed(self._daemons):
            daemon.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(5)
        for process in self.processes():  # of jobs, or a daemon that did not end
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        shutil.rmtree(self.home, ignore_errors=True)

    def call(self, *command: object, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a command as a user of the tests' environment."""
        own = {"PATH": PATH, "SLURM_CONF": self.conf, "DADMM_ENVIRONMENT": sys.prefix}
        own["DADMM_TEST_SLOW"] = str(self.slow)
        return subprocess.run(
            [*map(str, command)], cwd=self.folder, env=variables(**own | more),
            capture_output=True, text=True, timeout=PATIENCE,
        )  # fmt: skip

    def submit(self, *options: object, job: list[str], **more: str) -> str:
        done = self.call("sbatch", "--parsable", *options, SCRIPT, *job, **more)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def facts(self, job: str) -> dict[str, str]:
        shown = self.call("scontrol", "-o", "show", "job", job).stdout
        return dict(re.findall(r"(\w+)=(\S*)", shown))

    def said(self, job: str) -> str:
        file = self.folder / f"dadmm-{job}.out"
        return file.read_text() if file.exists() else ""

    def until(self, condition, job: str) -> None:
        if not comes_true(condition, PATIENCE):
            facts, logs = self.facts(job), self.logs()
            pytest.fail(f"waited in vain: {facts}\n{self.said(job)}\n{logs}")

    def end(self, job: str, state: str = "COMPLETED", code: str = "0:0") -> str:
        """Wait for the end of a job with this state and code; return its output."""
        self.until(lambda: self.facts(job)["JobState"] in ENDED, job)
        facts = self.facts(job)
        found = facts["JobState"], facts["ExitCode"] if code else ""
        assert found == (state, code), self.said(job)
        return self.said(job)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """A Slurm with two nodes; skip where there can be none."""
    if find_mpiexec() is None:
        pytest.skip(f"no mpiexec beside {sys.executable}, nor in DADMM_MPIEXEC")
    if obstacle() and not os.environ.get("CI"):
        pytest.skip(obstacle())
    with contextlib.ExitStack() as stack:
        try:
            if obstacle():
                install()
            slurm = Slurm(tmp_path_factory.mktemp("slurm"))
            stack.callback(slurm.close)
            slurm.start()
        except SlurmError as error:
            pytest.skip(str(error))
        yield slurm


@pytest.fixture(scope="module", autouse=True)
def limited(slurm):
    """A slow job that reaches its time limit while the other tests run.

    Slurm checks time limits every half minute, and the shortest limit is a minute.
    The warning, 20 seconds before, comes 10 to 40 seconds after the start.
    """
    options = ["-N2", "--time=1", "--signal=B:USR1@20"]
    job = [*SLOW, "--out", "runs/limited"]
    return slurm.submit(*options, "-n", 4, job=job, DADMM_REQUEUE="1")


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """A function that returns the results of a run in one process."""
    folder = tmp_path_factory.mktemp("expected")

    def expected(n, *arguments):
        out = folder / f"{n}-{abs(hash(arguments))}"
        if not out.exists():
            job = python("-m", "dadmm.run", *arguments, "--nodes", n, "--out", out)
            assert job.end().code == 0
        return out / "result.npz"

    return expected


@pytest.mark.parametrize("launcher", ["mpiexec", "srun"])
def test_ranks_span_both_nodes(slurm, expected, launcher):
    if launcher == "srun" and "Open" in version_text(find_mpiexec()):
        pytest.skip("Open MPI needs PMIx, which this Slurm has not")
    arguments, out = ["--topology", "ring", "--max-iter", "20"], f"runs/{launcher}"
    words = [*arguments, "--out", out]
    job = slurm.submit("-N2", "-n", 6, job=words, DADMM_LAUNCHER=launcher)
    last = slurm.end(job).splitlines()[-1]
    assert f"after 20 iterations; results in {out}" in last
    second = (slurm.home / "slurmd.n2.log").read_text()
    assert f"StepId={job}." in second
    assert_same_arrays(slurm.folder / out / "result.npz", expected(6, *arguments))


def test_a_sweep_is_an_array(slurm):
    """Tasks in the queue are not submitted again, and the table has all tasks."""
    (slurm.folder / "grid.toml").write_text(
        "ranks = 2\n[base]\nmax_iter = 5\n"
        '[grid]\nscheme = ["snap", "vp"]\nseed = [0, 1]\n'
    )
    sweep = [ROOT / "launch" / "sweep"]
    run = [*sweep, "grid.toml", "--out", "runs/grid", "--at-most", 2]
    more = {"DADMM_PYTHON": sys.executable}
    first = slurm.call(*run, **more)
    job = re.search(r"job (\d+): 4 of 4 runs", first.stderr)[1]
    assert "ArrayTaskThrottle=2" in slurm.call("scontrol", "show", "job", job).stdout
    assert "are in the queue" in slurm.call(*run, **more).stderr
    slurm.until(lambda: not slurm.call("squeue", "-h", "-j", job).stdout, job)
    done = slurm.call(*sweep, "runs/grid", **more)
    assert "4 runs: 4 not converged" in done.stderr, done

    rows = rows_of(slurm.folder / "runs/grid/table.csv")
    tasks = [row["scheme"] + row["seed"] for row in rows]
    assert tasks == ["snap0", "snap1", "vp0", "vp1"]
    assert {row["iterations"] for row in rows} == {"5"}


def test_a_cancelled_job_leaves_no_process(slurm):
    job = slurm.submit("-N2", "-n", 4, job=[*SLOW, "--out", "runs/cancelled"])
    parts = slurm.folder / "runs/cancelled/parts"
    slurm.until(lambda: len(list(parts.glob("history-*"))) == 4, job)
    slurm.call("scancel", job)
    slurm.end(job, "CANCELLED", "")
    slurm.until(lambda: not slurm.processes(f"SLURM_JOB_ID={job}\0"), job)


def test_what_is_wrong_is_one_line_before_ranks_start(slurm):
    """Slurm runs a copy of the script outside the project."""
    wrong = ["--topology", "rink", "--scheme", "vpp"]
    jobs = slurm.submit("-n", 4, job=wrong), slurm.submit("-n", 1, job=[], **NOWHERE)
    said = [slurm.end(job, "FAILED", "2:0").splitlines() for job in jobs]
    assert [len(lines) for lines in said] == [1, 1]
    assert "vpp" in said[0][0]
    assert NOWHERE["DADMM_HOME"] in said[1][0]


def test_a_killed_job_is_resumed_from_its_checkpoint(slurm, expected):
    arguments = [*SLOW, "--checkpoint-every", "5", "--out", "runs/killed"]
    job, run = slurm.submit("-N2", "-n", 4, job=arguments), slurm.folder / "runs/killed"
    saved = run / "checkpoints/00000005"
    slurm.until(lambda: len(list(saved.glob("node-*.npz"))) == 4, job)
    python = os.path.join(sys.prefix, "bin", "python").encode()
    for process in slurm.processes(f"SLURM_JOB_ID={job}\0"):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
            if words[0] == python and b"dadmm.run" in words:
                os.kill(process, signal.SIGKILL)
    said = slurm.end(job, "FAILED", "")
    assert "the same command again to resume after iteration" in said.splitlines()[-1]
    assert not (run / "summary.json").exists()

    said = slurm.end(slurm.submit("-N2", "-n", 4, job=arguments, DADMM_TEST_SLOW=""))
    assert "dadmm: resuming runs/killed after iteration" in said
    assert_same_arrays(run / "result.npz", expected(4, *SLOW), SINCE_RESUME)


def test_a_job_is_requeued_and_resumed_after_its_time_limit(slurm, limited, expected):
    """It leads to the results of an uninterrupted run."""
    slurm.until(lambda: "requeued as job" in slurm.said(limited), limited)
    said, result = slurm.said(limited), slurm.folder / "runs/limited/result.npz"
    assert "dadmm: stopped before the time limit after" in said
    assert "submit the same command again to resume" in said
    slurm.slow.unlink(missing_ok=True)
    slurm.until(lambda: "dadmm: stationary after" in slurm.said(limited), limited)
    assert "dadmm: resuming runs/limited after iteration" in slurm.end(limited)
    assert_same_arrays(result, expected(4, *SLOW), SINCE_RESUME)
