"""What is kept of the runs: a row for each program and method, and a table of them."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

TARGET = 1e-6  # relative error of the worst node
ITERATIONS = 50
BYTES = 1_000_000  # payload of all nodes together
SECONDS = 1.0


def row_of(
    where: str,
    timed: Sequence[Mapping[str, Any]],
    counted: Mapping[str, Any],
    wire_bytes: float | None,
) -> dict[str, Any]:
    """Return the row of a program and method.

    ``timed`` are its blocks, round by round; ``counted`` is the run that counted bytes
    and kept errors; ``wire_bytes`` is what interfaces sent per iteration, headers
    included, if measured.
    """
    times = [
        1e3 * run.get("loop_seconds", run["seconds"]) / run["iterations"]
        for run in timed
    ]
    ms, errors = median(times), counted["errors"]
    messages = counted.get("messages", 0) / counted["iterations"]
    size = counted.get("bytes", 0) / counted["iterations"]  # as given to MPI
    count = first(errors, TARGET)
    words = (f"{name} {number}" for name, number in counted["versions"].items())
    return {
        "where": where,
        **{k: counted[k] for k in ("program", "method", "setting", "nodes")},
        "ms_per_iteration": short(ms),
        "all_ms": " ".join(str(short(each)) for each in times),
        "over_fixed": None,  # see `compare`
        # of the cores, that other programs used meanwhile
        "others_share": short(median(run["others_share"] for run in timed)),
        "messages_per_iteration": short(messages or None),
        "bytes_per_iteration": short(size or None),
        "wire_bytes_per_iteration": short(wire_bytes),
        f"iterations_to_{TARGET:g}": count,
        f"seconds_to_{TARGET:g}": short(count and 1e-3 * ms * count),
        f"bytes_to_{TARGET:g}": short((count and size * count) or None),
        f"error_after_{ITERATIONS}_iterations": after(errors, ITERATIONS),
        f"error_after_{BYTES}_bytes": after(errors, BYTES / size if size else None),
        f"error_after_{SECONDS:g}_seconds": after(errors, 1e3 * SECONDS / ms),
        "versions": "; ".join(words),
    }


def compare(rows: Sequence[dict[str, Any]]) -> None:
    """Add to each row its time over the time of `fixed`: the median over the rounds."""
    times = {
        (row["where"], row["program"], row["method"]): numbers(row["all_ms"])
        for row in rows
    }
    for row in rows:
        ours = times[row["where"], "dadmm", "fixed"]
        pairs = zip(numbers(row["all_ms"]), ours, strict=True)
        row["over_fixed"] = short(median(a / b for a, b in pairs))


def numbers(text: str) -> list[float]:
    return [float(word) for word in text.split()]


def first(errors: Sequence[float], target: float) -> int | None:
    return next((t for t, error in enumerate(errors, 1) if error < target), None)


def after(errors: Sequence[float], count: float | None) -> float | None:
    """Return the error after some iterations; the error of zeros, the start, is 1."""
    if count is None:
        return None
    return short(errors[min(int(count), len(errors)) - 1] if count >= 1 else 1.0)


def short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")
