"""Seconds until a rank that was killed, stopped or cut off is named, by phase.

    python -m tests.campaigns.notice [--mpi mpich,openmpi] [--times 1]

Four ranks under launch/local: on one host, and for cuts on two emulated ones.
"""

import argparse
import re
import tempfile
import time
from pathlib import Path

from tests.campaigns.faults import jobs
from tests.campaigns.faults.cases import Case
from tests.campaigns.faults.judge import Play
from tests.campaigns.faults.strikes import CUTS

PHASES = {
    "set-up": ("dadmm.cli.setup:problems", 1),
    "loop": ("dadmm.admm.local:Local.solve", 50),
    "end": ("dadmm.cli.results:describe", 1),
}
RUN = "--problem ridge --n-samples 48 --dimension 5 --tolerance 0 --max-iter 100"
NAMED = re.compile(r"^dadmm: .*\b((rank|node) 3|host1)\b", re.MULTILINE)
MOST = 100  # seconds to wait for a name


def measure(mpi: jobs.MPI, fault: str, phase: str) -> float:
    """Return the seconds from a fault of the last rank to the line that names it."""
    at, count = PHASES[phase]
    case = Case("cut" if fault == "cut" else "error", 0, 4, 4, 100, 20, (*RUN.split(),))
    what = "pause" if fault == "cut" else fault
    plan = {"3": {"act": {"at": at, "count": count, "what": what}}}
    with tempfile.TemporaryDirectory() as folder:
        play, struck = Play(case, mpi, Path(folder), "notice"), Path(folder, "struck")
        with play.prepared():
            job = play.start(play.arguments(), plan, DADMM_FAULTS_STRUCK=str(struck))
            try:
                if not job.comes_to(lambda: struck.exists() and struck.stat().st_size):
                    raise SystemExit(f"the fault did not happen: {job.err()}")
                began = float(struck.read_text())
                if fault == "cut":
                    play.on_host(1, CUTS["partition"][0])
                    began = time.time()
                while not NAMED.search(job.err()):
                    if time.time() > began + MOST:
                        return float("nan")
                    time.sleep(0.02)
                return time.time() - began
            finally:
                jobs.sweep(job.mark)
                job.process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mpi", default="mpich,openmpi")
    parser.add_argument("--times", type=int, default=1, help="the largest is printed")
    chosen = parser.parse_args()
    print(f"| MPI | fault | {' | '.join(PHASES)} |\n|---|---|{'---:|' * len(PHASES)}")
    for name in chosen.mpi.split(","):
        mpi = jobs.find_mpi(name)
        for fault in ("kill", "stop", "cut") if mpi else ():
            cells = [
                max(measure(mpi, fault, phase) for _ in range(chosen.times))
                for phase in PHASES
            ]
            times = " | ".join(f"{seconds:.1f} s" for seconds in cells)
            print(f"| {name} | {fault} | {times} |", flush=True)


if __name__ == "__main__":
    main()
