"""Performance profiles, in the house style of `dadmm.drawing`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from dadmm.drawing.house import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    in_house_style,
    save,
)

__all__ = ["draw", "save"]
TAUS = (1, 1.2, 1.5, 2, 3, 4)
STYLE: dict[str, dict[str, Any]] = {
    "auto": {"color": VERMILLION, "linewidth": 2.4},
    "edge_ratio 1.6": {"color": ORANGE, "linestyle": "--"},
    "edge_balance 1.6": {"color": GREEN, "linestyle": "-."},
    "global_balance": {"color": PURPLE, "linestyle": (0, (5, 1, 1, 1, 1, 1))},
    "fixed": {"color": BLACK, "linestyle": "-"},
    "vp": {"color": SKY, "linestyle": "--"},
    "nap": {"color": BLUE, "linestyle": "-."},
    "oracle": {"color": GREY, "linestyle": (0, (1, 1)), "linewidth": 2.0},
}
NAMES = {"oracle": "oracle: best fixed, 1.6", "fixed": "fixed, any eta0"}


@in_house_style
def draw(ratios: Mapping[str, np.ndarray], xlabel: str = "") -> Figure:
    """Draw the fraction of cases within a factor of the best scheme.

    Parameters
    ----------
    ratios : dict of str to ndarray of shape (n_cases,)
        By scheme, sorted; infinite where a scheme did not get there.
    xlabel : str
    """
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axis = figure.subplots()
    for name, values in ratios.items():
        share = np.arange(1, len(values) + 1) / len(values)
        known = values <= TAUS[-1]
        at_one = float((values <= 1.0).mean())
        x = np.concatenate([[1.0], np.maximum(values[known], 1.0), [TAUS[-1]]])
        y = np.concatenate([[at_one], share[known], [float(known.mean())]])
        look = {"linewidth": 1.4} | STYLE[name]
        axis.plot(x, y, drawstyle="steps-post", label=NAMES.get(name, name), **look)
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(FixedLocator(TAUS))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter("{x:g}")
    axis.set(xlim=(1, TAUS[-1]), ylim=(0, 1.01))
    axis.set_xlabel(xlabel or "Iterations, as a multiple of the best scheme's")
    axis.set_ylabel("Fraction of cases")
    axis.grid()
    figure.legend(loc="outside right upper")
    return figure
