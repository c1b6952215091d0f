"""Agreement of nodes on the columns of their tables, by sums over a tree.

Each node describes its table, and the descriptions are merged. docs/privacy.md says
what they hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dadmm.core.errors import ShardError
from dadmm.data.choice import Choice, Selection, select
from dadmm.data.columns import (
    check_gaps,
    check_weights,
    check_words,
    codes_of,
    is_missing,
    not_numbers,
    row_gaps,
)
from dadmm.data.encoding import CATEGORY, NUMBER, Column, Encoding, Label
from dadmm.data.frame import Frame, label, positions
from dadmm.data.moments import moments, pool, with_moments

Reduce = Callable[[Mapping[int, Any], Callable[[Any, Any], Any]], Any]


def describe(frame: Frame, choice: Choice, node: int = 0) -> dict[str, Any]:
    """Return what a node tells the others about its table, as plain types.

    These are the names of the columns that are used, and the categories of those that
    are text or classes. An error is part of the description; `agree` raises it on all
    nodes.
    """
    try:
        chosen = select(frame, choice)
        texts = _categories(frame, choice, chosen, node)
        if choice.on_missing == "error":
            check_gaps(frame, chosen.features, chosen.target)
        if chosen.weight is not None:
            check_weights(chosen.weight, frame.column(chosen.weight))
    except ShardError as error:
        return {"node": node, "error": [node, str(error)]}
    width = len(chosen.features)
    plain = tuple(chosen.features) == positions(width)
    others = [name for name in chosen[1:] if name is not None]
    names = sorted([*([] if plain else chosen.features), *others])
    return {
        "node": node,
        "error": None,
        "order": width if plain else list(chosen.features),  # a number: x0, x1, ...
        "tables": [[node, [frame.named, width + len(others), names]]],
        "targets": [[node, [chosen.target, chosen.weight]]],
        "texts": texts,
    }


def _categories(
    frame: Frame, choice: Choice, chosen: Selection, node: int
) -> dict[str, Any]:
    """Return facts of columns that are not plain numbers, by name.

    These are the lowest nodes with text and with numbers, and the values: None if there
    are too many.
    """
    forced = {frame.find(word, "categories") for word in choice.categories}
    found: dict[str, Any] = {}
    wanted = [name for name in chosen.features if name in frame.columns]
    for name in wanted:
        values = frame.columns[name]
        if values.dtype != object and name not in forced:
            if np.isnan(values).all():
                found[name] = {"text": None, "number": None, "values": []}
            continue
        words = sorted(codes_of(values)[0])
        if name not in forced:
            check_words(name, values, words)
        found[name] = {"text": node if words else None, "number": None, "values": words}
    if chosen.target is not None:
        values = frame.column(chosen.target)
        text = values.dtype == object
        if text and not choice.n_classes:
            advice = (
                ", because it is the target; choose another one with --target, or "
                "logistic or multinomial with --problem"
            )
            raise not_numbers(chosen.target, values, advice)
        if choice.n_classes and choice.on_missing == "drop":
            values = values[_complete(frame, chosen.features)]
        if choice.n_classes and text:
            words = sorted(codes_of(values)[0])
            found[chosen.target] = {"text": node, "number": None, "values": words}
        elif choice.n_classes:
            numbers = np.unique(values[~np.isnan(values)])
            if np.isinf(numbers).any():
                raise ShardError(f"the target {chosen.target!r} has an infinite entry")
            where = node if len(numbers) else None
            labels = numbers[: choice.max_categories + 1].tolist()
            found[chosen.target] = {"text": None, "number": where, "values": labels}
    for facts in found.values():
        _cap(facts, choice.max_categories)
    return found


def _complete(frame: Frame, features: Sequence[str]) -> NDArray[np.bool_]:
    """Return which rows have an entry in each feature."""
    kept = np.ones(frame.n_rows, dtype=bool)
    if frame.sparse is not None:
        kept &= ~row_gaps(frame.sparse)
    for name in frame.columns.keys() & set(features):
        kept &= ~is_missing(frame.columns[name])
    return kept


def _cap(facts: dict[str, Any], most: int) -> None:
    if facts["values"] is not None and len(facts["values"]) > most:
        facts["values"] = None


def merge(a: dict[str, Any], b: dict[str, Any], most: int = 50) -> dict[str, Any]:
    """Return the description of the nodes of two descriptions, in either order."""
    first, second = (a, b) if a["node"] < b["node"] else (b, a)
    errors = [facts["error"] for facts in (first, second) if facts["error"]]
    if errors:
        return {"node": first["node"], "error": min(errors)}
    texts = {}
    for name in {**first["texts"], **second["texts"]}:
        sides = [
            side["texts"].get(name)
            or {"text": None, "number": side["node"], "values": []}
            for side in (first, second)
        ]
        lists = [side["values"] for side in sides]
        union = None
        if None not in lists:
            union = sorted(
                {*lists[0], *lists[1]}, key=lambda v: (isinstance(v, str), v)
            )
        texts[name] = {
            "text": _lowest(side["text"] for side in sides),
            "number": _lowest(side["number"] for side in sides),
            "values": union,
        }
        _cap(texts[name], most)
    kinds = {
        name: _two_kinds([*first[name], *second[name]])
        for name in ("tables", "targets")
    }
    return {**first, **kinds, "texts": texts}


def _lowest(nodes: Iterable[int | None]) -> int | None:
    return min((node for node in nodes if node is not None), default=None)


def _two_kinds(found: list[Any]) -> list[Any]:
    """Return the lowest node of each kind, for the two kinds with the lowest nodes."""
    kinds: list[Any] = []
    for node, kind in sorted(found, key=lambda pair: int(pair[0])):
        if all(kind != other for _, other in kinds):
            kinds.append([node, kind])
    return kinds[:2]


def agree(reduce: Reduce, frames: Mapping[int, Frame], choice: Choice) -> Encoding:
    """Return the encoding of the tables of all nodes, the same on all.

    Parameters
    ----------
    reduce : callable
        ``TreeReduction.reduce``, or a function like it: takes a value of each hosted
        node, and a function that merges two; returns the merged value of all nodes.
    frames : dict of int to Frame
        By hosted node.
    choice : Choice

    Raises
    ------
    ShardError
        On all nodes, if the table of one is not valid, or two tables conflict.
    """
    most = choice.max_categories
    told = {i: describe(frame, choice, i) for i, frame in frames.items()}
    whole = reduce(told, lambda a, b: merge(a, b, most))
    encoding = _conclude(whole, choice)
    if choice.on_missing != "mean" and not choice.standardise:
        return encoding
    sums = reduce({i: moments(encoding, own) for i, own in frames.items()}, pool)
    return with_moments(encoding, sums, standardise=choice.standardise)


def _conclude(whole: dict[str, Any], choice: Choice) -> Encoding:
    """Return the encoding of all tables, without means; raise if they conflict."""
    if whole["error"]:
        node, sentence = whole["error"]
        raise ShardError(f"node {node}: {sentence}")
    if len(whole["tables"]) > 1:
        raise _other_columns(*whole["tables"])
    if len(whole["targets"]) > 1:
        (i, mine), (j, theirs) = whole["targets"]
        what, k = ("target", 0) if mine[0] != theirs[0] else ("weight", 1)
        raise ShardError(
            f"node {j} has the {what} {theirs[k]!r}, but node {i} has {mine[k]!r}; "
            f"choose the column by its name with --{what}"
        )
    named, (target, weight) = whole["tables"][0][1][0], whole["targets"][0][1]
    order, texts = whole["order"], whole["texts"]
    order = positions(order) if isinstance(order, int) else order
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
    columns = []
    for name in order:
        words = texts.get(name, {}).get("values")
        if words:
            columns.append(Column(name, CATEGORY, tuple(words), choice.intercept))
        else:
            columns.append(Column(name, NUMBER))
    classes = None
    if choice.n_classes and target is not None:
        classes = _classes(target, texts[target], choice)
    _check_features(columns)
    return Encoding(
        tuple(columns),
        target,
        classes,
        weight,
        centre=choice.intercept,
        on_missing=choice.on_missing,
        unknown=choice.unknown,
        named=named,
    )


def _check_features(columns: Sequence[Column]) -> None:
    """Raise if the columns of X have no or equal names."""
    seen: set[str] = set()
    for name in (name for column in columns for name in column.feature_names):
        if name in seen:
            raise ShardError(f"two features are called {name!r}; rename a column")
        seen.add(name)
    if not seen:
        raise ShardError(
            f"column {columns[0].name!r} has one category only, and there is no other "
            "feature; name further columns"
        )


def _classes(target: str, facts: dict[str, Any], choice: Choice) -> tuple[Label, ...]:
    """Return the classes of the target; raise if their number is wrong."""
    found = facts["values"]
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


def _other_columns(mine: list[Any], theirs: list[Any]) -> ShardError:
    """Return the error of two tables whose columns differ."""
    (i, (named, n, names)), (j, (other_named, m, others)) = mine, theirs
    if named != other_named:
        with_names, without = (i, j) if named else (j, i)
        return ShardError(
            f"the file of node {without} has no names of columns, but that of node "
            f"{with_names} has; give all files a header, or none"
        )
    if n != m and not named:
        return ShardError(
            f"node {j} has {m} columns but node {i} has {n}; all nodes must have the "
            "same columns"
        )
    lacks, has, lost = j, i, sorted(set(names) - set(others))
    if not lost:
        lacks, has, lost = i, j, sorted(set(others) - set(names))
    more = f" and {len(lost) - 5} others" if len(lost) > 5 else ""
    return ShardError(
        f"node {lacks} has no column {', '.join(map(repr, lost[:5]))}{more}, which "
        f"node {has} has; give all files the same columns, or choose with --features"
    )
