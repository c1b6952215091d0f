"""The table of a sweep: a row per task, with its settings, status and results."""

from __future__ import annotations

import csv
import io
from collections import Counter
from typing import Any

from launch.base.messages import print_message
from launch.base.run_folder import read_state
from launch.batch.tasks import Sweep, plain


def collect(sweep: Sweep) -> int:
    """Write a table with a row per task, and print those that are not finished."""
    queued = sweep.queued()
    rows = []
    for number, name in enumerate(sweep.names):
        state = read_state(sweep.folder / name)
        settings = sweep.settings(name)
        row = {key: plain(settings[key]) for key in sweep.varied if key in settings}
        row["status"] = state.label(number in queued)
        row |= columns_of(state.summary) | {"folder": str(sweep.folder / name)}
        rows.append(row)
    columns = list(dict.fromkeys(key for row in rows for key in row))
    columns.sort(key=lambda key: key == "folder")  # the longest one comes last
    table = io.StringIO()
    writer = csv.DictWriter(table, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    sweep.write("table.csv", table.getvalue())
    for row in rows:
        if row["status"] not in ("converged", "not converged"):
            print(f"{row['status']:<12}{row['folder']}")
    totals = Counter(row["status"] for row in rows)
    counts = ", ".join(f"{count} {status}" for status, count in totals.items())
    print_message(f"{len(rows)} runs: {counts}; table in {sweep.folder / 'table.csv'}")
    return 0


def columns_of(summary: dict[str, Any]) -> dict[str, Any]:
    """Return the columns that a summary has in the table."""
    keys = ("converged", "reason", "iterations", "n_nodes", "messages", "bytes")
    found = {key: summary[key] for key in keys if key in summary}
    seconds = summary.get("seconds", {}).items()
    found |= {f"seconds_{name}": value for name, value in seconds}
    return found | summary.get("metrics", {})
