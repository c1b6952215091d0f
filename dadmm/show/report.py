"""Write a page about runs: ``dadmm report RUN [RUN ...]``.

Several runs are compared, and a folder of `dadmm compare` has figures and a page of its
own. Exit codes: 0 success, 2 invalid input or a page that cannot be written.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from dadmm.core import files
from dadmm.core.arguments import Parser, print_out
from dadmm.core.classes import require
from dadmm.core.documents import Table, parse, writing
from dadmm.core.errors import OutputError
from dadmm.core.schema import number
from dadmm.runs.folder import REPORT, RunFolder
from dadmm.runs.stored import read_run, run_folders
from dadmm.show.figure import Axis, Curve, Panel
from dadmm.show.style import looks

EVERY = number("0, or from 1 to 1e6 seconds", lambda x: x == 0 or 1 <= x <= 1e6)
START = b"<!DOCTYPE html>\n<!-- a report of dadmm -->\n"  # of every page
# of a comparison
Row = Table  # of one run: `WHAT`, its seed, and its curve
WHAT = ("topology", "method", "payload")
TABLE, CURVES = "table.md", "curves.csv"
LARGEST = 2**28  # bytes of a file
# what the error is drawn against, and seconds on each network
LABELS = {"iteration": "iterations", "bytes": "bytes a node, with set-up"}


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page of a command line and return its exit code."""
    parser = Parser("report", "Write a page about runs, one file for a browser.")
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help="folder of a run, finished or "
        "not; of several runs, such as a sweep; or of dadmm compare")  # fmt: skip
    add("--out", metavar="FILE", help=f"file of the page (default: {REPORT} in RUN, "
        f"or compare-{REPORT} in the first of several)")  # fmt: skip
    add("--every", metavar="SECONDS", type=float, default=0.0, help="write the page "
        "again until all runs have ended; an open page reloads itself")  # fmt: skip
    given = parser.parse_args(argv)
    EVERY.check("--every", given.every)
    folders = run_folders(given.runs)
    with suppress(KeyboardInterrupt):  # the usual end of --every
        out, is_going = write_page(folders, given.out, given.every)
        print_out(f"{out.resolve().as_uri()}\n")
        while given.every and is_going:
            time.sleep(given.every)
            _, is_going = write_page(folders, given.out, given.every)
    return 0


def write_page(
    folders: Sequence[Path], out: str | None = None, every: float = 0.0
) -> tuple[Path, bool]:
    """Write the page of some runs; return its path, and whether one is going on.

    Then an open page loads itself again after ``every`` seconds.
    """
    require("plotly", "the report", "report")
    from dadmm.show import document

    first, is_going = folders[0], False
    name = REPORT if len(folders) == 1 else f"compare-{REPORT}"
    place = Path(out) if out else first / name
    made = [name] if _exists(place) else []
    if len(folders) == 1 and all((first / each).is_file() for each in (TABLE, CURVES)):
        page = document.build_comparison(*read_comparison(first))
    else:
        runs = [read_run(folder) for folder in folders]
        is_going = any(run.summary.get("status") == "still going" for run in runs)
        page = document.build(runs, every if is_going else 0.0)
        if not out and not RunFolder.is_live(first):  # else it is listed
            RunFolder(first).add_figures([name], made)
    _exists(place)  # it may have come meanwhile
    with writing(place.parent), files.replacing(place) as file:
        file.write(START + page.encode())
    return place, is_going


def _exists(out: Path) -> bool:
    """Return whether there is a report; raise if there is another file."""
    with writing(out.parent):
        kind = files.kind(out)
        ours = kind == "file" and files.read(out, most=len(START)) == START
    if not ours and kind != "none":
        raise OutputError(
            f"{out} exists and is not a report of dadmm; move it away, or choose "
            "another --out"
        )
    return ours


def read_comparison(
    folder: Path,
) -> tuple[str, list[list[str]], dict[str, list[Panel]]]:
    """Return what `dadmm compare` has written: a sentence, its table, and errors."""
    text = parse(folder / TABLE, str, "Markdown")
    about, _, table = text.partition("\n\n")
    cells = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in table.splitlines()
        if not line.startswith("| --")
    ]
    return about, cells, _errors(parse(folder / CURVES, _curves, "CSV", LARGEST))


def _curves(text: str) -> list[Row]:
    """Return the runs of a table with a row for each point of their curves."""
    found: dict[tuple[str, ...], Row] = {}
    reader = csv.DictReader(text.splitlines())
    names = (*WHAT, "seed")
    missing = {*names, "error"} - {*(reader.fieldnames or ())}
    if missing and text.strip():  # no method may have made an iteration
        raise ValueError(f"it has no column {min(missing)!r}")
    for point in reader:
        what = {name: point.pop(name) for name in names}
        run = found.setdefault(tuple(what.values()), what | {"curve": {}})
        for name, value in point.items():
            if value:
                run["curve"].setdefault(name, []).append(float(value))
    return list(found.values())


def draw_methods(folder: Path, rows: Sequence[Row]) -> None:
    """Write the figures of a comparison as pictures, if there is matplotlib."""
    if find_spec("matplotlib") is not None:
        from dadmm.show import to_matplotlib

        for x, found in _errors(rows).items():
            figure = to_matplotlib.draw("", found)
            to_matplotlib.save(figure, folder / f"error-{x}", ["png"])


def groups(rows: Sequence[Row]) -> Iterable[tuple[tuple[str, ...], list[Row]]]:
    """Return the runs of all seeds for each graph, method and payload, in order."""
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in WHAT), []).append(row)
    order = list(dict.fromkeys(row["topology"] for row in rows))
    return sorted(found.items(), key=lambda item: order.index(item[0][0]))


def _errors(rows: Sequence[Row]) -> dict[str, list[Panel]]:
    """Return panels of the error by graph: medians of the seeds, and quartiles."""
    names = list(dict.fromkeys(key[1:] for key, _ in groups(rows)))
    words = [" ".join(name) for name in names]
    styles = looks([method for method, _ in names], words)
    known = dict.fromkeys(x for row in rows for x in row.get("curve", ()))
    panels = {}
    for x in [x for x in known if x != "error"]:
        found: dict[str, list[Curve]] = {}
        for (graph, *name), own in groups(rows):
            curves = [row["curve"] for row in own if x in row.get("curve", ())]
            if curves:
                at, low, middle, high = _band(curves, x)
                text, band = " ".join(name), "quartiles of seeds"
                look = styles[words.index(text)]
                curve = Curve(text, at, middle, look, low, high, band=band)
                found.setdefault(graph, []).append(curve)
        axis = Axis(LABELS.get(x, f"seconds on {x}, modelled"), log=True)
        errors = Axis("error of the farthest node", log=True)
        panels[x] = [Panel(name, axis, errors, own) for name, own in found.items()]
    return panels


def _band(curves: Sequence[Row], x: str) -> tuple[np.ndarray, ...]:
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
