"""Colours, dashes and markers, in figures of matplotlib and on a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILLION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#999999"
ULTRAMARINE = "#2B2BF5"
Look = dict[str, Any]  # arguments of matplotlib's lines
SCHEME_STYLE: dict[str, Look] = {
    "fixed": {"color": BLACK, "linestyle": "-", "marker": "o"},
    "vp": {"color": ORANGE, "linestyle": "--", "marker": "s"},
    "ap": {"color": SKY, "linestyle": "-.", "marker": "^"},
    "nap": {"color": BLUE, "linestyle": "-", "marker": "D"},
    "vp_ap": {"color": GREEN, "linestyle": (0, (6, 1, 1, 1, 1, 1)), "marker": "v"},
    "vp_nap": {"color": PURPLE, "linestyle": (0, (2, 1)), "marker": "P"},
    "global_balance": {
        "color": ULTRAMARINE, "linestyle": (0, (4, 1, 1, 1, 1, 1, 1, 1)), "marker": "d",
    },
    "snap": {
        "color": VERMILLION, "linestyle": "-", "marker": "*",
        "linewidth": 2.2, "markersize": 9.0,
    },
}  # fmt: skip
SPARE = {"color": VERMILLION, "linestyle": (0, (1, 1)), "marker": "X"}
CYCLE = (*(SCHEME_STYLE[s] for s in ("nap", "vp", "vp_ap", "vp_nap")), SPARE,
         *(SCHEME_STYLE[s] for s in ("ap", "fixed")))  # fmt: skip
FILLS = (("blue", ""), ("orange", "/"), ("sky", "."), ("pale", "x"))  # and hatches
DASHES = ("-", "--", ":", "-.")  # of the first runs of a colour
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "figure.titlesize": 10,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "0.9",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
    "hatch.linewidth": 0.5,
    "savefig.dpi": 200,
    "svg.hashsalt": "dadmm",
}

LIGHT = {
    "black": BLACK, "orange": ORANGE, "sky": SKY, "green": GREEN, "blue": BLUE,
    "vermillion": VERMILLION, "purple": PURPLE, "grey": GREY,
    "ultramarine": ULTRAMARINE, "pale": "#d9d9d9", "faint": "#8f8f8f",
    "text": "#1b1b1f", "muted": "#4a4e57", "grid": "#e2e2e6", "axis": "#8a8f98",
    "paper": "#ffffff",
}  # fmt: skip
NAMES = {value: name for name, value in list(LIGHT.items())[:9]}
# those that would be hard to see on a dark page, lighter
DARK = LIGHT | {
    "black": "#f2f2f2", "blue": "#3f9fe0", "sky": "#a5daf7", "green": "#21b88d",
    "vermillion": "#f0752a", "ultramarine": "#9393ff", "pale": "#4a4d55",
    "faint": "#85888f", "text": "#e8e8ea", "muted": "#b9bdc6", "grid": "#33363d",
    "axis": "#888c95", "paper": "#17191d",
}  # fmt: skip
# penalties from weak to strong: viridis, on a dark page the strongest is the lightest
LEVELS = {
    "light": ("#81d34d", "#48c16e", "#24aa83", "#20928c", "#29798e", "#34608d",
              "#414487", "#482475", "#440154"),
    "dark": ("#287d8e", "#218f8d", "#1fa088", "#2cb17e", "#48c16e", "#70cf57",
             "#9dd93b", "#d0e11c", "#fde725"),
}  # fmt: skip
N_LEVELS = len(LEVELS["light"])
MARKERS = {  # the names of plotly, and letters for a legend
    "o": ("circle", "●"), "s": ("square", "■"), "^": ("triangle-up", "▲"),
    "D": ("diamond", "◆"), "v": ("triangle-down", "▼"), "P": ("cross", "✚"),
    "d": ("diamond-tall", "♦"), "*": ("star", "★"), "X": ("x", "✖"),
}  # fmt: skip
LINES = {"-": "solid", "--": "9px,5px", "-.": "9px,4px,2px,4px", ":": "2px,3px"}


def looks(schemes: list[str], methods: list[str]) -> list[Look]:
    """Return a look for each run, no two alike: colour by method, dash by its turn.

    A method is what the label of a run says, without seeds. Its colour is that of its
    scheme, if no other method has the scheme.
    """
    known = list(dict.fromkeys(methods))
    pairs = set(zip(schemes, methods, strict=True))
    own = SCHEME_STYLE.keys() >= set(schemes) and len(pairs) == len(set(schemes))
    most = max(map(methods.count, known), default=0)
    if own and most == 1:
        return [SCHEME_STYLE[scheme] for scheme in schemes]
    found: list[Look] = []
    for place, (scheme, method) in enumerate(zip(schemes, methods, strict=True)):
        turn, k = methods[:place].count(method), known.index(method)
        turn += 0 if own else most * (k // len(CYCLE))
        base = SCHEME_STYLE[scheme] if own else CYCLE[k % len(CYCLE)]
        dash = DASHES[turn] if turn < len(DASHES) else (0, (2 + turn, 1.5, 1, 1.5))
        found.append(base | {"linestyle": dash})
    return found


def plotly_look(look: Look) -> dict[str, str]:
    """Return colour, dash and marker of a curve as `plots.js` and plotly name them."""
    line = look["linestyle"]
    dash = LINES.get(line) or ",".join(f"{2 * length:g}px" for length in line[1])
    marker, letter = MARKERS[look["marker"]]
    colour = NAMES[look["color"]]
    return {"colour": colour, "dash": dash, "marker": marker, "letter": letter}


def stylesheet() -> str:
    """Return the colours as CSS variables; a media query chooses the dark page."""

    def variables(colours: dict[str, str], levels: Sequence[str]) -> str:
        steps = {f"level{k}": step for k, step in enumerate(levels)}
        return "".join(f"--{k}:{value};" for k, value in (colours | steps).items())

    light, dark = variables(LIGHT, LEVELS["light"]), variables(DARK, LEVELS["dark"])
    strokes = "".join(f".level{k}{{stroke:var(--level{k})}}" for k in range(N_LEVELS))
    media = "@media (prefers-color-scheme: dark)"
    return f":root{{{light}}}\n{media}{{:root{{{dark}}}}}\n{strokes}\n"
