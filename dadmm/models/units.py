"""Parameters in the units of the table, if its columns were standardised."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dadmm.core.layout import Matrix
from dadmm.data.encoding import Encoding

Parts = Mapping[str, np.ndarray]


def in_table_units(encoding: Encoding, parameters: Parts) -> dict[str, np.ndarray]:
    """Return parameters in the units of the table.

    They differ from those of the fit if it was standardised. The precision ``a`` of a
    subspace has no single unit then, and is left out.
    """
    if encoding.scales is None:
        return dict(parameters)
    if "W" in parameters:
        scaled = parameters["W"] * encoding.scales[:, None]
        return {"W": scaled, "mu": rows_in_table_units(encoding, parameters["mu"])}
    given = parameters.get("intercept", np.array(0.0))
    coef, intercept = encoding.to_table_units(parameters["coef"], given)
    found = {"coef": coef, "intercept": np.asarray(intercept)}
    return found if _has_intercept(encoding, parameters) else {"coef": coef}


def rows_in_table_units(encoding: Encoding, rows: Matrix) -> Matrix:
    """Return encoded rows (..., d) as they were before they were standardised."""
    if encoding.scales is None or encoding.means is None:
        return rows
    shift = encoding.means if encoding.centre else 0.0
    return np.asarray(rows * encoding.scales + shift)


def matrix(encoding: Encoding, has_intercept: bool) -> Matrix:
    """Return the map of coefficients (and intercept) to those in the table's units."""
    d = len(encoding.feature_names)
    eye = np.eye(d + has_intercept)
    parts = {"coef": eye[:, :d], **({"intercept": eye[:, d]} if has_intercept else {})}
    return np.column_stack([*in_table_units(encoding, parts).values()]).T


def bounds(encoding: Encoding, parts: Parts) -> dict[str, np.ndarray]:
    """Return bounds on the errors of coefficients in the units of the table."""
    if encoding.scales is None or encoding.means is None:
        return dict(parts)
    coef = parts["coef"] / encoding.scales
    if not _has_intercept(encoding, parts):
        return {"coef": coef}
    means = np.abs(encoding.means) * encoding.centre
    shift = np.where(means == 0.0, 0.0, coef) @ means
    return {"coef": coef, "intercept": parts.get("intercept", 0.0) + shift}


def _has_intercept(encoding: Encoding, parts: Parts) -> bool:
    """Return whether there is an intercept in the units of the table."""
    return "intercept" in parts or encoding.centre
