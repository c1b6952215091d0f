"""One sentence for a run that did not converge: the likely cause, and what to do."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dadmm.core.layout import Matrix
from dadmm.solver.ending import Ending
from dadmm.solver.result import Result

FEW = 30  # iterations from which nothing can be learnt
SCALES = 1e3  # by how much columns may differ from each other, or all of them from 1
FALL = 1.1  # a factor in a quarter of the run; less is a standstill
LIMIT = 1e-10  # of the start, or of theta: a standstill there is rounding
LONG = 8  # a diameter that may matter, if a run is shorter than so many of it:
CROSSINGS = 50


class Trend(NamedTuple):
    """How the worst criterion of all nodes moved in the second half of a run."""

    rate: float  # by which its logarithm falls in an iteration; 0 at a standstill
    fallen: float  # where it is, relative to its largest value


def advise(result: Result, rows: Matrix | None = None) -> str:
    """Return what likely kept a run from converging, and a remedy; "" if it did.

    Parameters
    ----------
    result : Result
    rows : ndarray of shape (n, d), optional
        Samples of one node, to look at the units of their columns.
    """
    ending = result.ending
    rule = ending.rule
    if result.converged or result.reason == "output":
        return ""
    if rule.tolerance == 0.0:
        return "a tolerance of 0 never stops a run; give a positive one to converge"
    if not math.isfinite(ending.factor) and np.isnan(result.certificate.residual).any():
        return (
            "no node can know its residual while payloads get lost, so the rule "
            f'{rule.name} is never met; use stopping = "objective"'
        )
    if ending.met:
        return (
            "all criteria were met at the end, but not for long enough; allow about "
            f"{ending.patience + ending.delay} iterations more ({ending.patience} in "
            f"a row, and {ending.delay} until all nodes know)"
        )
    if result.iterations <= FEW:
        return f"{result.iterations} iterations are likely too few; raise max_iter"
    trend = _trend(ending)
    if not trend.rate and _rounding(ending, trend):
        return (
            "the tolerance is likely too tight for double precision: "
            f"{ending.what} stands still; {_looser(ending)}"
        )
    apart = _units(result, rows)
    if apart:
        return apart
    more = math.log(ending.factor) / trend.rate if trend.rate else math.inf
    if more <= 2 * result.iterations:
        return (
            "max_iter is likely too low: the criteria still came nearer to their "
            f"limits; allow about {_round(more)} iterations more"
        )
    if ending.eta0 is not None and ending.criterion != "objective":
        small = ending.criterion == "disagreement"
        return (
            f"the penalty eta0 = {ending.eta0:g} is likely too "
            f"{'small' if small else 'large'} for the scheme {ending.scheme}: "
            f"{'nodes do not agree' if small else 'residuals stay large'}; use "
            f'scheme = "auto", or {"raise" if small else "lower"} eta0 tenfold'
        )
    diameter = result.topology.diameter
    if diameter >= LONG and result.iterations < CROSSINGS * diameter:
        return (
            f"the graph is likely the cause: news takes {diameter} iterations from end "
            "to end; raise max_iter, or add edges that shorten its paths"
        )
    if not ending.convex and not trend.rate:
        return (
            "the nodes likely stand still because their problem is not convex; start "
            'all alike (init = "shared"), or from another seed'
        )
    if not trend.rate:
        return (
            f"{ending.what} stands still; {_looser(ending)} if that is accurate enough"
        )
    return (
        f"the run comes nearer to its limits but slowly; allow about {_round(more)} "
        "iterations more, or raise tolerance"
    )


def _trend(ending: Ending) -> Trend:
    """Return how the last quarter of the trail compares with the one before."""
    values = np.log(np.where(ending.trail > 0, ending.trail, np.nan))
    values = np.where(np.isfinite(values), values, np.nan)
    quarter = max(len(values) // 4, 1)
    last, before = values[-quarter:], values[-2 * quarter : -quarter]
    if np.isnan(last).all() or np.isnan(before).all():
        return Trend(0.0, 1.0)
    now = float(np.nanmedian(last))
    fall = float(np.nanmedian(before)) - now
    rate = fall / (quarter * ending.spacing) if fall > math.log(FALL) else 0.0
    return Trend(rate, math.exp(now - float(np.nanmax(values))))


def _rounding(ending: Ending, trend: Trend) -> bool:
    """Return whether a standstill is at the limit of double precision."""
    return min(ending.factor * ending.rule.tolerance, trend.fallen) < LIMIT


def _looser(ending: Ending) -> str:
    """Return a tolerance that the run would meet, in words."""
    rule, more = ending.rule, 2.0 * ending.factor
    words = f"raise tolerance to {more * rule.tolerance:.0e}"
    least = more * rule.absolute_tolerance
    if least and rule.name == "optimality" and ending.criterion != "objective":
        words += f" and absolute_tolerance to {least:.0e}"
    return words


def _units(result: Result, rows: Matrix | None) -> str:
    """Return that units are far apart, of columns or of parts of theta, if they are."""
    sizes = np.empty(0) if rows is None or len(rows) < 2 else np.nanstd(rows, axis=0)
    known = np.flatnonzero(sizes > 0)
    if not len(known):
        return ""
    most, least = known[sizes[known].argmax()], known[sizes[known].argmin()]
    if sizes[most] / sizes[least] >= SCALES:
        return (
            f"units are likely too far apart: column {most} of the data varies "
            f"{sizes[most] / sizes[least]:.0e} times as much as column {least} (from "
            "0); bring all columns to one scale"
        )
    usual, names = float(np.median(sizes[known])), result.layout.names
    if len(names) > 1 and not 1 / SCALES < usual < SCALES:
        return (
            f"units of {', '.join(names)} are likely too far apart: the data vary by "
            f"about {usual:.0e}; divide them by that, so that they vary by about 1"
        )
    return ""


def _round(iterations: float) -> int:
    """Return a number of iterations, rounded up to one digit."""
    unit = 10 ** max(len(str(math.ceil(iterations))) - 1, 1)
    return math.ceil(iterations / unit) * unit
