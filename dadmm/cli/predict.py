"""``dadmm predict``: predict new rows by the model of a run, into a CSV file."""

from __future__ import annotations

import csv
import io
import os
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dadmm.cli.progress import Bar
from dadmm.core import files
from dadmm.core.arguments import Parser, print_out
from dadmm.core.documents import writing
from dadmm.core.errors import OutputError, ShardError
from dadmm.core.linalg import one_blas_thread
from dadmm.data.encoding import ON_MISSING, UNKNOWN
from dadmm.data.files import READERS, extent, open_blocks
from dadmm.data.frame import Frame, is_numeral, label
from dadmm.models.model import load_model
from dadmm.runs.config import RunConfig
from dadmm.runs.settings import FORMAT, column_names

FORMULA = ("=", "+", "-", "@")  # a cell that begins so is run by spreadsheets
NO_OUT = "choose another --out"
BLOCK = 50_000  # rows that are encoded and predicted at once


def main(argv: Sequence[str] | None = None) -> int:
    parser = Parser("predict", "Predict new rows by the model of a run.")
    add = parser.add_argument
    add("run", metavar="RUN", help="folder of a run, or a model.json")
    add("table", metavar="FILE", help=f"rows: {', '.join(READERS)}")
    add("--out", metavar="CSV", required=True, help="file for the predictions")
    add("--force", action="store_true", help="replace --out if it exists")
    add("--unknown", choices=UNKNOWN, help="what to do with a category that no "
        "node had in the fit (default: as in the fit)")  # fmt: skip
    add("--on-missing", choices=ON_MISSING, help="missing entries: refuse them, leave "
        "the line of the row empty, fill in the mean of the fit, or keep them (ppca) "
        "(default: as in the fit)")  # fmt: skip
    add("--keep", metavar="COLUMNS", default="", help="columns of FILE that are copied "
        "to --out, such as an id, by names or numbers with commas between")  # fmt: skip
    for name in FORMAT:
        field = RunConfig.__dataclass_fields__[name]
        choices, text = field.metadata["choices"] or None, field.metadata["help"]
        add(f"--{name}", default=field.default, choices=choices, help=text)
    with one_blas_thread():
        print_out(predict(parser.parse_args(argv)))
    return 0


def predict(given: Namespace) -> str:
    """Write the predictions, and return what to print."""
    out, n_rows, n_empty = Path(given.out), 0, 0
    with writing(out, NO_OUT):
        kind = files.kind(out)
    table = given.table.partition("::")[0]
    if kind == "file" and os.path.exists(table) and os.path.samefile(out, table):
        raise OutputError(f"{out} is the table itself; choose another --out")
    if kind != "none" and not given.force:
        raise OutputError(f"{out} exists; choose another --out, or use --force")
    model = load_model(given.run, unknown=given.unknown, on_missing=given.on_missing)
    with writing(out, NO_OUT), files.replacing(out) as file:
        lines = io.TextIOWrapper(file, "utf-8", newline="\n")
        writer = csv.writer(lines, lineterminator="\n")
        for frame in _frames(given):
            found = model.columns(frame)
            kept = [frame.find(word, "keep") for word in column_names(given.keep)]
            for name in (name for name in kept if name in found):
                raise ShardError(
                    f"--keep has {name!r}, a column of predictions; rename it"
                )
            columns = {name: frame.column(name) for name in kept} | found
            if not n_rows:
                writer.writerow(map(_cell, columns))
            cells = [map(_cell, own.tolist()) for own in columns.values()]
            writer.writerows(zip(*cells, strict=True))
            first = next(iter(found.values())).tolist()
            n_rows += frame.n_rows
            n_empty += sum(value is None or value != value for value in first)
        lines.detach()
        if not n_rows:
            raise ShardError(f"{given.table} has no rows; give a table with rows")
    if model.origin.status == "not converged":
        count = model.origin.iterations
        said = f"dadmm: the run of this model did not converge in {count} iterations"
        print(said, file=sys.stderr)
    empty = f", {n_empty:,} of them empty" if n_empty else ""
    rows = f"{n_rows:,} row{'s' * (n_rows != 1)}"
    return f"{rows} predicted by {model.problem}{empty}: {out}\n"


def _frames(given: Namespace) -> Iterator[Frame]:
    """Yield the rows of the table, some at a time, and show how many are done."""
    how = {name: getattr(given, name) for name in FORMAT}
    blocks, size = open_blocks(given.table, whole=False, **how), extent(given.table)
    bar, done = None, 0
    try:
        for block in blocks:
            bar = bar or Bar(size.n_rows if size else block.n_rows, "row")
            for start in range(0, block.n_rows, BLOCK):
                if done:
                    bar.show(done)
                yield (part := block.take(slice(start, start + BLOCK)))
                done += part.n_rows
    finally:
        if bar is not None:
            bar.close()


def _cell(value: Any) -> str:
    """Return a number with all its digits, a text that no spreadsheet runs, or ""."""
    if value is None or value != value:
        return ""
    text = label(value) if isinstance(value, float) else str(value)
    runs = isinstance(value, str) and text.startswith(FORMULA) and not is_numeral(text)
    return "'" * runs + text
