"""A network whose penalties and budgets change edge by edge, drawn from a run.

    python -m benchmarks.draw_dynamic [--printed] [--run DIR] [--out DIR]

Makes the run of `mpiexec -n 20 python -m dadmm.run`, in one process, which gives the
same numbers. Writes docs/img/network.gif, an animation of all its updates, and
network.png, some of them side by side. --printed makes the paper's Fig. 1c from a run
of NAP as printed on a ring: dynamic.gif and dynamic.png in benchmarks/figures. --run
reads a run that was made with --record-edges, by a scheme with budgets.
"""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from PIL import Image

import dadmm.run
from benchmarks.shared.commands import parser_of
from benchmarks.shared.experiment import report
from dadmm.core import files
from dadmm.core.errors import ConfigError
from dadmm.drawing.graph import draw_nodes, places
from dadmm.drawing.run_reader import Run
from dadmm.drawing.style import STRENGTH, VERMILLION, save, styled

BARE = "--nodes 20"
PRINTED = "--config as-printed --topology ring --nodes 12 --record-edges"
SHOWN = 5  # iterations of the still picture
WIDTH = 5.0  # points: of a half that has eta0
SPENT = (0.35, 0.35, 0.35, 1.0)  # colour of a half without budget
SECONDS, LAST = 0.2, 3.0  # that a frame of the animation stays, and its last one
THIN, THICK = 0.4, 5.0  # points: of the edges with the least and largest penalty


class Story(NamedTuple):
    """What happened at the ends of all edges; rows are iterations 1, 2, ..."""

    places: np.ndarray  # (n_nodes, 2)
    edges: np.ndarray  # (E, 2): directed, so each end of an edge once
    eta: np.ndarray  # (iterations, E): over eta0
    blocked: np.ndarray  # (iterations, E): the budget is spent


def story(run: Run) -> Story:
    """Return penalties and budgets of a run of NAP."""
    if run.config.scheme != "nap":
        raise ConfigError(
            f"the run in {run.folder} has the scheme {run.config.scheme!r}; give one "
            "of --scheme nap"
        )
    spent, budget = run.edge_column("spent"), run.edge_column("budget")
    # equation (9): what is spent by now, and the budget before it may be raised
    before = np.vstack([np.full_like(budget[:1], run.config.budget0), budget[:-1]])
    graph = run.topology
    eta = run.eta / run.config.eta0
    return Story(places(graph), graph.edges, eta, spent >= before)


def end_of_change(told: Story) -> int:
    """Return the iteration after which no penalty changes, counted from 1."""
    moved = (np.diff(told.eta, axis=0) != 0).any(axis=1)
    return int(np.flatnonzero(moved)[-1]) + 2 if moved.any() else 1


def colours(told: Story) -> ScalarMappable:
    """Return the colours of all penalties."""
    low, high = min(told.eta.min(), 0.5), max(told.eta.max(), 1.0)
    return ScalarMappable(LogNorm(low, high), STRENGTH)


def draw_network(axis: Any, told: Story, t: int) -> None:
    """Draw iteration t: each half of an edge shows the penalty of its own end."""
    eta, blocked = told.eta[t - 1], told.blocked[t - 1]
    own, other = told.places[told.edges[:, 0]], told.places[told.edges[:, 1]]
    halves = np.stack([own, 0.5 * (own + other)], axis=1)
    inks = colours(told).to_rgba(eta)
    inks[blocked] = SPENT
    widths = WIDTH * eta
    lines = LineCollection(
        halves, colors=inks, linewidths=widths, capstyle="butt",
        linestyles=[dots(w) if w < WIDTH else "-" for w in widths],
    )  # fmt: skip
    axis.add_collection(lines)
    draw_nodes(axis, told.places)
    adapting = int((~blocked).sum())
    axis.set_title(f"After iteration {t}")
    axis.set_xlabel(f"{adapting} of {len(eta)} ends adapt")


def dots(width: float) -> tuple[float, tuple[float, float]]:
    """Return a line of dots that does not depend on its width, as matplotlib's do."""
    return 0.0, (2.0 / width, 1.6 / width)


def draw_curves(axis: Any, told: Story, most: int, at: Sequence[int]) -> None:
    """Draw the penalties of all ends, dots where they adapt; mark some iterations."""
    t = np.arange(1, most + 1)
    eta, blocked = told.eta[:most], told.blocked[:most]
    axis.plot(t, eta, color="0.8", linewidth=0.7, zorder=1)
    inks = colours(told).to_rgba(eta)
    inks[blocked] = SPENT
    times = np.broadcast_to(t[:, None], eta.shape)
    axis.scatter(times, eta, s=9, c=inks.reshape(-1, 4), linewidths=0, zorder=2)
    for moment in at:
        axis.axvline(moment, color=VERMILLION, linewidth=1.2, zorder=1.5)
    axis.set(xlim=(0, most + 1), xlabel="Iteration", ylabel=r"$\eta_{ij}$ / $\eta_0$")
    axis.grid()


def legend(figure: Figure, told: Story) -> None:
    """Say what dots and colours mean."""
    shades = colours(told)
    weak = 0.7 * WIDTH
    handles = {
        r"adapts, below $\eta_0$": (shades.to_rgba(0.7), weak, dots(weak)),
        r"adapts, $\eta_0$ or more": (shades.to_rgba(1.0), WIDTH, "-"),
        r"budget spent, back at $\eta_0$": (SPENT, WIDTH, "-"),
    }
    if not (~told.blocked & (told.eta >= 1.0)).any():
        del handles[r"adapts, $\eta_0$ or more"]
    lines = [
        Line2D([], [], color=ink, linewidth=width, linestyle=dash)
        for ink, width, dash in handles.values()
    ]
    figure.legend(lines, handles, loc="outside lower center", ncols=3, handlelength=3)


@styled
def still(told: Story) -> Figure:
    """Draw some iterations side by side, above the penalties of all ends."""
    most = end_of_change(told)
    at = sorted({int(t) for t in np.linspace(1, most, SHOWN)})
    figure = Figure(figsize=(10.5, 4.6), layout="constrained")
    grid = figure.add_gridspec(2, len(at), height_ratios=(2.1, 1.3))
    for k, t in enumerate(at):
        draw_network(figure.add_subplot(grid[0, k]), told, t)
    draw_curves(figure.add_subplot(grid[1, :]), told, most, at)
    legend(figure, told)
    return figure


@styled
def frame(told: Story, t: int, most: int) -> Figure:
    """Draw one frame of the animation."""
    figure = Figure(figsize=(7.0, 3.6), layout="constrained", dpi=100)
    left, right = figure.subplots(1, 2, width_ratios=(1.0, 1.2))
    draw_network(left, told, t)
    draw_curves(right, told, most, [t])
    legend(figure, told)
    return figure


def picture(figure: Figure) -> Image.Image:
    """Return a figure as a frame."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=100)
    return Image.open(file).convert("P", palette=Image.Palette.ADAPTIVE, colors=48)


def animate(figures: Iterator[Figure], path: Path) -> None:
    """Write the animation, which repeats."""
    first, *others = map(picture, figures)
    times = [int(1000 * SECONDS)] * len(others) + [int(1000 * LAST)]
    with files.replacing(path) as file:
        first.save(
            file, format="gif", save_all=True, append_images=others, duration=times,
            loop=0, optimize=True,
        )  # fmt: skip


class Budgets(NamedTuple):
    """Penalties and budgets of all edges; rows are iterations 1, 2, ..."""

    places: np.ndarray  # (n_nodes, 2)
    pairs: np.ndarray  # (E, 2): each edge once
    eta: np.ndarray  # (iterations, E)
    spent: np.ndarray  # (iterations, E)
    budget: np.ndarray  # (iterations, E)

    @property
    def updates(self) -> list[int]:
        """The first iteration, and all in which a penalty changed."""
        moved = (np.diff(self.eta, axis=0) != 0).any(axis=1)
        return [1, *(np.flatnonzero(moved) + 2).tolist()]

    @property
    def shades(self) -> ScalarMappable:
        """The colours of all penalties."""
        return ScalarMappable(LogNorm(self.eta.min(), self.eta.max()), STRENGTH)


def budgets(run: Run) -> Budgets:
    """Return penalties and budgets of a run whose ends of an edge agree."""
    graph = run.topology
    once = graph.edges[:, 0] < graph.edges[:, 1]
    spent, budget = run.edge_column("spent"), run.edge_column("budget")
    if not budget.any():
        raise ConfigError(f"the scheme of the run in {run.folder} has no budgets")
    columns = (run.eta, np.minimum(spent, budget), budget)
    return Budgets(
        places(graph), graph.edges[once], *(column[:, once] for column in columns)
    )


def draw_edges(axis: Any, told: Budgets, t: int) -> None:
    """Draw iteration t: width and colour of an edge are its penalty."""
    eta, shades = told.eta[t - 1], told.shades
    order = np.argsort(eta)
    lines = LineCollection(
        told.places[told.pairs][order], colors=shades.to_rgba(eta[order]),
        linewidths=THIN + (THICK - THIN) * shades.norm(eta[order]),
    )  # fmt: skip
    axis.add_collection(lines)
    draw_nodes(axis, told.places)
    axis.set_title(f"Iteration {t}")
    axis.set_xlabel(f"η from {eta.min():.2g} to {eta.max():.2g}")


def draw_eta(axis: Any, told: Budgets, until: int, at: Sequence[int] = ()) -> None:
    """Draw the penalties of all edges until an iteration."""
    t = np.arange(1, until + 1)
    last, shades = told.eta[until - 1], told.shades
    for k in np.argsort(last):
        ink = shades.to_rgba(last[k])
        axis.plot(
            t, told.eta[:until, k], color=ink, linewidth=0.8, drawstyle="steps-post"
        )
    for moment in at:
        axis.axvline(moment, color=VERMILLION, linewidth=1.0, zorder=0)
    low, high = told.eta.min(), told.eta.max()
    axis.set(yscale="log", xlim=(0, len(told.eta) + 1), ylim=(0.8 * low, 1.25 * high))
    axis.set(xlabel="Iteration", ylabel="η of each edge")
    axis.grid()


def draw_spent(axis: Any, told: Budgets, t: int) -> None:
    """Draw the bits that each edge has spent, as a part of its budget."""
    order = np.argsort(told.spent[-1])
    x, budget = np.arange(len(order)), told.budget[t - 1, order]
    inks = told.shades.to_rgba(told.eta[t - 1, order])
    axis.bar(x, budget, width=1.0, color="0.92")
    axis.bar(x, told.spent[t - 1, order], width=1.0, color=inks)
    axis.set(xlim=(-1, len(x)), ylim=(0, 1.05 * told.budget.max()), xticks=[])
    axis.set(xlabel="each edge: spent of its budget (grey)", ylabel="bits")


@styled
def budgets_frame(told: Budgets, t: int) -> Figure:
    """Draw one frame of the animation."""
    figure = Figure(figsize=(7.4, 3.8), layout="constrained", dpi=100)
    grid = figure.add_gridspec(2, 2, width_ratios=(1.25, 1.0))
    draw_edges(figure.add_subplot(grid[:, 0]), told, t)
    draw_eta(figure.add_subplot(grid[0, 1]), told, t)
    draw_spent(figure.add_subplot(grid[1, 1]), told, t)
    return figure


@styled
def budgets_still(told: Budgets) -> Figure:
    """Draw some updates side by side, above the penalties and what was spent."""
    every = told.updates
    at = sorted({every[k] for k in np.linspace(0, len(every) - 1, 3).astype(int)})
    figure = Figure(figsize=(9.6, 4.0), layout="constrained")
    grid = figure.add_gridspec(2, 6, height_ratios=(1.1, 1.0))
    for k, t in enumerate(at):
        draw_edges(figure.add_subplot(grid[0, 2 * k : 2 * k + 2]), told, t)
    draw_eta(figure.add_subplot(grid[1, :3]), told, len(told.eta), at)
    draw_spent(figure.add_subplot(grid[1, 3:]), told, len(told.eta))
    return figure


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--printed", action="store_true", help="NAP on a ring")
    parser.add_argument("--run", type=Path, help="folder of a run")
    parser.add_argument("--out", type=Path, help="folder of the pictures")
    chosen = parser.parse_args()
    words = PRINTED if chosen.printed else BARE
    with tempfile.TemporaryDirectory() as folder:
        if not chosen.run and dadmm.run.main(
            [*words.split(), "--out", f"{folder}/run"]
        ):
            raise ConfigError("the run failed; see above")
        run = Run.read(chosen.run or f"{folder}/run")
        told = story(run) if chosen.printed else budgets(run)
    if isinstance(told, Story):
        out, name = chosen.out or Path("benchmarks/figures"), "dynamic"
        print_numbers(told)
        most = end_of_change(told)
        save(still(told), out / name, ("png",))
        film = (frame(told, t, most) for t in range(1, most + 1))
    else:
        out, name = chosen.out or Path("docs/img"), "network"
        save(budgets_still(told), out / name, ("png",))
        film = (budgets_frame(told, t) for t in told.updates)
    animate(film, out / f"{name}.gif")
    print(f"{out}/{name}.png and {name}.gif")


def print_numbers(told: Story) -> None:
    """Print the numbers of the text below the picture."""
    adapting = np.where(told.blocked, np.nan, told.eta)
    print(f"{len(told.edges)} ends of edges, {len(told.eta)} iterations")
    low, high = np.nanmin(adapting), np.nanmax(adapting)
    print(f"penalties of ends that adapt: {low:.2f} to {high:.2f} times eta0")
    spent = np.flatnonzero(told.blocked.any(axis=1))
    print(f"first budget spent in iteration {spent[0] + 1 if len(spent) else None}")
    print(f"no penalty changes after iteration {end_of_change(told)}")


if __name__ == "__main__":
    sys.exit(report(main))
