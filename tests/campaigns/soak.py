"""A long run on 20 ranks: memory, open files and the run's folder over time.

    python -m tests.campaigns.soak [--minutes 30] [--out FILE.csv]

Ends with code 1 if memory or open files grow after the first third, or if the folder
grows beyond the limit of its records.
"""

import argparse
import csv
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.support.processes import ROOT

MPIEXEC = Path(sys.executable).with_name("mpiexec")
RUN = ("-m", "dadmm.run", "--tolerance", "0", "--max-iter", "100000000")
COLUMNS = ("seconds", "memory_mb", "files", "folder_mb")
FOLDER_LIMIT = 250e6  # bytes: history and edges, 50 MB each, twice while merged


def measure(pids: list[int], folder: Path) -> tuple[float, int, float]:
    """Return megabytes of private memory, open files, and megabytes of the folder."""
    memory = files = 0
    for pid in pids:
        status = Path(f"/proc/{pid}/status").read_text()
        memory += int(status.partition("RssAnon:")[2].split()[0])
        files += len(list(Path(f"/proc/{pid}/fd").iterdir()))
    size = sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())
    return round(memory / 1e3, 1), files, round(size / 1e6, 1)


def ranks_of(launcher: int) -> list[int]:
    """Return the processes of the ranks below mpiexec."""
    family, ranks = {launcher}, []
    everyone = sorted(int(each.name) for each in Path("/proc").glob("[0-9]*"))
    for pid in everyone:  # a child has a larger number than its parent
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            continue  # it has ended
        if int(stat.rpartition(")")[2].split()[1]) in family:
            family.add(pid)
            if "python" in stat:
                ranks.append(pid)
    return ranks


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--out", type=Path, default=Path("soak.csv"))
    chosen = parser.parse_args()
    seconds = 60.0 * chosen.minutes
    rows = []
    print(*COLUMNS, sep="\t")
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work) / "run"
        command = [MPIEXEC, "-n", "20", sys.executable, *RUN, "--record-edges"]
        command += ["--max-seconds", str(seconds), "--out", str(folder)]
        with (Path(work) / "log").open("w") as log:
            job = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
            start = time.monotonic()
            try:
                while job.poll() is None and time.monotonic() < start + 2 * seconds:
                    time.sleep(seconds / 60)
                    try:
                        row = measure(ranks_of(job.pid), folder)
                    except OSError:
                        continue  # it ends
                    rows.append((round(time.monotonic() - start), *row))
                    print(*rows[-1], sep="\t", flush=True)
            finally:
                job.terminate()
                code = job.wait(timeout=60)
        print((Path(work) / "log").read_text()[-2000:])
    with chosen.out.open("w", newline="") as file:
        csv.writer(file).writerows(
            [("seconds", "memory_mb", "files", "folder_mb"), *rows]
        )
    later = [row for row in rows[len(rows) // 3 : -1] if row[1] > 0]
    memory, files = [row[1] for row in later], [row[2] for row in later]
    grows = memory[-1] > 1.05 * memory[0] + 5.0 or files[-1] > files[0]
    too_large = max(row[3] for row in rows) > FOLDER_LIMIT / 1e6
    print(f"code {code}; memory or files grow: {grows}; folder too large: {too_large}")
    return int(bool(code) or grows or too_large)


if __name__ == "__main__":
    sys.exit(main())
