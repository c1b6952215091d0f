"""Colours, dashes and markers of plots, in a light and a dark page.

A colour of a figure is a name such as ``@blue``; `plots.js` puts in the page's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex

from dadmm.drawing import style
from dadmm.drawing.figures import looks
from dadmm.runs.stored import StoredRun

COLOURS = {
    "black": style.BLACK, "orange": style.ORANGE, "sky": style.SKY,
    "green": style.GREEN, "blue": style.BLUE, "vermillion": style.VERMILLION,
    "purple": style.PURPLE, "grey": style.GREY, "ultramarine": style.ULTRAMARINE,
    "pale": "#d9d9d9", "faint": "#8f8f8f", "text": "#1b1b1f", "muted": "#4a4e57",
    "grid": "#e2e2e6", "axis": "#8a8f98", "paper": "#ffffff",
}  # fmt: skip
NAMES = {value: name for name, value in list(COLOURS.items())[:9]}
# those that would be hard to see on a dark page, lighter
DARK = COLOURS | {
    "black": "#f2f2f2", "blue": "#3f9fe0", "sky": "#a5daf7", "green": "#21b88d",
    "vermillion": "#f0752a", "ultramarine": "#9393ff", "pale": "#4a4d55",
    "faint": "#85888f", "text": "#e8e8ea", "muted": "#b9bdc6", "grid": "#33363d",
    "axis": "#888c95", "paper": "#17191d",
}  # fmt: skip
DASHES = {"-": "solid", "--": "dash", "-.": "dashdot"}
MARKERS = {
    "o": "circle", "s": "square", "^": "triangle-up", "D": "diamond",
    "v": "triangle-down", "P": "cross", "d": "diamond-tall", "*": "star", "X": "x",
}  # fmt: skip
LEVELS = 9  # colours of penalties


def colours(name: str) -> dict[str, Any]:
    """Return the colours of a light or a dark page, with colours of scales."""
    ramp = style.STRENGTH(np.linspace(0.12, 1, LEVELS))
    if name == "dark":  # the strongest is the lightest
        ramp = colormaps["viridis"](np.linspace(0.42, 1, LEVELS))
    steps = [to_hex(colour) for colour in ramp]
    scale = [[k / (LEVELS - 1), step] for k, step in enumerate(steps)]
    plain = DARK if name == "dark" else COLOURS
    sides = ("blue", "paper", "vermillion")
    both = [[k / 2, plain[side]] for k, side in enumerate(sides)]
    return plain | {"levels": steps, "scale": scale, "diverging": both}


def of_runs(runs: Sequence[StoredRun]) -> list[dict[str, Any]]:
    """Return colour, dash and marker of each run, as plotly names them."""
    found = []
    for own in looks(runs):
        line = own["linestyle"]
        dash = DASHES.get(line) if isinstance(line, str) else None
        if dash is None:
            dash = ",".join(f"{2 * length}px" for length in line[1])
        colour = f"@{NAMES[own['color']]}"
        found.append({"colour": colour, "dash": dash, "marker": MARKERS[own["marker"]]})
    return found


def stylesheet_colours() -> str:
    """Return the colours as CSS variables, for a dark page by media query."""

    def variables(name: str) -> str:
        found = colours(name)
        steps = {f"level{k}": step for k, step in enumerate(found["levels"])}
        plain = {k: v for k, v in found.items() if isinstance(v, str)} | steps
        return "".join(f"--{key}:{value};" for key, value in plain.items())

    dark = f"@media (prefers-color-scheme: dark){{:root{{{variables('dark')}}}}}"
    return f":root{{{variables('light')}}}\n{dark}\n"
