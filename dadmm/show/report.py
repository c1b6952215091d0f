"""Write a page about runs: ``python -m dadmm.report RUN [RUN ...]``.

Several runs are compared. This needs plotly. Exit codes: 0 success, 2 invalid input or
a page that cannot be written.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from dadmm.core import files
from dadmm.core.arguments import Parser, print_out, reports_errors
from dadmm.core.classes import require
from dadmm.core.documents import writing
from dadmm.core.errors import OutputError
from dadmm.core.schema import number
from dadmm.runs.folder import REPORT, RunFolder
from dadmm.runs.stored import read_run, run_folders
from dadmm.show.comparison import is_comparison, read_comparison
from dadmm.show.comparison import write_page as write_comparison

EVERY = number("0, or from 1 to 1e6 seconds", lambda x: x == 0 or 1 <= x <= 1e6)
START = b"<!DOCTYPE html>\n<!-- a report of dadmm -->\n"  # of every page


@reports_errors
def main(argv: Sequence[str] | None = None) -> int:
    """Write the page of a command line and return its exit code."""
    parser = Parser("report", "Write a page about runs, one file for a browser.")
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help="folder of a run, finished or "
        "not, of several runs, such as a sweep, or of dadmm compare")  # fmt: skip
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
    if len(folders) == 1 and is_comparison(folders[0]):
        place = write_comparison(folders[0], *read_comparison(folders[0]), out)
        return place, False
    from dadmm.show.document import build

    name = REPORT if len(folders) == 1 else f"compare-{REPORT}"
    place = Path(out) if out else folders[0] / name
    made = [name] if _check(place) else []
    runs = [read_run(folder) for folder in folders]
    is_going = any(run.summary.get("status") == "still going" for run in runs)
    page = build(runs, every if is_going else 0.0)
    if not out and not RunFolder.is_live(folders[0]):  # else it is listed
        RunFolder(folders[0]).add_figures([name], made)
    write_file(place, page)
    return place, is_going


def write_file(place: Path, page: str) -> None:
    """Write a page; it replaces a page of dadmm, and no other file."""
    _check(place)
    with writing(place.parent), files.replacing(place) as file:
        file.write(START + page.encode())


def _check(out: Path) -> bool:
    """Return whether there is a report; raise if there is another file."""
    with writing(out.parent):
        kind = files.kind(out)
        if kind == "none":
            return False
        ours = kind == "file" and files.read(out, most=len(START)) == START
    if not ours:
        raise OutputError(
            f"{out} exists and is not a report of dadmm; move it away, or choose "
            "another --out"
        )
    return True
