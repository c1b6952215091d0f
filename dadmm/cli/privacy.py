"""Which data leave a node, depending on the settings; see docs/privacy.md."""

from __future__ import annotations

from dadmm import penalty
from dadmm.cli.config import RunConfig
from dadmm.data import shard

PARAMETERS = {"ppca": "W, mu and a", "sfm": "W (the structure), mu and a"}
ADDED = {  # at checks, beside parameters, gradients and objectives
    "logistic": "margins",
    "lasso": "weights of the l1 penalty",
    "elastic_net": "weights of the l1 penalty",
}


def leaving(config: RunConfig) -> str:
    """Return the data that leave a node with these settings, as TOML comments."""
    read, sfm, subspace = config.data, config.problem == "sfm", config.has_subspace
    own = read is not None and shard.is_local(read)
    if read is None:
        rows = "the data are synthetic: every rank generates all of them"
    elif own and config.labels is None and not sfm:
        rows = "rows: not sent, each rank reads its own"
    else:
        rows = "rows: rank 0 reads all of them, and sends each node its rows"
    scheme = penalty.SCHEMES[config.scheme]
    what = PARAMETERS.get(config.problem, "the parameters")
    penalties = "" if scheme.is_symmetric else ", and a penalty"
    history = "history.csv and edges.csv" if config.record_edges else "history.csv"
    table = read is not None and not sfm
    auto = config.metric is None and config.scheme == "auto" and not subspace
    summed = auto or config.metric == "full"
    sums = "parameters, gradients and objectives"
    if config.is_plugin:
        sums += " (and margins and weights of an l1 penalty, if the problem has them)"
    elif config.problem in ADDED:
        sums = f"parameters, gradients, objectives and {ADDED[config.problem]}"
    found = [
        (True, rows),
        (table and own and "{rank}" in str(read),  # a .npy file alone has no names
         "to all nodes: a hash of the column names; the names themselves only if the "
         "hashes differ, which ends the run"),
        (table and not own,
         "from rank 0 to all nodes: the column names, if the file has any"),
        (True,
         "to all nodes: host name, process id, a hash of the settings, error messages, "
         "and number or names of parameters"),
        (subspace and read is not None,
         "to a neighbour, if entries are missing: how many of each column are "
         "observed, added up over a part of the graph"),
        (subspace and config.compares,
         "to rank 0, if none is missing: number of rows, column means and scatter "
         "factor (as good as the rows if a node has no more rows than columns); from "
         "it to all nodes: the centralised solution"),
        (summed,
         "to a neighbour, in set-up and at checks: a triangular factor of its rows X, "
         "merged with those of a part of the graph; that of a leaf of the tree is its "
         "own, and as good as the rows if it has no more rows than parameters (not "
         "beyond 300 parameters; --no-summaries sends none)"),
        (summed,
         "from the root of a tree to all nodes: coordinates, from the factor of all "
         "rows"),
        (summed,
         f"to a neighbour, at checks and at the end: {sums}, added up over a part of "
         "the graph"),
        # in the iterations
        (True, f"to each neighbour, before the first iteration: {what}, and a penalty"),
        (True,
         f"to each neighbour, in iterations: {what} ({config.payload}){penalties}"),
        (sfm and config.sfm_start == "frame",
         "to each neighbour, before the first iteration: the camera's first frame, "
         "from which W starts, moved by 0.1 (--sfm-start random sends none)"),
        (config.agreement == "global",
         "to all nodes, in iterations: its vote, or its objective"),
        (scheme.needs_global_residuals,
         "to all nodes, in iterations: the lengths of its residuals"),
        # after the last iteration
        (True,
         "to all nodes, at the end: parameters, objective, penalties, residuals, "
         "seconds, and counts of messages"),
        (not summed,
         "to a neighbour, at the end: parameters, gradients and objectives, added up "
         "over a part of the graph"
         if config.metric is None and not subspace else
         "to a neighbour, at the end: parameters and objectives, added up over a part "
         "of the graph"),
        (True,
         "to a neighbour, at the end: the slowest progress of the stopping rule in a "
         "part of the graph"),
        (sfm, "to rank 0, at the end: the motion of the camera, by frame"),
        (subspace,
         "to a neighbour, at the end, if entries are missing: how many, and the log "
         "likelihood of the rows, added up over a part of the graph"),
        (True,
         f"to the folder of the run: {history}, result.npz (all nodes' parameters), "
         "summary.json, config.toml, ranks.csv"),
        (config.checkpoint,
         "to the folder of the run, while it is not finished: checkpoints, with "
         "parameters, multipliers, what neighbours sent, and a check sum of the rows"),
        (subspace,
         "to the folder of the run, if entries are missing: imputed-*.npz, with the "
         "node's rows, for the owner alone (mode 0600)"),
    ]  # fmt: skip
    title = "# Data that leave a node with these settings (details in docs/privacy.md):"
    return "\n# - ".join([title, *(line for holds, line in found if holds)]) + "\n"
