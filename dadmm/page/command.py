"""Write a page about runs: ``python -m dadmm.report RUN [RUN ...]``.

Several runs are compared. This needs plotly and matplotlib. Exit codes: 0 success, 2
invalid input or a page that cannot be written.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from dadmm.core import files
from dadmm.core.arguments import Parser, print_out, program, report_error
from dadmm.core.documents import writing
from dadmm.core.errors import ConfigError, DadmmError, OutputError
from dadmm.runs.folder import REPORT, RunFolder

START = b"<!DOCTYPE html>\n<!-- a report of dadmm -->\n"  # of every page
NEEDED = ("plotly", "matplotlib")


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page of a command line and return its exit code."""
    parser = Parser(
        prog=program("report"),
        description="Write a page about runs, one file for a browser.",
    )
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="folder of a run, which may be going on"
    )
    parser.add_argument(
        "--out", metavar="FILE",
        help=f"(default: {REPORT} in RUN, or compare-{REPORT} in the first of several)",
    )  # fmt: skip
    try:
        print_out(f"{write(parser.parse_args(argv))}\n")
        return 0
    except DadmmError as error:
        return report_error(error)
    except MemoryError:
        return report_error("there is not enough memory for the rows of these runs")


def write(given: Namespace) -> Path:
    """Write the page, and return its path."""
    try:
        from dadmm.page.document import build
        from dadmm.page.runs import read
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in NEEDED:
            raise
        raise ConfigError(
            "the report needs plotly and matplotlib; pip install plotly matplotlib, or "
            "run ./launch/setup in a clone, which adds them to its .venv"
        ) from None
    folders = list(dict.fromkeys(map(Path, given.runs)))
    name = REPORT if len(folders) == 1 else f"compare-{REPORT}"
    out = Path(given.out) if given.out else folders[0] / name
    check(out)
    page = START + build([read(folder) for folder in folders]).encode()
    made = [name] if check(out) else []
    if not given.out and not RunFolder.is_live(folders[0]):  # else it is listed
        RunFolder(folders[0]).add_figures([name], made)
    with writing(out.parent), files.replacing(out) as file:
        file.write(page)
    return out


def check(out: Path) -> bool:
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
