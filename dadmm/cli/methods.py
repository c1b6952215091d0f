"""The methods of a comparison, by their names: schemes of ADMM and other algorithms.

``NAME`` or ``NAME:key=value,key=value``, where NAME is a scheme, an algorithm of
`dadmm.baselines`, or a class of your own as ``package.module:Class``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NamedTuple

from dadmm import penalty
from dadmm.baselines import ALGORITHMS, Algorithm
from dadmm.comm.sending import Sending
from dadmm.core.classes import check_name, import_class
from dadmm.core.errors import ConfigError, shown
from dadmm.core.schema import from_text
from dadmm.penalty import Scheme

BEST = "best"  # a setting to be found on other seeds than those shown
Value = int | float | str


class Method(NamedTuple):
    """A scheme or an algorithm with its settings; one of them may be `BEST`."""

    text: str
    make: type[Any]
    settings: Mapping[str, Value]

    @property
    def tuned(self) -> str:
        """The setting to be found, or ""."""
        return next((k for k, value in self.settings.items() if value == BEST), "")

    def build(self, best: float | None = None) -> Scheme | Algorithm:
        """Return the scheme or algorithm; ``best`` is the setting that was found."""
        found = {k: best if v == BEST else v for k, v in self.settings.items()}
        made: Scheme | Algorithm = self.make(
            **{k: v for k, v in found.items() if v is not None}
        )
        return made


def parse_method(text: str) -> Method:
    """Return the method of a text such as "snap" or "fixed:eta0=best"."""
    name, _, rest = text.partition(":")
    known: dict[str, type] = {**penalty.SCHEMES, **ALGORITHMS}
    if name in known:
        make = known[name]
    else:
        path, _, rest = rest.partition(":")
        place = f"{name}:{path}" if path else name
        check_name("method", place, known)
        make = import_class("method", place, (Scheme, Algorithm))
    settings = _parse_settings(f"method {shown(text)}", rest, make)
    tunable = "eta0" if issubclass(make, Scheme) else "step"
    if BEST in settings.values() and settings.get(tunable) != BEST:
        raise ConfigError(f"method {shown(text)}: only {tunable} can be {BEST}")
    found = Method(text, make, settings)
    found.build()  # raises if a setting is not valid
    return found


def parse_sending(text: str, usual: Sending) -> Sending:
    """Return a way of sending, as "quantised:4" or "float64,censor=0.03"."""
    payload, _, rest = text.partition(",")
    settings = _parse_settings(f"payload {shown(text)}", rest, Sending)
    return Sending(**(vars(usual) | {"payload": payload} | settings))


def _parse_settings(what: str, text: str, make: type) -> dict[str, Value]:
    """Return the settings of a class from a text such as "step=0.5,name=value"."""
    kinds, found = {item.name: str(item.type) for item in fields(make)}, {}
    for word in filter(None, text.split(",")):
        key, equals, value = word.partition("=")
        if not equals or key not in kinds:
            raise ConfigError(
                f"{what}: {shown(word)} is not name=value with one of "
                f"{', '.join(kinds)}"
            )
        found[key] = BEST if value == BEST else from_text(value, kinds[key])
    return found
