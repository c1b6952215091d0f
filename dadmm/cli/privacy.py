"""Which data leave a node, depending on the settings; see docs/privacy.md."""

from __future__ import annotations

from dadmm import penalty
from dadmm.cli import tables
from dadmm.data import shard
from dadmm.models.scores import BINS
from dadmm.problems import builder
from dadmm.runs.config import RunConfig
from dadmm.solver.plan import Kind

SCORES = {  # sums over the rows of a node, by what the model predicts
    "regression": ", sums of squared errors, and mean and variance of y",
    "counts": ", sums of deviances, and mean and variance of y",
    "classification": ", sums of log losses, and numbers of right labels",
    "subspace": ", and sums of squared distances from the subspace and from mu",
}


def leaving(config: RunConfig) -> str:
    """Return the data that leave a node with these settings, as TOML comments."""
    read, traits, subspace = config.data, config.traits, config.has_subspace
    sfm, kind = traits.tracks, traits.predicts
    own = (
        read is not None and shard.is_local(read) and config.labels is None and not sfm
    )
    if read is None:
        rows = "the data are synthetic: every rank generates all of them"
    elif own:
        rows = "rows: not sent, each rank reads its own"
    else:
        rows = "rows: rank 0 reads all of them, and sends each node its rows"
    scheme = penalty.SCHEMES[config.scheme]
    what = traits.sends
    couples = config.options["scheme"].couples
    penalties = ", and a penalty" if couples else ""
    history = "history.csv and edges.csv" if config.record_edges else "history.csv"
    table = read is not None and not sfm
    moments = config.standardise or config.on_missing == "mean"
    plan = config.plan()
    own_class = config.is_plugin and config.coordinates in ("auto", "metric")
    summed = plan.kind is Kind.METRIC or own_class
    merges, in_units = plan.kind is Kind.MERGED, plan.kind is Kind.UNITS
    bounds = bool(config.bound_angle) and (merges or in_units)
    bounds = bounds and not config.missing_fraction
    drawn = read is None and subspace  # then each rank scores all rows itself
    scored = not plan.asked and not drawn
    judged = plan.kind is Kind.RAW and subspace and config.stopping != "objective"
    gaps = subspace and (read is not None or config.missing_fraction > 0.0)
    scores = SCORES.get(str(kind), "")
    sums = "parameters, gradients and objectives"
    if config.is_plugin:
        sums += " (and margins and weights of an l1 penalty, if the problem has them)"
    elif traits.adds:
        sums = f"parameters, gradients, objectives and {traits.adds}"
    found = [
        (True, rows),
        (table and own,
         "to a neighbour, in set-up: names of the columns that are used (their number "
         "if the file has none), the categories of columns of text and the classes of "
         "the target, merged with those of a part of the graph; from the root of a "
         "tree to all nodes: those of all nodes"),
        (table and own and moments,
         "to a neighbour, in set-up: number of rows, and number, mean and sum of "
         "squares about it of the entries of each column of X, pooled over a part of "
         "the graph; those of a leaf of the tree are its own; from the root to all "
         "nodes: those of all rows"),
        (table and not own,
         "from rank 0 to all nodes: names of the columns that are used, categories and "
         "classes" + ", means and scales" * moments),
        (table and config.on_missing in ("drop", "mean"),
         "to all nodes: how many of its rows were dropped, and how many filled"),
        (True,
         "to all nodes: host name, process id, a hash of the settings, error messages, "
         "and number or names of parameters"),
        (gaps,
         "to a neighbour, if entries are missing: how many of each column are "
         "observed, added up over a part of the graph"),
        (subspace and config.compares and read is not None,
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
        (merges,
         "to all nodes, in set-up: which starts its problem allows"),
        (merges,
         "to a neighbour, in set-up: number of its rows, number and sum of the entries "
         "of each column; the longest M + 10 (at most D) principal axes of its rows "
         "about the mean of all rows; their lengths within all axes and outside; its "
         "gradient at the start; all added up or merged over a part of the graph; "
         "those of a leaf of the tree are its own, and as good as the rows if it has "
         "no more rows than axes (--no-summaries sends none)"),
        (merges,
         "to a neighbour, in set-up, if entries are missing: in up to 60 rounds the "
         "sum and the axes of its rows again, with missing entries completed"),
        (merges,
         "from the root of a tree to all nodes: number and mean of all rows, axes, W "
         "and noise of the start, gradient of all"),
        (in_units,
         "to all nodes, in set-up: which starts its problem allows; if all have all "
         "entries, the next line holds (not with --no-summaries)"),
        (in_units,
         "to a neighbour, in set-up: number and sum of its rows; their squares about "
         "the mean of all rows; what its best M components leave of them; all added up "
         "over a part of the graph, and the totals; those of a leaf of the tree are "
         "its own"),
        (merges or in_units or judged,
         "to a neighbour, when the run may end: whether all nodes of a part of the "
         "graph meet the stopping rule, or their largest gradient relative to its "
         "limit"),
        (judged,
         "to a neighbour, when the run may end: the second moments of the latent "
         "variables of its rows (M x M numbers), added up over a part of the graph; "
         "those of a leaf of the tree are its own (not with --stopping objective)"),
        # in the iterations
        (True, f"to each neighbour, before the first iteration: {what}, and a penalty"),
        (True,
         f"to each neighbour, in iterations: {what} ({config.payload}){penalties}"),
        (sfm and config.sfm_start == "frame" and not merges,
         "to each neighbour, before the first iteration: the camera's first frame, "
         "from which W starts, moved by 0.1 (--sfm-start random sends none)"),
        (config.agreement == "global",
         "to all nodes, in iterations: its vote, or its objective"),
        (scheme.needs_global_residuals,
         "to all nodes, in iterations: the lengths of its residuals"),
        # after the last iteration
        (True,
         "to rank 0, at the end: parameters, objective, penalties, budgets, residuals, "
         "seconds, and counts of messages"),
        (not summed,
         "to a neighbour, at the end: parameters, gradients and objectives, added up "
         "over a part of the graph"
         if not plan.asked and not subspace else
         "to a neighbour, at the end: parameters and objectives, added up over a part "
         "of the graph"),
        (bounds,
         "to a neighbour, at the end, if no entry is missing: number, sum and sum of "
         "squares of its rows; lengths within the subspace of the solution, and the "
         "longest M + 10 (at most D) axes outside, shortened; all added up or merged "
         "over a part of the graph; those of a leaf of the tree are its own, and as "
         "good as the rows if it has no more rows than axes (not with --no-summaries)"),
        (bounds,
         "from the root of a tree to all nodes: the same sums of all rows, without the "
         "axes"),
        (scored,
         "to rank 0, at the end: the number of its rows (--no-summaries sends none)"),
        (scored,
         f"to a neighbour, at the end: the number of its rows{scores}, added up over a "
         "part of the graph; those of a leaf of the tree are its own (--no-summaries "
         "sends none)"),
        (scored and kind == "classification" and builder.n_classes(config.problem) == 2,
         "to a neighbour, at the end: the least and the largest score of its rows, and "
         f"a histogram of {BINS} bins of the scores of each class, added up over a "
         "part of the graph; that of a leaf of the tree is its own (--no-summaries "
         "sends none)"),
        (scored and summed and traits.has_errors and not config.alpha,
         "to a neighbour, at the end: a triangular factor of its rows again, for "
         "standard errors; from the root of a tree to all nodes: these"),
        (True,
         "to a neighbour, at the end: the slowest progress of the stopping rule in a "
         "part of the graph"),
        (sfm, "to rank 0, at the end: the motion of the camera, by frame"),
        (gaps,
         "to a neighbour, at the end, if entries are missing: how many, and the log "
         "likelihood of the rows, added up over a part of the graph"),
        (True,
         f"to the folder of the run: {history}, result.npz (all nodes' parameters), "
         "summary.json, config.toml, ranks.csv"),
        (kind is not None,
         "to the folder of the run: model.json, with the solution, and names, "
         "categories, means and scales of the columns"),
        (config.checkpoint,
         "to the folder of the run, while it is not finished: checkpoints, with "
         "parameters, multipliers, what neighbours sent, and a check sum of the rows"),
        (gaps,
         "to the folder of the run, if entries are missing: imputed-*.npz, with the "
         "node's rows, for the owner alone (mode 0600)"),
    ]  # fmt: skip
    if table:
        found += [(True, line) for line in tables.shared_names(config)]
    title = "# Data that leave a node with these settings (details in docs/privacy.md):"
    return "\n# - ".join([title, *(line for holds, line in found if holds)]) + "\n"
