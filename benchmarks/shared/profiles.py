"""Performance profiles, in the house style of `dadmm.drawing`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from dadmm.drawing.style import GREY, SCHEME_STYLE, save, styled

__all__ = ["draw", "save"]
TAUS = (1, 1.2, 1.5, 2, 3, 4)
STYLE = SCHEME_STYLE | {
    "edge_balance": {"color": "#882255", "linestyle": (0, (8, 2))},
    "edge_ratio": {"color": "#702802", "linestyle": (0, (5, 1, 2, 1))},
    "node_spectral": {"color": "#332288", "linestyle": (0, (1, 2))},
}
ORACLE = {"color": GREY, "linestyle": (0, (1, 1)), "linewidth": 2.0}


@styled
def draw(ratios: Mapping[str, np.ndarray]) -> Figure:
    """Draw the fraction of cases within a factor of the best scheme.

    ``ratios`` (n_cases,) are by scheme, sorted; infinite if one did not get there.
    """
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axis = figure.subplots()
    for name, values in ratios.items():
        share = np.arange(1, len(values) + 1) / len(values)
        known = values <= TAUS[-1]
        at_one = float((values <= 1.0).mean())
        x = np.concatenate([[1.0], np.maximum(values[known], 1.0), [TAUS[-1]]])
        y = np.concatenate([[at_one], share[known], [float(known.mean())]])
        look = ORACLE if name == "oracle" else STYLE[name.split()[0]]
        look = {k: v for k, v in look.items() if not k.startswith("marker")}
        axis.plot(x, y, drawstyle="steps-post", label=name.replace("_", " "), **look)
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(FixedLocator(TAUS))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter("{x:g}")
    axis.set(xlim=(1, TAUS[-1]), ylim=(0, 1.01))
    axis.set(xlabel="Iterations, as a multiple of the best scheme's")
    axis.set_ylabel("Fraction of cases")
    axis.grid()
    figure.legend(loc="outside right upper")
    return figure
