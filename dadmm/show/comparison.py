"""A folder of `dadmm compare`: its figures, and its page for a browser."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from dadmm.core.documents import Table, parse
from dadmm.runs.folder import REPORT
from dadmm.show.figure import Axis, Curve, Panel
from dadmm.show.style import looks

Row = Table  # of one run: `WHAT`, its seed, and its curve
WHAT = ("topology", "method", "payload")
TABLE, CURVES = "table.md", "curves.csv"
LARGEST = 2**28  # bytes of a file
# what the error is drawn against, and seconds on each network
LABELS = {"iteration": "iterations", "bytes": "bytes a node, with set-up"}


def is_comparison(folder: Path) -> bool:
    """Return whether a folder has the files of a comparison."""
    return all((folder / name).is_file() for name in (TABLE, CURVES))


def read_comparison(folder: Path) -> tuple[str, list[list[str]], list[Row]]:
    """Return what a comparison has written: a sentence, the table, and the curves."""
    text = parse(folder / TABLE, str, "Markdown")
    about, _, table = text.partition("\n\n")
    cells = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in table.splitlines()
        if not line.startswith("| --")
    ]
    return about, cells, parse(folder / CURVES, _curves, "CSV", LARGEST)


def _curves(text: str) -> list[Row]:
    """Return the runs of a table with a row for each point of their curves."""
    found: dict[tuple[str, ...], Row] = {}
    reader = csv.DictReader(text.splitlines())
    names = (*WHAT, "seed")
    if missing := {*names, "error"} - {*(reader.fieldnames or ())}:
        raise ValueError(f"it has no column {min(missing)!r}")
    for point in reader:
        what = {name: point.pop(name) for name in names}
        run = found.setdefault(tuple(what.values()), what | {"curve": {}})
        for name, value in point.items():
            if value:
                run["curve"].setdefault(name, []).append(float(value))
    return list(found.values())


def figures(rows: Sequence[Row]) -> dict[str, list[Panel]]:
    """Return the panels of the error against iterations, bytes and modelled seconds."""
    known = dict.fromkeys(x for row in rows for x in row.get("curve", ()))
    return {x: panels(rows, x) for x in known if x != "error"}


def draw(folder: Path, rows: Sequence[Row]) -> None:
    """Write the figures as pictures, if there is matplotlib."""
    if find_spec("matplotlib") is not None:
        from dadmm.show import to_matplotlib

        for x, found in figures(rows).items():
            figure = to_matplotlib.draw("", found)
            to_matplotlib.save(figure, folder / f"error-{x}", ["png"])


def write_page(
    folder: Path,
    about: str,
    cells: Sequence[Sequence[str]],
    rows: Sequence[Row],
    out: str | None = None,
) -> Path:
    """Write the page of a comparison; return its path."""
    from dadmm.show.document import build_comparison
    from dadmm.show.report import write_file

    named = {
        f"Error over {LABELS.get(x, f'seconds on {x}')}": found
        for x, found in figures(rows).items()
    }
    place = Path(out) if out else folder / REPORT
    write_file(place, build_comparison(about, cells[0], cells[1:], named))
    return place


def groups(rows: Sequence[Row]) -> Iterable[tuple[tuple[str, ...], list[Row]]]:
    """Return the runs of all seeds for each graph, method and payload, in order."""
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in WHAT), []).append(row)
    order = list(dict.fromkeys(row["topology"] for row in rows))
    return sorted(found.items(), key=lambda item: order.index(item[0][0]))


def panels(rows: Sequence[Row], x: str) -> list[Panel]:
    """Return the error against a number by graph: medians over the seeds, quartiles."""
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
