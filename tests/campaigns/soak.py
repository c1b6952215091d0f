"""A long run on 20 ranks: memory, open files and the run's folder over time.

    python -m tests.campaigns.soak [--minutes 30]

Ends with code 1 if memory or open files grow after the first third, or if the folder
grows beyond the limit of its records.
"""

import argparse
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from tests.support.processes import ROOT, mpi_python

RUN = "-m dadmm.run --tolerance 0 --max-iter 100000000 --record-edges"
COLUMNS = ("seconds", "memory_mb", "files", "folder_mb")
FOLDER_LIMIT = 250  # MB: history and edges, 50 MB each, twice while merged


def measure(folder: Path) -> tuple[float, int, float]:
    """Return megabytes of private memory, open files, and megabytes of the folder."""
    memory = files = 0
    for row in (folder / "ranks.csv").read_text().splitlines()[1:]:
        place = Path("/proc", row.split(",")[3])
        status = (place / "status").read_text()
        memory += int(status.partition("RssAnon:")[2].split()[0])
        files += len(list((place / "fd").iterdir()))
    size = sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())
    return round(memory / 1e3, 1), files, round(size / 1e6, 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    chosen = parser.parse_args()
    seconds, rows = 60.0 * chosen.minutes, []
    print(*COLUMNS, sep="\t")
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work, "run")
        more = ["--max-seconds", str(seconds), "--out", str(folder)]
        job, start = mpi_python(20, *RUN.split(), *more, cwd=ROOT), time.monotonic()
        while job.process.poll() is None and time.monotonic() < start + 2 * seconds:
            time.sleep(seconds / 60)
            with suppress(OSError):  # it begins, or it ends
                rows.append((round(time.monotonic() - start), *measure(folder)))
                print(*rows[-1], sep="\t", flush=True)
        ended = job.kill()
    print(ended.out[-2000:], ended.err[-2000:])
    later = rows[len(rows) // 3 : -1]
    (_, memory, files, _), (_, last_memory, last_files, _) = later[0], later[-1]
    grows = last_memory > 1.05 * memory + 5.0 or last_files > files
    too_large = max(row[3] for row in rows) > FOLDER_LIMIT
    print(f"code {ended.code}; memory or files grow: {grows}; too large: {too_large}")
    return int(bool(ended.code) or grows or too_large)


if __name__ == "__main__":
    sys.exit(main())
