"""Create the project's Python environments, MPI included, with venv and pip.

The stamp file of an environment has a hash of what it was made from and the extras it
has. It is written last, and an environment without a matching stamp is built again. A
lock lets one process at a time change environments.
"""

import compileall
import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from launch.console import SetupError, print_message

PROJECT = Path(__file__).resolve().parents[1]
STAMP = "dadmm-stamp.json"
QUIET = {"PIP_USER": "0", "PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


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
        """Return a hash of all that requires a new environment when it changes."""
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

    def write_stamp(self, inputs: str, extras: Iterable[str]) -> None:
        stamp = {"inputs": inputs, "extras": sorted(extras)}
        (self.folder / STAMP).write_text(json.dumps(stamp) + "\n")

    def is_valid(self) -> bool:
        """Return whether it was made from what the project has now."""
        return self.stamp().get("inputs") == self.inputs() and self.python.exists()

    def is_ready(self) -> bool:
        return self.is_valid() and self.extras <= set(self.stamp()["extras"])

    def ensure(self) -> None:
        """Build the environment, or add missing extras; return at once if it is ready.

        It keeps the extras that it had before. If this is interrupted, the next call
        builds it again.
        """
        if self.is_ready():
            return
        with lock():
            if self.is_ready():  # since this process waited
                return
            old = self.stamp()
            extras = self.extras.union(old.get("extras", ()))
            name, valid = self.folder.name, self.is_valid()
            if valid:
                print_message(f"adding to {name} with pip (only once)")
            else:
                print_message(f"setting up {name} with pip (about a minute, only once)")
                create(self.folder, make_room(self.folder))
            self.write_stamp("", extras)
            project = f"{PROJECT}[{','.join(sorted(extras))}]"
            # a plain path: an import finder comes after a folder dadmm beside a script
            plain = ("--config-settings", "editable_mode=compat")
            pip = (str(self.python), "-m", "pip", "install", "--no-compile", *plain)
            try:
                run([*pip, "--editable", project, *self.wheels])
            except SetupError:
                if valid:  # pip failed before it changed anything
                    self.write_stamp(**old)
                raise
            # on all cores, and without the tests of packages, unlike pip
            tests = re.compile(r"/site-packages/.*/tests/")
            compileall.compile_dir(self.folder / "lib", quiet=2, workers=0, rx=tests)
            self.write_stamp(self.inputs(), extras)


def make_room(folder: Path) -> Path:
    """Move what is at the place of an environment aside, and return the new place.

    Running jobs may have loaded libraries from it, and on NFS a job can crash when
    these are deleted. What is not ours is kept for ever.
    """
    aside = folder.with_name(f"{folder.name}-before")
    if (folder / STAMP).exists():
        shutil.rmtree(aside, ignore_errors=True)
        folder.rename(aside)
    elif os.path.lexists(folder):
        aside = folder.with_name(f"{folder.name}-kept-{secrets.token_hex(4)}")
        print_message(f"{folder} was not created by this command; it is now {aside}")
        folder.rename(aside)
    return aside


def create(folder: Path, aside: Path) -> None:
    """Create an empty environment with pip, by venv or pip of this Python."""
    python = sys.executable
    if python == str(folder / "bin" / "python"):  # it has just been moved aside
        python = str(aside / "bin" / "python")
    if find_spec("ensurepip"):
        run([python, "-m", "venv", str(folder)])
    elif find_spec("pip"):
        run([python, "-m", "venv", "--without-pip", str(folder)])
        run([python, "-m", "pip", f"--python={folder}/bin/python", "install", "pip"])
    else:
        raise SetupError(
            f"{python} cannot create environments: it has neither ensurepip nor pip; "
            f"on Debian and Ubuntu: apt install python3.{sys.version_info.minor}-venv"
        )


def run(command: list[str]) -> None:
    """Run one step without output; if it fails, raise with the end of its output."""
    with subprocess.Popen(
        command,
        cwd="/",  # `python -m` imports from here first, not from the user's folder
        env={**os.environ, **QUIET},
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
