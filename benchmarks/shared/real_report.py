"""The tables of `bench_real.py`, from its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.shared.commands import print_markdown

CASE = ("table", "problem", "graph", "units", "order")
Row = Mapping[str, Any]
HEAD = (
    "cases", "right", "false", "not converged", "iterations, median", "90 %",
    "loop, kB", "set-up and end, kB", "one sum, kB",
)  # fmt: skip


def truth(row: Row, name: str) -> bool:
    """Return a flag of a row; an empty cell is false."""
    return str(row.get(name) or "0") == "1"


def said_converged(row: Row) -> bool:
    """Return whether a run ended by its stopping rule."""
    return row["status"] not in ("not converged", "error", "no reference")


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
    lost = [row for row in rows if row["status"] == "no reference"]
    rows = [row for row in rows if row["status"] != "no reference"]
    if not rows:
        print("no rows")
        return
    commits = ", ".join(sorted({str(row["commit"]) for row in rows}))
    names = len({row["table"] for row in rows})
    print(f"{len(rows)} cases of {names} tables; dadmm at {commits}. ", end="")
    print(f"{len(lost)} cases without a trustworthy pooled solution are left out.")
    for name in ("problem", "units", "graph", "order", "role"):
        by_group(name, rows)
    kinds: dict[str, int] = {}
    for row in rows:
        for kind in filter(None, str(row.get("false") or "").split("+")):
            kinds[kind] = kinds.get(kind, 0) + 1
    print("\nFalse statements by kind:", kinds or "none")
    near = sum(truth(row, "near") and not said_converged(row) for row in rows)
    print(f"Near the pooled solution, but not converged: {near}")
    off = sum(said_converged(row) and not truth(row, "near") for row in rows)
    print(f"Converged, but not near: {off}")
    statuses = sorted({str(row["status"]) for row in rows})
    told = (f"{sum(row['status'] == s for row in rows)} {s}" for s in statuses)
    print(f"{', '.join(told)}\n")
    bad = [row for row in rows if not truth(row, "right") or row.get("false")]
    head = (*CASE, "status", "false", "fit error", "entry error", "iterations")
    last = ("status", "false", "fit_error", "entry_error", "iterations")
    cells = ([_cell(row.get(k, "")) for k in (*CASE, *last)] for row in bad)
    print_markdown(head, cells)


def _cell(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
