"""Run the suite, other MPIs, Slurm, the site and the campaigns; print a table.

``./launch/test --all`` runs this in the environment of the tests.
"""

import os
import re
import subprocess
import sys
import time

from tests.support.processes import ROOT

TEST, SLOW = f"{ROOT}/launch/test", {"DADMM_ALL": "1"}
CASES = [sys.executable, "-m", "tests.campaigns.faults", "--jobs", "2", "--cases"]
STAGES: dict[str, tuple[list[str], dict[str, str]]] = {
    "suite, MPICH": ([TEST, "--mpi", "mpich", "--ignore", "tests/slurm"], SLOW),
    "MPI part, Open MPI": ([TEST, "--mpi", "openmpi"], SLOW),
    "MPI part, Intel MPI": ([TEST, "--mpi", "impi"], SLOW),
    "Slurm": ([TEST, "tests/slurm"], {"CI": "1"}),  # CI lets it install Slurm
    "statements": ([*CASES, "3000", "--statements"], {}),
    "bad inputs": ([*CASES, "3000", "--inputs"], {}),
    "site": ([f"{ROOT}/launch/docs"], {}),
    "fault campaign": ([*CASES, "400"], {}),
}


def show_output(command: list[str], variables: dict[str, str]) -> tuple[int, str]:
    """Run a command; return its exit code and its last line with numbers of tests."""
    options = {"text": True, "errors": "replace", "stdout": subprocess.PIPE}
    counts = ""
    with subprocess.Popen(command, cwd=ROOT, env=variables, **options) as process:
        for line in process.stdout:
            print(line, end="", flush=True)
            if re.search(r"\d+ (passed|failed|skipped|error)|\| all \|", line):
                counts = line.strip(" =|\n").replace("|", ",")
    return process.returncode, counts


def main() -> int:
    """Run all stages and return 0 if all pass."""
    rows, failed = [], False
    for name, (command, variables) in STAGES.items():
        print(f"dadmm: now: {name}", file=sys.stderr, flush=True)
        start = time.monotonic()
        code, counts = show_output(command, os.environ | variables)
        minutes = (time.monotonic() - start) / 60
        rows.append(f"| {name} | {code} | {minutes:.1f} | {counts} |")
        failed = failed or code != 0
    print("\n| part | code | minutes | counts |\n|---|---|---|---|", *rows, sep="\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
