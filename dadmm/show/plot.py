"""Draw runs: ``dadmm plot RUN [RUN ...]``.

Several runs are compared; their labels are the settings that differ. Exit codes: 0
success, 2 invalid input or figures that cannot be written.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dadmm.core.arguments import Parser
from dadmm.core.classes import require
from dadmm.core.schema import TEXT, choice
from dadmm.runs.folder import RunFolder
from dadmm.runs.stored import StoredRun, run_folders

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = ("convergence", "cost", "eta", "network", "traffic", "structure")
BY_EDGE = ("eta", "network")
FORMATS = ("png", "svg", "pdf")
NUMBERS = "([0-9]{1,9}(,[0-9]{1,9})*)?"
AT = TEXT.also("iterations such as 1,10,50", lambda x: bool(re.fullmatch(NUMBERS, x)))


def main(argv: Sequence[str] | None = None) -> int:
    """Draw the runs of a command line, print the paths, and return the exit code."""
    parser = Parser("plot", "Draw a run, or compare several, in files.")
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help="folder of a run, or of several runs")
    add("--out", metavar="DIR", help="folder of the figures (default: the first RUN)")
    add("--kind", choices=("all", *KINDS), default="all",
        help="what to draw (default: all that the run has)")  # fmt: skip
    add("--at", default="", metavar="1,10,50", help="iterations of "
        "the network figure (default: up to four, chosen by penalties)")  # fmt: skip
    add("--format", default="png,svg", metavar="png,svg",
        help=f"one or several of {', '.join(FORMATS)} (default: png,svg)")  # fmt: skip
    given = parser.parse_args(argv)
    AT.check("--at", given.at)
    at = sorted({int(word) for word in given.at.split(",") if word})
    formats = list(dict.fromkeys(given.format.split(",")))
    for word in formats:
        choice(FORMATS).check("--format", word)
    require("matplotlib", "drawing", "plot")
    from dadmm.show.to_matplotlib import save

    runs = [StoredRun.read(folder) for folder in run_folders(given.runs)]
    folder = Path(given.out) if given.out else runs[0].folder
    prefix = "compare-" if len(runs) > 1 else ""
    kinds, by_edge = [given.kind], True
    if given.kind == "all":
        by_edge = all(run.by_edge for run in runs)
        solid = all("structure" in run.arrays for run in runs)
        has = dict.fromkeys(BY_EDGE, by_edge) | {"structure": solid}
        kinds = [kind for kind in KINDS if has.get(kind, True)]
    for kind in kinds:
        figure = draw_figure(kind, runs, at)
        RunFolder(folder).add_figures([f"{prefix}{kind}.{end}" for end in formats])
        for path in save(figure, folder / (prefix + kind), formats):
            print(path)
    for kind in () if by_edge else BY_EDGE:
        print(f"dadmm: no {kind}: it needs --record-edges", file=sys.stderr)
    return 0


def draw_figure(kind: str, runs: Sequence[StoredRun], at: Sequence[int] = ()) -> Figure:
    """Return one figure of matplotlib; raise if a run does not have what it needs."""
    from dadmm.show import panels, to_matplotlib

    words, draw = panels.title(runs), to_matplotlib.draw
    if kind == "convergence":
        return draw(words, panels.convergence(runs))
    if kind == "cost":
        return draw(f"Cost of accuracy\n{words}", panels.costs(runs), 4.4)
    if kind == "eta":
        alone = len(runs) == 1
        panel = panels.each_penalty(runs[0]) if alone else panels.penalties(runs)
        return draw(words, [panel], 5.4)
    if kind == "network":
        graphs = panels.networks(runs, at)
        return to_matplotlib.draw_networks(f"Penalties of the edges\n{words}", graphs)
    if kind == "traffic":
        found = panels.traffic(runs, by_run=len(runs) > 1)
        return draw(f"Traffic and time\n{words}", found, 4.4)
    return draw(words, [view for run in runs for view in panels.views(run)], 4.4)
