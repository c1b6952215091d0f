"""The model of a run, with its scores and standard errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dadmm.cli.tables import Shards
from dadmm.comm.world import World
from dadmm.core.errors import ProblemError
from dadmm.core.layout import Matrix, Vector
from dadmm.data import shard
from dadmm.data.encoding import Rows
from dadmm.data.frame import label
from dadmm.models import scores
from dadmm.models.model import Model
from dadmm.models.scores import Scores
from dadmm.problems import builder
from dadmm.runs.config import RunConfig
from dadmm.runs.summary import known
from dadmm.solver.result import Result

MOST_NODES = 10_000  # for the AUC: each has a histogram
Named = dict[str, float | None]


class Fit(NamedTuple):
    """What a run has found, in the names and units of the table."""

    model: Model | None = None  # None if the problem has none
    scores: Scores | None = None  # None without summaries
    n_rows: Sequence[int] = ()  # of each node, on rank 0
    standard_errors: Mapping[str, float | None] = {}  # by coefficient

    @property
    def linear(self) -> Model | None:
        """The model if it has coefficients."""
        model = self.model
        return model if model is not None and "coef" in model.parameters else None


def describe(
    world: World,
    config: RunConfig,
    result: Result,
    problems: Mapping[int, Any],
    data: Shards,
) -> Fit:
    """Return the model of a run, by sums over all nodes; all ranks call it.

    ``problems`` and ``data`` are of the nodes of this process.
    """
    total = partial(world.reduce, result.topology)
    n_nodes, problem = result.topology.n_nodes, config.problem
    takes = builder.arguments(builder.find(problem))
    flags = config.problem_flags(1) | config.settings
    flags = {name: value for name, value in flags.items() if takes.takes(name)}
    model, encoding = None, data.encoding
    if config.traits.predicts and encoding is not None:
        if config.has_subspace and config.data is None:
            encoding = replace(encoding, on_missing="keep")
        with suppress(ProblemError):  # the solution is not finite
            model = Model.of(
                result, problem, encoding, settings=flags, tolerance=config.tolerance
            )
    if config.coordinates == "raw":
        return Fit(model)
    own = list(data.rows.values())
    parameters = {} if model is None else model.parameters
    kind = None if model is None else model.kind
    if data.whole is not None and config.has_subspace and not result.lost:
        n_rows = len(data.whole)  # each rank has all of them
        ends = [shard.bounds(n_rows, n_nodes, i) for i in range(n_nodes)]
        found = scores.score(_alone, kind, parameters, [Rows(data.whole)])
        return Fit(model, found, [end - first for first, end in ends])
    found = scores.score(total, kind, parameters, own, n_nodes <= MOST_NODES)
    counts = world.gather_nodes([np.array([[float(p.X.shape[0])]]) for p in own])
    by_node = counts[:, 0].astype(int).tolist()
    if model is None:
        return Fit(None, found, by_node)
    origin = model.origin._replace(n_rows=found.n_rows)
    errors: Named = {}
    alpha = getattr(next(iter(problems.values())), "alpha", 0.0)
    has_errors = config.traits.has_errors and alpha == 0.0
    if has_errors and result.coordinates == "metric" and result.converged:
        values = scores.standard_errors(
            total, model.kind, parameters, own, _units(model), found.variance
        )
        errors = _named(model, values)
    return Fit(replace(model, origin=origin), found, by_node, errors)


def _units(model: Model) -> Matrix:
    """Return the map of coefficients (and intercept) to those in the table's units."""
    d, has_intercept = len(model.feature_names), "intercept" in model.parameters
    eye = np.eye(d + has_intercept)
    parts = {"coef": eye[:, :d], **({"intercept": eye[:, d]} if has_intercept else {})}
    return np.column_stack([*model.encoding.to_table_units(parts).values()]).T


def _alone(values: Sequence[Any], *_: Any) -> Any:
    """Return the one value, in place of a sum over the nodes."""
    return values[0]


def _named(model: Model, values: Vector) -> Named:
    """Return values of the coefficients of a linear model, in the table's units.

    With several classes, names are as ``blue: age``.
    """
    ending = ["intercept"] if "intercept" in model.table_parameters else []
    names = _by_class(model, [*model.feature_names, *ending])
    return dict(zip(names, map(known, values.tolist()), strict=True))


def entry_names(model: Model) -> list[str]:
    """Return a name for each entry of theta of a linear model."""
    ending = ["intercept"] if "intercept" in model.parameters else []
    columns = _by_class(model, model.feature_names)
    return columns + _by_class(model, ending)


def _by_class(model: Model, words: Sequence[str]) -> list[str]:
    if model.parameters["coef"].ndim == 1:
        return [*words]
    return [f"{label(k)}: {name}" for k in model.classes.tolist() for name in words]


def coefficients(model: Model) -> Named:
    """Return the coefficients of a linear model by name, in the table's units."""
    return _named(model, _flat(model.table_parameters))


def comparison(model: Model) -> dict[str, Any]:
    """Return what the coefficients of a linear model compare with.

    These are the categories without a coefficient, by column, and for two classes the
    one whose probability a positive coefficient raises.
    """
    columns = model.encoding.columns if model.encoding.intercept else {}
    found: dict[str, Any] = {
        "baseline": {name: words[0] for name, words in columns.items() if words}
    }
    if model.kind == "classification" and model.parameters["coef"].ndim == 1:
        found["positive_class"] = model.classes.tolist()[1]
    return found


def bounds(model: Model, result: Result) -> Named:
    """Return the bounds on the errors of these coefficients; None if there is none."""
    assert result.certificate is not None
    parts = result.layout.views(result.certificate.coefficients)._asdict()
    return _named(model, _flat(model.encoding.to_table_units(parts, bounds=True)))


def _flat(parts: Mapping[str, np.ndarray]) -> Vector:
    """Return coefficients in the order of their names: by class, intercept last."""
    columns: list[Matrix] = [np.atleast_2d(parts["coef"])]
    if "intercept" in parts:
        columns.append(np.reshape(parts["intercept"], (-1, 1)))
    return np.hstack(columns).ravel()
