"""The results of a run: its model with scores, its summary and its arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import NamedTuple

import numpy as np

from dadmm.cli.job import Job
from dadmm.core.documents import Table, write_arrays, writing
from dadmm.core.errors import ProblemError
from dadmm.core.layout import Array, Matrix
from dadmm.data import shard
from dadmm.data.encoding import Rows
from dadmm.data.files import Names
from dadmm.data.frame import label
from dadmm.graphs import placement
from dadmm.models import scores
from dadmm.models.model import Model
from dadmm.models.scores import Scores
from dadmm.problems import IncompletePPCA, sfm
from dadmm.runs.summary import Named, Summary, known
from dadmm.solver.result import Result

MOST_NODES = 10_000  # for the AUC: each has a histogram
SEEDS = ("seed", "data_seed", "topology_seed", "drop_seed")


class Fit(NamedTuple):
    """What a run has found, in the names and units of the table."""

    model: Model | None = None  # None if the problem has none
    scores: Scores | None = None  # None without summaries
    n_rows: Sequence[int] = ()  # of each node, on rank 0
    standard_errors: Mapping[str, float | None] = {}  # by coefficient


def describe(job: Job) -> Fit:
    """Return the model of a run, by sums over all nodes; all ranks call it."""
    world, config, result, data = job.world, job.config, job.result, job.data
    n_nodes, model, encoding = result.topology.n_nodes, None, data.encoding
    if config.traits.predicts and encoding is not None:
        given = Table(settings=config.problem_arguments(1), tolerance=config.tolerance)
        with suppress(ProblemError):  # the solution is not finite
            model = Model.of(result, config.problem, encoding, **given)
    if config.coordinates == "raw":
        return Fit(model)
    own = list(data.rows.values())
    kind, parameters = (model.kind, model.parameters) if model else (None, {})
    if data.whole is not None and config.has_subspace:  # each rank has all rows
        ends = [shard.bounds(len(data.whole), n_nodes, i) for i in range(n_nodes)]
        alone = lambda values, *_: values[0]  # noqa: E731 (in place of a sum)
        found = scores.score(alone, kind, parameters, [Rows(data.whole)])
        return Fit(model, found, [end - first for first, end in ends])
    total = partial(world.reduce, result.topology)
    found = scores.score(total, kind, parameters, own, n_nodes <= MOST_NODES)
    counts = world.gather_nodes([np.array([[float(p.X.shape[0])]]) for p in own])
    by_node = counts[:, 0].astype(int).tolist()
    if model is None:
        return Fit(None, found, by_node)
    errors: Mapping[str, float | None] = {}
    alpha = getattr(next(iter(job.problems.values())), "alpha", 0.0)
    has_errors = config.traits.has_errors and alpha == 0.0
    if has_errors and result.coordinates == "metric" and result.converged:
        d = len(model.feature_names)
        eye = np.eye(d + ("intercept" in parameters))
        parts = {"coef": eye[:, :d]}
        if "intercept" in parameters:
            parts["intercept"] = eye[:, d]
        to_table = np.column_stack([*model.encoding.to_table_units(parts).values()]).T
        values = scores.standard_errors(
            total, model.kind, parameters, own, to_table, found.variance
        )
        errors = dict(zip(_names(model), map(known, values.tolist()), strict=True))
    origin = model.origin._replace(n_rows=found.n_rows)
    return Fit(replace(model, origin=origin), found, by_node, errors)


def summarise(job: Job, fit: Fit) -> Summary:
    """Return the content of summary.json, on rank 0; all ranks call it."""
    seconds = {"total": monotonic() - job.started, "set_up": job.result.spent["set_up"]}
    world, config, result, machines = job.world, job.config, job.result, job.machines
    own = list(job.data.rows.values())
    measured = job.targets.metrics(world, result, own)
    calls, n_bytes = world.sent()
    if world.rank:
        return Summary()
    homes = machines * result.topology.n_nodes
    if world.hosts is not None:
        homes = [machines[rank] for rank in world.hosts.tolist()]
    far = placement.crosses_hosts(result.topology, homes)
    X = next(own[0].blocks()).X  # or some of the rows, if they are in a file
    X = X if isinstance(X, np.ndarray) else None  # sparse
    named = names_of(result, job.features, fit.model)
    found = Summary.of(result, named, seconds, X)
    found["metrics"] |= measured
    found |= {
        "resumed_after": job.checkpoints.start,  # 0 for a run that was not resumed
        "record_every": job.rows.step,
        "edges_between_hosts": int(far.sum()) // 2,
        "bytes_between_hosts": int(result.traffic.edge_bytes[far].sum()),
        "outside_calls": calls,
        "outside_bytes": n_bytes,
        "seeds": {name: getattr(config, name) for name in SEEDS},
        "mpi_library": world.library,
        "ranks": world.size,
        "hosts": {name: machines.count(name) for name in sorted(set(machines))},
        "node_hosts": homes,
    }
    if named.coefficients and "alpha" in config.arguments:
        share = getattr(next(iter(job.problems.values())), "alpha", None)
        if share is not None:  # a class of a user need not keep it
            found["alpha"] = float(share * result.topology.n_nodes)
    model = fit.model
    if model is not None and "coef" in model.parameters:
        columns = model.encoding.columns if model.encoding.intercept else {}
        found["baseline"] = {k: words[0] for k, words in columns.items() if words}
        if model.kind == "classification" and model.parameters["coef"].ndim == 1:
            found["positive_class"] = model.classes.tolist()[1]
    if fit.scores is not None:
        nodes = map(str, result.nodes.tolist())
        found["scores"] = fit.scores.values
        found["standard_errors"] = dict(fit.standard_errors)
        if model is not None and fit.scores.by_class:
            names = map(label, model.classes.tolist())
            found["rows_by_class"] = dict(zip(names, fit.scores.by_class, strict=True))
        found["rows_by_node"] = dict(zip(nodes, fit.n_rows, strict=True))
    if job.gaps:
        found["gaps"] = {"on_missing": config.on_missing, "nodes": sorted(job.gaps)}
    return found


def names_of(result: Result, features: Names, model: Model | None) -> Named:
    """Return names of theta's entries, and the coefficients of a linear problem.

    An entry without the name of a column is called after its part, as in W[2, 0].
    """
    certificate, views = result.certificate, result.layout.views
    if model is not None and "coef" in model.parameters:
        bounds = {}
        if certificate is not None:
            parts = views(certificate.coefficients)._asdict()
            bounds = _by_name(model, model.encoding.to_table_units(parts, bounds=True))
        ends = ["intercept"] * ("intercept" in model.parameters)
        entries = [*_names(model, model.feature_names), *_names(model, ends)]
        return Named(entries, _by_name(model, model.table_parameters), bounds)
    shapes, names = result.layout.shapes, list[str]()
    columns = list(features or ())
    linear = features is not None and shapes.get("coef") == (len(columns),)
    for part, shape in shapes.items():
        if part == "coef" and linear:
            names += columns
        else:
            places = [list(place) for place in np.ndindex(shape)]
            names += [f"{part}{place}" if place else part for place in places]
    values = dict(zip(names, result.solution.tolist(), strict=True))
    wanted = {*columns, *(["intercept"] * (shapes.get("intercept") == ()))}
    named = {name: values[name] for name in names if linear and name in wanted}
    limits = [] if certificate is None else certificate.coefficients.tolist()
    return Named(names, named, dict(zip(names, map(known, limits), strict=False)))


def _names(model: Model, columns: Sequence[str] | None = None) -> list[str]:
    """Return names of coefficients; with several classes they are as ``blue: age``."""
    if columns is None:
        has_intercept = "intercept" in model.table_parameters
        columns = [*model.feature_names, *["intercept"] * has_intercept]
    if model.parameters["coef"].ndim == 1:
        return [*columns]
    return [f"{label(k)}: {name}" for k in model.classes.tolist() for name in columns]


def _by_name(model: Model, parts: Mapping[str, Array]) -> dict[str, float | None]:
    """Return numbers of the coefficients by name: by class, intercept last."""
    numbers: list[Matrix] = [np.atleast_2d(parts["coef"])]
    if "intercept" in parts:
        numbers.append(np.reshape(parts["intercept"], (-1, 1)))
    return dict(zip(_names(model), map(known, np.hstack(numbers).ravel()), strict=True))


def arrays(
    result: Result, features: Names, frames: Matrix | None, adrift: bool
) -> dict[str, Array]:
    """Return the arrays of result.npz, on rank 0; ``frames`` is the motion of cameras.

    A structure that is ``adrift``, known up to a translation, is centred at the origin.
    """
    found: Table = result.layout.views(result.theta)._asdict()
    found |= {"edges": result.nodes[result.topology.edges], "eta": result.eta}
    if frames is not None:
        structure = result.layout.views(result.theta.mean(axis=0)).W
        if adrift:
            structure = structure - structure.mean(axis=0)
        found |= sfm.upgrade(frames, structure)._asdict()
    if features is not None:
        found["feature_names"] = np.array(features)
    if result.topology.names:
        found["node_names"] = np.array(result.topology.names)
    if result.topology.positions is not None:
        found["node_positions"] = result.topology.positions
    traffic = result.traffic._asdict().items()
    counted = ("edge_", "tree_")
    return found | {name: value for name, value in traffic if name.startswith(counted)}


def write_imputed(job: Job) -> None:
    """Write the imputed samples of each node; the folder may be on another machine."""
    folder = job.rows.home
    if not job.targets.gaps:
        return
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for i, problem in job.problems.items():
        if isinstance(problem, IncompletePPCA):
            theta, x = job.result.of(i), job.data.rows[i].X
            filled, variances = problem.impute(theta, x)
            latent = problem.latent(theta, x)
            found = {"samples": filled, "variances": variances, "latent": latent}
            write_arrays(folder / f"imputed-{i:05d}.npz", found, private=True)
