"""The settings of a run: one field each, from which flags and TOML keys follow."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, fields
from inspect import signature
from typing import Any

from dadmm import penalty
from dadmm.admm.rule import RULES
from dadmm.admm.stopping import AGREEMENTS
from dadmm.comm import WAITS
from dadmm.comm.codec import KNOWN
from dadmm.comm.sending import Sending
from dadmm.core.documents import Table
from dadmm.core.schema import FINITE, SEED, SHARE, TEXT, Kind, choice, entry, integer
from dadmm.data.encoding import ON_MISSING, UNKNOWN
from dadmm.data.files import READERS
from dadmm.graphs import graphfiles
from dadmm.graphs import schedule as schedules
from dadmm.graphs.topology import GRAPHS, RANDOM
from dadmm.penalty.schemes import COUPLINGS, PROBES
from dadmm.problems import PROBLEMS
from dadmm.problems.sfm import STARTS
from dadmm.solver.plan import COORDINATES, INITS
from dadmm.solver.solve import FAILURES, MAY_CHANGE, Ranks, Stopping, solve

# defaults of the arguments of `dadmm.solve`, and of the fields of its options
DEFAULTS: Table = {k: p.default for k, p in signature(solve).parameters.items()}
for options in (penalty.Scheme, Stopping, Sending, Ranks):
    DEFAULTS |= {item.name: item.default for item in fields(options)}
# those of a run depend on other settings
DEFAULTS |= dict.fromkeys((*penalty.schemes.BUDGET, "bound_angle"))

# the topics of --help, in order
PROBLEM, DATA, GRAPH = "problem", "data", "graph"
PENALTIES, STOPPING, MESSAGES = "penalties", "start and stop", "messages"
CHECKPOINTS, RESULTS = "checkpoints and failures", "results"


def setting(
    group: str,  # topic under which --help lists the setting
    default: Any,  # None if it depends on other settings
    help: str,
    choices: Iterable[str] = (),  # allowed values
    *,
    kind: Kind | None = None,  # what it may be; by default, one of the choices
    applies: Callable[[Any], bool] = lambda run: True,  # whether a `RunConfig` uses it
    only: str = "",  # what it is for; where it does not apply, it is refused then
    argument: str = "",  # argument that the problem's constructor must have
    common: bool = False,  # whether --help lists it first
    decides: bool = True,  # whether it can change what a run computes, unless RESULTS
    resume: bool = False,  # whether it may change when a run is resumed
    solver: bool = False,  # whether it is an option of `dadmm.solve`
) -> Any:
    """Return a dataclass field whose metadata are these facts about a setting."""
    facts = dict(locals())
    facts["decides"] = decides and group != RESULTS
    if choices and kind is None:
        facts["kind"] = choice(choices)
    return entry(facts.pop("default"), **facts)


def solver_setting(
    name: str, group: str, help: str, *choices: Iterable[str], **facts: Any
) -> Any:
    """Return the field of an option of `dadmm.solve`, with its default and rules.

    A number that a scheme names in `uses` is for such schemes, and schemes of yours.
    """
    known = penalty.SCHEMES
    if users := [key for key, kind in known.items() if name in kind.uses]:
        facts["applies"] = lambda run: run.scheme in users or run.scheme not in known
        help = help.format(schemes=", ".join(users))
    facts |= {"solver": True, "resume": name in MAY_CHANGE}
    return setting(group, DEFAULTS[name], help, *choices, **facts)


def column_names(text: str) -> list[str]:
    """Return the names of columns in a text, between which there are commas."""
    words = next(csv.reader([text], skipinitialspace=True), [])
    return [word.strip() for word in words if word.strip()]


def _is_json(text: str) -> bool:
    with suppress(ValueError, RecursionError):
        return isinstance(json.loads(text or "{}"), dict)
    return False


def _is_encoding(name: str) -> bool:
    with suppress(LookupError, ValueError):
        return "".encode(name) is not None
    return False


IN_MEMORY = "(in memory)"  # data of a result of `dadmm.solve` that was saved
FORMAT = ("separator", "decimal", "encoding")  # of files of text
OF_SOLVE = frozenset(("problem", "data", "n_components", "topology", "nodes"))
TABLES = "tables of your own, given by --data, of another problem than sfm"
TABLE: Table = {"applies": lambda run: run.has_table, "only": TABLES}
SUBSPACES = "ppca and sfm"
COLUMNS = TEXT.also("one name of a column or several", lambda x: bool(column_names(x)))
JSON = TEXT.also("a JSON object such as '{\"alpha\": 0.1}'", _is_json)
ASCII = TEXT.also("one ASCII character", lambda x: len(x) == 1 and x.isascii())
ENCODING = TEXT.also(
    "an encoding of Python such as utf-8, latin-1 or cp1252", _is_encoding
)


# fmt: off
@dataclass(repr=False)
class Settings:
    """All settings of a run; `config.RunConfig` checks them.

    Without data, it is the paper's synthetic experiment.
    """

    problem: str = setting(PROBLEM, "ppca", "the local problem, or your own as "
        "package.module:Class", PROBLEMS, common=True, kind=TEXT)
    problem_settings: str | None = setting(PROBLEM, None, "arguments of the problem's "
        "class as JSON: '{\"name\": value}'", kind=JSON)
    # data and labels may change at a resume: a checkpoint compares the rows of nodes
    data: str | None = setting(DATA, None, f"a table ({', '.join(READERS)}), or one "
        "file per node as part-{node}.csv; without it, synthetic data", common=True,
        resume=True)
    features: str | None = setting(DATA, None, "columns of X, by names or numbers with "
        "commas between (default: all but target and weight)", kind=COLUMNS,
        common=True, **TABLE)
    leave_out: str | None = setting(DATA, None, "columns that are not used, such as an "
        "id, by names or numbers", kind=COLUMNS, **TABLE)
    target: str | None = setting(DATA, None, "column of the data that holds y, by "
        "number or name (default: the last), or its array in a .npz or .mat file "
        "(default: y, beside X)", argument="y", common=True,
        applies=lambda run: run.data is not None)
    weight: str | None = setting(DATA, None, "column, or array, of sample weights "
        "(default: all rows weigh 1)", argument="sample_weight", **TABLE)
    categories: str | None = setting(DATA, None, "columns to use as categories, by "
        "names or numbers; only columns of numbers, or of text that looks like "
        "numbers, dates or identifiers, need it", kind=COLUMNS, **TABLE)
    max_categories: int = setting(DATA, 50, "largest number of categories of a column, "
        "and of classes", kind=integer(2), **TABLE)
    on_missing: str | None = setting(DATA, None, "missing entries: refuse them, drop "
        "their rows, fill in the mean over all nodes, or keep them (default: error; "
        "ppca and problems of your own: keep)", ON_MISSING, **TABLE)
    unknown: str = setting(DATA, "error", "what dadmm predict does with a category "
        "that no node had: refuse or ignore it", UNKNOWN, **TABLE)
    standardise: bool = setting(DATA, False, "divide each column of X by its standard "
        "deviation over all nodes, after subtracting its mean if there is an "
        "intercept; coefficients are reported in the units of the table",
        **TABLE)
    separator: str | None = setting(DATA, None, "character between cells of .csv files "
        "(default: a tab, a semicolon or a comma, by the first line)", kind=ASCII,
        **TABLE)
    decimal: str = setting(DATA, ".", "decimal mark of .csv files, a point or a comma",
        (".", ","), **TABLE)
    encoding: str = setting(DATA, "utf-8", "encoding of .csv and .txt files",
        kind=ENCODING, **TABLE)
    labels: str | None = setting(DATA, None, "node of each sample: a file of integers, "
        "or the name or number of a column", resume=True)
    n_samples: int | None = setting(DATA, None, "synthetic data: number of samples "
        "(default: 500, or 25 per node if that is more)",
        applies=lambda run: run.draws_rows, kind=integer(1))
    dimension: int = setting(DATA, 20, "synthetic data: dimension of a sample",
        applies=lambda run: run.draws_rows, kind=integer(2))
    noise_variance: float = setting(DATA, 0.2, "synthetic data: variance of the noise",
        applies=lambda run: run.draws_rows, kind=FINITE)
    missing_fraction: float = setting(DATA, 0.0, "synthetic data: fraction of the "
        "entries to remove", applies=lambda run: run.data is None and run.has_subspace,
        kind=SHARE, only=f"synthetic data of {SUBSPACES}; in yours, NaN is a missing "
        "entry")
    data_seed: int = setting(DATA, 0, "synthetic data: seed",
        applies=lambda run: run.data is None, kind=SEED)
    n_components: int = setting(PROBLEM, None, "dimension of the subspace (default: 5; "
        "sfm: always 3)", applies=lambda run: run.may_have_subspace,
        kind=integer(1), only=SUBSPACES)
    zero_mean: bool = setting(PROBLEM, False, "fix the mean at zero (sfm: always)",
        applies=lambda run: run.has_subspace and not run.traits.tracks)
    sfm_start: str = setting(PROBLEM, "frame", "sfm: start from each camera's first "
        "frame, or from random parameters (not with --init merged)", STARTS,
        applies=lambda run: run.traits.tracks)
    alpha: float | None = setting(PROBLEM, None, "regularisation of the whole problem; "
        "each node has an equal share (default: 1.0; huber: 0.0)", argument="alpha",
        kind=FINITE)
    l1_ratio: float | None = setting(PROBLEM, None, "elastic_net: weight of the l1 "
        "norm in the regularisation, from 0 to 1 (default: 0.5)", argument="l1_ratio")
    delta: float | None = setting(PROBLEM, None, "huber: threshold above which errors "
        "count linearly, in the unit of y (default: 1.35)", argument="delta")
    fit_intercept: bool | None = setting(PROBLEM, None, "linear problems: fit an "
        "intercept, without regularisation (default: yes)", argument="fit_intercept")

    topology: str = setting(GRAPH, None, f"{', '.join(GRAPHS)}, or a file "
        f"({', '.join(graphfiles.READERS)}); several, with commas between, take turns "
        "(default: complete; without --data cluster, except for sfm)", common=True)
    schedule: str = setting(GRAPH, "static", "edges of an iteration: all of them "
        "(static); in turn, so that a node has at most one (matchings); each with "
        "probability P (random:P); or those of a .csv file with the columns t, source "
        "and target", kind=schedules.NAMED)
    topology_seed: int = setting(GRAPH, 0, "seed of random graphs and schedules",
        applies=lambda run: not RANDOM.isdisjoint(run.topology.split(","))
        or run.schedule.startswith(schedules.RANDOM), kind=SEED)
    nodes: int | None = setting(GRAPH, None, "number of nodes; a rank has one or more "
        "(default: one per rank; without mpiexec 20, for sfm 5)", common=True,
        kind=integer(1))
    placement: str = setting(GRAPH, None, "which rank has which nodes: so that few "
        "edges are between hosts and ranks (hosts), in the order of their numbers "
        "(blocks), or as in a table with the columns node and rank (default: hosts; "
        "blocks if each node has its own file)", decides=False, resume=True)

    scheme: str = solver_setting("scheme", PENALTIES, "how penalties adapt, or your "
        "own as package.module:Class", penalty.SCHEMES, common=True, kind=TEXT)
    relaxation: float | None = solver_setting("relaxation", PENALTIES,
        "over-relaxation: between 0 and 2 (default: 1.6; in raw coordinates 1, except "
        "for snap)")
    eta0: float | str | None = solver_setting("eta0", PENALTIES,
        "first penalty: a number; or auto, which finds one for each edge from "
        "curvature and graph (default: auto; in raw coordinates 10, except for snap)")
    t_max: int = solver_setting("t_max", PENALTIES,
        "{schemes}: adapt in iterations t < t_max")
    residual_ratio: float = solver_setting("residual_ratio", PENALTIES,
        "{schemes}: adapt if one residual exceeds the other by this factor")
    budget0: float | None = solver_setting("budget0", PENALTIES,
        "{schemes}: first budget of an edge (default: 32 bits for snap, else 5)")
    budget_decay: float | None = solver_setting("budget_decay", PENALTIES,
        "{schemes}: each raise of a budget is this factor times the raise before "
        "(default: 0.5)")
    budget_trigger: float | None = solver_setting("budget_trigger", PENALTIES,
        "raise a budget that is spent if a change exceeds this; nap, vp_nap: the "
        "change of the objective (default: 0.1); snap: the change of the edge, "
        "relative to its largest change (default: 0.01)")
    probe: str = solver_setting("probe", PENALTIES, "where a node evaluates its "
        "objective for a neighbour: at the midpoint, or at the neighbour's parameters",
        PROBES, applies=lambda run: run.scheme_class.probes)
    coupling: str = solver_setting("coupling", PENALTIES, "one penalty per edge, or "
        "one per end of an edge (as the paper prints it)", COUPLINGS)

    init: str | None = solver_setting("init", STOPPING, "where nodes start: at merged "
        "principal axes of all rows, at the same random parameters, or at random "
        "parameters of their own (default: independent for sfm, and for ppca without "
        "--data and without --missing-fraction; merged for other ppca, except with "
        "fixed; else shared)", INITS)
    seed: int = solver_setting("seed", STOPPING, "seed of the initial parameters",
        kind=SEED)
    coordinates: str = solver_setting("coordinates", STOPPING, "metric (linear "
        "problems) and units (ppca) suit data in any units, and need sums over the "
        "network; raw is as in the paper, without these sums; auto: metric or units "
        "where possible", COORDINATES)
    bound_angle: bool | None = solver_setting("bound_angle", STOPPING,
        "ppca in coordinates units: bound the angle to the principal axes of all rows, "
        "by sums at the end (default: yes; without --data no)",
        applies=lambda run: run.has_subspace, decides=False)
    summaries: bool = setting(STOPPING, True, "--no-summaries sends no factor or axes "
        "of a node's rows, and bounds no error; it is the same as --coordinates raw "
        "(ppca, sfm: at checks nodes add up an M x M matrix of second moments)",
        applies=lambda run: False, decides=False)
    stopping: str = solver_setting("stopping", STOPPING, "what must be small before a "
        "run stops, besides the change of the objective: disagreement and residual "
        "(optimality), the paper's primal and dual residuals (residuals), or nothing "
        "(objective)", RULES)
    agreement: str = solver_setting("agreement", STOPPING, "how nodes decide to stop: "
        "by messages to neighbours, or by a collective", AGREEMENTS)
    tolerance: float = solver_setting("tolerance", STOPPING, "relative tolerance of "
        "the result (docs/accuracy.md); with 0 a run does max_iter iterations",
        common=True)
    absolute_tolerance: float = solver_setting("absolute_tolerance", STOPPING,
        "with --coordinates raw and --stopping optimality: absolute tolerance per "
        "entry", applies=lambda run: run.stopping == "optimality")
    max_iter: int = solver_setting("max_iter", STOPPING, "maximum number of iterations",
        common=True)
    max_seconds: float | None = solver_setting("max_seconds", STOPPING,
        "ask all nodes to stop after this time, and write the results; this takes at "
        "most as many iterations as twice the diameter of the graph")
    strict: bool = setting(STOPPING, False, "exit with code 3 if the status is \"not "
        "converged\"", decides=False, resume=True)

    payload: str = solver_setting("payload", MESSAGES, "how parameters are encoded: "
        f"{KNOWN}")
    censor: float = solver_setting("censor", MESSAGES, "send parameters only if they "
        "have changed by more than this fraction; the fraction shrinks by "
        "--censor-decay")
    censor_decay: float = solver_setting("censor_decay", MESSAGES,
        "censor: factor by which the fraction shrinks in each iteration",
        applies=lambda run: run.censor > 0)
    send_every: int = solver_setting("send_every", MESSAGES, "send payloads every N "
        "iterations")
    edge_sleep: float = solver_setting("edge_sleep", MESSAGES, "send no payload over "
        "edges whose influence is below this fraction of the node's largest")
    drop_probability: float = solver_setting("drop_probability", MESSAGES,
        "simulate losses (scheme fixed): probability that a payload is lost")
    drop_seed: int = solver_setting("drop_seed", MESSAGES, "seed of the lost payloads",
        applies=lambda run: run.drop_probability > 0)

    checkpoint: bool = setting(CHECKPOINTS, True, "save the state of the run, for "
        "--resume", decides=False, resume=True)
    checkpoint_seconds: float = setting(CHECKPOINTS, 60.0, "seconds between two saves, "
        "about (0: no saves by time); a run that ends as \"not converged\" or "
        "\"max_iter\" saves, too", applies=lambda run: run.checkpoint, decides=False,
        resume=True, kind=FINITE)
    checkpoint_every: int = setting(CHECKPOINTS, 0, "save every N iterations (0: not "
        "by iterations)", applies=lambda run: run.checkpoint, decides=False,
        resume=True, kind=integer())
    on_failure: str = solver_setting("on_failure", CHECKPOINTS, "if a rank fails, "
        "abort the run, or continue without it (Open MPI with ULFM)", FAILURES)
    wait: str = solver_setting("wait", MESSAGES, "how ranks wait for messages: test "
        "all the time (block), test and sleep in turns (poll), or poll if a host has "
        "more ranks than cores, else block (auto)", WAITS, decides=False)

    out: str | None = setting(RESULTS, None, "folder of the results (default: a new "
        "one in runs/)", common=True)
    overwrite: bool = setting(RESULTS, False, "replace the results in --out")
    record: bool | None = setting(RESULTS, None, "write history.csv, one row per "
        "iteration and node (default: up to 1,000 nodes)")
    record_edges: bool | None = setting(RESULTS, None, "also write edges.csv, one row "
        "per iteration and edge (default: no; without --data up to 50 nodes)")
    record_every: int = setting(RESULTS, 1, "write rows of every N-th iteration; when "
        "a file would exceed 50 MB, N is doubled", kind=integer(1))
    record_angle: bool = setting(RESULTS, False, "also record subspace angles in every "
        "iteration", applies=lambda run: run.has_subspace, only=SUBSPACES)
    compare_centralised: bool | None = setting(RESULTS, None, "ppca, sfm: compare with "
        "the centralised solution; rank 0 gathers a summary of each node's rows for it "
        "(default: only without --data, where each rank generates all rows)",
        applies=lambda run: run.may_have_subspace, only=SUBSPACES)
    report: bool = setting(RESULTS, False, "at the end write report.html, a page for a "
        "browser (needs plotly)", common=True, resume=True)
    quiet: bool = setting(RESULTS, False, "print only errors", resume=True)
    # fmt: on


def names(fact: str) -> frozenset[str]:
    """Return the settings for which a fact holds, such as "resume" or "decides"."""
    return frozenset(item.name for item in fields(Settings) if item.metadata[fact])
