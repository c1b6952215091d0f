"""Agreement of nodes on the columns of their tables, by sums over a tree.

Each node describes its table, and the descriptions are merged. docs/privacy.md says
what they hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce as fold
from typing import Any, NamedTuple

import numpy as np

from dadmm.core.errors import ShardError, shown
from dadmm.core.layout import Matrix
from dadmm.data.encoding import CATEGORY, NUMBER, Column, Encoding, Label, listed
from dadmm.data.frame import Frame, codes_of, has_commas, is_numeral, label, positions

Reduce = Callable[[Mapping[int, Any], Callable[[Any, Any], Any]], Any]
Facts = dict[str, Any]
Tables = Mapping[int, Iterable[Frame]]  # by node
MANY = 20  # texts that are identifiers, not categories, if all differ
EPS = float(np.finfo(float).eps)


class Choice(NamedTuple):
    """Which columns are used, and how.

    Columns are given by names or numbers. By default the target is the last column, and
    features are all columns but the target, the weight and the labels.
    """

    features: Sequence[str] | None = None
    target: str | None = None
    weight: str | None = None
    labels: str | None = None  # the column of node numbers
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

    def use(name: str, purpose: str) -> str:
        if name in uses:
            raise ShardError(
                f"column {name!r} is named twice, for {uses[name]} and {purpose}; name "
                "each column once"
            )
        uses[name] = purpose
        return name

    def find(purpose: str) -> str | None:
        word = getattr(choice, purpose)
        return None if word is None else use(frame.find(word, purpose), purpose)

    find("labels")
    weight = find("weight")
    target = None
    if choice.supervised and choice.target is None:
        target = next((name for name in frame.names[::-1] if name not in uses), None)
        target = None if target is None else use(target, "target")
    elif choice.supervised:
        target = find("target")
    if choice.features is None:
        features = [name for name in frame.names if name not in uses]
    else:
        found = (frame.find(word, "features") for word in choice.features)
        features = [use(name, "features") for name in found]
    if not features:
        raise ShardError("there is no feature; a table needs one beside the target")
    for word in choice.categories:
        if frame.find(word, "categories") not in features:
            raise ShardError(
                f"categories has {word!r}, which is not a feature; name features only"
            )
    return tuple(features), target, weight


def describe(frame: Frame, choice: Choice, node: int | None = None) -> Facts:
    """Return what a node tells the others about its table, as plain types.

    These are the names of the columns that are used, and the categories of those that
    are text or classes. An error is part of the description; `conclude` raises it on
    all nodes.
    """
    try:
        features, target, weight = select(frame, choice)
        texts = _categories(frame, choice, features, target, node or 0)
        if choice.on_missing == "error":
            frame.check_gaps(features if target is None else (*features, target))
        if weight is not None:
            _check_weights(frame, weight)
    except ShardError as error:
        return {"node": node, "error": [node, str(error)]}
    width, plain = len(features), features == positions(len(features))
    others = [name for name in (target, weight) if name is not None]
    names = sorted([*([] if plain else features), *others])
    return {
        "node": node,
        "error": None,
        "order": width if plain else list(features),  # a number: x0, x1, ...
        "tables": [[node, [frame.named, width + len(others), names, target, weight]]],
        "texts": texts,
    }


def _categories(
    frame: Frame,
    choice: Choice,
    features: Sequence[str],
    target: str | None,
    node: int,
) -> dict[str, Facts]:
    """Return facts of columns that are not plain numbers, by name.

    These are the lowest nodes with text and with numbers, and the values: None if there
    are too many.
    """
    forced = {frame.find(word, "categories") for word in choice.categories}
    found: dict[str, Facts] = {}

    def add(name: str, values: Sequence[Any], kind: str) -> None:
        most = choice.max_categories
        place = {"text": None, "number": None} | ({kind: node} if len(values) else {})
        found[name] = place | {"values": values if len(values) <= most else None}

    for name in features:
        if name not in frame.columns:  # it is sparse, of numbers
            continue
        values = frame.column(name)
        if name in forced or values.dtype == object:
            words = sorted(codes_of(values)[0])
            if name not in forced:
                _check_words(frame, name, words)
            add(name, words, "text")
        elif np.isnan(values).all():
            add(name, [], "number")
    if target is None:
        return found
    if not choice.n_classes:
        frame.numbers(
            target,
            ", because it is the target; choose another one with --target, or "
            "logistic or multinomial with --problem",
        )
        return found
    values = frame.column(target)
    if choice.on_missing == "drop":
        values = values[~frame.gaps(features)]
    if values.dtype == object:
        add(target, sorted(codes_of(values)[0]), "text")
        found[target]["text"] = node
    else:
        numbers = np.unique(values[~np.isnan(values)])
        if np.isinf(numbers).any():
            raise ShardError(f"the target {target!r} has an infinite entry")
        add(target, numbers.tolist(), "number")
    return found


def _check_weights(frame: Frame, name: str) -> None:
    values = frame.numbers(name)
    wrong = ~(np.isfinite(values) & (values >= 0))
    for row in np.flatnonzero(wrong):
        raise ShardError(
            f"the weight {name!r} is {values[row]:g} in row {frame.first + row}; "
            "weights must be finite and at least 0"
        )


def _check_words(frame: Frame, name: str, words: Sequence[str]) -> None:
    """Raise if a column of text has numbers, or identifiers, but no categories."""
    odd = [word for word in words if not is_numeral(word)]
    if has_commas(odd):
        frame.numbers(name)
    if len(words) == frame.n_rows >= MANY:
        raise ShardError(
            f"column {name!r} has another text in each of its {len(words)} rows, as "
            "names and identifiers have; leave it out of --features, or list it in "
            "--categories if the texts are categories"
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
    first, second = (a, b) if a["node"] <= b["node"] else (b, a)
    errors = [facts["error"] for facts in (first, second) if facts["error"]]
    if errors:
        lowest = min(errors, key=lambda error: error[0])
        return {"node": first["node"], "error": lowest}
    texts = {}
    for name in {**first["texts"], **second["texts"]}:
        sides = [
            side["texts"].get(
                name, {"text": None, "number": side["node"], "values": []}
            )
            for side in (first, second)
        ]
        texts[name] = merged = {"values": None} | {
            kind: min((s[kind] for s in sides if s[kind] is not None), default=None)
            for kind in ("text", "number")
        }
        if all(side["values"] is not None for side in sides):
            union = {value for side in sides for value in side["values"]}
            if len(union) <= most:
                merged["values"] = sorted(union, key=lambda v: (isinstance(v, str), v))
    tables: list[Any] = []
    for node, table in sorted([*first["tables"], *second["tables"]]):
        if all(table != other for _, other in tables):
            tables.append([node, table])
    return {**first, "tables": tables[:2], "texts": texts}


def agree(reduce: Reduce, tables: Tables, choice: Choice) -> Encoding:
    """Return the encoding of the tables of all nodes, the same on all.

    ``tables`` has the frames of each hosted node. ``reduce`` takes a value of each, and
    a function that merges two; it returns the merged value of all nodes. All raise if
    the table of one is not valid, or two tables conflict.
    """

    def pair(a: Facts, b: Facts) -> Facts:
        return merge(a, b, choice.max_categories)

    told = {
        i: fold(pair, (describe(frame, choice, i) for frame in table))
        for i, table in tables.items()
    }
    whole = reduce(told, pair)
    return with_moments(reduce, tables, conclude(whole, choice), choice)


def conclude(whole: Facts, choice: Choice) -> Encoding:
    """Return the encoding of all tables, without means; raise if they conflict."""
    if whole["error"]:
        node, sentence = whole["error"]
        raise ShardError(sentence if node is None else f"node {node}: {sentence}")
    if len(whole["tables"]) > 1:
        raise _conflict(*whole["tables"])
    (_, (named, _, _, target, weight)), texts = whole["tables"][0], whole["texts"]
    for name, facts in texts.items():
        if facts["text"] is not None and facts["number"] is not None:
            forced = "" if name == target else ", or list it in --categories"
            raise ShardError(
                f"column {name!r} is text on node {facts['text']}, but numbers on node "
                f"{facts['number']}; give all files the same kind{forced}"
            )
        if name != target and facts["values"] is None:
            raise ShardError(
                f"column {name!r} has more than {choice.max_categories} categories; "
                "leave it out of --features, or raise --max-categories"
            )
    order, columns = whole["order"], []
    for name in positions(order) if isinstance(order, int) else order:
        words = texts.get(name, {}).get("values")
        kind = (CATEGORY, tuple(words), choice.intercept) if words else (NUMBER,)
        columns.append(Column(name, *kind))
    classes = None
    if choice.n_classes and target is not None:
        classes = _classes(target, texts[target]["values"], choice)
    encoding = Encoding(
        tuple(columns),
        target,
        classes,
        weight,
        centre=choice.intercept,
        on_missing=choice.on_missing,
        unknown=choice.unknown,
        named=named,
    )
    names = encoding.feature_names
    if not names:
        raise ShardError(
            f"column {columns[0].name!r} has one category only, and there is no other "
            "feature; name further columns"
        )
    if len({*names}) < len(names):
        twice = next(name for k, name in enumerate(names) if name in names[:k])
        raise ShardError(f"two features are called {twice!r}; rename a column")
    return encoding


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
    words = ", ".join(label(name) for name in found[:6])
    if len(found) < 2:
        what = f"only the class {words}" if found else "no class"
        raise ShardError(
            f"the target {target!r} has {what} over all nodes; a classification needs "
            "two or more"
        )
    if len(found) > 2 == choice.n_classes:
        more = ", ..." if len(found) > 6 else ""
        raise ShardError(
            f"the target {target!r} has {len(found)} classes ({words}{more}); logistic "
            "needs two, and multinomial takes more; use another problem"
        )
    parts = [x for x in found if isinstance(x, float) and not x.is_integer()]
    if parts and len(found) > 2:
        raise ShardError(
            f"the target {target!r} has numbers such as {parts[0]:g}, but classes are "
            "integers or text; choose another target, or a regression with --problem"
        )
    return tuple(found)


def _conflict(mine: list[Any], theirs: list[Any]) -> ShardError:
    """Return the error of two tables whose columns differ."""
    (i, (named, n, names, *own)), (j, (other_named, m, others, *other)) = mine, theirs
    if named != other_named:
        with_names, without = (i, j) if named else (j, i)
        return ShardError(
            f"the file of node {without} has no names of columns, but the file of "
            f"node {with_names} has; give all files a header, or none"
        )
    if n != m and not named:
        return ShardError(
            f"node {j} has {m} columns but node {i} has {n}; all nodes must have the "
            "same columns"
        )
    if names == others and n == m:
        what, k = ("target", 0) if own[0] != other[0] else ("weight", 1)
        return ShardError(
            f"node {j} has the {what} {other[k]!r}, but node {i} has {own[k]!r}; "
            f"choose the column by its name with --{what}"
        )
    lacks, has, lost = j, i, sorted({*names} - {*others})
    if not lost:
        lacks, has, lost = i, j, sorted({*others} - {*names})
    return ShardError(
        f"node {lacks} has no column {listed(lost)}, which node {has} has; give all "
        "files the same columns, or choose with --features"
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
                f"column {name!r} is missing in all rows of all nodes; leave it out of "
                "--features"
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
