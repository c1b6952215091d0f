"""How penalties adapt. A new scheme is a class and a line here."""

from __future__ import annotations

from typing import Any

from dadmm.core.errors import ConfigError
from dadmm.penalty.beyond import (
    Auto,
    EdgeBalance,
    EdgeRatio,
    GlobalBalance,
    NodeSpectral,
)
from dadmm.penalty.schemes import AP, NAP, VP, VPAP, VPNAP, Fixed, Scheme

SCHEMES: dict[str, type[Scheme]] = {
    "fixed": Fixed,
    "vp": VP,
    "ap": AP,
    "nap": NAP,
    "vp_ap": VPAP,
    "vp_nap": VPNAP,
    "edge_balance": EdgeBalance,
    "edge_ratio": EdgeRatio,
    "node_spectral": NodeSpectral,
    "global_balance": GlobalBalance,
    "auto": Auto,
}


def build(name: str, **settings: Any) -> Scheme:
    """Return the scheme of that name with the given settings."""
    if name not in SCHEMES:
        allowed = ", ".join(SCHEMES)
        raise ConfigError(f"unknown scheme {name!r}; choose one of {allowed}")
    return SCHEMES[name](**settings)
