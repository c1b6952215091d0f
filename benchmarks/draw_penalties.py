"""The pictures of docs/penalties.md: what eta does, and why its ends must agree.

    python -m benchmarks.draw_penalties [--out docs/img]

Least squares on 20 nodes; some minutes.
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import dadmm
from benchmarks.shared.commands import parser_of
from dadmm.cli.trials import Arrival
from dadmm.graphs import topology
from dadmm.problems import LeastSquares
from dadmm.show.style import BLUE, GREY, ORANGE, VERMILLION
from dadmm.show.to_matplotlib import save, styled
from dadmm.solver.solve import grouped

NODES, SIZE, ROWS, CAP = 20, 10, 25, 3000
CLOSE = 1e-6  # relative distance from the optimum
GRAPHS = {"complete": (BLUE, "-"), "cluster": (ORANGE, "--"), "ring": (VERMILLION, ":")}
ETAS = np.logspace(-1, 3, 17)
CURVES = {
    "ap, own": (VERMILLION, ":"), "nap, own": (VERMILLION, "--"),
    "vp_ap, own": (VERMILLION, "-."), "fixed": (GREY, "-"),
    "nap, one per edge": (ORANGE, "--"), "snap": (BLUE, "-"),
}  # fmt: skip


def regression(seed: int = 0) -> tuple[list[LeastSquares], np.ndarray]:
    """Return one least-squares problem per node, and the optimum of them all."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((NODES, ROWS, SIZE))
    scale = 10.0 ** rng.uniform(-0.25, 0.25, NODES)
    X *= scale[:, None, None]
    y = X @ rng.standard_normal(SIZE) + rng.standard_normal((NODES, ROWS))
    best = np.linalg.lstsq(np.vstack(X), y.ravel(), rcond=None)[0]
    pairs = zip(X, y, strict=True)
    return [LeastSquares(*pair, fit_intercept=False) for pair in pairs], best


def errors(
    graph: str, most: int, arrival: Arrival | None = None, **settings
) -> np.ndarray:
    """Return the worst node's relative distance from the optimum, by iteration."""
    problems, best = regression()
    found: list[float] = []

    def watch(t, run):
        off = np.linalg.norm(run.theta - best, axis=1).max()
        found.append(float(off / np.linalg.norm(best)))
        known = arrival and arrival.known(t, found[-1])
        return "stop" if known else None

    dadmm.solve(
        problems, topology.build(graph, NODES), callbacks=[watch], coordinates="raw",
        **grouped({"tolerance": 0, "max_iter": most, "record": False, **settings}),
    )  # fmt: skip
    return np.array(found)


def iterations(graph: str, **settings) -> float:
    """Return from when on all nodes stay within 1e-6, infinite if after the cap."""
    arrival = Arrival(CLOSE, CAP)
    errors(graph, arrival.longest, arrival, **settings)
    return arrival.for_good or np.inf


@styled
def sweep(fixed: dict[str, list[float]], snap: dict[str, float]) -> Figure:
    """Draw iterations against a fixed penalty, with snap's as levels."""
    figure = Figure(figsize=(6.0, 3.6), layout="constrained")
    axis = figure.subplots()
    for graph, (colour, dash) in GRAPHS.items():
        axis.plot(ETAS, fixed[graph], color=colour, linestyle=dash, marker="o", ms=3)
        axis.axhline(
            snap[graph], color=colour, linestyle=dash, linewidth=2.4, alpha=0.4
        )
        low = int(np.argmin(fixed[graph]))
        axis.annotate(
            graph, (ETAS[low], fixed[graph][low]), xytext=(0, -14),
            textcoords="offset points", color=colour, ha="center",
        )  # fmt: skip
        axis.annotate(
            f"snap: {snap[graph]:.0f}", (ETAS[0] * 0.8, snap[graph]), color=colour,
            va="top" if graph == "complete" else "bottom", ha="left", fontsize=8,
        )  # fmt: skip
    axis.set(
        xscale="log", yscale="log", ylim=(15, CAP), xlabel="eta, kept fixed",
        ylabel="iterations until within 1e-6 for good",
        title="A fixed penalty, good or bad (dots), and snap (levels)",
    )  # fmt: skip
    axis.set_yticks([20, 50, 100, 200, 500, 1000, 2000], minor=False)
    axis.yaxis.set_major_formatter("{x:g}")
    axis.minorticks_off()
    axis.grid()
    return figure


@styled
def bias(curves: dict[str, np.ndarray]) -> Figure:
    """Draw the distance from the optimum with own and with common penalties."""
    figure = Figure(figsize=(6.0, 3.6), layout="constrained")
    axis = figure.subplots()
    for name, values in curves.items():
        colour, dash = CURVES[name]
        t = np.arange(1, len(values) + 1)
        axis.plot(
            t, np.maximum(values, 1e-12), color=colour, linestyle=dash, label=name
        )
    axis.set(
        yscale="log", ylim=(1e-10, 3), xlim=(0, 250), xlabel="iteration",
        ylabel="worst node's distance from the optimum",
        title="Penalties that differ at an edge's two ends agree on a wrong point",
    )  # fmt: skip
    axis.grid()
    axis.legend(loc="lower right")
    return figure


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/img"))
    out = parser.parse_args().out
    fixed = {
        graph: [iterations(graph, scheme="fixed", eta0=float(eta)) for eta in ETAS]
        for graph in GRAPHS
    }
    snap = {graph: iterations(graph, scheme="snap") for graph in GRAPHS}
    for graph in GRAPHS:
        print(f"{graph}: best fixed {min(fixed[graph]):g}, snap {snap[graph]:g}")
    save(sweep(fixed, snap), out / "penalty-sweep", ("png",))
    curves = {}
    for name in CURVES:
        scheme, _, ends = name.partition(", ")
        coupling = {"coupling": "own"} if ends == "own" else {}
        curves[name] = errors("complete", 250, scheme=scheme, **coupling)
    for name, values in curves.items():
        print(f"{name}: {values[-1]:.1e} from the optimum after 250 iterations")
    save(bias(curves), out / "penalty-bias", ("png",))


if __name__ == "__main__":
    main()
