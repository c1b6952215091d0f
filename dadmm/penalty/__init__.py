"""Penalty schemes: how the penalty of each edge adapts.

A new scheme is a class and a line in `SCHEMES`. It may import `core` and `graphs`.

Examples
--------
>>> import dadmm
>>> list(dadmm.penalty.SCHEMES)
['snap', 'fixed', 'vp', 'ap', 'nap', 'vp_ap', 'vp_nap', 'global_balance']
"""

from __future__ import annotations

from typing import Any

from dadmm.core.classes import check_name, import_class, place_of
from dadmm.core.errors import ConfigError
from dadmm.penalty.schemes import (
    AP,
    NAP,
    SNAP,
    VP,
    VPAP,
    VPNAP,
    Fixed,
    GlobalBalance,
    Scheme,
)  # fmt: skip

SCHEMES: dict[str, type[Scheme]] = {
    "snap": SNAP, "fixed": Fixed, "vp": VP, "ap": AP, "nap": NAP, "vp_ap": VPAP,
    "vp_nap": VPNAP, "global_balance": GlobalBalance,
}  # fmt: skip
__all__ = ["AP", "NAP", "SCHEMES", "SNAP", "VP", "VPAP", "VPNAP", "Fixed"]
__all__ += ["GlobalBalance", "Scheme", "build"]


def build(scheme: str | Scheme, **settings: Any) -> Scheme:
    """Return a scheme.

    Parameters
    ----------
    scheme : str or Scheme
        A key of `SCHEMES`, a class as ``package.module:Class``, or an object.
    **settings
        Fields of `Scheme`. None is the default; with an object all must be None.

    Examples
    --------
    >>> import dadmm
    >>> dadmm.penalty.build("nap", budget0=2.0).budget0
    2.0
    """
    given = {name: value for name, value in settings.items() if value is not None}
    if isinstance(scheme, Scheme):
        for name, value in given.items():
            raise ConfigError(
                f"scheme is an object with its own {name}; pass "
                f"{type(scheme).__name__}({name}={value!r}) instead of {name}"
            )
        return scheme
    check_name("scheme", scheme, SCHEMES)
    kind = SCHEMES.get(scheme) or import_class("scheme", scheme, (Scheme,))
    found: Scheme = kind(**given)
    return found


def name_of(scheme: Scheme) -> str:
    """Return the key of a scheme in `SCHEMES`, or else the place of its class."""
    kind = type(scheme)
    return next((name for name in SCHEMES if SCHEMES[name] is kind), place_of(kind))
