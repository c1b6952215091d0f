"""Classes of a user by their place, ``package.module:Class``; optional packages."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable
from operator import attrgetter

from dadmm.core.errors import ConfigError, DadmmError, shown


def require(
    package: str, user: str, extra: str, error: type[DadmmError] = ConfigError
) -> None:
    """Raise unless a package is installed, which the ``user`` needs, of an extra."""
    if importlib.util.find_spec(package) is None:
        more = f"in a clone pip install '.[{extra}]'"
        raise error(f"{user} needs {package}; pip install {package}, or {more}")


def place_of(kind: type) -> str:
    """Return the place of a class; of one within a function, its own name."""
    return f"{kind.__module__}:{kind.__qualname__.rpartition('<locals>.')[2]}"


def check_name(what: str, name: str, known: Iterable[str]) -> None:
    """Raise unless a name is known, or has the form of the place of a class."""
    words = [*known]
    if ":" in str(name):
        module, _, path = name.partition(":")
        if not all(map(str.isidentifier, (*module.split("."), *path.split(".")))):
            form = "package.module:Class"
            raise ConfigError(f"{what} {shown(name)} is not of the form {form}")
    elif name not in words:
        raise ConfigError(
            f"unknown {what} {shown(name)}; choose one of {', '.join(words)}, or a "
            "class of your own as package.module:Class"
        )


def import_class(
    what: str, place: str, bases: tuple[type, ...] = (object,), installed: bool = False
) -> type:
    """Return the class at a place; unless ``installed``, also of the current folder."""
    module, _, path = place.partition(":")
    if not installed and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # as ``python -m`` has it
    try:
        found = attrgetter(path)(importlib.import_module(module))
    except Exception as error:  # importing a module can raise anything
        reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        raise ConfigError(
            f"{what} {place!r} cannot be imported, {reason}; correct it, install its "
            "package, or start in its folder"
        ) from None
    if not isinstance(found, type) or not issubclass(found, bases):
        names = " or ".join(f"{base.__module__}.{base.__name__}" for base in bases)
        raise ConfigError(f"{what} {place!r} is not a class derived from {names}")
    return found
