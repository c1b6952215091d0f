"""Tables as numbers: how the columns of a table become X, y and weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dadmm.core import schema
from dadmm.core.errors import ConfigError, ShardError, shown
from dadmm.core.layout import Matrix, Vector
from dadmm.data.columns import (
    check_gaps,
    check_weights,
    codes_of,
    not_numbers,
    row_gaps,
)
from dadmm.data.frame import Array, Frame, label, positions

NUMBER, CATEGORY = "number", "category"
ON_MISSING = ("error", "drop", "mean", "keep")
UNKNOWN = ("error", "ignore")
Label = str | float
TEXTS = schema.list_of(schema.TEXT, "a list of texts")
NUMBERS = schema.list_of(schema.number("finite", math.isfinite), "a list of numbers")
SORTED = ("sorted", lambda x: sorted(set(x)) == x)
COLUMN = {  # of the JSON of an encoding
    "name": schema.TEXT,
    "kind": schema.choice((NUMBER, CATEGORY)),
    "categories": schema.Kind((*TEXTS.rules, SORTED)),
    "dropped": schema.FLAG,
}
FIELDS = {
    "columns": schema.list_of(schema.OBJECT, "a list of objects"),
    "classes": schema.any_of(TEXTS, NUMBERS, schema.NULL),
    **dict.fromkeys(("target", "weight"), schema.any_of(schema.TEXT, schema.NULL)),
    **dict.fromkeys(("means", "scales"), schema.any_of(NUMBERS, schema.NULL)),
    **dict.fromkeys(("centre", "named"), schema.FLAG),
    "on_missing": schema.choice(ON_MISSING),
    "unknown": schema.choice(UNKNOWN),
}


class Column(NamedTuple):
    """A column of a table, as a feature."""

    name: str
    kind: str  # "number" or "category"
    categories: tuple[str, ...] = ()  # sorted; none for numbers
    dropped: bool = False  # whether the first category has no column in X

    @property
    def width(self) -> int:
        """The number of its columns in X."""
        return 1 if self.kind == NUMBER else len(self.categories) - self.dropped

    @property
    def feature_names(self) -> list[str]:
        """The names of its columns in X."""
        if self.kind == NUMBER:
            return [self.name]
        return [f"{self.name}={word}" for word in self.categories[self.dropped :]]


class Rows(NamedTuple):
    """The rows of a node, as numbers."""

    X: Any  # (n, p) ndarray, NaN where an entry is missing; sparse if the table is
    y: Vector | None = None  # (n,) numbers, or classes as numbers from 0
    weight: Vector | None = None  # (n,)
    kept: Any = None  # (rows of the table,) which of them have a row in X
    n_filled: int = 0  # rows of X in which entries were filled


@dataclass(frozen=True, eq=False)
class Encoding:
    """How the columns of a table become X, y and weights.

    Attributes
    ----------
    columns : tuple of Column
        The features, in the order of X.
    target, weight : str or None
        The names of these columns.
    classes : tuple of str or float, or None
        The classes of the target, sorted; y holds their positions. None if the target
        is a number.
    means : ndarray of shape (p,), or None
        Of the observed entries of the columns of X over all nodes, if missing entries
        are filled or X is standardised.
    scales : ndarray of shape (p,), or None
        Standard deviations of the columns of X over all nodes, if X is standardised. A
        constant column has 1.
    centre : bool
        Whether standardising subtracts the means. It does not if the model has no
        intercept.
    on_missing : {"error", "drop", "mean", "keep"}
        What is done to rows with missing entries. A row without target is dropped
        where others are filled.
    unknown : {"error", "ignore"}
        What is done to categories that no node had. Ignored ones are zero in all
        columns.
    named : bool
        Whether the table has names of its own.

    Examples
    --------
    >>> import dadmm
    >>> sites = [{"age": [34, 71], "ward": ["A", "B"]}, {"age": [66], "ward": ["C"]}]
    >>> encoding, parts = dadmm.encode(sites, dadmm.Topology.chain(2))
    >>> encoding.feature_names
    ('age', 'ward=B', 'ward=C')
    >>> encoding.encode(dadmm.Frame.of({"age": [50], "ward": ["C"]})).X
    array([[50.,  0.,  1.]])
    """

    columns: tuple[Column, ...]
    target: str | None = None
    classes: tuple[Label, ...] | None = None
    weight: str | None = None
    means: Vector | None = None
    scales: Vector | None = None
    centre: bool = True
    on_missing: str = "error"
    unknown: str = "error"
    named: bool = True

    @classmethod
    def plain(cls, n_features: int, target: str | None = None, **more: Any) -> Encoding:
        """Return the encoding of a matrix of numbers without names."""
        columns = tuple(Column(name, NUMBER) for name in positions(n_features))
        return cls(columns, target, named=False, **more)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The name of each column of X, such as ``age`` or ``sex=F``."""
        return tuple(name for one in self.columns for name in one.feature_names)

    @property
    def n_features(self) -> int:
        """The number of columns of X."""
        return sum(column.width for column in self.columns)

    def encode(self, frame: Frame, *, fit: bool = False) -> Rows:
        """Return the numbers of a table.

        Parameters
        ----------
        frame : Frame
        fit : bool
            Whether these are the rows of a fit, which have a target and weights. In
            other tables the target may be absent; there is no y then.
        """
        X, y = self.raw(frame, fit=fit)
        weight = self._weight(frame) if fit and self.weight is not None else None
        gaps = row_gaps(X)
        kept, n_filled = np.ones(frame.n_rows, dtype=bool), 0
        lacking = np.isnan(y) if fit and y is not None else np.zeros_like(kept)
        if self.on_missing == "error" and (gaps | lacking).any():
            ways = ["drop"] + ["mean"] * (fit or self.means is not None)
            check_gaps(frame, self._names(frame), self.target if fit else None, ways)
        elif self.on_missing in ("drop", "mean"):
            kept = ~lacking if self.on_missing == "mean" else ~(lacking | gaps)
        if not kept.all():
            X = X[kept]
            y = None if y is None else y[kept]
            weight = None if weight is None else weight[kept]
        if self.on_missing == "mean" and self.means is not None:
            n_filled = int(gaps[kept].sum())
            X = np.where(np.isnan(X), self.means, X) if n_filled else X
        if self.scales is not None and self.means is not None:
            X = (X - self.means if self.centre else X) / self.scales
        return Rows(X, y, weight, kept, n_filled)

    def to_table_units(self, coef: Any, intercept: Any = 0.0) -> tuple[Any, Any]:
        """Return coefficients of the standardised X as those of the table's columns.

        Parameters
        ----------
        coef : ndarray of shape (..., p)
        intercept : float or ndarray of shape (...)
        """
        if self.scales is None or self.means is None:
            return coef, intercept
        plain = coef / self.scales
        shift = plain @ self.means if self.centre else 0.0
        return plain, intercept - shift

    def _names(self, frame: Frame) -> list[str]:
        """Return the columns of a table that hold the features, in order."""
        wanted, names = [column.name for column in self.columns], frame.names
        if not frame.named and len(names) == len(wanted):
            return list(names)  # the features alone, without the target
        present = set(names)
        lacking = [name for name in wanted if name not in present]
        if lacking:
            more = f" and {len(lacking) - 5} others" if len(lacking) > 5 else ""
            raise ShardError(
                f"the table has no column {', '.join(map(repr, lacking[:5]))}{more}; "
                "give it the columns of the fit"
            )
        return wanted

    def raw(self, frame: Frame, *, fit: bool) -> tuple[Any, Vector | None]:
        """Return X and y before rows are dropped, and entries filled or scaled."""
        return self._features(frame), self._target(frame, fit)

    def _features(self, frame: Frame) -> Any:
        names = self._names(frame)
        plain = all(column.kind != CATEGORY for column in self.columns)
        sparse = frame.sparse is not None and not frame.columns.keys() & set(names)
        if sparse and plain:
            X = frame.sparse
            if names != list(positions(X.shape[1])):
                X = X[:, [int(name[1:]) for name in names]]
            return X if self.means is None else X.toarray()
        X = np.empty((frame.n_rows, self.n_features))
        k = 0
        for name, column in zip(names, self.columns, strict=True):
            values, width = frame.column(name), column.width
            if column.kind == CATEGORY:
                X[:, k : k + width] = self._dummies(column, values)
            elif values.dtype == object:
                raise not_numbers(name, values)
            else:
                X[:, k] = values
            k += width
        return X

    def _dummies(self, column: Column, values: Array) -> Matrix:
        """Return a column per category: 1 in rows of it, NaN where it is missing."""
        texts, codes = codes_of(values)
        places = {word: k for k, word in enumerate(column.categories)}
        table = np.zeros((len(texts) + 1, len(column.categories)))
        for row, word in enumerate(texts):
            if word in places:
                table[row, places[word]] = 1.0
            elif self.unknown == "error":
                raise ShardError(
                    f"column {column.name!r} has the category {shown(word)}, which was "
                    "not in the fit; correct it, or use --unknown ignore"
                )
        table[-1] = np.nan
        return table[codes][:, int(column.dropped) :]

    def _target(self, frame: Frame, fit: bool) -> Vector | None:
        if self.target is None or self.target not in frame.names:
            if fit and self.target is not None:
                raise ShardError(f"the table has no column {self.target!r}, the target")
            return None
        if not frame.named and len(frame.names) == len(self.columns):
            return None  # these are the features
        values = frame.column(self.target)
        if self.classes is None:
            if values.dtype == object:
                raise not_numbers(self.target, values)
            return np.array(values, dtype=np.float64)
        if values.dtype != object and not isinstance(self.classes[0], str):
            places = np.searchsorted(np.array(self.classes), values)
            places = places.clip(0, len(self.classes) - 1)
            same = np.array(self.classes)[places] == values
            return np.where(same, places, np.nan)
        texts, codes = codes_of(values)
        found = {label(name): float(k) for k, name in enumerate(self.classes)}
        return np.array([*(found.get(text, np.nan) for text in texts), np.nan])[codes]

    def _weight(self, frame: Frame) -> Vector:
        assert self.weight is not None
        if self.weight not in frame.names:
            raise ShardError(f"the table has no column {self.weight!r}, the weight")
        values = frame.column(self.weight)
        check_weights(self.weight, values)
        return np.array(values, dtype=np.float64)

    def to_json(self) -> dict[str, Any]:
        """Return the encoding as plain types."""
        numbers = {"means": self.means, "scales": self.scales}
        lists = {k: None if v is None else v.tolist() for k, v in numbers.items()}
        return {
            "columns": [
                column._asdict() | {"categories": list(column.categories)}
                for column in self.columns
            ],
            "target": self.target,
            "classes": None if self.classes is None else list(self.classes),
            "weight": self.weight,
            **lists,
            "centre": self.centre,
            "on_missing": self.on_missing,
            "unknown": self.unknown,
            "named": self.named,
        }

    @classmethod
    def from_json(cls, content: Any) -> Encoding:
        """Return the encoding that `to_json` has written; raise if it is not one."""
        try:
            schema.OBJECT.check("it", content)
            schema.check_entries(content, FIELDS)
            for column in content["columns"]:
                schema.check_entries(column, COLUMN)
        except ConfigError as error:
            _demand(False, str(error))
        given, classes = dict(content), content["classes"]
        columns = given["columns"] = tuple(
            Column(**(column | {"categories": tuple(column["categories"])}))
            for column in content["columns"]
        )
        names, width = {one.name for one in columns}, sum(one.width for one in columns)
        _demand(len(names) == len(columns) > 0, "columns must have different names")
        for one in columns:
            known = bool(one.categories) == (one.kind == CATEGORY)
            _demand(known, "categories have names, and numbers have none")
        if classes is not None:
            known = len(classes) > 1 and sorted(set(classes)) == classes
            _demand(known, "classes must be at least two, and sorted")
            given["classes"] = tuple(
                c if schema.TEXT.holds(c) else float(c) for c in classes
            )
        for name in ("means", "scales"):
            if given[name] is not None:
                _demand(len(given[name]) == width, f"{name} must be {width} numbers")
                given[name] = np.array(given[name], dtype=np.float64)
        scales, means = given["scales"], given["means"]
        _demand(scales is None or bool((scales > 0).all()), "scales must be positive")
        _demand(means is not None or scales is None, "scales need means")
        return cls(**given)


def _demand(holds: bool, what: str) -> None:
    if not holds:
        raise ShardError(f"the description of the columns is damaged: {what}")
