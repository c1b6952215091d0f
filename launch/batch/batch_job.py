"""Run the main job in a batch job, go on where it stopped, and say how it went.

``launch/slurm.sbatch`` and ``launch/pbs.sh`` end here. The environment was made before,
on a login node: compute nodes often have no network, and many jobs start at once.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from launch.base.arguments import own_class
from launch.base.environment import (
    STAMP,
    Environment,
    SetupError,
    UsageError,
    say,
    tell,
)
from launch.base.run_folder import (
    FAILED,
    JOB,
    LOCK,
    State,
    decide,
    forget_failure,
    last_checkpoint,
    look,
    note_failure,
    only_job,
    settings,
)
from launch.base.run_folder import project_first as python_path
from launch.batch import schedulers
from launch.batch.tasks import arguments_of_task
from launch.mpi.commands import Launcher, defaults, leave, prepare, take
from launch.mpi.diagnosis import NOT_CONVERGED
from launch.mpi.job import Stop, run_job

SHOWN = {"--dry-run", "--help", "-h", "--version"}  # instead of a run


def run(system: str, arguments: list[str]) -> int:
    """Run or resume a run inside an allocation; return the exit code of its ranks."""
    allocation = schedulers.SYSTEMS[system](os.environ)
    if system == "pbs":  # qsub hands a script no arguments of its own
        arguments = [*split(os.environ.get("DADMM_ARGS", "")), *arguments]
    arguments = arguments_of_task(arguments, os.environ)
    mpi, arguments = take(arguments, ("--mpi",), "")
    launcher = installed(mpi)
    if SHOWN & set(arguments):
        return subprocess.call(main_job(launcher, arguments), env=launcher.variables)
    (asked,) = settings(launcher.python, [arguments])
    folder, arguments = destination(arguments, asked, allocation)
    with only_job(folder):
        forget_failure(folder)
        words = plan(asked, arguments, folder, allocation.ranks)
        if words is None:
            state = look(folder)
            say(f"nothing left to do: {describe(state)}; see {folder}")
            failed = asked["strict"] and state.word != "converged"
            return NOT_CONVERGED if failed else 0
        again = way_on(asked, folder, allocation, mpi)
        return attempt(allocation, launcher, folder, words, again)


def split(text: str) -> list[str]:
    """Return the words of a variable, as a shell would, but for its wildcards."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(
            f"DADMM_ARGS must be arguments as in a shell, got {text!r}: {error}"
        ) from None


def plan(
    asked: dict[str, Any], arguments: list[str], folder: Path, ranks: int
) -> list[str] | None:
    """Return the arguments that start a run or go on with it; None if it is done."""
    if take(arguments, ("--resume",), "")[0]:
        return None if look(folder).done(asked["max_iter"]) else arguments
    # a job that was requeued has done its --overwrite
    again = "SLURM_RESTART_COUNT" in os.environ
    return decide(asked, arguments, folder, ranks, again)


def main_job(launcher: Launcher, words: list[str]) -> list[str]:
    """Return the command of a rank."""
    # -P: this project's dadmm, not one that happens to lie in the user's folder
    return [launcher.python, "-P", "-m", "dadmm.run", *words]


def attempt(
    allocation: schedulers.Allocation,
    launcher: Launcher,
    folder: Path,
    words: list[str],
    again: str,
) -> int:
    """Start the ranks, wait for their end, and say what happened in one line."""
    before = last_checkpoint(folder)
    if before:
        say(f"going on in {folder} after iteration {before}")
    allowed = len(os.sched_getaffinity(0))
    pin = schedulers.pinned(allocation, allowed, os.environ.get("DADMM_PIN", "auto"))
    job, stop = main_job(launcher, words), Stop()
    with schedulers.start(allocation, launcher, pin, job) as (command, variables):
        code = run_job(command, variables, folder=folder, stop=stop)
    state = look(folder)
    if code not in (0, NOT_CONVERGED) or not state.summary:
        mark_failed(folder, code, again)
        return code or 1
    warned = stop.first == signal.SIGUSR1
    by = "stopped before the time limit" if warned else "stopped"
    say(f"{describe(state, by)}; results in {folder}{advice(state, folder, again)}")
    if warned and state.word == "stopped" and os.environ.get("DADMM_REQUEUE") == "1":
        go_on(allocation, before, state)
    return code


def mark_failed(folder: Path, code: int, again: str) -> None:
    """Say that the run failed, and leave a note in its folder for those who collect.

    This process outlives the ranks, so this is the place to find out which of them
    died, and why.
    """
    at = last_checkpoint(folder)
    resume = f"{again} to go on after iteration {at}" if at else "no checkpoint"
    sentence = f"{FAILED} {code}; {resume}; {folder}"
    say(sentence)
    others = set(os.listdir(folder)) - {JOB, LOCK}
    if (folder / "config.toml").exists() or not others:
        note_failure(folder, sentence)


def describe(state: State, stopped: str = "stopped") -> str:
    """Return a state in words."""
    words = {"max_iter": "ended at max_iter, not converged,", "stopped": stopped}
    return f"{words.get(state.word, state.word)} after {state.iterations} iterations"


def way_on(
    asked: dict[str, Any], folder: Path, allocation: schedulers.Allocation, mpi: str
) -> str:
    """Return what to do to go on with a run in another job.

    The same command would begin another run if the folder has this job's name, and
    the same run anew with ``--overwrite``.
    """
    if folder != default_folder(allocation) and not asked["overwrite"]:
        return "submit the same command again"
    words = [*(["--mpi", mpi] if mpi else []), "--resume", str(folder)]
    words += own_class(asked["problem"])
    return f"run {schedulers.submission(allocation, words)}"


def advice(state: State, folder: Path, again: str) -> str:
    """Return what to do about a run that is not done."""
    if state.settled:
        return ""
    if last_checkpoint(folder):
        return f"; {again} to go on"
    return "; it has no checkpoint, so the same command starts again"


def go_on(allocation: schedulers.Allocation, before: int, state: State) -> None:
    """Requeue a job that came further than it was; else it would go on for ever."""
    if state.iterations > before:
        say(f"back into the queue as job {allocation.job} (DADMM_REQUEUE=1)")
        schedulers.requeue(allocation)
    else:
        say("not requeued: no iteration was done; ask for more time")


def destination(
    arguments: list[str], asked: dict[str, Any], allocation: schedulers.Allocation
) -> tuple[Path, list[str]]:
    """Return the run's folder and the arguments with it.

    It is that of ``--resume``, or ``out`` of the settings, or named after the job.
    """
    named = take(arguments, ("--resume",), "")[0] or asked.get("out")
    if named:
        return Path(named), arguments
    folder = default_folder(allocation)
    return folder, [*arguments, "--out", str(folder)]


def default_folder(allocation: schedulers.Allocation) -> Path:
    """Return the folder of a run that was given none; a requeued job finds it again."""
    return Path("runs", f"{allocation.system}-{allocation.job}")


def check_made(environment: Environment) -> None:
    """Raise if an environment is not there; here is not the place to make it."""
    if not ((environment.folder / STAMP).exists() and environment.python.exists()):
        raise UsageError(
            f"there is no environment {environment.folder}; make it before the job, "
            "on a login node with network: ./launch/setup (--mpi as in the job)"
        )


def installed(mpi: str, make: Callable[[Environment], None] = check_made) -> Launcher:
    """Return how to start jobs in the user's environment, or else in the project's."""
    own = os.environ.get("DADMM_ENVIRONMENT", "")
    launcher = own_launcher(Path(own)) if own else prepare(mpi, (), make)
    variables = {**launcher.variables, "PYTHONPATH": python_path()}
    return launcher._replace(variables=variables)


def own_launcher(prefix: Path) -> Launcher:
    """Return how to start jobs in an environment of the user's making."""
    python, beside = prefix / "bin" / "python", prefix / "bin" / "mpiexec"
    if not python.exists():
        raise UsageError(f"DADMM_ENVIRONMENT must have a bin/python, got '{prefix}'")
    external = os.environ.get("DADMM_MPIEXEC", "")
    # the host's is not the MPI of an image (launch/container)
    on_path = "" if os.environ.get("DADMM_IMAGE") else "mpiexec"
    wanted = external or (str(beside) if beside.exists() else on_path)
    mpiexec = shutil.which(wanted) or ""  # srun and sweeps on one machine need none
    found = defaults(mpiexec, external=mpiexec not in ("", str(beside)))
    return Launcher(str(python), mpiexec, {**found, **os.environ})


def main(system: str, arguments: list[str]) -> int:
    """Run a job of a batch system and return its exit code."""
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(signum, leave)
    try:
        return run(system, arguments)
    except SetupError as error:
        return tell(error)

