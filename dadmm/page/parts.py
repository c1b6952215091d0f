"""A page while it is built: its plots, pictures and data for the browser."""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.figure import Figure
from PIL import Image

from dadmm.core.errors import DadmmError
from dadmm.drawing.figures import labels
from dadmm.page import look
from dadmm.page.markup import paragraph, text
from dadmm.page.runs import PageRun

DOTS = 110  # per inch, of a picture
SHADES = 96  # colours of a picture, which keep it small
# of a line in a legend, by plotly's name of the dash
STROKES = {"solid": "", "dash": "9 5", "dashdot": "9 4 2 4", "dot": "2 3"}
SHAPES = {
    "circle": "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z", "square": "M-4-4h8v8h-8z",
    "triangle-up": "M0-5l5 9h-10z", "diamond": "M0-5l5 5l-5 5l-5-5z",
    "triangle-down": "M0 5l5-9h-10z", "cross": "M-2-5h4v3h3v4h-3v3h-4v-3h-3v-4h3z",
    "diamond-tall": "M0-6l3.5 6l-3.5 6l-3.5-6z",
    "star": "M0-6l1.7 4h4.3l-3.5 2.8l1.4 4.4l-3.9-2.7l-3.9 2.7l1.4-4.4l-3.5-2.8h4.3z",
    "x": "M-4-5l4 3.5l4-3.5l1.5 1.5l-3.7 3.5l3.7 3.5l-1.5 1.5l-4-3.5l-4 3.5l-1.5-1.5"
    "l3.7-3.5l-3.7-3.5z",
}  # fmt: skip


class Page:
    """What the sections of a page have added: figures of plotly and networks."""

    def __init__(self, runs: Sequence[PageRun]) -> None:
        self.figures: list[dict[str, Any]] = []
        self.networks: dict[str, Any] = {}
        self._all = list(runs)
        self._names, self._looks = labels(runs), look.of_runs(runs)

    def plot(
        self,
        title: str,
        traces: Sequence[dict[str, Any]],
        layout: dict[str, Any],
        kind: str = "",
        name: str = "",
    ) -> str:
        """Add a figure, and return the element in which it is drawn.

        A plot of ``kind`` "iterations" has an axis of iterations. ``name`` is a number
        by default.
        """
        name = f"plot-{name or len(self.figures)}"
        self.figures.append(
            {"id": name, "kind": kind, "data": list(traces), "layout": layout}
        )
        words = text(title)
        return (
            f'<figure class="plot"><figcaption>{words}</figcaption>'
            f'<div class="canvas" id="{name}" aria-label="{words}"></div></figure>'
        )

    def still(self, draw: Callable[[], Figure], words: str) -> str:
        """Return a picture that is shown where plots are not."""
        try:
            source = b64encode(picture(draw())).decode()
        except DadmmError as error:  # a run that this figure is not for
            return paragraph(f"No picture: {error}", "still")
        except (ArithmeticError, ValueError):  # of matplotlib, such as eta = 1e-300
            return paragraph("No picture: its numbers cannot be drawn.", "still")
        return (
            f'<img class="still" alt="{text(words)}" '
            f'src="data:image/png;base64,{source}">'
        )

    def look(self, run: PageRun) -> dict[str, Any]:
        """Return colour, dash and marker of a run."""
        return self._looks[self._all.index(run)]

    def name(self, run: PageRun) -> str:
        """Return the label of a run."""
        return self._names[self._all.index(run)]

    def titled(self, words: str, run: PageRun) -> str:
        """Return a title, with the label of the run if there are several."""
        return f"{words}: {self.name(run)}" if len(self._all) > 1 else words

    def legend(self, runs: Sequence[PageRun]) -> str:
        """Return a legend of several runs; nothing for one."""
        if len(self._all) == 1:
            return ""
        items = "".join(
            f"<li>{_sample(self.look(run))} {text(self.name(run))}</li>" for run in runs
        )
        return f'<ul class="legend" aria-label="Legend">{items}</ul>'


def _sample(style: dict[str, Any]) -> str:
    """Return a short line with the colour, dash and marker of a run, as SVG."""
    colour = f"var(--{style['colour'][1:]})"
    dash = STROKES.get(style["dash"], style["dash"].replace("px", ""))
    return (
        '<svg width="46" height="14" viewBox="0 0 46 14" aria-hidden="true">'
        f'<path d="M1 7H45" stroke="{colour}" stroke-width="2.5" '
        f'stroke-dasharray="{dash}"/>'
        f'<path d="{SHAPES[style["marker"]]}" transform="translate(23 7)" '
        f'fill="{colour}"/></svg>'
    )


def picture(figure: Figure) -> bytes:
    """Return a figure as a small PNG file."""
    whole, small = io.BytesIO(), io.BytesIO()
    figure.savefig(whole, format="png", dpi=DOTS)
    image = Image.open(whole).convert("RGB").quantize(SHADES, dither=Image.Dither.NONE)
    image.save(small, format="PNG", optimize=True)
    return small.getvalue()


def not_recorded(runs: Sequence[PageRun]) -> str:
    """Return a paragraph for runs that have no rows."""
    if all(run.is_going for run in runs):
        return paragraph("There are no complete iterations yet.")
    return paragraph(
        "The iterations were not recorded. --record records them; it is the default "
        "up to 1,000 nodes."
    )
