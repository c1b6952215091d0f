"""The methods of a comparison, by their names: schemes of ADMM and other algorithms.

``NAME`` or ``NAME:key=value,key=value``, where NAME is a scheme, an algorithm of
`dadmm.baselines`, or a class of your own as ``package.module:Class``.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from dadmm import penalty
from dadmm.baselines import ALGORITHMS, Algorithm
from dadmm.comm.sending import Sending
from dadmm.core.classes import import_class
from dadmm.core.errors import ConfigError, shown
from dadmm.core.schema import from_text
from dadmm.penalty import Scheme

BEST = "best"  # a setting to be found on other seeds than those shown
TUNED = {Scheme: "eta0", Algorithm: "step"}


@dataclass(frozen=True)
class Method:
    """A scheme or an algorithm with its settings; one of them may be `BEST`."""

    text: str
    make: type[Any]
    settings: tuple[tuple[str, Any], ...] = ()

    @property
    def is_scheme(self) -> bool:
        """Whether it is ADMM."""
        return issubclass(self.make, Scheme)

    @property
    def tuned(self) -> str:
        """The setting to be found, or ""."""
        return next((name for name, value in self.settings if value == BEST), "")

    def build(self, best: float | None = None) -> Any:
        """Return the scheme or algorithm; ``best`` is the setting that was found."""
        found = {k: best if v == BEST else v for k, v in self.settings}
        return self.make(**{k: v for k, v in found.items() if v is not None})


def parse_method(text: str) -> Method:
    """Return the method of a text such as "snap" or "fixed:eta0=best"."""
    name, _, rest = text.partition(":")
    known: dict[str, type] = {**penalty.SCHEMES, **ALGORITHMS}
    if name in known:
        make = known[name]
    elif rest:
        path, _, rest = rest.partition(":")
        make = import_class("method", f"{name}:{path}", (Scheme, Algorithm))
    else:
        raise ConfigError(
            f"unknown method {shown(text)}; choose one of {', '.join(known)}, or a "
            "class of your own as package.module:Class"
        )
    kinds = {item.name: str(item.type) for item in fields(make)}
    settings: dict[str, Any] = {}
    for word in filter(None, rest.split(",")):
        key, equals, value = word.partition("=")
        if not equals or key not in kinds:
            raise ConfigError(
                f"method {shown(text)}: {shown(word)} is not one of its settings "
                f"{', '.join(kinds)}, as in {name}:{next(iter(kinds))}=2"
            )
        tunable = next(v for k, v in TUNED.items() if issubclass(make, k))
        if value == BEST and key != tunable:
            raise ConfigError(
                f"method {shown(text)}: only {tunable} can be {BEST}; give a number"
            )
        settings[key] = BEST if value == BEST else from_text(value, kinds[key])
    found = Method(text, make, tuple(settings.items()))
    found.build()  # raises if a setting is not valid
    return found


def parse_sending(text: str, usual: Sending) -> Sending:
    """Return a way of sending, as "quantised:4" or "float64,censor=0.03"."""
    payload, *words = text.split(",")
    kinds = {item.name: str(item.type) for item in fields(Sending)}
    given: dict[str, Any] = vars(usual) | {"payload": payload}
    for word in words:
        key, _, value = word.partition("=")
        if key not in kinds:
            raise ConfigError(
                f"payload {shown(text)}: {shown(word)} is not one of "
                f"{', '.join(kinds)}, as in float64,censor=0.03"
            )
        given[key] = from_text(value, kinds[key])
    return Sending(**given)
