"""What the commands share: options, tables, timings, and jobs on ranks and hosts."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
OUT = ROOT / "benchmarks" / "out"
NETEM = ROOT / "benchmarks" / "emulation"
THREADS = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"
)


def parser_of(text: str | None) -> argparse.ArgumentParser:
    """Return a parser that shows a module's docstring as it is."""
    kind = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(description=text, formatter_class=kind)


def say(text: str, end: str = "\n") -> None:
    if sys.stderr.isatty() or end == "\n":
        sys.stderr.write(f"{text:<60}{end}")
        sys.stderr.flush()


def print_markdown(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table, each row as soon as it is known."""
    print(f"| {' | '.join(head)} |\n{'|---' * len(head)}|")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |", flush=True)


def seconds_of(work: Callable[[], Any], count: int = 1) -> float:
    """Return the seconds of one of so many calls."""
    start = perf_counter()
    for _ in range(count):
        work()
    return (perf_counter() - start) / count


def medians(tasks: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, float]:
    """Return the median of what each task measures; tasks take turns."""
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(repeats):
        for name, task in tasks.items():
            times[name].append(task())
    return {name: median(values) for name, values in times.items()}


def variables() -> dict[str, str]:
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    return THREADS | os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def on_ranks(n: int, *words: str, timeout: float = 300, **options: Any) -> Any:
    """Run Python on ranks of this machine; return what `subprocess.run` does."""
    beside = str(Path(sys.executable).with_name("mpiexec"))
    launcher = [os.environ.get("DADMM_MPIEXEC", beside), "-n", str(n), sys.executable]
    return subprocess.run(
        [*launcher, *words], check=True, timeout=timeout, stdin=subprocess.DEVNULL,
        **({"env": variables()} | options),
    )  # fmt: skip


class HostsError(Exception):
    """A job on emulated hosts failed; the text is what it wrote to stderr."""


def on_hosts(
    words: Sequence[str], job: Sequence[str], timeout: float = 300,
    python: str = sys.executable,
) -> dict[str, dict[str, int]]:  # fmt: skip
    """Run `benchmarks/netem`; return what each host's interface sent and received."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "counters.json")
        netem = [sys.executable, str(NETEM), "--python", python, *words]
        done = subprocess.run(
            [*netem, "--counters", str(file), "--", *job], env=variables(),
            timeout=timeout, capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode:
            raise HostsError(done.stderr.strip())
        return json.loads(file.read_text())
