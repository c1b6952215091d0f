"""Run a command as launch commands run mpiexec.

Usage: run_job.py OPTIONS COMMAND..., where OPTIONS is a JSON object with any of
``grace``, ``patience``, ``stall`` (seconds), ``folder`` (of the run) and ``after`` (the
exit code of what follows a run with results, which prints the folder).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from launch.mpi import job, monitor

options = json.loads(sys.argv[1])
job.GRACE = options.get("grace", job.GRACE)
monitor.PATIENCE = options.get("patience", monitor.PATIENCE)
monitor.STALL = options.get("stall", monitor.STALL)
folder = Path(options["folder"]) if "folder" in options else None
resume = "./launch/local -n 4 --resume"


def after(folder: Path) -> int:
    print(f"after {folder}", flush=True)
    return options["after"]


then = after if "after" in options else None
sys.exit(job.run_job(sys.argv[2:], dict(os.environ), resume, folder, None, then))
