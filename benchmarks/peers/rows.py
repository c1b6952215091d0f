"""What is kept of the runs: a row for each program and method, and a table of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

TARGETS = (1e-3, 1e-6)  # relative error of the worst node
ITERATIONS = 50
BYTES = 1_000_000  # payload of all nodes together
SECONDS = 1.0

COLUMNS = (
    "where",
    "program",
    "method",
    "setting",
    "nodes",
    "ms_per_iteration",  # median of all_ms
    "all_ms",
    "over_fixed",  # median over the rounds: time over dadmm's in the same round
    "others_share",  # of the cores, that other programs used meanwhile; median
    "exchange_share",  # of the loop, in the counted run
    "messages_per_iteration",
    "bytes_per_iteration",  # payload as given to MPI
    "wire_bytes_per_iteration",  # as the interfaces counted, headers included
    "wire_packets_per_iteration",
    *(f"{what}_to_{target:g}" for target in TARGETS for what in
      ("iterations", "seconds", "bytes")),
    f"error_after_{ITERATIONS}_iterations",
    f"error_after_{BYTES}_bytes",
    f"error_after_{SECONDS:g}_seconds",
    "versions",
)  # fmt: skip


def row_of(
    where: str,
    timed: Sequence[Mapping[str, Any]],
    counted: Mapping[str, Any],
    wired: Mapping[str, float],
) -> dict[str, Any]:
    """Return the row of a program and method.

    ``timed`` are its blocks, round by round; ``counted`` is the run that counted bytes
    and kept errors; ``wired`` is what interfaces sent per iteration, if measured.
    """
    times = [
        1e3 * run.get("loop_seconds", run["seconds"]) / run["iterations"]
        for run in timed
    ]
    ms, errors = median(times), counted["errors"]
    messages = counted.get("messages", 0) / counted["iterations"]
    size = counted.get("bytes", 0) / counted["iterations"]
    row = {
        "where": where,
        **{k: counted[k] for k in ("program", "method", "setting", "nodes")},
        "ms_per_iteration": short(ms),
        "all_ms": " ".join(str(short(each)) for each in times),
        "others_share": short(median(run["others_share"] for run in timed)),
        "exchange_share": short(counted.get("exchange_share")),
        "messages_per_iteration": short(messages or None),
        "bytes_per_iteration": short(size or None),
        "wire_bytes_per_iteration": short(wired.get("wire_bytes")),
        "wire_packets_per_iteration": short(wired.get("wire_packets")),
    }
    for target in TARGETS:
        count = first(errors, target)
        row[f"iterations_to_{target:g}"] = count
        row[f"seconds_to_{target:g}"] = short(count and 1e-3 * ms * count)
        row[f"bytes_to_{target:g}"] = short((count and size * count) or None)
    reached = {
        f"{ITERATIONS}_iterations": ITERATIONS,
        f"{BYTES}_bytes": int(BYTES / size) if size else None,
        f"{SECONDS:g}_seconds": int(1e3 * SECONDS / ms),
    }
    for what, count in reached.items():
        row[f"error_after_{what}"] = short(after(errors, count))
    words = (f"{name} {number}" for name, number in counted["versions"].items())
    return row | {"versions": "; ".join(words)}


def compare(rows: Sequence[dict[str, Any]]) -> None:
    """Add to each row its time over that of `fixed`, round by round."""
    times = {
        (row["where"], row["program"], row["method"]): numbers(row["all_ms"])
        for row in rows
    }
    for row in rows:
        mine = numbers(row["all_ms"])
        ours = times[row["where"], "dadmm", "fixed"]
        ratios = (a / b for a, b in zip(mine, ours, strict=True))
        row["over_fixed"] = short(median(ratios))


def numbers(text: str) -> list[float]:
    """Return the numbers of a cell."""
    return [float(word) for word in text.split()]


def first(errors: Sequence[float], target: float) -> int | None:
    """Return the first iteration with an error below the target."""
    return next((t for t, error in enumerate(errors, 1) if error < target), None)


def after(errors: Sequence[float], count: int | None) -> float | None:
    """Return the error after some iterations; that of zeros, the start, is 1."""
    if count is None:
        return None
    return errors[min(count, len(errors)) - 1] if count else 1.0


def short(value: float | None) -> float | None:
    """Return a number to four digits."""
    return None if value is None else float(f"{value:.4g}")
