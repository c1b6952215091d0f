"""Agreement of nodes on columns: each describes its table, and a tree merges them.

docs/privacy.md says what the descriptions hold.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from functools import reduce as fold
from typing import Any, NamedTuple

import numpy as np

from dadmm.core.errors import ShardError, listed, shown
from dadmm.core.layout import Matrix
from dadmm.core.linalg import EPS
from dadmm.data.encoding import Encoding, Label
from dadmm.data.frame import Frame, codes_of, is_numeral, label, positions

Names = tuple[str, ...]
Facts = dict[str, Any]  # plain types, which JSON can hold
Uses = list[Any]  # of a table: node, named, features, target, weight
Reduce = Callable[[Mapping[int, Any], Callable[[Any, Any], Any]], Any]
Tables = Mapping[int, Iterable[Frame]]  # by node
MANY = 20  # texts that are identifiers, not categories, if all differ
DATE = re.compile(r"\d{4}-\d\d-\d\d|\d\d?[./]\d\d?[./](\d\d)?\d\d")


class Choice(NamedTuple):
    """Which columns, given by names or numbers, are used, and how."""

    features: Sequence[str] | None = None  # by default all that have no other use
    target: str | None = None  # by default the last column
    weight: str | None = None
    labels: str | None = None  # the column of node numbers
    leave_out: Sequence[str] = ()  # columns that are not used
    supervised: bool = True  # whether there is a target
    n_classes: int = 0  # 2 for two classes, 3 for any number of them, 0 for numbers
    categories: Sequence[str] = ()  # columns of numbers that are categories
    max_categories: int = 50
    on_missing: str = "error"
    unknown: str = "error"
    standardise: bool = False
    intercept: bool = True  # whether the model has one


def select(frame: Frame, choice: Choice) -> tuple[Names, str | None, str | None]:
    """Return the names of features, target and weight; raise if they conflict."""
    uses: dict[str, str] = {}  # by name of the column

    def use(word: str, purpose: str) -> str:
        name = frame.find(word, purpose)
        if name in uses:
            raise ShardError(
                f"column {name!r} is named twice, for {uses[name]} and {purpose}; name "
                "each column once"
            )
        uses[name] = purpose
        return name

    for word in choice.leave_out:
        use(word, "leave_out")
    if choice.labels is not None:
        use(choice.labels, "labels")
    weight = None if choice.weight is None else use(choice.weight, "weight")
    target = None
    if choice.supervised:
        free = [name for name in frame.places if name not in uses]
        target = use(choice.target or (free or [*frame.places])[-1], "target")
    features = [name for name in frame.places if name not in uses]
    if choice.features is not None:
        features = [use(word, "features") for word in choice.features]
    if not features:
        raise ShardError("there is no feature; give a column besides the target")
    for word in choice.categories:
        if frame.find(word, "categories") not in features:
            raise ShardError(
                f"categories has {word!r}, which is not a feature; name features only"
            )
    return tuple(features), target, weight


def describe(frame: Frame, choice: Choice, node: int | None = None) -> Facts:
    """Return what a node tells the others about its table, as plain types.

    These are the names of the columns that are used, the values of categories and
    classes, or an error, which `conclude` raises on all nodes.
    """
    try:
        features, target, weight = select(frame, choice)
        texts = _texts(frame, choice, features, target, node)
        if target is not None and not choice.n_classes:
            frame.numbers(target)
        if choice.on_missing == "error":
            frame.check_gaps(features if target is None else (*features, target))
        values = np.empty(0) if weight is None else frame.numbers(weight)
        for row in np.flatnonzero(~(np.isfinite(values) & (values >= 0))):
            raise ShardError(
                f"the weight {weight!r} is {values[row]:g} in row {frame.first + row}; "
                "weights must be finite and at least 0"
            )
    except ShardError as error:
        return {"error": [node, str(error)]}
    # the number of features is enough if they have no names of their own
    names = len(features) if features == positions(len(features)) else list(features)
    table = [node, frame.named, names, target, weight]
    return {"error": None, "tables": [table], "texts": texts}


def _texts(
    frame: Frame, choice: Choice, features: Names, target: str | None, node: int | None
) -> dict[str, Facts]:
    """Return facts of features that are not plain numbers, and of classes, by name."""
    forced = {frame.find(word, "categories") for word in choice.categories}
    columns = {}
    for name in features:
        if frame.sparse is None or name in forced:  # a sparse one has no empty column
            values = frame.column(name)
            if name in forced or values.dtype == object or np.isnan(values).all():
                columns[name] = values
    if target is not None and choice.n_classes:
        used = ~frame.gaps(features if choice.on_missing == "drop" else ())
        columns[target] = frame.column(target)[used]
    found: dict[str, Facts] = {}
    for name, values in columns.items():
        kind = "text" if name in forced or values.dtype == object else "number"
        known: list[Label] = []
        if kind == "text":
            words = sorted(codes_of(values)[0])
            if name != target and name not in forced:
                _check_words(frame, name, words)
            known += words
        elif name == target:
            if np.isinf(values).any():
                raise ShardError(f"the target {target!r} has an infinite entry")
            known += np.unique(values[~np.isnan(values)]).tolist()
        found[name] = {"values": known if len(known) <= choice.max_categories else None}
        if known:
            found[name][kind] = node
    return found


def _check_words(frame: Frame, name: str, words: Sequence[str]) -> None:
    """Raise if a column of text has numbers, dates or identifiers, not categories."""
    odd = [word for word in words if not is_numeral(word)]
    others = [word for word in odd if not is_numeral(word.replace(",", "."))]
    if odd and 2 * len(others) <= len(words):
        row = frame.column(name).tolist().index(odd[0])
        what = f"numbers, but {shown(odd[0])} in row {row}; leave a missing entry empty"
        what += ", name the decimal mark with --decimal"
    elif words and all(map(DATE.fullmatch, words)):
        what = f"dates, such as {words[0]}; convert it to a number, such as days"
    elif len(words) == frame.n_rows >= MANY:
        what = f"another text in each of its {len(words)} rows, as identifiers have"
    else:
        return
    raise ShardError(
        f"column {name!r} has {what}; leave it out with --leave-out, or list it in "
        "--categories if its entries are categories"
    )


def merge(a: Facts, b: Facts, most: int = 50) -> Facts:
    """Return the description of the nodes of two descriptions, in either order.

    It keeps two tables that differ, and the error of the lowest node.
    """
    errors = [side["error"] for side in (a, b) if side["error"]]
    if errors:
        return {"error": min(errors, key=lambda error: error[0])}
    texts: dict[str, Facts] = {}
    for name in a["texts"] | b["texts"]:
        own = []
        for side in (a, b):  # a column without facts has plain numbers
            plain = {"values": [], "number": side["tables"][0][0]}
            own.append(side["texts"].get(name, plain))
        known = {value for facts in own for value in facts["values"] or ()}
        is_whole = len(known) <= most and all(x["values"] is not None for x in own)
        values = sorted(known, key=lambda value: (isinstance(value, str), value))
        texts[name] = {"values": values if is_whole else None}
        for kind in ("text", "number"):
            if nodes := [facts[kind] for facts in own if kind in facts]:
                texts[name][kind] = min(nodes)
    first, *others = sorted(a["tables"] + b["tables"], key=lambda table: table[0])
    others = [own for own in others if own[1:] != first[1:]]  # cheap, and often enough
    others = [own for own in others if _uses(own) != _uses(first)]  # in any order
    return {"error": None, "tables": [first, *others[:1]], "texts": texts}


def _uses(table: Uses) -> set[str]:
    """Return the columns of a table with their uses, in words."""
    _, named, names, target, weight = table
    kind = "" if named else "unnamed "
    names = positions(names) if isinstance(names, int) else names
    found = {f"the {kind}feature {name!r}" for name in names}
    return found | {f"the target {target!r}", f"the weight {weight!r}"}


def agree(reduce: Reduce, tables: Tables, choice: Choice) -> Encoding:
    """Return the encoding of the tables of all nodes; all raise if tables conflict.

    ``reduce`` merges the values of hosted nodes, over all nodes, by a function of two.
    """
    pair = partial(merge, most=choice.max_categories)
    described = {
        i: fold(pair, (describe(frame, choice, i) for frame in table))
        for i, table in tables.items()
    }
    encoding = conclude(reduce(described, pair), choice)
    if choice.on_missing == "mean" or choice.standardise:
        return with_moments(reduce, tables, encoding, choice)
    return encoding


def conclude(whole: Facts, choice: Choice) -> Encoding:
    """Return the encoding of all tables, without means; raise if they conflict."""
    if whole["error"]:
        node, sentence = whole["error"]
        raise ShardError(sentence if node is None else f"node {node}: {sentence}")
    first, *others = whole["tables"]
    if others:
        raise _conflict(first, others[0])
    _, named, names, target, weight = first
    for name, facts in whole["texts"].items():
        if "text" in facts and "number" in facts:
            raise ShardError(
                f"column {name!r} is text on node {facts['text']}, but numbers on node "
                f"{facts['number']}; give all files the same kind, or list a feature "
                "in --categories"
            )
        if facts["values"] is None:
            raise ShardError(
                f"column {name!r} has more than {choice.max_categories} categories; "
                "leave it out with --leave-out, raise --max-categories, or choose "
                "another --target or --problem if it is the target"
            )
    features = positions(names) if isinstance(names, int) else names
    known = {name: tuple(facts["values"]) for name, facts in whole["texts"].items()}
    classes = None
    if choice.n_classes and target is not None:
        classes = known[target]
        _check_classes(target, classes, choice.n_classes)
    encoding = Encoding(
        {name: known.get(name, ()) for name in features},
        target, classes, weight, intercept=choice.intercept,
        on_missing=choice.on_missing, unknown=choice.unknown, named=named,
    )  # fmt: skip
    counts = Counter(encoding.feature_names)
    if not counts:
        raise ShardError("the only feature has one category; name further columns")
    for name in (name for name, count in counts.items() if count > 1):
        raise ShardError(f"two features are called {name!r}; rename a column")
    return encoding


def _check_classes(target: str, found: Sequence[Label], n_classes: int) -> None:
    parts = [x for x in found if isinstance(x, float) and not x.is_integer()]
    if len(found) < 2 or (len(found) > 2 and (n_classes == 2 or parts)):
        raise ShardError(
            f"the target {target!r} has {len(found)} classes over all nodes "
            f"({listed(map(label, parts or found))}); logistic needs two, and "
            "multinomial two or more, integers or text; choose another --target or "
            "--problem"
        )


def _conflict(first: Uses, second: Uses) -> ShardError:
    said = [
        f"node {has[0]} has {listed(sorted(words))}, but node {lacks[0]} has not"
        for has, lacks in ((first, second), (second, first))
        if (words := _uses(has) - _uses(lacks))
    ]
    return ShardError(
        f"{', and '.join(said)}; give all files the same columns, or choose them by "
        "their names with --features and --target"
    )


# means and scales


def with_moments(
    reduce: Reduce, tables: Tables, encoding: Encoding, choice: Choice
) -> Encoding:
    """Return an encoding with the means and scales over all nodes."""
    own = {
        i: fold(merge_moments, (_moments(encoding, frame) for frame in table))
        for i, table in tables.items()
    }
    rows, counts, means, squares = reduce(own, merge_moments)
    for k, name in enumerate(encoding.feature_names):
        if not counts[k]:
            raise ShardError(
                f"column {name!r} has no entry in the complete rows of any node; leave "
                "it out with --leave-out, or use --on-missing mean"
            )
        if not math.isfinite(means[k] + squares[k]):
            raise ShardError(
                f"column {name!r} has entries that are infinite or too large; rescale "
                "the column"
            )
    scales = None
    if choice.standardise:
        per = counts if encoding.on_missing == "keep" else rows  # filled rows count
        scales = np.sqrt(squares / per)
        scales[scales <= 10 * EPS * np.abs(means)] = 1.0
    return replace(encoding, means=means, scales=scales)


def _moments(encoding: Encoding, frame: Frame) -> Matrix:
    """Return rows, entries, mean and squares about the mean of each column, (4, p)."""
    X = encoding.encode(frame, fit=True).X
    X = X.toarray() if hasattr(X, "toarray") else X
    seen = ~np.isnan(X)
    counts = seen.sum(axis=0).astype(np.float64)
    divisor = np.maximum(counts, 1.0)
    with np.errstate(all="ignore"):  # infinite and very large entries are refused later
        means = np.where(seen, X, 0.0).sum(axis=0) / divisor
        means += np.where(seen, X - means, 0.0).sum(axis=0) / divisor
        squares = np.where(seen, (X - means) ** 2, 0.0).sum(axis=0)
    return np.array([np.full(len(counts), float(len(X))), counts, means, squares])


def merge_moments(a: Matrix, b: Matrix) -> Matrix:
    """Return moments of two sets: sums, if any, weight, mean, squares about it."""
    *sums, total = a[:-2] + b[:-2]
    share = b[-3] / np.where(total > 0.0, total, 1.0)
    with np.errstate(all="ignore"):
        apart = b[-2] - a[-2]
        squares = a[-1] + b[-1] + apart**2 * a[-3] * share
        return np.array([*sums, total, a[-2] + share * apart, squares])
