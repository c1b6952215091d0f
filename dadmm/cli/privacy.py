"""What leaves a node with the settings of a run, in words; see docs/privacy.md."""

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
    """Return, as TOML comments, what would leave a node with these settings."""
    lines = [
        "What leaves a node with these settings (docs/privacy.md has the details):"
    ]
    found = [*_first(config), *_loop(config), *_last(config), *_folder(config)]
    lines += [f"- {line}" for line in found]
    return "".join(f"# {line}\n" for line in lines)


def _first(config: RunConfig) -> list[str]:
    """Return what is sent in set-up."""
    own = config.data is not None and shard.is_local(config.data)
    if config.data is None:
        rows = "the data are synthetic: every rank draws all of them"
    elif own and config.labels is None and config.problem != "sfm":
        rows = "rows: not sent, each rank reads its own"
    else:
        rows = "rows: rank 0 reads all of them, and sends each node its own"
    found = [
        rows,
        "to everybody: host name, a hash of the settings, sentences on errors",
        "to rank 0: process number, and number or names of parameters",
    ]
    if config.has_subspace and config.data is not None:
        found.append(
            "to rank 0, if entries are missing: how many of each column are observed"
        )
    if config.has_subspace and config.compares:
        found.append(
            "to rank 0, if none is missing: number of rows, column means and scatter "
            "factor (as good as the rows where these are no more than the columns); "
            "from it to everybody: the centralised solution"
        )
    return found


def _loop(config: RunConfig) -> list[str]:
    """Return what is sent in the iterations."""
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
        found.append("to everybody, in iterations: its vote, or its objective")
    if scheme.needs_global_residuals:
        found.append("to everybody, in iterations: the lengths of its residuals")
    return found


def _last(config: RunConfig) -> list[str]:
    """Return what is sent after the last iteration."""
    found = [
        "to everybody, at the end: parameters, objective, penalties, residuals, "
        "seconds, and counts of messages"
    ]
    if config.problem == "sfm":
        found.append("to rank 0, at the end: the motion of the camera, by frame")
    if config.has_subspace:
        found.append(
            "to rank 0, at the end, if entries are missing: how many, and the log "
            "likelihood of the rows"
        )
    return found


def _folder(config: RunConfig) -> list[str]:
    """Return what is written where others may read it."""
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
