"""Run a command as launch commands run mpiexec.

Usage: run_job.py OPTIONS COMMAND..., where OPTIONS is a JSON object with any of
``grace``, ``patience``, ``left``, ``stall`` (seconds) and ``folder`` (of the run).
"""

import json
import os
import sys

from launch import job, monitor

options = json.loads(sys.argv[1])
job.GRACE = options.get("grace", job.GRACE)
monitor.PATIENCE = options.get("patience", monitor.PATIENCE)
monitor.STALL = options.get("stall", monitor.STALL)
monitor.LEFT = options.get("left", monitor.LEFT)
arguments = ["--out", options["folder"]] if "folder" in options else None
resume = "./launch/local -n 4 --resume"
sys.exit(job.run_job(sys.argv[2:], dict(os.environ), resume, arguments))
