"""Seconds until a rank that was killed, stopped or cut off is named, by phase.

    python -m tests.campaigns.notice [--mpi mpich,openmpi] [--times 1]

Four ranks under launch/local: on one host, and for cuts on two emulated ones.
"""

import argparse
import re
import sys
import tempfile
import time
from pathlib import Path

from tests.campaigns.faults import jobs
from tests.campaigns.faults.cases import Case
from tests.campaigns.faults.watched import CUTS, Watched

PHASES = {
    "set-up": ("dadmm.cli.setup:problems", 1),
    "loop": ("dadmm.admm.local:Local.solve", 50),
    "end": ("dadmm.cli.models:describe", 1),
}
FAULTS = ("kill", "stop", "cut")
RUN = ("--problem", "ridge", "--n-samples", "48", "--dimension", "5")
MOST = 100  # seconds to wait for a name


def measure(mpi: jobs.MPI, fault: str, phase: str, folder: Path) -> float:
    """Return the seconds from a fault of the last rank to the line that names it."""
    at, count = PHASES[phase]
    settings = (*RUN, "--tolerance", "0", "--max-iter", "100")
    kind = "cut" if fault == "cut" else "error"
    play = Watched(
        Case(kind, 0, 4, 100, 20, settings, (), "", 4), mpi, folder, "notice"
    )
    struck = folder / "struck"
    what = {"at": at, "count": count, "what": "pause" if fault == "cut" else fault}
    plan = {"3": {"act": what}}
    play._open()
    job = play.start(play.arguments(), plan, struck)
    try:
        if not job.comes_to(lambda: struck.exists() and struck.stat().st_size > 0):
            raise SystemExit(f"the fault did not happen: {job.err()}")
        if fault == "cut":
            play.on_host(1, CUTS["partition"][0])
        began = time.time() if fault == "cut" else float(struck.read_text())
        named = re.compile(r"^dadmm: .*\b((rank|node) 3|host1)\b", re.MULTILINE)
        while not named.search(job.err()):
            if time.time() > began + MOST:
                return float("nan")
            time.sleep(0.02)
        return time.time() - began
    finally:
        jobs.sweep(job.mark)
        job.process.wait()
        play._close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mpi", default="mpich,openmpi")
    parser.add_argument("--times", type=int, default=1, help="the largest is printed")
    chosen = parser.parse_args()
    print(f"| MPI | fault | {' | '.join(PHASES)} |\n|---|---|{'---:|' * len(PHASES)}")
    for name in chosen.mpi.split(","):
        mpi = jobs.find_mpi(name)
        for fault in FAULTS if mpi else ():
            cells = []
            for phase in PHASES:
                with tempfile.TemporaryDirectory() as work:
                    folders = [Path(work, str(k)) for k in range(chosen.times)]
                    for folder in folders:
                        folder.mkdir()
                    found = [measure(mpi, fault, phase, folder) for folder in folders]
                cells.append(f"{max(found):.1f} s")
            print(f"| {name} | {fault} | {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
