"""Classes of a user by their place, as ``package.module:Class``."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from dadmm.core.errors import ConfigError, shown


def place_of(kind: type[Any]) -> str:
    """Return the place of a class; of one within a function, its own name."""
    return f"{kind.__module__}:{kind.__qualname__.rpartition('<locals>.')[2]}"


def check_place(what: str, place: str) -> None:
    """Raise unless a text has the form ``package.module:Class``."""
    module, colon, path = place.partition(":")
    words = (*module.split("."), *path.split("."))
    if not colon or not all(word.isidentifier() for word in words):
        raise ConfigError(
            f"{what} {shown(place)} is not of the form package.module:Class"
        )


def import_class(
    what: str,
    place: str,
    bases: tuple[type, ...] = (object,),
    like: str = "__init__",
    installed: bool = False,
) -> type[Any]:
    """Return the class at ``package.module:Class``, derived from one of the bases.

    Unless it must be ``installed``, it may also be in the current folder. If it is not
    there, the error names the classes of the module that have the attribute ``like``.
    ``what`` is the setting that named it.
    """
    check_place(what, place)
    module, _, path = place.partition(":")
    if not installed and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # as ``python -m`` has it
    try:
        found: Any = importlib.import_module(module)
    except Exception as error:  # importing a module can raise anything
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        first = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        reason = f"{module} cannot be imported, {first}"
        if missing is not None and f"{module}.".startswith(f"{missing}."):
            reason = (
                f"there is no module {missing!r}; install it, or start in its folder"
            )
        raise ConfigError(f"{what} {place!r}: {reason}") from None

    def fits(value: object) -> bool:
        return isinstance(value, type) and issubclass(value, bases)

    for word in path.split("."):
        if not hasattr(found, word):
            known = [(k, v) for k, v in vars(found).items() if fits(v)]
            kinds = [k for k, v in known if hasattr(v, like) and v not in bases]
            raise ConfigError(
                f"{what} {place!r}: {module} has no {word!r}; there is "
                f"{', '.join(kinds) or 'none that could be meant'}"
            )
        found = getattr(found, word)
    if not fits(found):
        names = " or ".join(f"{base.__module__}.{base.__name__}" for base in bases)
        derived = "" if object in bases else f" derived from {names}"
        raise ConfigError(f"{what} {place!r} is not a class{derived}")
    kind: type[Any] = found
    return kind
