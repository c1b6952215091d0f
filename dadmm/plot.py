"""Draw runs: ``python -m dadmm.plot RUN [RUN ...]``, with matplotlib if installed.

One RUN is drawn by itself; several are compared, labelled by what differs between their
settings. Exit codes: 0 done, 2 bad input or pictures that cannot be written.
"""

from __future__ import annotations

import argparse
import json
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from dadmm.config import RunConfig
from dadmm.errors import ConfigError, DadmmError
from dadmm.layout import Matrix
from dadmm.topology import Topology

KINDS = ("convergence", "eta", "network", "traffic")
FORMATS = ("png", "svg", "pdf")
ANGLES = {
    "angle_to_truth": "Angle to the true subspace (degrees)",
    "angle_to_centralised": "Angle to the centralised solution (degrees)",
}
PHASES = ("solve", "exchange", "observe")
# What says how a run was watched, not what it computed.
ASIDE = {"out", "overwrite", "quiet", "record_angle", "record_edges", "reference",
         "strict", "wait"}  # fmt: skip
CHANGE = "Relative change of the objective"


@dataclass(frozen=True)
class Run:
    """The folder of a finished run, read as it is needed.

    Parameters
    ----------
    folder : Path
    config : RunConfig
    summary : dict
    """

    folder: Path
    config: RunConfig
    summary: dict[str, Any]

    @classmethod
    def read(cls, folder: str | Path) -> Run:
        """Return the run in a folder."""
        folder = Path(folder)
        if not (folder / "config.toml").is_file():
            raise ConfigError(
                f"{folder} is not the folder of a run: it has no config.toml; give the "
                "folder that dadmm.run names in its last line"
            )
        if not (folder / "summary.json").is_file():
            raise ConfigError(
                f"the run in {folder} has not finished: it has no summary.json; wait for "
                f"it, or repeat it with --config {folder / 'config.toml'}"
            )
        config = RunConfig(**RunConfig.from_toml(folder / "config.toml"))
        try:
            summary = json.loads((folder / "summary.json").read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise _unreadable(folder / "summary.json", error) from None
        return cls(folder, config, summary)

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays in result.npz."""
        try:
            with np.load(self.folder / "result.npz") as file:
                arrays = dict(file)
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            raise _unreadable(self.folder / "result.npz", error) from None
        if "edges" not in arrays:
            raise ConfigError(f"{self.folder / 'result.npz'} has no array 'edges'")
        return arrays

    @cached_property
    def topology(self) -> Topology:
        """The graph."""
        return Topology.from_edges(self.config.nodes or 1, self.arrays["edges"])

    @cached_property
    def history(self) -> dict[str, Matrix]:
        """The columns of history.csv, each (iterations, n_nodes)."""
        return _columns(self.folder / "history.csv", 2, self.topology.n_nodes)

    @cached_property
    def eta(self) -> Matrix:
        """What each end set for the next iteration, (iterations, E)."""
        file = self.folder / "edges.csv"
        if not len(self.topology.edges):
            raise ConfigError(f"the run in {self.folder} has one node and no edges")
        if not file.is_file():
            raise ConfigError(
                f"the run in {self.folder} has no edges.csv; repeat it with "
                f"--config {self.folder / 'config.toml'} --record-edges"
            )
        return _column(_columns(file, 3, len(self.topology.edges)), "eta", file)

    def column(self, name: str) -> Matrix:
        """Return a column of the history, (iterations, n_nodes)."""
        return _column(self.history, name, self.folder / "history.csv")


def _unreadable(file: Path, error: Exception) -> ConfigError:
    reason = getattr(error, "strerror", None) or error
    return ConfigError(f"cannot read {file}: {reason}")


def _columns(file: Path, n_keys: int, n_rows: int) -> dict[str, Matrix]:
    """Return the columns after the keys, each (iterations, n_rows)."""
    try:
        with open(file, encoding="utf-8") as lines:
            header = lines.readline().strip().split(",")
            table = np.loadtxt(lines, delimiter=",", ndmin=2)
    except (OSError, ValueError) as error:
        raise _unreadable(file, error) from None
    if not len(table) or len(table) % n_rows or table.shape[1] != len(header):
        raise ConfigError(
            f"{file} has {len(table)} rows, not {n_rows} for each iteration; it was cut "
            "short or belongs to another run"
        )
    cube = table.reshape(-1, n_rows, len(header))
    return {name: cube[:, :, k] for k, name in enumerate(header) if k >= n_keys}


def _column(columns: dict[str, Matrix], name: str, file: Path) -> Matrix:
    if name not in columns:
        raise ConfigError(f"{file} has no column {name!r}; it has {', '.join(columns)}")
    return columns[name]


def labels(runs: Sequence[Run]) -> list[str]:
    """Return a name for each run: the settings that differ, or else its folder."""
    settings = [asdict(run.config) for run in runs]
    differ = [
        name
        for name in settings[0]
        if name not in ASIDE and len({repr(chosen[name]) for chosen in settings}) > 1
    ]
    names = [", ".join(_word(name, chosen[name]) for name in differ)
             for chosen in settings]  # fmt: skip
    if len(set(names)) == len(names):
        return names if differ else [runs[0].folder.name]
    folders = [str(run.folder) for run in runs]
    return [f"{name} ({folder})" if name else folder
            for name, folder in zip(names, folders, strict=True)]  # fmt: skip


def _word(name: str, value: Any) -> str:
    if name in ("scheme", "problem"):
        return str(value)
    if name == "topology":
        return Path(value).stem
    return f"{value} nodes" if name == "nodes" else f"{name} = {value}"


def title(runs: Sequence[Run]) -> str:
    """Return what the runs have in common; of one run also how it ended."""
    said = [
        {
            "": run.config.problem,
            "by ": run.config.scheme,
            "on ": Path(run.config.topology).stem,
        }
        for run in runs
    ]
    common = [f"{k}{v}" for k, v in said[0].items() if all(s[k] == v for s in said)]
    counts = {run.topology.n_nodes for run in runs}
    words = " ".join(common or ["runs compared"])
    words += f", {counts.pop()} nodes" if len(counts) == 1 else ""
    if len(runs) == 1:
        ending = "converged" if runs[0].summary.get("converged") else "not converged"
        words += f", {ending} after {len(runs[0].column('primal'))} iterations"
    return words[0].upper() + words[1:]


def draw_convergence(runs: Sequence[Run], at: Sequence[int]) -> Any:
    """Draw objective, residuals and angles."""
    from dadmm import drawing

    names = labels(runs)
    schemes = [run.config.scheme for run in runs]
    own = len(set(schemes)) == len(schemes)
    style = [
        drawing.SCHEME_STYLE[scheme] if own else drawing.CYCLE[k % len(drawing.CYCLE)]
        for k, scheme in enumerate(schemes)
    ]
    columns = {"primal": "Primal residual", "dual": "Dual residual"}
    columns |= {name: label for name, label in ANGLES.items()
                if all(name in run.history for run in runs)}  # fmt: skip
    panels = {CHANGE: [_change(run.column("objective")) for run in runs]}
    panels |= {text: [run.column(name) for run in runs]
               for name, text in columns.items()}  # fmt: skip
    tolerances = {run.config.tolerance for run in runs}
    level = tolerances.pop() if len(tolerances) == 1 else 0.0
    return drawing.convergence(
        {text: dict(zip(names, each, strict=True)) for text, each in panels.items()},
        dict(zip(names, style, strict=True)),
        title(runs),
        {CHANGE: (level, "tolerance")} if level > 0 else {},
    )


def _change(objective: Matrix) -> Matrix:
    """Return what the stopping rule compares with the tolerance; NaN at first."""
    change = np.full_like(objective, np.nan)
    change[1:] = np.abs(np.diff(objective, axis=0))
    return change / np.maximum(np.abs(objective), 1.0)


def draw_eta(runs: Sequence[Run], at: Sequence[int]) -> Any:
    """Draw the penalty of each directed edge over time."""
    from dadmm import drawing

    found = [drawing.Penalties(run.topology.edges, run.eta, run.config.eta0)
             for run in runs]  # fmt: skip
    return drawing.eta(dict(zip(labels(runs), found, strict=True)), title(runs))


def draw_network(runs: Sequence[Run], at: Sequence[int]) -> Any:
    """Draw the effective network at some iterations."""
    from dadmm import drawing

    return drawing.network(
        {name: _network(run, at) for name, run in zip(labels(runs), runs, strict=True)},
        title(runs),
    )


def _network(run: Run, at: Sequence[int]) -> Any:
    """Return what to draw of a run: each edge once, with the mean of its two ends."""
    from dadmm import drawing

    graph, eta = run.topology, run.eta
    once = graph.edges[:, 0] < graph.edges[:, 1]
    mean = (0.5 * (eta + eta[:, graph.reverse]))[:, once]
    for t in at:
        if not 1 <= t <= len(mean):
            raise ConfigError(
                f"the run in {run.folder} has iterations 1 to {len(mean)}, not {t}; "
                "choose others with --at"
            )
    if run.config.topology == "random-geometric":  # these nodes have places
        rng = np.random.default_rng(run.config.topology_seed)
        where = rng.random((2, graph.n_nodes)).T
    else:
        where = drawing.places(graph)
    frames = {t: mean[t - 1] for t in at or drawing.moments(mean)}
    return drawing.Network(where, graph.edges[once], frames, run.config.eta0)


def draw_traffic(runs: Sequence[Run], at: Sequence[int]) -> Any:
    """Draw bytes by edge, and seconds by phase."""
    from dadmm import drawing

    loads = [
        drawing.Load(
            _sent(run),
            {phase: run.column(f"{phase}_seconds").sum(axis=0) for phase in PHASES},
        )
        for run in runs
    ]
    return drawing.traffic(dict(zip(labels(runs), loads, strict=True)), title(runs))


def _sent(run: Run) -> Matrix | None:
    """Return the bytes from node i to node j, where the run has kept them."""
    if "edge_bytes" not in run.arrays:
        return None
    sent = np.full((run.topology.n_nodes,) * 2, np.nan)
    sent[tuple(run.topology.edges.T)] = run.arrays["edge_bytes"]
    return sent


DRAW = {
    "convergence": draw_convergence,
    "eta": draw_eta,
    "network": draw_network,
    "traffic": draw_traffic,
}


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are ours."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = _Parser(prog="python -m dadmm.plot", description="Draw runs.")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folder of a run")
    parser.add_argument("--out", metavar="DIR", help="(default: the first RUN)")
    parser.add_argument("--kind", choices=("all", *DRAW), default="all")
    parser.add_argument(
        "--at", type=_iterations, default=[], metavar="1,10,50",
        help="iterations of the network (by default up to four telling ones)",
    )  # fmt: skip
    parser.add_argument(
        "--format", type=_formats, default=["png", "svg"], metavar="png,svg",
        help=f"of {', '.join(FORMATS)} (default: png,svg)",
    )  # fmt: skip
    return parser.parse_args(argv)


def _iterations(text: str) -> list[int]:
    if not all(word.isdecimal() for word in text.split(",")):
        raise ConfigError(f"--at must be iterations such as 1,10,50, got {text!r}")
    return sorted({int(word) for word in text.split(",")})


def _formats(text: str) -> list[str]:
    for word in text.split(","):
        if word not in FORMATS:
            allowed = ", ".join(FORMATS)
            raise ConfigError(f"unknown format {word!r}; choose from {allowed}")
    return list(dict.fromkeys(text.split(",")))


def main(argv: Sequence[str] | None = None) -> int:
    """Draw the runs of a command line and return its exit code."""
    try:
        return draw(_arguments(sys.argv[1:] if argv is None else argv))
    except DadmmError as error:
        print(f"dadmm: error: {error}", file=sys.stderr)
        return 2


def draw(given: argparse.Namespace) -> int:
    """Draw what was asked for, and print the paths."""
    try:
        from dadmm import drawing
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        raise ConfigError(
            "drawing needs matplotlib; pip install 'dadmm[plot]', or use the environment "
            "that ./launch/test makes"
        ) from None
    runs = [Run.read(folder) for folder in given.runs]
    folder = Path(given.out) if given.out else runs[0].folder
    prefix = "compare-" if len(runs) > 1 else ""
    for kind in DRAW if given.kind == "all" else [given.kind]:
        if given.kind == "all" and kind in ("eta", "network") and not _by_edge(runs):
            print(f"dadmm: no {kind}: not every run has edges.csv (--record-edges)")
            continue
        figure = DRAW[kind](runs, given.at)
        for path in drawing.save(figure, folder / (prefix + kind), given.format):
            print(path)
    return 0


def _by_edge(runs: Sequence[Run]) -> bool:
    return all((run.folder / "edges.csv").is_file() for run in runs)


if __name__ == "__main__":
    sys.exit(main())
