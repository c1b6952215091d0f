"""Draw runs: ``python -m dadmm.plot RUN [RUN ...]``.

Several runs are compared; their labels are the settings that differ. This needs
matplotlib. Exit codes: 0 success, 2 invalid input or figures that cannot be written.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from dadmm.core.arguments import Parser, program, report_error
from dadmm.core.errors import ConfigError, DadmmError

KINDS = ("convergence", "eta", "network", "traffic", "structure")
BY_EDGE = ("eta", "network")
FORMATS = ("png", "svg", "pdf")


def main(argv: Sequence[str] | None = None) -> int:
    """Draw the runs of a command line and return its exit code."""
    parser = Parser(prog=program("plot"), description="Draw runs.")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folder of a run")
    parser.add_argument("--out", metavar="DIR", help="(default: the first RUN)")
    parser.add_argument("--kind", choices=("all", *KINDS), default="all")
    parser.add_argument(
        "--at", type=_iterations, default=[], metavar="1,10,50",
        help="iterations of the network figure (default: up to four, chosen by change)",
    )  # fmt: skip
    parser.add_argument(
        "--format", type=_formats, default=["png", "svg"], metavar="png,svg",
        help=f"of {', '.join(FORMATS)} (default: png,svg)",
    )  # fmt: skip
    try:
        return draw(parser.parse_args(argv))
    except DadmmError as error:
        return report_error(error)


def _iterations(text: str) -> list[int]:
    if not all(word.isdecimal() for word in text.split(",")):
        raise argparse.ArgumentTypeError(
            f"must be iterations such as 1,10,50, got {text!r}"
        )
    return sorted({int(word) for word in text.split(",")})


def _formats(text: str) -> list[str]:
    for word in text.split(","):
        if word not in FORMATS:
            allowed = ", ".join(FORMATS)
            raise argparse.ArgumentTypeError(
                f"unknown format {word!r}; choose from {allowed}"
            )
    return list(dict.fromkeys(text.split(",")))


def draw(given: argparse.Namespace) -> int:
    """Draw the figures and print their paths."""
    try:
        from dadmm.drawing.figures import DRAW
        from dadmm.drawing.style import save
        from dadmm.runs.folder import RunFolder
        from dadmm.runs.stored import StoredRun
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise ConfigError(
            "drawing needs matplotlib; pip install matplotlib, or run ./launch/setup "
            "in a clone, which adds it to its .venv"
        ) from None
    runs = [StoredRun.read(folder) for folder in dict.fromkeys(map(Path, given.runs))]
    folder = Path(given.out) if given.out else runs[0].folder
    by_edge = all(run.by_edge for run in runs)
    solid = len(runs) == 1 and "structure" in runs[0].arrays
    prefix = "compare-" if len(runs) > 1 else ""
    for kind in KINDS if given.kind == "all" else [given.kind]:
        if given.kind == "all" and kind in BY_EDGE and not by_edge:
            print(
                f"dadmm: no {kind}: it needs a run with --record-edges", file=sys.stderr
            )
            continue
        if given.kind == "all" and kind == "structure" and not solid:
            continue
        figure = DRAW[kind](runs, given.at)
        names = [f"{prefix}{kind}.{end}" for end in given.format]
        RunFolder(folder).add_figures(names)
        for path in save(figure, folder / (prefix + kind), given.format):
            print(path)
    return 0
