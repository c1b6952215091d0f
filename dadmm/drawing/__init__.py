"""Figures: pure functions from arrays to matplotlib figures, and how to save them.

No function opens a window or changes matplotlib's global state. Colours are those of
Okabe and Ito, and a second sign (dash, marker, width, hatch) says the same in
greyscale. It may import `core`, `graphs`, `penalty`, `admm`, `results` and `cli`.
"""

from __future__ import annotations

from dadmm.drawing.graph import Network, moments, network, places
from dadmm.drawing.paper import angles, bars, points3d
from dadmm.drawing.runs import Load, Penalties, convergence, eta, traffic
from dadmm.drawing.style import CYCLE, SCHEME_STYLE, save

__all__ = [
    "CYCLE",
    "SCHEME_STYLE",
    "Load",
    "Network",
    "Penalties",
    "angles",
    "bars",
    "convergence",
    "eta",
    "moments",
    "network",
    "places",
    "points3d",
    "save",
    "traffic",
]
