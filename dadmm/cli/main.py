"""Start the main job, and end it on every rank.

Exit codes: 0 if the run ended and its results are written, whatever its status; 1 if a
rank raised an error; 2 for invalid input, or output that cannot be written; 3 if the
status is "not converged" and ``--strict`` is set.
Other codes are those of a process that a signal ended (130 after a second Ctrl-C), or
mpiexec's own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from dadmm.cli.job import FAILED, Job, end_all_ranks
from dadmm.cli.progress import Signals
from dadmm.comm.launch_link import connect_to_launcher
from dadmm.comm.world import connect
from dadmm.core.arguments import BAD_INPUT, print_out, report_error
from dadmm.core.errors import DadmmError
from dadmm.core.threads import one_blas_thread


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job of a command line and return its exit code.

    A `DadmmError` comes from every rank, or from this one before it is connected; any
    other error comes from this rank alone.
    """
    world, signals, code = None, Signals(), FAILED
    connect_to_launcher()
    try:
        world = connect()
        if world.rank:
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (only rank 0 prints)
        with one_blas_thread():
            code = Job(world, signals).run(sys.argv[1:] if argv is None else argv)
    except DadmmError as error:
        code = BAD_INPUT
        if world is None or world.rank == 0:
            report_error(error)
    except Exception as error:
        if world is None or world.comm is None:
            raise
        end_all_ranks(world, error)
    finally:
        print_out()  # flushes what --help and --version print
        signals.close(ranked=world is not None and world.comm is not None)
    if world is not None and world.shrunk:
        world.leave(code)
    return code
