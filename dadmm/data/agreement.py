"""Agreement of nodes on the columns of their tables, by sums over a tree.

Each node describes its table, and the descriptions are merged. docs/privacy.md says
what they hold.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from functools import reduce as fold
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from dadmm.core.errors import ShardError, shown
from dadmm.core.layout import Matrix
from dadmm.data.encoding import CATEGORY, NUMBER, Column, Encoding, Label
from dadmm.data.frame import (
    MOST_NAMES,
    Frame,
    codes_of,
    has_commas,
    is_numeral,
    label,
    positions,
)

Reduce = Callable[[Mapping[int, Any], Callable[[Any, Any], Any]], Any]
Facts = dict[str, Any]
Tables = Mapping[int, Iterable[Frame]]  # by node
MANY = 20  # texts that are identifiers, not categories, if all differ
DATE = re.compile(r"\d{4}-\d\d-\d\d|\d\d?[./]\d\d?[./](\d\d)?\d\d")
EPS = float(np.finfo(float).eps)


class Choice(NamedTuple):
    """Which columns are used, and how.

    Columns are given by names or numbers. By default the target is the last column, and
    features are all columns that have no other use.
    """

    features: Sequence[str] | None = None
    target: str | None = None
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


def select(
    frame: Frame, choice: Choice
) -> tuple[tuple[str, ...], str | None, str | None]:
    """Return the names of features, target and weight; raise if they conflict."""
    uses: dict[str, str] = {}  # by name of the column

    def use(word: str | None, purpose: str) -> str | None:
        if word is None:
            return None
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
    use(choice.labels, "labels")
    weight, target = use(choice.weight, "weight"), choice.target
    if choice.supervised and target is None:
        target = next((name for name in frame.names[::-1] if name not in uses), None)
    target = use(target, "target") if choice.supervised else None
    features = [name for name in frame.names if name not in uses]
    if choice.features is not None:
        features = [str(use(word, "features")) for word in choice.features]
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

    These are the names of the columns that are used, and the values of columns that are
    categories or classes: None if there are too many. An error is part of the
    description; `conclude` raises it on all nodes.
    """
    try:
        features, target, weight = select(frame, choice)
        texts = _categories(frame, choice, features, node)
        if target is not None and choice.n_classes:
            texts[target] = _labels(frame, choice, features, target, node)
        elif target is not None:
            frame.numbers(
                target,
                ", because it is the target; choose another one with --target, or "
                "logistic or multinomial with --problem",
            )
        if choice.on_missing == "error":
            frame.check_gaps(features if target is None else (*features, target))
        values = np.empty(0) if weight is None else frame.numbers(weight)
        for row in np.flatnonzero(~(np.isfinite(values) & (values >= 0))):
            raise ShardError(
                f"the weight {weight!r} is {values[row]:g} in row {frame.first + row}; "
                "weights must be finite and at least 0"
            )
    except ShardError as error:
        return {"node": node, "error": [node, str(error)]}
    plain = features == positions(len(features))  # then their number is enough
    return {
        "node": node,
        "error": None,
        "order": len(features) if plain else list(features),
        "tables": [
            [node, [frame.named, len(features) if plain else sorted(features),
                    target, weight]]
        ],
        "texts": texts,
    }  # fmt: skip


def _categories(
    frame: Frame, choice: Choice, features: Sequence[str], node: int | None
) -> dict[str, Facts]:
    """Return facts of features that are not plain numbers, by name."""
    forced = {frame.find(word, "categories") for word in choice.categories}
    found: dict[str, Facts] = {}
    for name in features if frame.sparse is None else ():
        values = frame.column(name)
        if name in forced or values.dtype == object:
            words = sorted(codes_of(values)[0])
            if name not in forced:
                _check_words(frame, name, words)
            kept = words if len(words) <= choice.max_categories else None
            found[name] = {"values": kept} | ({"text": node} if words else {})
        elif np.isnan(values).all():
            found[name] = {"values": []}
    return found


def _labels(
    frame: Frame, choice: Choice, features: Sequence[str], target: str, node: int | None
) -> Facts:
    """Return facts of a target of classes."""
    values = frame.column(target)
    if choice.on_missing == "drop":
        values = values[~frame.gaps(features)]
    if values.dtype == object:
        found, kind = sorted(codes_of(values)[0]), {"text": node}
    else:
        found = np.unique(values[~np.isnan(values)]).tolist()
        kind = {"number": node} if found else {}
        if math.inf in map(abs, found):
            raise ShardError(f"the target {target!r} has an infinite entry")
    return {"values": found if len(found) <= choice.max_categories else None} | kind


def _check_words(frame: Frame, name: str, words: Sequence[str]) -> None:
    """Raise if a column of text has numbers, dates or identifiers, not categories."""
    odd = [word for word in words if not is_numeral(word)]
    if has_commas(odd):
        frame.numbers(name)
    what = ""
    if words and all(map(DATE.fullmatch, words)):
        what = f"dates, such as {words[0]}; convert it to a number, such as days"
    elif len(words) == frame.n_rows >= MANY:
        what = f"another text in each of its {len(words)} rows, as identifiers have"
    if what:
        raise ShardError(
            f"column {name!r} has {what}; leave it out with --leave-out, or list it in "
            "--categories if its entries are categories"
        )
    if odd and 2 * len(odd) <= len(words):
        values = frame.column(name).tolist()
        row = next(k for k, word in enumerate(values) if word in odd)
        raise ShardError(
            f"column {name!r} has numbers, but {shown(values[row])} in row {row}; "
            "leave a missing entry empty, or list the column in --categories if its "
            "entries are categories"
        )


def merge(a: Facts, b: Facts, most: int = 50) -> Facts:
    """Return the description of the nodes of two descriptions, in either order.

    It keeps two tables that differ. It keeps the error of the lower node, or of the
    same node the first error.
    """
    sides = (a, b) if a["node"] <= b["node"] else (b, a)
    errors = [side["error"] for side in sides if side["error"]]
    if errors:
        lowest = min(errors, key=lambda error: error[0])
        return {"node": sides[0]["node"], "error": lowest}
    texts: dict[str, Facts] = {}
    for name in a["texts"] | b["texts"]:
        own = [
            side["texts"].get(name, {"values": [], "number": side["node"]})
            for side in sides
        ]
        union = None
        if all(facts["values"] is not None for facts in own):
            union = {*chain(*(facts["values"] for facts in own))}
        texts[name] = {"values": None}
        if union is not None and len(union) <= most:
            texts[name]["values"] = sorted(union, key=lambda v: (isinstance(v, str), v))
        for kind in ("text", "number"):
            nodes = [facts[kind] for facts in own if kind in facts]
            texts[name] |= {kind: min(nodes)} if nodes else {}
    tables: list[Any] = []
    for node, table in sorted(a["tables"] + b["tables"], key=lambda entry: entry[0]):
        if all(table != other for _, other in tables):
            tables.append([node, table])
    return {**sides[0], "tables": tables[:2], "texts": texts}


def agree(reduce: Reduce, tables: Tables, choice: Choice) -> Encoding:
    """Return the encoding of the tables of all nodes, the same on all.

    ``tables`` has the frames of each hosted node. ``reduce`` takes a value of each, and
    a function that merges two; it returns the merged value of all nodes. All raise if
    the table of one is not valid, or two tables conflict.
    """
    pair = partial(merge, most=choice.max_categories)
    told = {
        i: fold(pair, (describe(frame, choice, i) for frame in table))
        for i, table in tables.items()
    }
    return with_moments(reduce, tables, conclude(reduce(told, pair), choice), choice)


def conclude(whole: Facts, choice: Choice) -> Encoding:
    """Return the encoding of all tables, without means; raise if they conflict."""
    if whole["error"]:
        node, sentence = whole["error"]
        raise ShardError(sentence if node is None else f"node {node}: {sentence}")
    if len(whole["tables"]) > 1:
        raise _conflict(*whole["tables"])
    (_, (named, _, target, weight)), texts = whole["tables"][0], whole["texts"]
    for name, facts in texts.items():
        if "text" in facts and "number" in facts:
            forced = "" if name == target else ", or list it in --categories"
            raise ShardError(
                f"column {name!r} is text on node {facts['text']}, but numbers on node "
                f"{facts['number']}; give all files the same kind{forced}"
            )
        if name != target and facts["values"] is None:
            raise ShardError(
                f"column {name!r} has more than {choice.max_categories} categories; "
                "leave it out with --leave-out, or raise --max-categories"
            )
    columns, classes = [], None
    for name in _names(whole["order"]):
        words = texts.get(name, {}).get("values")
        kind = (CATEGORY, tuple(words), choice.intercept) if words else (NUMBER,)
        columns.append(Column(name, *kind))
    if choice.n_classes and target is not None:
        classes = _classes(target, texts[target]["values"], choice)
    encoding = Encoding(
        tuple(columns), target, classes, weight, centre=choice.intercept,
        on_missing=choice.on_missing, unknown=choice.unknown, named=named,
    )  # fmt: skip
    names = encoding.feature_names
    if not names:
        raise ShardError(
            f"column {columns[0].name!r} has one category only, and there is no other "
            "feature; name further columns"
        )
    for k, name in enumerate(names if len({*names}) < len(names) else ()):
        if name in names[:k]:
            raise ShardError(f"two features are called {name!r}; rename a column")
    return encoding


def _names(order: Any) -> Sequence[str]:
    return positions(order) if isinstance(order, int) else order


def _classes(
    target: str, found: Sequence[Label] | None, choice: Choice
) -> tuple[Label, ...]:
    """Return the classes of the target; raise if their number is wrong."""
    if found is None:
        raise ShardError(
            f"the target {target!r} has more than {choice.max_categories} different "
            "values; choose a column of classes with --target, a regression with "
            "--problem, or raise --max-categories"
        )
    words = ", ".join(label(name) for name in found[:6]) + ", ..." * (len(found) > 6)
    parts = [x for x in found if isinstance(x, float) and not x.is_integer()]
    wrong = ""
    if len(found) < 2:
        wrong = f"the classes ({words}) over all nodes, but at least two are needed"
    elif len(found) > 2 == choice.n_classes:
        wrong = (
            f"{len(found)} classes ({words}), but logistic needs two (multinomial: any)"
        )
    elif parts and len(found) > 2:
        wrong = f"numbers such as {parts[0]:g}, but classes are integers or text"
    if wrong:
        raise ShardError(
            f"the target {target!r} has {wrong}; choose another --target or --problem"
        )
    return tuple(found)


def _conflict(*tables: Any) -> ShardError:
    """Return the error of two tables whose columns differ."""
    used = {}
    for node, (named, order, target, weight) in tables:
        kind = "" if named else "unnamed "
        used[node] = {f"the {kind}feature {name!r}" for name in _names(order)}
        used[node] |= {f"the target {target!r}", f"the weight {weight!r}"}
    (i, mine), (j, theirs) = used.items()
    only = {(i, j): sorted(mine - theirs), (j, i): sorted(theirs - mine)}
    said = [
        f"node {has} has {', '.join(words[:MOST_NAMES])}, but node {lacks} has not"
        for (has, lacks), words in only.items()
        if words
    ]
    return ShardError(
        f"{', and '.join(said)}; give all files the same columns, or choose them by "
        "their names with --features and --target"
    )


# means and scales


def with_moments(
    reduce: Reduce, tables: Tables, encoding: Encoding, choice: Choice
) -> Encoding:
    """Return an encoding with the means and scales over all nodes that it needs."""
    if choice.on_missing != "mean" and not choice.standardise:
        return encoding
    own = {
        i: fold(_merge_columns, (_moments(encoding, frame) for frame in table))
        for i, table in tables.items()
    }
    rows, counts, means, squares = reduce(own, _merge_columns)
    if not rows.all():
        raise ShardError(
            "no row of any node is complete; fill the gaps, or use --on-missing mean"
        )
    for k, name in enumerate(encoding.feature_names):
        if not counts[k]:
            raise ShardError(
                f"column {name!r} is missing in all rows of all nodes; leave it out "
                "with --leave-out"
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


def _merge_columns(a: Matrix, b: Matrix) -> Matrix:
    return np.vstack([a[:1] + b[:1], merge_moments(a[1:], b[1:])])


def merge_moments(a: Matrix, b: Matrix) -> Matrix:
    """Return the moments of two sets of numbers: weight, mean, squares about it."""
    total = a[0] + b[0]
    share = b[0] / np.where(total > 0.0, total, 1.0)
    with np.errstate(all="ignore"):
        apart = b[1] - a[1]
        return np.array(
            [total, a[1] + share * apart, a[2] + b[2] + apart**2 * a[0] * share]
        )
