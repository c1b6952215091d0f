"""The rank of this process, as its launcher sets it, without numpy and MPI."""

from __future__ import annotations

import os
import signal
import sys

# variables of (rank, size): MPICH and Intel MPI, Open MPI, PMIx, Slurm
LAUNCHERS = (
    ("PMI_RANK", "PMI_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMIX_RANK", "PMIX_SIZE"),
    ("PMIX_RANK", "SLURM_NTASKS"),
)
SILENT = {"--quiet", "-h", "--help", "--help-all", "--version", "--dry-run"}


def rank_and_size() -> tuple[int, int] | None:
    """Return the rank and the number of processes; None without a launcher."""
    for rank, size in LAUNCHERS:
        if os.environ.get(rank, "").isdigit() and os.environ.get(size, "").isdigit():
            return int(os.environ[rank]), int(os.environ[size])
    return None


def begin() -> None:
    """If this is ``dadmm run``, let Ctrl-C end it, and print that ranks start.

    Imports take long, and an interrupt of one would have a traceback; `Signals` of the
    job catches later ones. The same is done for ``compare``, but for the words.
    """
    rank, size = rank_and_size() or (0, 1)
    words = [os.path.basename(word) for word in sys.orig_argv[1:]]
    command = " ".join(words[:8]).replace("dadmm.", "dadmm ")
    if "dadmm run" not in command and "dadmm compare" not in command:
        return
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    wanted = os.environ.get("DADMM_PROGRESS", "live") and not SILENT & {*words}
    wanted = wanted and "dadmm run" in command
    if rank == 0 and size > 1 and wanted and sys.stderr is not None:
        print(f"dadmm: starting {size} ranks", file=sys.stderr, flush=True)
