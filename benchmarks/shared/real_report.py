"""The tables of `bench_real.py`, from its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.shared.commands import print_markdown
from benchmarks.shared.experiment import written

CASE = ("table", "problem", "graph", "units", "order")
Row = Mapping[str, Any]
HEAD = (
    "cases", "right", "false", "not converged", "iterations, median", "90 %",
    "loop, kB", "set-up and end, kB", "one sum, kB",
)  # fmt: skip


def truth(row: Row, name: str) -> bool:
    """Return a flag of a row; an empty cell is false."""
    return str(row.get(name) or "0") == "1"


def numbers(rows: Sequence[Row], name: str) -> list[float]:
    """Return the values of a column, without empty cells."""
    return [float(row[name]) for row in rows if row.get(name) not in (None, "")]


def middle(
    rows: Sequence[Row], name: str, unit: float, form: str, q: float = 0.5
) -> str:
    """Return a quantile of a column as text, or nothing if the column is empty."""
    values = numbers(rows, name)
    return format(np.quantile(values, q) / unit, form) if values else ""


def summary(rows: Sequence[Row]) -> list[Any]:
    """Return the cells of `HEAD` for some rows."""
    count = len(rows)
    right = sum(truth(row, "right") for row in rows)
    sent = ("loop_bytes", "tree_bytes", "once_bytes")
    return [
        count, f"{right} ({100 * right / count:.0f} %)",
        sum(bool(row.get("false")) for row in rows),
        sum(row["status"] == "not converged" for row in rows),
        middle(rows, "iterations", 1, ".0f"), middle(rows, "iterations", 1, ".0f", 0.9),
        *(middle(rows, name, 1e3, ".0f") for name in sent),
    ]  # fmt: skip


def by_group(name: str, rows: Sequence[Row]) -> None:
    """Print a table by the values of a column; numbers are medians."""
    lines = []
    for value in sorted({str(row[name]) for row in rows}):
        lines.append([value, *summary([row for row in rows if row[name] == value])])
    print()
    print_markdown((name, *HEAD), [*lines, ["all", *summary(rows)]])


def print_report(rows: Sequence[Row]) -> None:
    """Print the tables, and all cases that are not right or have a false statement."""
    judged = [row for row in rows if row["status"] != "no reference"]
    commits = ", ".join(sorted({str(row["commit"]) for row in judged}))
    print(
        f"{len(judged)} cases; dadmm at {commits}. {len(rows) - len(judged)} cases",
        end="",
    )
    print(" without a trustworthy pooled solution are left out.")
    for name in ("problem", "units", "graph", "order", "role", "status"):
        by_group(name, judged)
    bad = [row for row in judged if not truth(row, "right") or row.get("false")]
    names = (*CASE, "status", "false", "near", "fit_error", "entry_error", "iterations")
    print()
    print_markdown(names, ([written(row.get(k, "")) for k in names] for row in bad))
