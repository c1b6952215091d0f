"""What a comparison found: a table to print, tidy tables to read, and figures."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dadmm.core.documents import Table, write_text
from dadmm.runs.folder import REPORT

if TYPE_CHECKING:
    from dadmm.show.figure import Panel

Row = Table
WHAT = ("topology", "method", "payload")
COLUMNS = {  # of the table: entry of a row, form, unit, and whether with quartiles
    "first": ("first", "{:.0f}", 1.0, True),
    "for good": ("for_good", "{:.0f}", 1.0, True),
    "messages": ("messages", "{:,.0f}", 1.0, False),
    "kB a node": ("total_bytes", "{:.3g}", 1e-3, True),
    "by radio": ("broadcast_bytes", "{:.3g}", 1e-3, False),
    "set-up": ("setup_bytes", "{:.3g}", 1e-3, False),
    "end": ("end_bytes", "{:.3g}", 1e-3, False),
}
# what the error is drawn against, and seconds on each network
LABELS = {"iteration": "iterations", "bytes": "bytes a node, with set-up"}


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
    write_text(folder / "table.md", text)
    for name, found in (("runs", plain), ("curves", curves)):
        _write_rows(folder, name, found)
    figures = {x: _panels(rows, x) for x in (*LABELS, *networks) if curves}
    if find_spec("matplotlib") is not None:
        from dadmm.show import to_matplotlib

        for x, panels in figures.items():
            figure = to_matplotlib.draw("", panels)
            to_matplotlib.save(figure, folder / f"error-{x}", ["png"])
    if not report:
        return f"{text}\n{folder}\n"
    from dadmm.show.document import build_comparison
    from dadmm.show.report import write_file

    named = {
        f"Error over {LABELS.get(x, f'seconds on {x}')}": own
        for x, own in figures.items()
    }
    write_file(folder / REPORT, build_comparison(about, head, lines, named))
    return f"{text}\n{(folder / REPORT).resolve().as_uri()}\n"


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


def groups(rows: Sequence[Row]) -> Iterable[tuple[tuple[str, ...], list[Row]]]:
    """Return the runs of all seeds for each graph, method and payload, in order."""
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in WHAT), []).append(row)
    order = list(dict.fromkeys(row["topology"] for row in rows))
    return sorted(found.items(), key=lambda item: order.index(item[0][0]))


def _spread(
    rows: Sequence[Row], name: str, form: str, unit: float, quartiles: bool
) -> str:
    """Return the median of a number over the runs that have it, with its quartiles."""
    values = [unit * row[name] for row in rows if row.get(name) is not None]
    if not values:
        return "-"
    low, middle, high = (form.format(v) for v in np.percentile(values, (25, 50, 75)))
    return f"{middle} ({low} to {high})" if quartiles and low != high else middle


def _write_rows(folder: Path, name: str, rows: Sequence[Row]) -> None:
    """Write rows as CSV, and as parquet if there is pyarrow."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(folder / f"{name}.csv", text.getvalue())
    if find_spec("pyarrow") is not None:
        import pyarrow as pa
        from pyarrow import parquet

        data = {column: [row.get(column) for row in rows] for column in columns}
        parquet.write_table(pa.table(data), folder / f"{name}.parquet")


def _panels(rows: Sequence[Row], x: str) -> list[Panel]:
    """Return the error against a number by graph: medians over the seeds, quartiles."""
    from dadmm.show.figure import Axis, Curve, Panel
    from dadmm.show.style import looks

    found: dict[str, list[Curve]] = {}
    names = list(dict.fromkeys(key[1:] for key, _ in groups(rows)))
    words = [" ".join(name) for name in names]
    styles = looks([method for method, _ in names], words)
    for (graph, *name), own in groups(rows):
        curves = [row["curve"] for row in own if x in row.get("curve", ())]
        if curves:
            at, low, middle, high = band(curves, x)
            text = " ".join(name)
            look = styles[words.index(text)]
            curve = Curve(text, at, middle, look, low, high, band="quartiles of seeds")
            found.setdefault(graph, []).append(curve)
    axis = Axis(LABELS.get(x, f"seconds on {x}, modelled"), log=True)
    errors = Axis("error of the farthest node", log=True)
    return [Panel(graph, axis, errors, curves) for graph, curves in found.items()]


def band(curves: Sequence[Row], x: str) -> tuple[np.ndarray, ...]:
    """Return points, and the quartiles of the errors reached there."""
    starts = max(max(curve[x][0], 1e-12) for curve in curves)
    at = np.geomspace(starts, max(curve[x][-1] for curve in curves), 200)
    errors = []
    for curve in curves:
        k = np.searchsorted(curve[x], at, side="right") - 1
        found = np.array(curve["error"])[np.clip(k, 0, None)]
        errors.append(np.where(at > curve[x][-1] * (1 + 1e-9), np.nan, found))
    known = np.isfinite(errors).sum(axis=0) * 2 > len(errors)  # of most seeds
    spread = np.nanpercentile(np.array(errors)[:, known], (25, 50, 75), axis=0)
    return at[known], *spread
