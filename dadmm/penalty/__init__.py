"""Penalty schemes: how the penalty of each edge adapts.

`equations` and `schemes` are the paper's, `rules` and `beyond` are not; a new scheme is
a class and a line in `SCHEMES`. It may import `core` and `graphs`.

Examples
--------
`SCHEMES` has the classes by their names on the command line, and `DEFAULTS` the default
values of their settings:

>>> import dadmm
>>> list(dadmm.penalty.SCHEMES)
['fixed', 'vp', 'ap', 'nap', 'vp_ap', 'vp_nap', 'global_balance', 'auto']
>>> dadmm.penalty.DEFAULTS["eta0"]
10.0
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from dadmm.core.checks import check_choice
from dadmm.core.errors import ConfigError
from dadmm.penalty.beyond import Auto, GlobalBalance
from dadmm.penalty.schemes import AP, NAP, VP, VPAP, VPNAP, Fixed, Scheme

__all__ = [
    "AP",
    "DEFAULTS",
    "NAP",
    "SCHEMES",
    "VP",
    "VPAP",
    "VPNAP",
    "Auto",
    "Fixed",
    "GlobalBalance",
    "Scheme",
    "build",
    "name_of",
]

SCHEMES: dict[str, type[Scheme]] = {
    "fixed": Fixed,
    "vp": VP,
    "ap": AP,
    "nap": NAP,
    "vp_ap": VPAP,
    "vp_nap": VPNAP,
    "global_balance": GlobalBalance,
    "auto": Auto,
}
DEFAULTS = {field.name: field.default for field in fields(Scheme)}


def build(scheme: str | Scheme, **settings: Any) -> Scheme:
    """Return a scheme.

    Parameters
    ----------
    scheme : str or Scheme
        A key of `SCHEMES`; or an object, which is returned unchanged.
    **settings
        Fields of `Scheme`. With an object all must have their default values, because
        the object has its own.

    Returns
    -------
    scheme : Scheme

    Examples
    --------
    >>> import dadmm
    >>> dadmm.penalty.build("nap", budget0=2.0).budget0
    2.0
    """
    if isinstance(scheme, Scheme):
        for name, value in settings.items():
            if value != DEFAULTS[name]:
                raise ConfigError(
                    f"scheme is an object with its own {name}; pass "
                    f"{type(scheme).__name__}({name}={value!r}) instead of {name}"
                )
        return scheme
    check_choice("scheme", scheme, list(SCHEMES))
    return SCHEMES[scheme](**settings)


def name_of(scheme: Scheme) -> str:
    """Return the key of a scheme in `SCHEMES`, or else the name of its class.

    Parameters
    ----------
    scheme : Scheme

    Returns
    -------
    name : str

    Examples
    --------
    >>> import dadmm
    >>> dadmm.penalty.name_of(dadmm.penalty.VPNAP())
    'vp_nap'
    """
    kind = type(scheme)
    other = kind.called or kind.__name__
    return next((name for name in SCHEMES if SCHEMES[name] is kind), other)
