"""The rank of this process, as its launcher sets it, without numpy and MPI."""

from __future__ import annotations

import os
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


def say_start() -> None:
    """Print that ranks start, if this is rank 0 of ``dadmm run``: imports take long."""
    rank, size = rank_and_size() or (0, 1)
    words = [os.path.basename(word) for word in sys.orig_argv[1:]]
    runs = "dadmm.run" in words or "dadmm run" in " ".join(words[:4])
    wanted = os.environ.get("DADMM_PROGRESS", "live") and not SILENT & {*words}
    if rank == 0 and size > 1 and runs and wanted and sys.stderr is not None:
        print(f"dadmm: starting {size} ranks", file=sys.stderr, flush=True)
