"""Tables as numbers: how the columns of a table become X, y and weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dadmm.core import schema
from dadmm.core.errors import ShardError, listed, shown
from dadmm.core.layout import Array, Matrix, Vector
from dadmm.data.frame import Frame, codes_of, label, positions

ON_MISSING = ("error", "drop", "mean", "keep")
UNKNOWN = ("error", "ignore")
UNSEEN = -2  # the place of an entry that is not among the known ones
PIECE = 2**20  # numbers of the rows that are used at once
Label = str | float
Parts = Mapping[str, np.ndarray]


def _sorted(kind: schema.Kind, least: int) -> schema.Kind:
    rule = f"sorted, with at least {least} entries"
    return kind.also(rule, lambda x: len(x) >= least and sorted({*x}) == [*x])


NUMBERS = schema.list_of(schema.REAL, "a list of numbers")
SCALES = schema.list_of(schema.POSITIVE, "a list of positive numbers")
TEXTS = schema.list_of(schema.TEXT, "a list of texts")
NAME = schema.any_of(schema.TEXT, schema.NULL)
FIELDS = {  # of the JSON of an encoding, in the order that checkpoints hash
    "columns": schema.object_of(_sorted(TEXTS, 0), "an object of sorted lists"),
    "target": NAME,
    "classes": schema.any_of(_sorted(TEXTS, 2), _sorted(NUMBERS, 2), schema.NULL),
    "weight": NAME,
    "means": schema.any_of(NUMBERS, schema.NULL),
    "scales": schema.any_of(SCALES, schema.NULL),
    "intercept": schema.FLAG,
    "on_missing": schema.choice(ON_MISSING),
    "unknown": schema.choice(UNKNOWN),
    "named": schema.FLAG,
}


class RowBlocks:
    """The rows of X (n, p) in a file, without gaps, which each iteration reads again.

    They come in pieces of at least p rows, so that factors of pieces can be merged.
    """

    ndim = 2

    def __init__(self, blocks: Callable[[], Iterator[Matrix]], n: int, p: int) -> None:
        self._blocks, self.shape = blocks, (n, p)

    def __iter__(self) -> Iterator[Matrix]:
        p = self.shape[1]
        step = max(PIECE // p, p)
        for block in self._blocks():
            for k in range(0, len(block), step):
                yield block[k : k + step].copy()
            del block  # before the next one is read

    def toarray(self) -> Matrix:
        return np.vstack([*self])


class Rows(NamedTuple):
    X: Any
    """(n, p) ndarray, NaN where an entry is missing; sparse if the table is; or
    `RowBlocks`."""
    y: Vector | None = None  # (n,) numbers, or classes as numbers from 0
    weight: Vector | None = None  # (n,)
    kept: NDArray[np.bool_] = np.ones(0, bool)  # which rows of the table are in X
    n_filled: int = 0  # rows of X in which entries were filled

    def __repr__(self) -> str:
        has = [name for name in ("y", "weight") if getattr(self, name) is not None]
        return f"<Rows: {' and '.join(['X of shape ' + str(self.X.shape), *has])}>"

    def blocks(self) -> Iterator[Rows]:
        """Yield the rows in parts that fit into memory; all at once if they are."""
        start = 0
        for X in row_blocks(self.X):
            own = slice(start, start + X.shape[0])
            y, weight = (a if a is None else a[own] for a in (self.y, self.weight))
            yield Rows(X, y, weight)
            start = own.stop

    def arrays(self) -> Iterator[Array]:
        """Yield the arrays of X, three if it is sparse, then y and the weights."""
        X, is_sparse = self.X, hasattr(self.X, "tocsr")
        yield from (X.data, X.indices, X.indptr) if is_sparse else row_blocks(X)
        yield from (own for own in (self.y, self.weight) if own is not None)


@dataclass(frozen=True, eq=False, repr=False)
class Encoding:
    """How the columns of a table become X, y and weights.

    If the model has an intercept, the first category of a column has no column in X,
    and standardising subtracts the means. If missing entries are filled, rows without
    a target are dropped. `dadmm.encode` explains ``on_missing`` and ``unknown``.

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

    columns: dict[str, tuple[str, ...]]  #: features of X, with sorted categories if any
    target: str | None = None
    classes: tuple[Label, ...] | None = None  #: of the target, sorted; y has positions
    weight: str | None = None
    means: Vector | None = None  #: (p,) over all nodes, if gaps are filled or X scaled
    scales: Vector | None = None  #: (p,) standard deviations, 1 of a constant column
    intercept: bool = True  #: whether the model has one
    on_missing: str = "error"
    unknown: str = "error"  #: what is done to categories that no node had
    named: bool = True  #: whether the table has names of its own
    feature_names: tuple[str, ...] = field(init=False)  #: of X: ``age``, ``sex=F``, ...

    def __post_init__(self) -> None:
        for name in ("on_missing", "unknown"):
            FIELDS[name].check(name, getattr(self, name))
        names: list[str] = []
        for name, words in self.columns.items():
            kept = words[self.intercept :]
            names += [f"{name}={word}" for word in kept] if words else [name]
        vars(self).update(feature_names=tuple(names))

    @classmethod
    def plain(cls, n_features: int, target: str | None = None, **more: Any) -> Encoding:
        """Return the encoding of a matrix of numbers without names."""
        columns: dict[str, tuple[str, ...]] = dict.fromkeys(positions(n_features), ())
        return cls(columns, target, named=False, **more)

    def __repr__(self) -> str:
        return f"<Encoding of {', '.join(self.feature_names[:20])}>"

    def encode(self, frame: Frame, *, fit: bool = False) -> Rows:
        """Return the numbers of a table.

        The rows of a ``fit`` have a target and weights. In other tables the target may
        be absent; there is no y then.
        """
        present = frame.places
        alone = not frame.named and len(present) == len(self.columns)
        names = [*present] if alone else [*self.columns]  # of the features
        others = [name for name in (self.target, self.weight) if fit and name]
        lacking = [name for name in names + others if name not in present]
        if lacking:
            raise ShardError(
                f"the table has no column {listed(map(repr, lacking))}; give it "
                "the columns of the fit"
            )
        X, n_filled = self._features(frame, names), 0
        kept = np.ones(X.shape[0], bool)
        y = self._target(frame) if self.target in present and not alone else None
        weight = np.array(frame.column(self.weight)) if fit and self.weight else None
        if self.on_missing == "error":
            frame.check_gaps([*names, self.target] if fit and self.target else names)
        elif self.on_missing != "keep":
            gaps = frame.gaps(names)
            kept = ~gaps if self.on_missing == "drop" else kept
            kept = kept & ~np.isnan(y) if fit and y is not None else kept
            if not kept.all():
                X, y, weight = (a if a is None else a[kept] for a in (X, y, weight))
            if self.on_missing == "mean" and self.means is not None:
                n_filled = int(gaps[kept].sum())
                X = np.where(np.isnan(X), self.means, X) if n_filled else X
        if self.scales is not None and self.means is not None:
            X = (X - self.means if self.intercept else X) / self.scales
        return Rows(X, y, weight, kept, n_filled)

    def encode_blocks(self, frames: Iterable[Frame]) -> Rows:
        """Return the numbers of frames with the rows of a node, encoded when used."""

        def encoded() -> Iterator[Rows]:  # keeps no frame
            return (self.encode(frame, fit=True) for frame in frames)

        parts, has_gaps = [], False
        for own in encoded():
            has_gaps |= self.on_missing == "keep" and bool(np.isnan(own.X).any())
            parts.append((own.y, own.weight, own.kept, own.n_filled))
        *arrays, n_filled = zip(*parts, strict=True)
        whole: Any = [a[0] if a[0] is None else np.concatenate(a) for a in arrays]
        y, weight, kept = whole
        n, p = int(kept.sum()), len(self.feature_names)
        X = RowBlocks(lambda: map(attrgetter("X"), encoded()), n, p)
        return Rows(X.toarray() if has_gaps else X, y, weight, kept, sum(n_filled))

    def _features(self, frame: Frame, names: Sequence[str]) -> Any:
        """Return the columns of X (n, p); sparse if the table is, and nothing else."""
        if not any(self.columns.values()):
            places = [frame.places[name] for name in names]
            if frame.sparse is not None:
                is_all = names == [*frame.places]
                X = frame.sparse if is_all else frame.sparse[:, places]
                return X if self.means is None else X.toarray()
            if frame.matrix.flags.c_contiguous and not frame.texts:
                return frame.matrix.take(places, axis=1)  # in C order
        blocks = [
            self._dummies(frame, name, words) if words else frame.numbers(name)[:, None]
            for name, words in zip(names, self.columns.values(), strict=True)
        ]
        X = np.empty((frame.n_rows, len(self.feature_names)))  # in C order
        return np.concatenate(blocks, axis=1, out=X)

    def _dummies(self, frame: Frame, name: str, words: Sequence[str]) -> Matrix:
        """Return a column per category: 1 in rows of it, NaN where it is missing."""
        values, K = frame.column(name), len(words)
        places = _places(values, words)
        for row in np.flatnonzero(places == UNSEEN) if self.unknown == "error" else ():
            raise ShardError(
                f"column {name!r} has the category {shown(label(values[row]))}, which "
                "was not in the fit; correct it, or use --unknown ignore"
            )
        table = np.vstack([np.eye(K), np.zeros(K), np.full(K, np.nan)])
        return np.asarray(table[places][:, int(self.intercept) :])

    def _target(self, frame: Frame) -> Vector:
        name = str(self.target)
        if self.classes is None:
            return np.array(frame.numbers(name))
        places = _places(frame.column(name), [*map(label, self.classes)])
        return np.where(places < 0, np.nan, places)

    def to_table_units(self, parts: Parts, *, bounds: bool = False) -> Parts:
        """Return parameters in the units of the table, if X was standardised.

        ``parts`` are ``coef`` (..., p) and ``intercept`` (...), if there is one, or the
        ``bounds`` on their errors; or ``W``, ``mu`` and ``a`` of a subspace. ``a`` has
        no single unit in a standardised table, and is left out.
        """
        if self.scales is None or self.means is None:
            return dict(parts)
        if "W" in parts:
            scaled = parts["W"] * self.scales[:, None]
            return {"W": scaled, "mu": self.rows_in_table_units(parts["mu"])}
        coef = parts["coef"] / self.scales
        if "intercept" not in parts and not self.intercept:
            return {"coef": coef}
        means = self.means if self.intercept else np.zeros_like(self.means)
        signed = np.abs(means) if bounds else -means
        shift = np.where(means == 0.0, 0.0, coef) @ signed
        intercept = np.asarray(parts.get("intercept", 0.0) + shift)
        return {"coef": coef, "intercept": intercept}

    def rows_in_table_units(self, rows: Matrix) -> Matrix:
        """Return encoded rows (..., p) as they were before they were standardised."""
        if self.scales is None or self.means is None:
            return rows
        return np.asarray(rows * self.scales + (self.means if self.intercept else 0.0))

    def to_json(self) -> dict[str, object]:
        """Return the encoding as plain types."""
        values = {name: getattr(self, name) for name in FIELDS}
        arrays = {"means": self.means, "scales": self.scales}
        return values | {k: a if a is None else a.tolist() for k, a in arrays.items()}

    @classmethod
    def from_json(cls, content: Mapping[str, object]) -> Encoding:
        """Return the encoding that `to_json` has written; raise if it is not one."""
        given = schema.check_entries(content, FIELDS, "encoding")
        given["columns"] = {name: tuple(x) for name, x in given["columns"].items()}
        if (words := given["classes"]) is not None:
            labels = [x if isinstance(x, str) else float(x) for x in words]
            given["classes"] = tuple(labels)
        for name in ("means", "scales"):
            if given[name] is not None:
                given[name] = np.array(given[name], dtype=np.float64)
        found = cls(**given)
        width = len(found.feature_names)
        sizes = {len(x) for x in (found.means, found.scales) if x is not None}
        lacks = found.means is None and found.scales is not None
        if not width or sizes - {width} or lacks:
            raise ShardError("columns, means and scales of the encoding do not fit")
        return found


def _places(values: Array, words: Sequence[str]) -> NDArray[np.int64]:
    """Return the place of each entry among words; `UNSEEN`, or -1 if it is missing."""
    texts, codes = codes_of(values)
    places = {word: k for k, word in enumerate(words)}
    return np.array([*(places.get(text, UNSEEN) for text in texts), -1])[codes]


def row_blocks(X: Any) -> Iterator[Any]:
    """Yield the blocks of X if it is in a file, else X itself."""
    return iter(X) if isinstance(X, RowBlocks) else iter([X])
