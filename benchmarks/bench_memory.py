"""How much memory do ranks need that read one file: their rows whole, or in blocks?

    python -m benchmarks.bench_memory [--gigabytes 4] [--ranks 4] [--folder DIR]

Writes a random .npy file of this size, runs PPCA and least squares on it over MPI, with
the rows of each rank in memory (if six times the file fits) and in blocks, and removes
the file. The peaks are sums over the ranks: of private memory (RssAnon), and of all
memory (Pss), in which pages of the file count that a rank has mapped. The difference of
the parameters is relative to the largest.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep

import numpy as np

import dadmm
from benchmarks.shared.commands import parser_of, print_markdown

WIDTH, RANK_OF_DATA = 51, 3  # columns, and the dimension of what they share
PROBLEMS = {"ppca": ["--n-components", "3"], "least_squares": []}
WAYS = {"rows in memory": 2**62, "in blocks of 64 MB": 2**26}  # bytes of a block


def write_file(file: Path, n_bytes: float) -> None:
    """Write a table near a plane of `RANK_OF_DATA` dimensions."""
    n, rng = int(n_bytes / 8 / WIDTH), np.random.default_rng(0)
    rows = np.lib.format.open_memmap(file, "w+", np.float64, (n, WIDTH))
    axes = rng.standard_normal((RANK_OF_DATA, WIDTH)) * [[3.0], [2.0], [1.5]]
    for start in range(0, n, 100_000):
        part = rows[start : start + 100_000]
        part[:] = 5.0 + rng.standard_normal(part.shape)
        part += rng.standard_normal((len(part), RANK_OF_DATA)) @ axes


def available() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return 1024 * next(int(x.split()[1]) for x in lines if x.startswith("MemAvail"))


def memory(pid: int) -> tuple[int, int]:
    """Return the private and the proportional memory of a process, in kB; 0 if none."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except (OSError, UnicodeError):
        return 0, 0
    lines = [line.split() for line in (status + rollup).splitlines()]
    found = {words[0]: words[1] for words in lines if len(words) > 1}
    return int(found.get("RssAnon:", 0)), int(found.get("Pss:", 0))


def measure(ranks: int, block: int, folder: Path, more: Sequence[str]) -> list[float]:
    """Run a job, and return its peaks in GB and its seconds; results are in DIR/run."""
    pids = folder / "pids"
    shutil.rmtree(pids, ignore_errors=True)
    pids.mkdir()
    mpiexec = Path(sys.executable).with_name("mpiexec")
    rank = [sys.executable, "-m", __spec__.name, "--rank", str(block), str(pids)]
    job = [*rank, *more, "--out", str(folder / "run"), "--overwrite", "--quiet"]
    began, peaks = monotonic(), np.zeros(2)
    with subprocess.Popen([str(mpiexec), "-n", str(ranks), *job]) as running:
        while running.poll() is None:
            own = [memory(int(file.name)) for file in pids.iterdir()]
            peaks = np.maximum(peaks, np.sum(own or [(0, 0)], axis=0))
            sleep(0.05)
    if running.returncode:
        raise SystemExit(f"the job ended with code {running.returncode}")
    return [*(peaks * 1024 / 1e9).tolist(), monotonic() - began]


def run_rank(block: str, pids: str, *job: str) -> int:
    """Run one rank of a job, with this size of a block."""
    from dadmm.cli.job import main as run
    from dadmm.data import files

    Path(pids, str(os.getpid())).touch()
    files.BLOCK = int(block)
    return run(job)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--gigabytes", type=float, default=4.0)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--folder", type=Path, help="for the file, on a fast disk")
    given = parser.parse_args()
    lines = []
    with TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        file = folder / "rows.npy"
        write_file(file, given.gigabytes * 1e9)
        for problem, flags in PROBLEMS.items():
            found: list[np.ndarray] = []
            for way, block in WAYS.items():
                if block > 2**32 and 6e9 * given.gigabytes > available():
                    continue
                more = ["--problem", problem, "--data", str(file), *flags]
                more += ["--topology", "ring", "--tolerance", "1e-8"]
                own = measure(given.ranks, block, folder, more)
                model = dadmm.load_model(folder / "run")
                parts = (model.parameters[k] for k in ("W", "mu", "coef")
                         if k in model.parameters)  # fmt: skip
                found.append(np.concatenate([part.ravel() for part in parts]))
                apart = np.abs(found[-1] - found[0]).max() / np.abs(found[0]).max()
                lines.append([problem, way, *(f"{x:.2f}" for x in own),
                              f"{apart:.1e}", model.origin.status])  # fmt: skip
    heads = ("problem", "rows", "private GB", "Pss GB", "s", "difference", "status")
    print_markdown(heads, lines)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        sys.exit(run_rank(*sys.argv[2:]))
    main()
