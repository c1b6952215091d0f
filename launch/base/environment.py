"""Create the project's Python environments, MPI included, with pip.

An environment is built under a temporary name and renamed when it is complete. Its
stamp file has a hash of what it was made from and the extras it has. An environment
without a matching stamp is built again. A lock lets one process at a time change
environments.
"""

import compileall
import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launch.base.messages import SetupError, print_message

PROJECT = Path(__file__).resolve().parents[2]
STAMP = "dadmm-stamp.json"
TEMPORARY = ".venv-tmp-"
PREVIOUS = "before"  # subfolder of an environment that holds the one it replaced


@dataclass(frozen=True)
class Environment:
    """An environment: its folder, the extras of the project, and further wheels."""

    folder: Path
    extras: frozenset[str]
    wheels: tuple[str, ...] = ()

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def inputs(self) -> str:
        """Return a hash of everything that requires a new environment when it changes.

        It covers the project's path, since an environment cannot be moved.
        """
        files = ("setup.cfg", "pyproject.toml")
        parts = [(PROJECT / name).read_text() for name in files]
        parts += [sys.implementation.cache_tag, sysconfig.get_platform(), str(PROJECT)]
        return hashlib.sha256("\0".join([*parts, *self.wheels]).encode()).hexdigest()

    def stamp(self) -> dict[str, Any]:
        """Return the content of the stamp file, or {} without one."""
        try:
            return json.loads((self.folder / STAMP).read_text())
        except (OSError, ValueError):
            return {}

    def installed(self) -> frozenset[str] | None:
        """Return the extras that are installed, or None if it must be built again."""
        stamp = self.stamp()
        valid = stamp.get("inputs") == self.inputs() and self.python.exists()
        return frozenset(stamp["extras"]) if valid else None

    def is_ready(self) -> bool:
        """Return whether the environment is valid and has all its extras."""
        installed = self.installed()
        return installed is not None and self.extras <= installed


def ensure(environment: Environment) -> None:
    """Build an environment, or add missing extras; return at once if it is ready."""
    if environment.is_ready():
        return
    with lock():
        installed = environment.installed()
        if installed is None:
            build(environment)
        elif not environment.is_ready():  # while this process waited
            add(environment, installed)


def build(environment: Environment) -> None:
    """Build an environment under a temporary name, then move it into place.

    It also gets the extras of the environment that it replaces.
    """
    for leftover in PROJECT.glob(TEMPORARY + "*"):  # of a killed process
        shutil.rmtree(leftover, ignore_errors=True)
    name = environment.folder.name
    print_message(f"setting up {name} with pip (about a minute, only once)")
    temporary = PROJECT / (TEMPORARY + secrets.token_hex(4))
    extras = environment.extras.union(environment.stamp().get("extras", ()))
    project = with_extras(str(PROJECT), extras)
    try:
        create(temporary)
        # a plain path: an import finder comes after a folder "dadmm" beside a script
        plain = ("--config-settings", "editable_mode=compat")
        pip(temporary, *plain, "--editable", project, *environment.wheels)
        rewrite_paths(temporary, environment.folder)
        write_stamp(temporary, environment.inputs(), extras)
        replace(environment.folder, temporary)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def add(environment: Environment, installed: frozenset[str]) -> None:
    """Install more extras. If this is interrupted, the next start builds it again."""
    print_message(f"adding to {environment.folder.name} with pip (only once)")
    inputs, missing = environment.inputs(), environment.extras - installed
    write_stamp(environment.folder, "", installed | missing)  # invalid for now
    try:
        pip(environment.folder, with_extras("dadmm", missing))
    except SetupError:  # pip failed before it changed anything
        write_stamp(environment.folder, inputs, installed)
        raise
    write_stamp(environment.folder, inputs, installed | missing)


def create(folder: Path) -> None:
    """Create an empty environment with pip, by any means that this Python has."""
    python = sys.executable
    if importlib.util.find_spec("ensurepip"):
        run([python, "-m", "venv", str(folder)])
    elif importlib.util.find_spec("virtualenv"):
        run([python, "-m", "virtualenv", str(folder)])
    elif importlib.util.find_spec("pip"):
        run([python, "-m", "venv", "--without-pip", str(folder)])
        run([python, "-m", "pip", f"--python={folder}/bin/python", "install", "pip"])
    elif uv := shutil.which("uv"):
        run([uv, "venv", "--seed", "--python", python, str(folder)])
    else:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise SetupError(
            f"{python} cannot create environments: it has neither ensurepip, "
            "virtualenv nor pip; on Debian and Ubuntu: apt install "
            f"python{version}-venv"
        )


def with_extras(project: str, extras: frozenset[str]) -> str:
    """Return a requirement for pip, without brackets if there are no extras."""
    return f"{project}[{','.join(sorted(extras))}]" if extras else project


def pip(folder: Path, *requirements: str) -> None:
    python = str(folder / "bin" / "python")
    run([python, "-m", "pip", "install", "--no-compile", *requirements])
    # on all cores, and without the tests of packages, unlike pip
    tests = re.compile(r"/site-packages/.*/tests/")
    compileall.compile_dir(str(folder / "lib"), quiet=2, workers=0, rx=tests)


def run(command: list[str]) -> None:
    """Run one step without output; if it fails, raise with the end of its output."""
    quiet = {"PIP_USER": "0", "PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    with subprocess.Popen(
        command,
        cwd="/",  # `python -m` imports from here first, not from the user's folder
        env={**os.environ, **quiet},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as step:
        try:
            output, _ = step.communicate()
        except BaseException:  # a signal: end the step as well
            os.killpg(step.pid, signal.SIGKILL)
            raise
    if step.returncode:
        raise SetupError(
            "set-up failed (its last lines are above); check the network, the package "
            "index and the disk, then start again",
            output,
        )


def rewrite_paths(built: Path, final: Path) -> None:
    """Replace the temporary path in the scripts of an environment by the final one."""
    for script in [built / "pyvenv.cfg", *(built / "bin").iterdir()]:
        if script.is_symlink() or script.is_dir():  # Intel MPI has folders there
            continue
        content = script.read_bytes()
        if b"\0" in content:  # a binary
            continue
        script.write_bytes(content.replace(built.name.encode(), final.name.encode()))


def write_stamp(folder: Path, inputs: str, extras: frozenset[str]) -> None:
    stamp = {"inputs": inputs, "extras": sorted(extras)}
    (folder / STAMP).write_text(json.dumps(stamp) + "\n")


def replace(folder: Path, new: Path) -> None:
    """Rename the new environment to its place; keep a folder without a stamp aside.

    The previous environment stays in a subfolder until the next replacement. Running
    jobs may have loaded libraries from it, and on NFS a job can crash when these are
    deleted.
    """
    old = PROJECT / f"{new.name}-old"
    if os.path.lexists(folder) and not (folder / STAMP).exists():
        kept = f"{folder.name}-kept-{secrets.token_hex(4)}"
        print_message(f"{folder} was not created by this command; it is now {kept}")
        folder.rename(PROJECT / kept)
    elif folder.exists():
        folder.rename(old)
    new.rename(folder)
    if old.exists():
        shutil.rmtree(old / PREVIOUS, ignore_errors=True)
        old.rename(folder / PREVIOUS)


@contextlib.contextmanager
def lock() -> Iterator[None]:
    """Hold a lock on setup.cfg, which the system releases when the process ends."""
    try:
        handle = (PROJECT / "setup.cfg").open("r+")
    except OSError as error:
        raise SetupError(
            f"cannot create an environment in {PROJECT} ({error.strerror}); "
            "use a copy of the project that you can write to"
        ) from None
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print_message("waiting for another process that sets up an environment")
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError:  # a file system without locks
            pass
        yield
