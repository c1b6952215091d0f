"""Which data leave a node, depending on the settings; see docs/privacy.md."""

from __future__ import annotations

from dadmm import penalty
from dadmm.cli.config import RunConfig
from dadmm.data import shard

PARAMETERS = {
    "ppca": "W, mu and a",
    "sfm": "W (the structure), mu and a",
    "mixture": "means, precisions and weights",
}


def leaving(config: RunConfig) -> str:
    """Return the data that leave a node with these settings, as TOML comments."""
    lines = ["Data that leave a node with these settings (details in docs/privacy.md):"]
    found = [*_first(config), *_loop(config), *_last(config), *_folder(config)]
    lines += [f"- {line}" for line in found]
    return "".join(f"# {line}\n" for line in lines)


def _first(config: RunConfig) -> list[str]:
    """Return the data that are sent during set-up."""
    own = config.data is not None and shard.is_local(config.data)
    if config.data is None:
        rows = "the data are synthetic: every rank generates all of them"
    elif own and config.labels is None and config.problem != "sfm":
        rows = "rows: not sent, each rank reads its own"
    else:
        rows = "rows: rank 0 reads all of them, and sends each node its rows"
    found = [
        rows,
        *_columns(config),
        "to all nodes: host name, process id, a hash of the settings, error messages, "
        "and number or names of parameters",
    ]
    if config.has_subspace and config.data is not None:
        found.append(
            "to a neighbour, if entries are missing: how many of each column are "
            "observed, added up over a part of the graph"
        )
    if config.has_subspace and config.compares:
        found.append(
            "to rank 0, if none is missing: number of rows, column means and scatter "
            "factor (as good as the rows if a node has no more rows than columns); "
            "from it to all nodes: the centralised solution"
        )
    return found


def _columns(config: RunConfig) -> list[str]:
    """Return how column names are sent, if the problem reads a table."""
    if config.data is None or config.problem == "sfm":
        return []
    if shard.is_local(config.data):
        if "{rank}" not in config.data:  # a .npy file, which has no names
            return []
        return [
            "to all nodes: a hash of the column names; the names themselves only if "
            "the hashes differ, which ends the run"
        ]
    return ["from rank 0 to all nodes: the column names, if the file has any"]


def _loop(config: RunConfig) -> list[str]:
    """Return the data that are sent in the iterations."""
    scheme = penalty.SCHEMES[config.scheme]
    what = PARAMETERS.get(config.problem, "the parameters")
    found = [
        f"to each neighbour, before the first iteration: {what}, and a penalty",
        f"to each neighbour, in iterations: {what} ({config.payload})"
        + ("" if scheme.is_symmetric else ", and a penalty"),
    ]
    if config.problem == "sfm" and config.sfm_start == "frame":
        found.append(
            "to each neighbour, before the first iteration: the camera's first frame, "
            "from which W starts, moved by 0.1 (--sfm-start random sends none)"
        )
    if config.agreement == "global":
        found.append("to all nodes, in iterations: its vote, or its objective")
    if scheme.needs_global_residuals:
        found.append("to all nodes, in iterations: the lengths of its residuals")
    return found


def _last(config: RunConfig) -> list[str]:
    """Return the data that are sent after the last iteration."""
    found = [
        "to all nodes, at the end: parameters, objective, penalties, residuals, "
        "seconds, and counts of messages",
        "to a neighbour, at the end: the slowest progress of the stopping rule in a "
        "part of the graph",
    ]
    if config.problem == "sfm":
        found.append("to rank 0, at the end: the motion of the camera, by frame")
    if config.has_subspace:
        found.append(
            "to a neighbour, at the end, if entries are missing: how many, and the log "
            "likelihood of the rows, added up over a part of the graph"
        )
    return found


def _folder(config: RunConfig) -> list[str]:
    """Return the data that are written to the folder of the run."""
    rows = "history.csv and edges.csv" if config.record_edges else "history.csv"
    found = [
        f"to the folder of the run: {rows}, result.npz (all nodes' parameters), "
        "summary.json, config.toml, ranks.csv"
    ]
    if config.checkpoint:
        found.append(
            "to the folder of the run, while it is not finished: checkpoints, with "
            "parameters, multipliers, what neighbours sent, and a check sum of the rows"
        )
    if config.has_subspace:
        found.append(
            "to the folder of the run, if entries are missing: imputed-*.npz, with the "
            "node's rows, for the owner alone (mode 0600)"
        )
    return found
