"""A network whose penalties and budgets change edge by edge, drawn from a run.

    python -m benchmarks.draw_dynamic [--printed] [--run DIR] [--out DIR]

Makes the run of `mpiexec -n 20 python -m dadmm.run`, in one process, which gives the
same numbers. Writes docs/img/network.gif, an animation of all its updates, and
network.png, some of them side by side. --printed makes the paper's Fig. 1c from a run
of NAP as printed on a ring: dynamic.gif and dynamic.png in benchmarks/figures. --run
reads a run that was made with --record-edges, by a scheme with budgets.
"""

import io
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from PIL import Image

import dadmm.run
from benchmarks.shared.commands import parser_of
from benchmarks.shared.experiment import report
from dadmm.core import files
from dadmm.core.errors import ConfigError
from dadmm.runs.stored import StoredRun
from dadmm.show.panels import places
from dadmm.show.style import VERMILLION
from dadmm.show.to_matplotlib import STRENGTH, draw_nodes, log_axis, save, styled

BARE = "--nodes 20"
PRINTED = "--config as-printed --topology ring --nodes 12 --record-edges"
SPENT = (0.35, 0.35, 0.35, 1.0)  # colour of an end whose budget is used up
SECONDS, LAST = 0.2, 3.0  # that a frame of the animation stays, and its last one
THIN, THICK = 0.4, 5.0  # points: of the ends with the least and the largest penalty


class Story(NamedTuple):
    """Penalties and budgets of the ends of all edges; rows are iterations 1, 2, ..."""

    places: np.ndarray  # (n_nodes, 2)
    edges: np.ndarray  # (E, 2): directed, so each end of an edge once
    eta: np.ndarray  # (iterations, E)
    spent: np.ndarray  # (iterations, E)
    budget: np.ndarray  # (iterations, E)
    used_up: np.ndarray  # (iterations, E)

    @property
    def updates(self) -> list[int]:
        """The first iteration, and all in which a penalty changed."""
        moved = (np.diff(self.eta, axis=0) != 0).any(axis=1)
        return [1, *(np.flatnonzero(moved) + 2).tolist()]

    @property
    def shades(self) -> ScalarMappable:
        return ScalarMappable(LogNorm(self.eta.min(), self.eta.max()), STRENGTH)

    def inks(self, t: int) -> np.ndarray:
        found = self.shades.to_rgba(self.eta[t - 1])
        found[self.used_up[t - 1]] = SPENT
        return found


def story(run: StoredRun) -> Story:
    spent, budget = run.edge_column("spent"), run.edge_column("budget")
    if not budget.any():
        raise ConfigError(f"the scheme of the run in {run.folder} has no budgets")
    used_up = run.edge_column("used_up").astype(bool)
    if run.config.scheme == "nap":
        # equation (9): what is spent by now, and the budget before it may be raised
        start = np.full_like(budget[:1], run.config.budget0)
        used_up = spent >= np.vstack([start, budget[:-1]])
    graph = run.topology
    spent = np.minimum(spent, budget)
    return Story(places(graph), graph.edges, run.eta, spent, budget, used_up)


def draw_network(axis: Any, told: Story, t: int) -> None:
    """Draw iteration t: each half of an edge shows the penalty of its own end."""
    eta, widths = told.eta[t - 1], told.shades.norm(told.eta[t - 1])
    order = np.argsort(eta)
    own, other = told.places[told.edges[:, 0]], told.places[told.edges[:, 1]]
    halves = np.stack([own, 0.5 * (own + other)], axis=1)
    lines = LineCollection(
        halves[order], colors=told.inks(t)[order], capstyle="butt",
        linewidths=THIN + (THICK - THIN) * np.asarray(widths)[order],
    )  # fmt: skip
    axis.add_collection(lines)
    draw_nodes(axis, told.places)
    axis.set_title(f"Iteration {t}")
    spent = int(told.used_up[t - 1].sum())
    words = f"η from {eta.min():.2g} to {eta.max():.2g}"
    axis.set_xlabel(f"{words}, {spent} without budget" if spent else words)


def draw_eta(axis: Any, told: Story, until: int, at: Sequence[int] = ()) -> None:
    t, inks = np.arange(1, until + 1), told.inks(until)
    for k in np.argsort(told.eta[until - 1]):
        look = {"color": inks[k], "linewidth": 0.8, "drawstyle": "steps-post"}
        axis.plot(t, told.eta[:until, k], **look)
    for moment in at:
        axis.axvline(moment, color=VERMILLION, linewidth=1.0, zorder=0)
    low, high = told.eta.min(), told.eta.max()
    axis.set(xlim=(0, len(told.eta) + 1), ylim=(0.8 * low, 1.25 * high))
    axis.set(xlabel="Iteration", ylabel="η of each end")
    log_axis(axis)
    axis.grid()


def draw_spent(axis: Any, told: Story, t: int) -> None:
    """Draw what each end has spent, as a part of its budget."""
    order = np.argsort(told.spent[-1])
    x = np.arange(len(order))
    axis.bar(x, told.budget[t - 1, order], width=1.0, color="0.92")
    axis.bar(x, told.spent[t - 1, order], width=1.0, color=told.inks(t)[order])
    axis.set(xlim=(-1, len(x)), ylim=(0, 1.05 * told.budget.max()), xticks=[])
    axis.set(xlabel="each end of an edge: spent of its budget (grey)")


@styled
def frame(told: Story, t: int) -> Figure:
    figure = Figure(figsize=(7.4, 3.8), layout="constrained", dpi=100)
    grid = figure.add_gridspec(2, 2, width_ratios=(1.25, 1.0))
    draw_network(figure.add_subplot(grid[:, 0]), told, t)
    draw_eta(figure.add_subplot(grid[0, 1]), told, t)
    draw_spent(figure.add_subplot(grid[1, 1]), told, t)
    return figure


@styled
def still(told: Story) -> Figure:
    """Draw some updates side by side, above the penalties and what was spent."""
    every = told.updates
    at = sorted({every[k] for k in np.linspace(0, len(every) - 1, 3).astype(int)})
    figure = Figure(figsize=(9.6, 4.0), layout="constrained")
    grid = figure.add_gridspec(2, 6, height_ratios=(1.1, 1.0))
    for k, t in enumerate(at):
        draw_network(figure.add_subplot(grid[0, 2 * k : 2 * k + 2]), told, t)
    draw_eta(figure.add_subplot(grid[1, :3]), told, len(told.eta), at)
    draw_spent(figure.add_subplot(grid[1, 3:]), told, len(told.eta))
    return figure


def picture(figure: Figure) -> Image.Image:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=100)
    return Image.open(file).convert("P", palette=Image.Palette.ADAPTIVE, colors=48)


def animate(figures: Iterator[Figure], path: Path) -> None:
    first, *others = map(picture, figures)
    times = [int(1000 * SECONDS)] * len(others) + [int(1000 * LAST)]
    with files.replacing(path) as file:
        first.save(
            file, format="gif", save_all=True, append_images=others, duration=times,
            loop=0, optimize=True,
        )  # fmt: skip


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--printed", action="store_true", help="NAP on a ring")
    parser.add_argument("--run", type=Path, help="folder of a run")
    parser.add_argument("--out", type=Path, help="folder of the pictures")
    chosen = parser.parse_args()
    words, out, name = BARE, Path("docs/img"), "network"
    if chosen.printed:
        words, out, name = PRINTED, Path("benchmarks/figures"), "dynamic"
    with tempfile.TemporaryDirectory() as folder:
        made = [*words.split(), "--out", f"{folder}/run"]
        if not chosen.run and dadmm.run.main(made):
            raise ConfigError("the run failed; see above")
        told = story(StoredRun.read(chosen.run or f"{folder}/run"))
    stem = (chosen.out or out) / name
    save(still(told), stem, ("png",))
    animate((frame(told, t) for t in told.updates), stem.with_suffix(".gif"))
    print(f"{stem}.png and {name}.gif, {len(told.updates)} updates")


if __name__ == "__main__":
    report(main)
