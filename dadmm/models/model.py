"""A fitted model: columns, parameters, and how they were found; docs/models.md."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from dadmm.core import schema
from dadmm.core.documents import parse, write_text
from dadmm.core.errors import ConfigError, DadmmError, ProblemError, shown
from dadmm.core.layout import Matrix, Vector
from dadmm.core.linalg import principal_axes
from dadmm.core.version import __version__
from dadmm.data.encoding import TEXTS, Encoding, Rows
from dadmm.data.frame import Frame, label
from dadmm.models import scores
from dadmm.models.scores import KINDS
from dadmm.problems import builder
from dadmm.solver.result import Result

NAME = "model.json"  # in the folder of a run
FORMAT, VERSION = "dadmm-model", 1
MOST_TEXT = 2**30  # characters of a model file
STATUSES = ("certified", "stationary", "stopped", "max_iter", "not converged")
PLAIN = schema.any_of(schema.NULL, schema.FLAG, schema.TEXT, schema.REAL)
FIELDS: dict[str, schema.Kind] = {  # of a model file
    "format": schema.choice((FORMAT,)),
    "version": schema.INTEGER.also(
        f"{VERSION}, which this version of dadmm reads", lambda x: x == VERSION
    ),
    "dadmm": schema.TEXT,
    "problem": schema.choice(KINDS),
    "settings": schema.object_of(PLAIN, "an object without lists or objects"),
    "status": schema.choice(STATUSES),
    "why": schema.TEXT,
    "iterations": schema.COUNT,
    "tolerance": schema.any_of(schema.FINITE, schema.NULL),
    "n_rows": schema.any_of(schema.COUNT, schema.NULL),
    "feature_names": TEXTS,
    **dict.fromkeys(("parameters", "table_parameters", "encoding"), schema.OBJECT),
}


class Origin(NamedTuple):
    """How the parameters of a model were found."""

    status: str  # as in `dadmm.Result`
    why: str  # why the result is not certified; "" if it is
    iterations: int
    tolerance: float | None = None
    n_rows: int | None = None  # of all nodes; None if it is not known
    version: str = __version__  # of dadmm


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """A fitted model, which predicts from tables with named columns.

    Parameters
    ----------
    problem : str
        One of `dadmm.models.scores.KINDS`.
    encoding : Encoding
        The columns of a table, and how they become numbers.
    parameters : dict of str to ndarray
        Of the encoded columns: ``coef`` and ``intercept``, or ``W``, ``mu`` and ``a``.
    origin : Origin
    settings : dict
        Settings of the problem, such as alpha.

    Examples
    --------
    >>> import dadmm, numpy as np
    >>> X = np.arange(12.0).reshape(6, 2) ** 2
    >>> made = [dadmm.problems.LeastSquares(X[k::2], X[k::2, 0] + 1) for k in (0, 1)]
    >>> result = dadmm.solve(made, dadmm.Topology.chain(2))
    >>> model = dadmm.Model.of(result, "least_squares")
    >>> model.predict([[3.0, 5.0]]).round(6)
    array([4.])
    """

    problem: str
    encoding: Encoding
    parameters: Mapping[str, np.ndarray]
    origin: Origin
    settings: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        schema.choice(KINDS).check("problem", self.problem)
        parts, d, lead = self.parameters, len(self.feature_names), list[int]()
        found = {name: [*part.shape] for name, part in parts.items()}
        if self.kind == "classification":
            count = len(self.encoding.classes or ())
            binary = builder.n_classes(self.problem) == 2
            if count < 2 or (binary and count > 2):
                two = "two" if binary else "at least two"
                raise ConfigError(f"{self.problem} needs {two} classes, got {count}")
            lead = [] if binary else [count]
        allowed = {"coef": [*lead, d], "intercept": lead}
        if self.kind == "subspace":
            width = max([1, *found.get("W", [])[1:2]])
            allowed = {"W": [d, width], "mu": [d], "a": []}
        if allowed not in (found, found | {"intercept": lead}):  # it may be absent
            raise ConfigError(
                f"parameters of {self.problem} must have the shapes {allowed} for {d} "
                f"encoded columns, got {shown(found)}"
            )
        if self.kind == "subspace" and not parts["a"] > 0.0:
            raise ConfigError(f"a must be positive, got {parts['a']}")
        on_missing = self.encoding.on_missing
        no_means = on_missing == "mean" and self.encoding.means is None
        if no_means or (on_missing == "keep" and self.kind != "subspace"):
            raise ConfigError(
                f"on_missing cannot be {on_missing!r} for this model: 'mean' needs a "
                "fit with means, and 'keep' a subspace; use 'drop'"
            )

    @classmethod
    def of(
        cls,
        result: Result,
        problem: str,
        encoding: Encoding | None = None,
        *,
        settings: Mapping[str, object] | None = None,
        tolerance: float | None = None,
        n_rows: int | None = None,
    ) -> Self:
        """Return the model of a result.

        Parameters
        ----------
        result : Result
        problem : str
            Such as "logistic".
        encoding : Encoding, optional
            By default columns are numbers, x0, x1, ..., and classes 0, 1, ....
        settings, tolerance, n_rows : optional
            Written into the file of the model.
        """
        schema.choice(KINDS).check("problem", problem)
        if not np.isfinite(result.solution).all():
            raise ProblemError("the solution is not finite, so there is no model")
        parts = result.layout.views(result.solution.copy())._asdict()
        if "W" in parts:
            axes, lengths = principal_axes(parts["W"])
            parts["W"] = axes * lengths
        if encoding is None:
            width = len(parts["W"]) if "W" in parts else parts["coef"].shape[-1]
            classes, gaps = None, "keep" if "W" in parts else "error"
            if KINDS[problem] == "classification":
                count = 2 if parts["coef"].ndim == 1 else len(parts["coef"])
                classes = tuple(float(k) for k in range(count))
            encoding = Encoding.plain(width, classes=classes, on_missing=gaps)
        origin = Origin(result.status, result.why, result.iterations, tolerance, n_rows)
        return cls(problem, encoding, parts, origin, dict(settings or {}))

    def __repr__(self) -> str:
        shapes = {name: np.shape(part) for name, part in self.parameters.items()}
        return f"<Model of {self.problem}, {self.origin.status}: {shapes}>"

    @property
    def kind(self) -> str:
        """What the model predicts, such as "regression"."""
        return KINDS[self.problem]

    @property
    def classes(self) -> np.ndarray:
        """In the order of the columns of `predict_proba`."""
        self._check_kind("classes", "classification")
        return np.array(self.encoding.classes)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the encoded columns."""
        return self.encoding.feature_names

    @property
    def table_parameters(self) -> dict[str, np.ndarray]:
        """The parameters in the units of the table."""
        return dict(self.encoding.to_table_units(self.parameters))

    def predict(self, table: object) -> np.ndarray:
        """Return the value, label or mean of each row of a table, (n,).

        The table is a dict of columns, an array, a DataFrame or a pyarrow.Table, with
        or without the target. Columns are found by name, or by position in an array. A
        row that the model drops has NaN, or None as a label.
        """
        self._check_kind("predict", "regression", "classification", "counts")
        return self.columns(table)["prediction"]

    def predict_proba(self, table: object) -> Matrix:
        """Return the probabilities of the classes, (n, K)."""
        self._check_kind("predict_proba", "classification")
        return np.column_stack([*self.columns(table).values()][1:])

    def transform(self, table: object) -> Matrix:
        """Return the projections on the principal axes, (n, M)."""
        return self._reconstruction("transform", table).scores

    def reconstruct(self, table: object) -> Matrix:
        """Return the nearest points of the subspace, (n, D), in the table's units."""
        return self._reconstruction("reconstruct", table).rows

    def reconstruction_error(self, table: object) -> Vector:
        """Return root mean square distances of rows from the subspace, (n,).

        Observed entries count, in the units of the fit.
        """
        return self._reconstruction("reconstruction_error", table).errors

    def impute(self, table: object) -> Matrix:
        """Return the rows (n, D) with the expectation of each missing entry."""
        return self._reconstruction("impute", table).filled

    def columns(self, table: object) -> dict[str, np.ndarray]:
        """Return all predictions by name, as ``dadmm predict`` writes them."""
        if self.kind == "subspace":
            found = self._reconstruction("columns", table)
            scores.check_score_names(self.feature_names, found.scores.shape[1])
            columns = {f"score{k}": score for k, score in enumerate(found.scores.T)}
            filled = dict(zip(self.feature_names, found.filled.T, strict=True))
            return columns | {"reconstruction_error": found.errors} | filled
        rows = self.encoding.encode(Frame.of(table))
        values = scores.linear(rows.X, self.parameters)
        if self.kind != "classification":
            means = values if self.kind == "regression" else scores.means(values)
            return {"prediction": _spread(means, rows)}
        logs = scores.log_probabilities(values)
        labels = _spread(self.classes[logs.argmax(axis=1)], rows)
        names = [f"p({label(name)})" for name in self.classes.tolist()]
        odds = zip(names, _spread(np.exp(logs), rows).T, strict=True)
        return {"prediction": labels} | dict(odds)

    def save(self, path: str | Path) -> None:
        """Write the model to a JSON file."""
        write_text(Path(path), self.to_json())

    def to_json(self) -> str:
        """Return the text of the model's file."""
        origin = self.origin._asdict()
        content = {
            "format": FORMAT,
            "version": VERSION,
            "dadmm": origin.pop("version"),
            "problem": self.problem,
            "settings": dict(self.settings),
            **origin,
            "feature_names": list(self.feature_names),
            "parameters": dict(self.parameters),
            "table_parameters": self.table_parameters,
            "encoding": self.encoding.to_json(),
        }
        text = json.dumps(content, indent=1, allow_nan=False, default=np.ndarray.tolist)
        return f"{text}\n"

    def _reconstruction(self, name: str, table: object) -> scores.Reconstruction:
        self._check_kind(name, "subspace")
        encoded = self.encoding.encode(Frame.of(table))
        found = scores.reconstruct(encoded.X, self.parameters)
        units = self.encoding.rows_in_table_units
        found = found._replace(rows=units(found.rows), filled=units(found.filled))
        return scores.Reconstruction(*(_spread(part, encoded) for part in found))

    def _check_kind(self, name: str, *kinds: str) -> None:
        if self.kind not in kinds:
            raise ConfigError(
                f"a model of {self.problem} has no {name}, because it is a "
                f"{self.kind}; docs/models.md lists what it has"
            )


def load_model(
    path: str | Path, *, unknown: str | None = None, on_missing: str | None = None
) -> Model:
    """Return the model of a run.

    Parameters
    ----------
    path : str or Path
        A model file, or the folder of a run.
    unknown : {"error", "ignore"}, optional
        What to do with a category that the fit has not seen; by default as in the fit.
    on_missing : {"error", "drop", "mean", "keep"}, optional
        What to do with a missing entry; by default as in the fit.

    Examples
    --------
    >>> import dadmm, numpy as np
    >>> from tempfile import TemporaryDirectory
    >>> X = np.arange(12.0).reshape(6, 2) ** 2
    >>> made = [dadmm.problems.LeastSquares(X[k::2], X[k::2, 0] + 1) for k in (0, 1)]
    >>> result = dadmm.solve(made, dadmm.Topology.chain(2))
    >>> with TemporaryDirectory() as folder:
    ...     dadmm.Model.of(result, "least_squares").save(f"{folder}/model.json")
    ...     dadmm.load_model(folder).predict([[3.0, 5.0]]).round(6)
    array([4.])
    """
    file = Path(path, NAME) if os.path.isdir(path) else Path(path)
    if not os.path.exists(file):
        raise ConfigError(
            f"cannot find {file}; give a model file, or the folder of a finished run "
            "of a problem that has a model"
        )
    content = parse(file, json.loads, "JSON", MOST_TEXT)
    try:
        model = _decoded(content)
    except DadmmError as error:
        raise ConfigError(f"{file} is not a valid model: {error}") from None
    given = {"unknown": unknown, "on_missing": on_missing}
    changes: dict[str, Any] = {k: v for k, v in given.items() if v is not None}
    return replace(model, encoding=replace(model.encoding, **changes))


def _decoded(content: Any) -> Model:
    if isinstance(content, dict):
        for name in ("format", "version"):  # first: other formats have other fields
            FIELDS[name].check(name, content.get(name))
    given = schema.check_entries(content, FIELDS)
    encoding = Encoding.from_json(given["encoding"])
    if given["feature_names"] != list(encoding.feature_names):
        raise ConfigError("feature_names differ from the encoding")
    parameters, stated = map(_arrays, (given["parameters"], given["table_parameters"]))
    given["version"] = given["dadmm"]
    origin = Origin(**{name: given[name] for name in Origin._fields})
    model = Model(given["problem"], encoding, parameters, origin, given["settings"])
    found, none = model.table_parameters, np.empty(0)
    for name in found.keys() | stated.keys():
        part, other = found.get(name, none), stated.get(name, none)
        near = {"rtol": 1e-6, "atol": 1e-6 * np.abs(part).max(initial=0.0)}
        if part.shape != other.shape or not np.allclose(part, other, **near):
            raise ConfigError(f"table_parameters: {name} does not fit parameters")
    return model


def _arrays(parts: Mapping[str, object]) -> dict[str, np.ndarray]:
    arrays = {}
    for name, value in parts.items():
        try:
            found = np.array(value)
        except ValueError:
            raise ConfigError(f"{name} must be lists of equal lengths") from None
        if found.size and not (found.dtype.kind in "if" and np.isfinite(found).all()):
            raise ConfigError(f"{name} must hold finite numbers, got {shown(value)}")
        arrays[name] = found.astype(np.float64)
    return arrays


def _spread(values: np.ndarray, rows: Rows) -> np.ndarray:
    """Return values of kept rows, with NaN or None for the others."""
    if rows.kept.all():
        return values
    empty = np.nan if values.dtype.kind == "f" else None
    found = np.full((len(rows.kept), *values.shape[1:]), empty)
    found[rows.kept] = values
    return found
