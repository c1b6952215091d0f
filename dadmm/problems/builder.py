"""Construction of problems from a name, the rows of a node, and settings.

The class is one of `PROBLEMS`, an entry point of an installed package in the group
``dadmm.problems``, or ``package.module:Class``. Its constructor takes the rows first.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cache
from typing import Any

from dadmm.core import classes
from dadmm.core.errors import ConfigError, ProblemError
from dadmm.core.layout import Layout
from dadmm.core.schema import annotated
from dadmm.data.encoding import Rows
from dadmm.problems import PROBLEMS
from dadmm.problems.linear import LinearProblem

DATA = ("y", "sample_weight")  # arguments that are no settings
MEMBERS = {
    "layout": "a dadmm.Layout with entries, such as Layout.of(coef=(d,))",
    "init": "a method init(rng)",
    "expect": "a method expect(theta)",
    "prox": "a method prox(theta, stats, centre, weight)",
    "objectives": "a method objectives(thetas, stats)",
}


@cache
def arguments(kind: type[Any]) -> dict[str, inspect.Parameter]:
    """Return what a class's constructor takes by name, without the rows."""
    found = list(inspect.signature(kind).parameters.values())[1:]  # after the rows
    not_named = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)
    return {p.name: p for p in found if p.kind not in not_named}


def check_name(name: str) -> None:
    """Raise unless a name is a known problem or has the form of a class's place."""
    classes.check_name("problem", name, [*PROBLEMS, *_from_packages()])


def find(name: str) -> type:
    """Return the class of a problem; a class of yours is imported."""
    if name in PROBLEMS:
        return PROBLEMS[name]
    check_name(name)
    place = name if ":" in name else _from_packages()[name]
    found = classes.import_class("problem", place, installed=place != name)
    check_members(found, name)
    return found


def _from_packages() -> dict[str, str]:
    from importlib.metadata import entry_points  # slow to import, and rarely needed

    points = entry_points(group="dadmm.problems")
    return {point.name: f"{point.module}:{point.attr}" for point in points}


def n_classes(name: str) -> int:
    """Return 2 for a problem of two classes, 3 if it takes more, 0 for a regression."""
    if "n_classes" in arguments(find(name)):
        return 3
    known = name in PROBLEMS and PROBLEMS[name].traits.predicts == "classification"
    return 2 if known else 0


def build(name: str, rows: Rows, settings: Mapping[str, object]) -> Any:
    """Return the problem of a node with these rows; only linear ones get sparse rows.

    The constructor must accept all settings.
    """
    kind = find(name)
    takes = {k: p for k, p in arguments(kind).items() if p.kind is not p.VAR_KEYWORD}
    takes_any = len(takes) < len(arguments(kind))
    for key, value in settings.items():
        if key in DATA or not (takes_any or key in takes):
            known = [argument for argument in takes if argument not in DATA]
            raise ConfigError(
                f"{name} has no setting {key!r}; it has {', '.join(known) or 'none'}"
            )
        if name not in PROBLEMS:  # these check their settings
            kind_of = annotated(takes[key].annotation if key in takes else "")
            if kind_of is not None:  # the class itself may check other types
                kind_of.check(f"{name}: {key}", value)
    data = {"y": rows.y, "sample_weight": rows.weight}
    given = {**settings, **{k: v for k, v in data.items() if v is not None}}
    if rows.weight is not None and "sample_weight" not in takes:
        raise ConfigError(
            f"weight cannot be used with {name}, which takes no sample_weight"
        )
    for argument, parameter in takes.items():
        if parameter.default is parameter.empty and argument not in given:
            raise ConfigError(
                f"{name} needs a setting {argument!r}; give it as --problem-settings "
                f"'{{\"{argument}\": ...}}'"
            )
    sparse = issubclass(kind, LinearProblem) and "sample_weight" in takes
    dense = hasattr(rows.X, "tocsr") and not sparse
    problem = kind(rows.X.toarray() if dense else rows.X, **given)
    if name not in PROBLEMS:
        check_members(problem, name)
    return problem


def check_members(problem: object, name: str) -> None:
    """Raise unless a problem, or a class but for the layout, has all members."""
    for member, what in MEMBERS.items():
        found = getattr(problem, member, None)
        has = callable(found)
        if member == "layout":
            known = isinstance(found, Layout) and found.size > 0
            has = known or inspect.isclass(problem)
        if not has:
            raise ProblemError(
                f"{name} needs {member}, {what}; dadmm.core.interfaces.Problem has the "
                "members of a problem"
            )
