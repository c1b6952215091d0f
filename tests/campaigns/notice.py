"""Seconds until a rank that was killed, stopped or cut off is named, by phase.

    python -m tests.campaigns.notice [--mpi mpich,openmpi]

Four ranks under launch/local: on one host, and for cuts on two emulated ones.
"""

import argparse
import re
import tempfile
import time
from pathlib import Path

from tests.campaigns.faults import jobs
from tests.campaigns.faults.cases import CUTS, Case

PHASES = {
    "set-up": ("dadmm.cli.setup:_make_problems", 1),
    "loop": ("dadmm.admm.local:Local.solve", 50),
    "end": ("dadmm.cli.results:describe", 1),
}
RUN = "--problem ridge --n-samples 48 --dimension 5 --tolerance 0 --max-iter 100"
NAMED = re.compile(r"^dadmm: .*\b((rank|node) 3|host1)\b", re.MULTILINE)


def measure(mpi: jobs.MPI, fault: str, phase: str) -> float:
    """Return the seconds from a fault of the last rank to the line that names it."""
    at, count = PHASES[phase]
    cut = fault == "cut"
    case = Case("cut" if cut else "error", 0, 4, 4, 100, 20, RUN)
    call = {"what": "pause" if cut else fault, "at": at, "count": count}
    with tempfile.TemporaryDirectory() as folder:
        play, struck = jobs.Play(case, mpi, Path(folder), "notice"), Path(folder, "at")
        with play.prepared():
            more = {"DADMM_FAULTS_STRUCK": str(struck)}
            job = play.start(play.arguments(), {"3": {"act": call}}, **more)
            try:
                if not job.comes_to(lambda: struck.exists() and struck.read_text()):
                    raise SystemExit(f"the fault did not happen: {job.err()}")
                began = float(struck.read_text())
                if cut:
                    play.on_host(*CUTS["partition"])
                    began = time.time()
                named = job.comes_to(lambda: NAMED.search(job.err()))
                return time.time() - began if named else float("nan")
            finally:
                jobs.sweep(job.mark)
                job.process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mpi", default="mpich,openmpi")
    chosen = parser.parse_args()
    print(f"| MPI | fault | {' | '.join(PHASES)} |\n|---|---|{'---:|' * len(PHASES)}")
    for name in chosen.mpi.split(","):
        mpi = jobs.find_mpi(name)
        for fault in ("SIGKILL", "SIGSTOP", "cut") if mpi else ():
            found = [measure(mpi, fault, phase) for phase in PHASES]
            cells = " | ".join(f"{seconds:.1f} s" for seconds in found)
            print(f"| {name} | {fault} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
