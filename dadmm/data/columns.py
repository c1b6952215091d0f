"""Columns of a table: their texts, their gaps, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dadmm.core.errors import ShardError, shown
from dadmm.data.frame import Array, Frame, is_numeral, label

MANY = 20  # texts that are identifiers, not categories, if all differ


def codes_of(values: Array) -> tuple[list[str], NDArray[np.int64]]:
    """Return the texts of a column, each once, and the position of each row's.

    The position of a missing entry is -1.
    """
    places: dict[str, int] = {}
    codes = np.full(len(values), -1)
    if values.dtype != object:
        numbers, inverse = np.unique(values, return_inverse=True)
        texts = [label(x) for x in numbers[~np.isnan(numbers)].tolist()]
        codes = np.where(inverse < len(texts), inverse, -1)
        return texts, codes
    for row, word in enumerate(values.tolist()):
        if word is not None:
            codes[row] = places.setdefault(word, len(places))
    return list(places), codes


def is_missing(values: Array) -> NDArray[np.bool_]:
    """Return which entries of a column are missing."""
    lost = values == None if values.dtype == object else np.isnan(values)  # noqa: E711
    return np.asarray(lost, dtype=bool)


def row_gaps(X: Any) -> NDArray[np.bool_]:
    """Return which rows have a missing entry."""
    found = np.zeros(X.shape[0], dtype=bool)
    if isinstance(X, np.ndarray):
        np.isnan(X).any(axis=1, out=found)
        return found
    found[X.tocoo().row[np.isnan(X.data)]] = True
    return found


def check_gaps(
    frame: Frame,
    features: Iterable[str],
    target: str | None,
    ways: Sequence[str] = ("drop", "mean"),
) -> None:
    """Raise if an entry is missing; the error names these ways to deal with it."""
    advice = f"use --on-missing {' or '.join(ways)}, or fill the gaps"
    names = [*features, *([target] if target is not None else [])]
    if frame.sparse is not None and np.isnan(frame.sparse.data).any():
        raise ShardError(f"the sparse table has missing entries (NaN); {advice}")
    for name in names:
        if frame.sparse is not None and name not in frame.columns:
            continue
        values = frame.columns[name]
        lost = is_missing(values)
        if lost.any():
            raise ShardError(
                f"column {name!r} has no entry in {int(lost.sum())} of {len(values)} "
                f"rows, first in row {int(lost.argmax())}; {advice}"
            )


def check_weights(name: str, values: Array) -> None:
    if values.dtype == object:
        raise not_numbers(name, values)
    wrong = ~(np.isfinite(values) & (values >= 0))
    if wrong.any():
        row = int(wrong.argmax())
        raise ShardError(
            f"the weight {name!r} is {values[row]:g} in row {row}; weights must be "
            "finite and at least 0"
        )


def not_numbers(name: str, values: Array, advice: str = "") -> ShardError:
    words = codes_of(values)[0]
    odd = [word for word in words if not is_numeral(word)]
    if _have_commas(odd):
        return _commas(name, odd[0])
    word = (odd or words)[0]
    return ShardError(
        f"column {name!r} has text, such as {shown(word)} in row "
        f"{values.tolist().index(word)}, but numbers are needed{advice}"
    )


def check_words(name: str, values: Array, words: Sequence[str]) -> None:
    """Raise if a column of text seems to have no categories.

    It then has numbers and a few other cells, or a different text in each row.
    """
    odd = [word for word in words if not is_numeral(word)]
    if _have_commas(odd):
        raise _commas(name, odd[0])
    if len(words) == len(values) >= MANY:
        raise ShardError(
            f"column {name!r} has another text in each of its {len(words)} rows, as "
            "names and identifiers have; leave it out of --features, or list it in "
            "--categories if the texts are categories"
        )
    if 2 * len(odd) > len(words) or not odd:
        return
    row = next(k for k, word in enumerate(values.tolist()) if word in odd)
    raise ShardError(
        f"column {name!r} has numbers, but {shown(values[row])} in row {row}; leave a "
        "missing entry empty, or list the column in --categories if its entries are "
        "categories"
    )


def _have_commas(words: Sequence[str]) -> bool:
    return bool(words) and all(is_numeral(word.replace(",", ".")) for word in words)


def _commas(name: str, word: str) -> ShardError:
    return ShardError(
        f"column {name!r} has numbers with a comma, such as {word!r}; use --decimal , "
        "if it is the decimal mark, or else remove it"
    )
