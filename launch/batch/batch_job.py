"""Start or resume a run in a batch job, and print one line about its end.

``launch/slurm.sbatch`` and ``launch/pbs.sh`` call it. The environment must exist:
compute nodes often have no network, and many jobs start at once.
"""

import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from launch.base.arguments import problem_flags, take_option
from launch.base.environment import STAMP, Environment
from launch.base.messages import UsageError, print_message, run_command
from launch.base.run_folder import (
    FAILED,
    JOB,
    LOCK,
    RunSettings,
    State,
    job_lock,
    last_checkpoint,
    plan,
    python_path,
    read_settings,
    read_state,
    remove_failure,
    write_failure,
)
from launch.batch import schedulers
from launch.batch.tasks import arguments_of_task
from launch.mpi.diagnosis import NOT_CONVERGED
from launch.mpi.job import StopHandler, run_job
from launch.mpi.runtime import Runtime, default_variables, prepare

INFORMATION = {"--dry-run", "--help", "-h", "--version"}  # print, and start no run


def run(system: str, arguments: list[str]) -> int:
    """Start or resume a run inside an allocation; return the exit code of its ranks."""
    allocation = schedulers.SYSTEMS[system](os.environ)
    if system == "pbs":  # qsub passes no arguments to a script
        text = os.environ.get("DADMM_ARGS", "")
        try:
            arguments = [*shlex.split(text), *arguments]
        except ValueError as error:
            raise UsageError(
                f"DADMM_ARGS must be arguments as in a shell, got {text!r}: {error}"
            ) from None
    arguments = arguments_of_task(arguments, os.environ)
    mpi, arguments = take_option(arguments, ("--mpi",), "")
    runtime = existing_runtime(mpi)
    if INFORMATION & set(arguments):
        command = runtime.run_command(arguments)
        return subprocess.call(command, env=runtime.variables)
    (wanted,) = read_settings(runtime.python, [arguments], allocation.ranks)
    folder, arguments = destination(arguments, wanted, allocation)
    with job_lock(folder):
        remove_failure(folder)
        planned = plan_job(wanted, arguments, folder, allocation.ranks)
        if planned is None:
            state = read_state(folder)
            print_message(f"nothing left to do: {describe(state)}; see {folder}")
            failed = wanted["strict"] and not state.as_asked
            return NOT_CONVERGED if failed else 0
        resume = resume_instruction(wanted, folder, allocation, mpi)
        return attempt(allocation, runtime, folder, planned, resume)


def plan_job(
    wanted: RunSettings, arguments: list[str], folder: Path, ranks: int
) -> list[str] | None:
    """Return the arguments that start or resume a run; None if it is done."""
    if take_option(arguments, ("--resume",), "")[0]:
        return None if read_state(folder).is_done(wanted["max_iter"]) else arguments
    requeued = "SLURM_RESTART_COUNT" in os.environ
    return plan(wanted, arguments, folder, ranks, requeued)


def attempt(
    allocation: schedulers.Allocation,
    runtime: Runtime,
    folder: Path,
    arguments: list[str],
    resume: str,
) -> int:
    """Run the ranks to their end, and print one line about it."""
    before = last_checkpoint(folder)
    if before:
        print_message(f"resuming {folder} after iteration {before}")
    allowed = len(os.sched_getaffinity(0))
    pin = schedulers.is_pinned(allocation, allowed, os.environ.get("DADMM_PIN", "auto"))
    job, stop = runtime.run_command(arguments), StopHandler()
    with schedulers.start(allocation, runtime, pin, job) as (command, variables):
        code = run_job(command, variables, folder=folder, stop=stop)
    state = read_state(folder)
    if code not in (0, NOT_CONVERGED) or not state.summary:
        mark_failed(folder, code, resume)
        return code or 1
    warned = stop.first == signal.SIGUSR1
    how = "stopped before the time limit" if warned else "interrupted"
    advice = "" if state.complete else f"; {resume} to resume"
    if advice and not last_checkpoint(folder):
        advice = "; it has no checkpoint, so the same command starts it again"
    print_message(f"{describe(state, how)}; results in {folder}{advice}")
    again = os.environ.get("DADMM_REQUEUE") == "1"
    if warned and again and state.status == "interrupted":
        requeue(allocation, before, state)
    return code


def mark_failed(folder: Path, code: int, resume: str) -> None:
    """Print that the run failed, and write it to its folder for `collect`."""
    iteration = last_checkpoint(folder)
    advice = f"{resume} to resume after iteration {iteration}"
    advice = advice if iteration else "there is no checkpoint"
    sentence = f"{FAILED} {code}; {advice}; see {folder}"
    print_message(sentence)
    others = set(os.listdir(folder)) - {JOB, LOCK}
    if (folder / "config.toml").exists() or not others:
        write_failure(folder, sentence)


def describe(state: State, interrupted: str = "interrupted") -> str:
    """Return how a run ended, and when."""
    words = {
        "max_iter": "ended at max_iter," + " not converged," * (not state.as_asked),
        "interrupted": interrupted,
    }
    status = words.get(state.status, state.label())
    return f"{status} after {state.iterations} iterations"


def resume_instruction(
    wanted: RunSettings, folder: Path, allocation: schedulers.Allocation, mpi: str
) -> str:
    """Return how to resume a run in another job.

    The same command does not if the folder has the number of this job, or with
    ``--overwrite``.
    """
    if folder != default_folder(allocation) and not wanted["overwrite"]:
        return "submit the same command again"
    arguments = [*(["--mpi", mpi] if mpi else []), "--resume", str(folder)]
    arguments += problem_flags(wanted["problem"])
    return f"run {schedulers.submission(allocation, arguments)}"


def requeue(allocation: schedulers.Allocation, before: int, state: State) -> None:
    """Requeue a job if it made progress; otherwise it would be requeued for ever."""
    if state.iterations > before:
        print_message(f"requeued as job {allocation.job} (DADMM_REQUEUE=1)")
        schedulers.requeue(allocation)
    else:
        print_message("not requeued: no iteration was done; ask for more time")


def destination(
    arguments: list[str], wanted: RunSettings, allocation: schedulers.Allocation
) -> tuple[Path, list[str]]:
    """Return the run's folder and the arguments with it.

    It is that of ``--resume``, or ``out`` of the settings, or named after the job.
    """
    named = take_option(arguments, ("--resume",), "")[0] or wanted.values.get("out")
    if named:
        return Path(named), arguments
    folder = default_folder(allocation)
    return folder, [*arguments, "--out", str(folder)]


def default_folder(allocation: schedulers.Allocation) -> Path:
    """Return the folder of a run without ``--out``; it is the same after a requeue."""
    return Path("runs", f"{allocation.system}-{allocation.job}")


def check_exists(environment: Environment) -> None:
    """Raise `UsageError` if an environment does not exist."""
    if not ((environment.folder / STAMP).exists() and environment.python.exists()):
        raise UsageError(
            f"there is no environment {environment.folder}; create it before the job, "
            "on a login node with network: ./launch/setup (--mpi as in the job)"
        )


def existing_runtime(
    mpi: str, make: Callable[[Environment], None] = check_exists
) -> Runtime:
    """Return the runtime of DADMM_ENVIRONMENT, or else of the project."""
    own = os.environ.get("DADMM_ENVIRONMENT", "")
    runtime = user_runtime(Path(own)) if own else prepare(mpi, (), make)
    variables = {**runtime.variables, "PYTHONPATH": python_path()}
    return runtime._replace(variables=variables)


def user_runtime(prefix: Path) -> Runtime:
    """Return the runtime of an environment that the user has created."""
    python, beside = prefix / "bin" / "python", prefix / "bin" / "mpiexec"
    if not python.exists():
        raise UsageError(f"DADMM_ENVIRONMENT must have a bin/python, got '{prefix}'")
    external = os.environ.get("DADMM_MPIEXEC", "")
    # an image (launch/container) does not use the MPI of the host
    on_path = "" if os.environ.get("DADMM_IMAGE") else "mpiexec"
    wanted = external or (str(beside) if beside.exists() else on_path)
    mpiexec = shutil.which(wanted) or ""  # srun and local sweeps need none
    variables = default_variables(mpiexec, external=mpiexec not in ("", str(beside)))
    return Runtime(str(python), mpiexec, {**variables, **os.environ})


def main(system: str, arguments: list[str]) -> int:
    """Run a job of a batch system and return its exit code."""
    return run_command(run, system, arguments)
