"""Write a page about runs: ``python -m dadmm.report RUN [RUN ...]``.

Several runs are compared. This needs plotly. Exit codes: 0 success, 2 invalid input or
a page that cannot be written.
"""

from __future__ import annotations

import time
from argparse import ArgumentTypeError, Namespace
from collections.abc import Sequence
from pathlib import Path

from dadmm.core import files
from dadmm.core.arguments import Parser, print_out, program, report_error
from dadmm.core.documents import writing
from dadmm.core.errors import ConfigError, DadmmError, OutputError
from dadmm.runs.folder import REPORT, RunFolder
from dadmm.runs.stored import read_run, run_folders

START = b"<!DOCTYPE html>\n<!-- a report of dadmm -->\n"  # of every page


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page of a command line and return its exit code."""
    parser = Parser(
        prog=program("report"),
        description="Write a page about runs, one file for a browser.",
    )
    parser.add_argument(
        "runs", nargs="+", metavar="RUN",
        help="folder of a run, which may be going on, or of several, such as a sweep",
    )  # fmt: skip
    parser.add_argument(
        "--out", metavar="FILE",
        help=f"(default: {REPORT} in RUN, or compare-{REPORT} in the first of several)",
    )  # fmt: skip
    parser.add_argument(
        "--every", metavar="SECONDS", type=_seconds, default=0.0, help="write the page "
        "again and again until no run is going on; an open page reloads itself",
    )  # fmt: skip
    try:
        given = parser.parse_args(argv)
        folders = run_folders(given.runs)
        going = _write(given, folders)
        print_out(f"{_place(given, folders).resolve().as_uri()}\n")
        while going:
            time.sleep(given.every)
            going = _write(given, folders)
        return 0
    except DadmmError as error:
        return report_error(error)
    except MemoryError:
        return report_error("there is not enough memory for the rows of these runs")
    except KeyboardInterrupt:  # the usual end of --every
        return 0


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 1.0 <= found < 1e6:
        raise ArgumentTypeError(
            f"must be a number of seconds of at least 1, got {text!r}"
        )
    return found


def _place(given: Namespace, folders: Sequence[Path]) -> Path:
    """Return the file of the page."""
    name = REPORT if len(folders) == 1 else f"compare-{REPORT}"
    return Path(given.out) if given.out else folders[0] / name


def _write(given: Namespace, folders: Sequence[Path]) -> bool:
    """Write the page, and return whether it will be written again."""
    try:
        from dadmm.show.document import build
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "plotly":
            raise
        raise ConfigError(
            "the report needs plotly; pip install plotly, or run ./launch/setup in a "
            "clone, which adds it to its .venv"
        ) from None
    out = _place(given, folders)
    _check(out)
    runs = [read_run(folder) for folder in folders]
    live = any(run.summary.get("status") == "still going" for run in runs)
    every = given.every if live else 0.0
    page = START + build(runs, every).encode()
    made = [out.name] if _check(out) else []
    if not given.out and not RunFolder.is_live(folders[0]):  # else it is listed
        RunFolder(folders[0]).add_figures([out.name], made)
    with writing(out.parent), files.replacing(out) as file:
        file.write(page)
    return every > 0


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
