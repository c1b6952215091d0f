"""What a comparison found: a table to print, and tidy tables to read."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from dadmm.core.documents import write_text
from dadmm.show.report import (
    CURVES,
    TABLE,
    WHAT,
    Row,
    draw_methods,
    groups,
    write_methods,
)

COLUMNS = {  # of the table: entry of a row, form, unit, and whether with quartiles
    "first": ("first", "{:.0f}", 1.0, True),
    "for good": ("for_good", "{:.0f}", 1.0, True),
    "messages": ("messages", "{:,.0f}", 1.0, False),
    "kB a node": ("total_bytes", "{:.3g}", 1e-3, True),
    "by radio": ("broadcast_bytes", "{:.3g}", 1e-3, False),
    "set-up": ("setup_bytes", "{:.3g}", 1e-3, False),
    "end": ("end_bytes", "{:.3g}", 1e-3, False),
}


def write_comparison(
    folder: Path, rows: Sequence[Row], about: str, networks: Sequence[str], report: bool
) -> str:
    """Write the tables and figures of all runs; return the text to print.

    With ``report`` also write a page for a browser.
    """
    plain = [{k: v for k, v in row.items() if k != "curve"} for row in rows]
    curves = [
        {k: row[k] for k in (*WHAT, "seed")}
        | dict(zip(row["curve"], point, strict=True))
        for row in rows
        if "curve" in row
        for point in zip(*row["curve"].values(), strict=True)
    ]
    head, *lines = _cells(rows, networks)
    text = f"{about}\n\n{_markdown([head, *lines])}"
    write_text(folder / TABLE, text)
    for name, found in (("runs.csv", plain), (CURVES, curves)):
        _write_rows(folder / name, found)
    draw_methods(folder, rows)
    if not report:
        return f"{text}\n{folder}\n"
    page = write_methods(folder, about, [head, *lines], rows)
    return f"{text}\n{page.resolve().as_uri()}\n"


def _cells(rows: Sequence[Row], networks: Sequence[str]) -> list[list[str]]:
    """Return medians over the seeds, and quartiles; the first row is the head."""
    columns = COLUMNS | {
        f"s, {name}": (f"{name}_seconds", "{:.3g}", 1.0, False) for name in networks
    }
    lines = [["graph", "method", "payload", *columns, "failed"]]
    for (graph, method, payload), own in groups(rows):
        tuned = next((row["tuned"] for row in own if row.get("tuned")), "")
        ended = [row["ended"] for row in own if row["ended"] != "arrived"]
        failed = f"{len(ended)}: {', '.join(sorted(set(ended)))}" if ended else "0"
        names = [graph, f"{method} ({tuned})" if tuned else method, payload]
        spreads = [_spread(own, *column) for column in columns.values()]
        lines.append([*names, *spreads, failed])
    return lines


def _markdown(lines: list[list[str]]) -> str:
    """Return cells as a Markdown table."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rule = ["-" * width for width in widths]
    return "".join(
        f"| {' | '.join(w.ljust(n) for w, n in zip(line, widths, strict=True))} |\n"
        for line in (lines[0], rule, *lines[1:])
    )


def _spread(
    rows: Sequence[Row], name: str, form: str, unit: float, quartiles: bool
) -> str:
    """Return the median of a number over the runs that have it, with its quartiles."""
    values = [unit * row[name] for row in rows if row.get(name) is not None]
    if not values:
        return "-"
    low, middle, high = (form.format(v) for v in np.percentile(values, (25, 50, 75)))
    return f"{middle} ({low} to {high})" if quartiles and low != high else middle


def _write_rows(file: Path, rows: Sequence[Row]) -> None:
    """Write rows as CSV, and as parquet if there is pyarrow."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(file, text.getvalue())
    if find_spec("pyarrow") is not None:
        import pyarrow as pa
        from pyarrow import parquet

        data = {column: [row.get(column) for row in rows] for column in columns}
        parquet.write_table(pa.table(data), file.with_suffix(".parquet"))
