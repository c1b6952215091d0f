"""Which columns of a table a run uses, and how."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dadmm.core.errors import ShardError
from dadmm.data.frame import Frame


class Choice(NamedTuple):
    """Which columns are used, and how.

    ``target`` and ``features`` are names or numbers of columns. By default the target
    is the last column, and features are all columns but the target and the weight.
    """

    features: Sequence[str] | None = None
    target: str | None = None
    weight: str | None = None
    supervised: bool = True  # whether there is a target
    n_classes: int = 0  # 2 for two classes, 3 for any number of them, 0 for numbers
    categories: Sequence[str] = ()  # columns of numbers that are categories
    max_categories: int = 50
    on_missing: str = "error"
    unknown: str = "error"
    standardise: bool = False
    intercept: bool = True  # whether the model has one


class Selection(NamedTuple):
    """The names of the columns that are used."""

    features: tuple[str, ...]
    target: str | None
    weight: str | None


def select(frame: Frame, choice: Choice) -> Selection:
    """Return the names of the columns that are used; raise if they conflict."""
    weight = None if choice.weight is None else frame.find(choice.weight, "weight")
    target = None
    if choice.supervised and choice.target is not None:
        target = frame.find(choice.target, "target")
    elif choice.supervised:
        target = next((name for name in frame.names[::-1] if name != weight), None)
    if target is not None and target == weight:
        raise ShardError(f"column {target!r} cannot be both target and weight")
    if choice.features is None:
        features = [name for name in frame.names if name not in (target, weight)]
    else:
        features = [frame.find(word, "features") for word in choice.features]
    seen: set[str] = set()
    for name in features:
        if name in seen:
            raise ShardError(f"features has {name!r} twice; name each column once")
        seen.add(name)
    for used, what in ((target, "target"), (weight, "weight")):
        if used in features:
            raise ShardError(
                f"column {used!r} cannot be both the {what} and a feature; leave it "
                "out of the features"
            )
    if not features and choice.features is None:
        raise ShardError(
            "the table has one column; a target needs at least one other column"
        )
    if not features:
        raise ShardError("there is no feature; name at least one column")
    for word in choice.categories:
        if frame.find(word, "categories") not in features:
            raise ShardError(
                f"categories has {word!r}, which is not a feature; name features only"
            )
    return Selection(tuple(features), target, weight)
