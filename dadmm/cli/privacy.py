"""Which data leave a node, depending on the settings; see docs/privacy.md."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from glob import escape, glob
from typing import TYPE_CHECKING, Any

import numpy as np

from dadmm.cli.setup import read_whole
from dadmm.core.arguments import print_out
from dadmm.core.errors import ShardError, printable
from dadmm.data import agreement
from dadmm.data.shard import NODE
from dadmm.models.scores import BINS
from dadmm.problems import PROBLEMS, builder
from dadmm.runs.config import RunConfig
from dadmm.solver.plan import Kind, abilities_of, make_plan
from dadmm.solver.subspace import n_axes

if TYPE_CHECKING:
    from dadmm.cli.job import Job

TITLE = "# Data that leave a node with these settings (details in docs/privacy.md):"
SCORES = {  # sums over the rows of a node, by what the model predicts
    "regression": ", sums of squared errors, and mean and variance of y",
    "counts": ", sums of deviances, and mean and variance of y",
    "classification": ", sums of log losses, and numbers of right labels",
    "subspace": ", and sums of squared distances from the subspace and from mu",
}
SUMMARIES = {  # when the summary of a node is sent
    Kind.METRIC: "in set-up and at checks",
    Kind.MERGED: "in set-up and at the end",
    Kind.UNITS: "at the end",
}


def warn(job: Job) -> None:
    """Print what the summaries of nodes reveal; all ranks call it."""
    kind, few, what = job.plan.kind, 0, "the principal axes that are merged"
    if kind in SUMMARIES and (kind is not Kind.UNITS or job.config.bound_angle):
        what = "parameters" if kind is Kind.METRIC else what
        for i, own in job.problems.items():
            size = own.layout.size if kind is Kind.METRIC else n_axes(own)
            few += job.data.rows[i].X.shape[0] <= size
        few = int(job.world.gather(np.array([few])).sum())
    if few:
        print_out(
            f"{few} of {len(job.graph)} nodes have no more rows than {what}; the "
            "summary that such a node sends to its parent in a tree, "
            f"{SUMMARIES[kind]}, reveals its rows (docs/privacy.md); "
            "--no-summaries sends none\n"
        )
    if job.config.compare_centralised:
        print_out(
            "--compare-centralised: rank 0 gathers each node's number of rows, column "
            "means and scatter factor; if a node has no more rows than columns, these "
            "reveal its rows\n"
        )


def leaving(config: RunConfig) -> str:
    """Return the data that leave a node with these settings, as TOML comments."""
    traits, scheme = config.traits, config.options["scheme"]
    kind: type = PROBLEMS.get(config.problem, object)  # one of yours: without metric
    if config.missing_fraction:
        kind = getattr(kind, "with_gaps", kind)
    able, merges = [abilities_of(kind)], not scheme.is_constant
    plan = make_plan(able, config.init, config.coordinates, merges)
    subspace, tracks, predicts = config.has_subspace, traits.tracks, traits.predicts
    given, plugin = config.data is not None, config.is_plugin
    table, own = given and not tracks, config.is_local
    moments = config.standardise or config.on_missing == "mean"
    gaps = subspace and (given or config.missing_fraction > 0.0)
    may_be_metric = plugin and config.coordinates in ("auto", "metric")
    metric = plan.kind is Kind.METRIC or may_be_metric
    merged, units = plan.kind is Kind.MERGED, plan.kind is Kind.UNITS
    # whether gradients are judged when the run may end; whether the angle is bounded
    judged = plan.kind is Kind.RAW and subspace and config.stopping != "objective"
    bound = (merged or units) and config.bound_angle and not config.missing_fraction
    scored = not plan.asked and (given or not subspace)  # else all ranks have all rows
    binary = predicts == "classification" and builder.n_classes(config.problem) == 2
    errors = scored and metric and traits.has_errors and not config.alpha
    sums = "parameters, gradients and objectives"
    end = sums if not plan.asked and not subspace else "parameters and objectives"
    if plugin:
        sums += " (and margins and weights of an l1 penalty, if the problem has them)"
    elif traits.adds:
        sums = f"parameters, gradients, objectives and {traits.adds}"
    added = "added up over a part of the graph"
    scored_by = SCORES.get(str(predicts), "")
    history = "history.csv" + " and edges.csv" * bool(config.record_edges)
    found = [
        (own, "rows: not sent, each rank reads its own"),
        (given and not own, "rows: rank 0 reads all of them, and sends each node its "
         "rows"),
        (not given, "the data are synthetic: every rank generates all of them"),
        (own, "to a neighbour, in set-up: names of the columns that are used (their "
         "number if the file has none), the categories of columns of text and the "
         "classes of the target, merged over a part of the graph; from the root of a "
         "tree to all nodes: the names, categories and classes of all nodes"),
        (own and moments, "to a neighbour, in set-up: number of rows, and number, mean "
         "and sum of squares about it of the entries of each column of X, pooled over "
         "a part of the graph; a leaf of the tree sends its own; from the root to all "
         "nodes: the same of all rows"),
        (table and not own, "from rank 0 to all nodes: names of the columns that are "
         f"used, categories and classes{', means and scales' * moments}"),
        (table and config.on_missing in ("drop", "mean"), "to all nodes: how many of "
         "its rows were dropped, and how many filled"),
        (True, "to all nodes: host name, process id, a hash of the settings, error "
         "messages, number or names of parameters, and which starts its problem "
         "allows"),
        (gaps, "to a neighbour, if entries are missing: how many of each column are "
         f"observed, {added}"),
        (given and config.compare_centralised, "to rank 0, if none is missing: number "
         "of rows, column means and scatter factor (they reveal the rows if a node has "
         "no more rows than columns); from it to all nodes: W of the centralised "
         "solution"),
        (metric, "to a neighbour, in set-up and at checks: a triangular factor of its "
         "rows X, merged over a part of the graph; a leaf of the tree sends its own, "
         "which reveals its rows if it has no more rows than parameters (not beyond "
         "300 parameters; --no-summaries sends none)"),
        (metric, "from the root of a tree to all nodes: coordinates, from the factor "
         "of all rows"),
        (metric, f"to a neighbour, at checks and at the end: {sums}, {added}"),
        (merged, "to a neighbour, in set-up: number of its rows, number and sum of the "
         "entries of each column; the longest M + 10 (at most D) principal axes of its "
         "rows about the mean of all rows; their lengths within all axes and outside; "
         "its gradient at the start; all added up or merged over a part of the graph; "
         "a leaf of the tree sends its own, which reveal its rows if it has no more "
         "rows than axes (--no-summaries sends none)"),
        (merged, "to a neighbour, in set-up, if entries are missing: in up to 60 "
         "rounds the sum and the axes of its rows again, with missing entries "
         "completed"),
        (merged, "from the root of a tree to all nodes: number and mean of all rows, "
         "axes, W and noise of the start, gradient of all"),
        (units, "to a neighbour, in set-up, if no entry is missing: number and sum of "
         "its rows; their squares about the mean of all rows; what its best M "
         f"components leave of them; all {added}, and the totals; a leaf of the tree "
         "sends its own (not with --no-summaries)"),
        (merged or units or judged, "to a neighbour, when the run may end: whether all "
         "nodes of a part of the graph meet the stopping rule, or their largest "
         "gradient relative to its limit"),
        (judged, "to a neighbour, when the run may end: the second moments of the "
         f"latent variables of its rows (M x M numbers), {added}; a leaf of the tree "
         "sends its own (not with --stopping objective)"),
        (True, f"to each neighbour, before the first iteration: {traits.sends}, and a "
         "penalty"),
        (True, f"to each neighbour, in iterations: {traits.sends} "
         f"({config.payload}){', and a penalty' * scheme.couples}"),
        (tracks and config.sfm_start == "frame" and not merged, "to each neighbour, "
         "before the first iteration: the camera's first frame, from which W starts, "
         "moved by 0.1 (--sfm-start random sends none)"),
        (config.agreement == "global", "to all nodes, in iterations: its vote, or its "
         "objective"),
        (scheme.needs_global_residuals, "to all nodes, in iterations: the lengths of "
         "its residuals"),
        (True, "to rank 0, at the end: parameters, objective, penalties, budgets, "
         "residuals, seconds, and counts of messages"),
        (not metric, f"to a neighbour, at the end: {end}, {added}"),
        (bound, "to a neighbour, at the end, if no entry is missing: number, sum and "
         "sum of squares of its rows; lengths within the subspace of the solution, and "
         "the longest M + 10 (at most D) axes outside, shortened; all added up or "
         "merged over a part of the graph; a leaf of the tree sends its own, which "
         "reveal its rows if it has no more rows than axes (not with --no-summaries)"),
        (bound, "from the root of a tree to all nodes: the same sums of all rows, "
         "without the axes"),
        (scored, "to rank 0, at the end: the number of its rows (--no-summaries sends "
         "none)"),
        (scored, f"to a neighbour, at the end: the number of its rows{scored_by}, "
         f"{added}; a leaf of the tree sends its own (--no-summaries sends none)"),
        (scored and binary, "to a neighbour, at the end: the least and the largest "
         f"score of its rows, and a histogram of {BINS} bins of the scores of each "
         f"class, {added}; a leaf of the tree sends its own (--no-summaries sends "
         "none)"),
        (errors, "to a neighbour, at the end: a triangular factor of its rows again, "
         "for standard errors; from the root of a tree to all nodes: these"),
        (True, "to a neighbour, at the end: the slowest progress of the stopping rule "
         "in a part of the graph"),
        (tracks, "to rank 0, at the end: the motion of the camera, by frame"),
        (gaps, "to a neighbour, at the end, if entries are missing: how many, and the "
         f"log likelihood of the rows, {added}"),
        (True, f"to the folder of the run: {history}, result.npz (all nodes' "
         "parameters), summary.json, config.toml, ranks.csv"),
        (predicts is not None, "to the folder of the run: model.json, with the "
         "solution, and names, categories, means and scales of the columns"),
        (config.checkpoint, "to the folder of the run, while it is not finished: "
         "checkpoints, with parameters, multipliers, what neighbours sent, and a check "
         "sum of the rows"),
        (gaps, "to the folder of the run, if entries are missing: imputed-*.npz, with "
         "the node's rows, for the owner alone (mode 0600)"),
    ]  # fmt: skip
    lines = [TITLE, *(line for holds, line in found if holds)]
    lines += shared_names(config) if table else []
    return "\n# - ".join(lines) + "\n"


def shared_names(config: RunConfig) -> list[str]:
    """Return the names that this process would send, from the files it can see."""
    files = _visible(str(config.data))
    if not files:
        return [f"names: unknown, since {config.data} is not here"]
    lines = []
    for i, file in files.items():
        frame, choice, _ = read_whole(config, file)
        found = agreement.describe(frame, choice, i)
        if found["error"]:
            raise ShardError(f"{file}: {found['error'][1]}")
        features, target, weight = agreement.select(frame, choice)
        names = [n for n in (*features, target, weight) if n is not None]
        if frame.named:
            lines.append(f"names of columns in {file}: {_quoted(names)}")
        else:
            lines.append(f"number of columns in {file}: {len(names)}")
        for name, facts in found["texts"].items():
            what = "classes" if name == target else "categories"
            values = "more than --max-categories, which ends the run; none is sent"
            if facts["values"] is not None:
                values = _quoted(facts["values"])
            lines += [f"{what} of {name!r} in {file}: {values}"] * bool(values)
    return lines


def _visible(source: str) -> dict[int, str]:
    """Return the sources of the nodes whose files exist, by node."""
    file = source.partition("::")[0]
    if not NODE.search(file):
        return {0: source} if os.path.exists(file) else {}
    file = file.replace("{rank}", "{node}")
    words = re.compile(re.escape(file).replace(r"\{node\}", r"(\d+)"))
    found = map(words.fullmatch, glob(escape(file).replace("{node}", "*")))
    nodes = sorted({int(match[1]) for match in found if match})
    there = [i for i in nodes if os.path.exists(NODE.sub(str(i), file))]
    return {i: NODE.sub(str(i), source) for i in there}


def _quoted(values: Sequence[Any]) -> str:
    return printable(", ".join(json.dumps(x, ensure_ascii=False) for x in values))
