"""Start the main job, and end it on every rank.

Exit codes: 0 if the run ended and its results are written (converged, at max_iter, or
stopped by a signal or by max_seconds); 1 if a rank raised an error; 2 for invalid
input, or output that cannot be written; 3 if the run did not converge and ``--strict``
is set.
Other codes are those of a process that a signal ended (130 after a second Ctrl-C), or
mpiexec's own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from dadmm.cli import job
from dadmm.cli.progress import Signals
from dadmm.core.arguments import BAD_INPUT, print_out, report_error
from dadmm.core.errors import DadmmError
from dadmm.core.interfaces import World
from dadmm.core.threads import one_blas_thread
from dadmm.exchange.launch_link import connect_to_launcher
from dadmm.exchange.world import connect

FAILED = 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job of a command line and return its exit code."""
    world, signals, code = None, Signals(), FAILED
    connect_to_launcher()
    try:
        world = connect()
        if world.rank:
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (only rank 0 prints)
        with one_blas_thread():
            code = job.run(world, sys.argv[1:] if argv is None else argv, signals)
    except DadmmError as error:
        code = BAD_INPUT
        if world is None or world.rank == 0:
            report_error(error)
    except Exception as error:
        if world is None or world.comm is None:
            raise
        _end_all_ranks(world, error)
    finally:
        print_out()  # flushes what --help and --version print
        signals.close(ranked=world is not None and world.comm is not None)
    if world is not None and world.shrunk:
        world.leave(code)
    return code


def _end_all_ranks(world: World, error: Exception) -> NoReturn:
    """End the job after an unexpected error on this rank."""
    failed = world.dead(error)
    if failed:  # before the first iteration or after the last: the run cannot continue
        if world.rank == min(set(range(world.size)) - set(failed)):
            names = ", ".join(map(str, failed))
            report_error(
                f"rank {names} failed outside the iterations, during set-up or while "
                "results were written; use --resume, or start again if there is no "
                "checkpoint"
            )
        os._exit(FAILED)  # the other ranks notice; an Abort may wait for failed ranks
    world.abort(error)  # ends all ranks, so that none waits for this one
    os._exit(FAILED)  # MPICH's Abort may return
