"""Set-up of the project's own Python environments, MPI included, by pip alone.

An environment is built under a temporary name and renamed when it is whole. Its
stamp says from what it was made and which extras it has: without a stamp that
fits it is never trusted. One start at a time changes environments.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
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

PROJECT = Path(__file__).resolve().parents[2]
STAMP = "dadmm-stamp.json"
TEMPORARY = ".venv-tmp-"
BEFORE = "before"  # folder of an environment: the one whose place it took
TAIL = 15  # lines of pip's output that are shown when it fails


class SetupError(Exception):
    """The environment cannot be made; the message says in a sentence what to do."""

    def __init__(self, sentence: str, output: str = "") -> None:
        super().__init__(sentence)
        self.tail = "\n".join(output.splitlines()[-TAIL:])


class UsageError(SetupError):
    """An argument or a variable of the launcher breaks a rule."""


@dataclass(frozen=True)
class Environment:
    """What an environment is made of: its folder, the project's extras, and wheels."""

    folder: Path
    extras: frozenset[str]
    wheels: tuple[str, ...] = ()

    @property
    def python(self) -> Path:
        """The interpreter; always called by this path, never through a script."""
        return self.folder / "bin" / "python"

    def inputs(self) -> str:
        """Return a hash of all that, when changed, makes a new environment necessary.

        The project's path is part of it, since an environment is not relocatable.
        """
        files = ("setup.cfg", "pyproject.toml")
        parts = [(PROJECT / name).read_text() for name in files]
        parts += [sys.implementation.cache_tag, sysconfig.get_platform(), str(PROJECT)]
        return hashlib.sha256("\0".join([*parts, *self.wheels]).encode()).hexdigest()

    def stamp(self) -> dict[str, Any]:
        """Return what the stamp says; nothing if there is none."""
        try:
            return json.loads((self.folder / STAMP).read_text())
        except (OSError, ValueError):
            return {}

    def installed(self) -> frozenset[str] | None:
        """Return the extras that are installed, or None if it cannot be trusted."""
        stamp = self.stamp()
        whole = stamp.get("inputs") == self.inputs() and self.python.exists()
        return frozenset(stamp["extras"]) if whole else None

    def ready(self) -> bool:
        """Whether nothing is left to do."""
        installed = self.installed()
        return installed is not None and self.extras <= installed


def ensure(environment: Environment) -> None:
    """Make the environment, or add the extras it lacks; quick when all is there."""
    if environment.ready():
        return
    with lock():
        installed = environment.installed()
        if installed is None:
            build(environment)
        elif not environment.ready():  # else done by who held the lock before
            add(environment, installed)


def build(environment: Environment) -> None:
    """Make a new environment under a temporary name, then put it in its place.

    It has the extras of the one before, too: somebody had asked for them.
    """
    for leftover in PROJECT.glob(TEMPORARY + "*"):  # of a start that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    say(f"setting up {environment.folder.name} with pip (about a minute, only once)")
    temporary = PROJECT / (TEMPORARY + secrets.token_hex(4))
    extras = environment.extras.union(environment.stamp().get("extras", ()))
    project = with_extras(str(PROJECT), extras)
    try:
        create(temporary)
        pip(temporary, "--editable", project, *environment.wheels)
        rewrite_paths(temporary, environment.folder)
        write_stamp(temporary, environment.inputs(), extras)
        replace(environment.folder, temporary)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def add(environment: Environment, installed: frozenset[str]) -> None:
    """Install more extras into a whole environment; an interrupted one is rebuilt."""
    say(f"adding to {environment.folder.name} with pip (only once)")
    inputs, missing = environment.inputs(), environment.extras - installed
    write_stamp(environment.folder, "", installed | missing)  # made from nothing
    try:
        pip(environment.folder, with_extras("dadmm", missing))
    except SetupError:  # pip fails before it changes anything
        write_stamp(environment.folder, inputs, installed)
        raise
    write_stamp(environment.folder, inputs, installed | missing)


def create(folder: Path) -> None:
    """Make an empty environment that has pip, by whatever this Python offers."""
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
            f"{python} cannot make environments (it has neither ensurepip, virtualenv "
            f"nor pip); on Debian and Ubuntu: apt install python{version}-venv"
        )


def with_extras(project: str, extras: frozenset[str]) -> str:
    """Return a requirement as pip reads it, which knows no empty brackets."""
    return f"{project}[{','.join(sorted(extras))}]" if extras else project


def pip(folder: Path, *requirements: str) -> None:
    """Install requirements with the environment's own pip."""
    run([str(folder / "bin" / "python"), "-m", "pip", "install", *requirements])


def run(command: list[str]) -> None:
    """Run one step in silence; if it fails, raise with the tail of its output."""
    quiet = {"PIP_USER": "0", "PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    with subprocess.Popen(
        command,
        cwd="/",  # where `python -m` looks first: not in the user's folder
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
        except BaseException:  # a signal: leave nobody behind who writes
            os.killpg(step.pid, signal.SIGKILL)
            raise
    if step.returncode:
        raise SetupError(
            "set-up failed, and its last lines are above; check the network, "
            "the package index and the disk, then start again",
            output,
        )


def rewrite_paths(built: Path, final: Path) -> None:
    """Make the scripts of an environment refer to the place where it will be."""
    for script in [built / "pyvenv.cfg", *(built / "bin").iterdir()]:
        if script.is_symlink() or script.is_dir():  # Intel MPI has folders there
            continue
        if b"\0" in script.read_bytes():  # a program
            continue
        content = script.read_bytes()
        script.write_bytes(content.replace(built.name.encode(), final.name.encode()))


def write_stamp(folder: Path, inputs: str, extras: frozenset[str]) -> None:
    """Declare the environment whole, made from these inputs, with these extras."""
    stamp = {"inputs": inputs, "extras": sorted(extras)}
    (folder / STAMP).write_text(json.dumps(stamp) + "\n")


def replace(folder: Path, new: Path) -> None:
    """Rename the new environment to its place; what is not ours is kept aside.

    The one before stays inside it until the next time. Jobs may run from it, on other
    hosts as well, and a library that they have loaded must not vanish: on NFS it may
    end them. What they load from now on, and what jobs that start load, is the new.
    """
    old = PROJECT / f"{new.name}-old"
    if os.path.lexists(folder) and not (folder / STAMP).exists():
        kept = f"{folder.name}-kept-{secrets.token_hex(4)}"
        say(f"{folder} was not made by this command; it is now {kept}")
        folder.rename(PROJECT / kept)
    elif folder.exists():
        folder.rename(old)
    new.rename(folder)
    if old.exists():
        shutil.rmtree(old / BEFORE, ignore_errors=True)
        old.rename(folder / BEFORE)


@contextlib.contextmanager
def lock() -> Iterator[None]:
    """Hold the lock on setup.cfg; the system releases it even if we are killed."""
    try:
        handle = (PROJECT / "setup.cfg").open("r+")
    except OSError as error:
        raise SetupError(
            f"cannot make an environment in {PROJECT} ({error.strerror}); "
            "use a copy of the project that you may write to"
        ) from None
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another start, which is setting up")
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError:  # a file system without locks: the rename still protects
            pass
        yield


def say(sentence: str) -> None:
    """Tell the user what is happening, apart from the job's own output."""
    print(f"dadmm: {sentence}", file=sys.stderr, flush=True)


def tell(error: SetupError) -> int:
    """Say why there is no job; return the launcher's exit code."""
    if error.tail:
        print(error.tail, file=sys.stderr)
    say(str(error))
    return 2 if isinstance(error, UsageError) else 1
