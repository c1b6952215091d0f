"""Why a run stopped when it did: the criterion that was met last, and advice."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dadmm.admm.rule import CRITERIA, TRAIL, Rule, merge_endings, stride
from dadmm.core.layout import Matrix, Vector
from dadmm.solver.checkpoint import LocalRun

if TYPE_CHECKING:
    from dadmm.solver.result import Result

FEW = 30  # fewer iterations say nothing about convergence
SCALES = 1e3  # largest ratio of the scales of columns, or of a scale to 1
FALL = 1.1  # smallest decrease in a quarter of the run that is progress
LIMIT = 1e-10  # without progress below it, relative to the start, it is rounding
LONG = 8  # smallest diameter that may explain slow convergence
CROSSINGS = 50  # diameters; in a longer run the diameter is not the cause


@dataclass(frozen=True)
class Ending:
    """The criterion that was met last, or was not met; the same on every rank."""

    rule: Rule
    met: bool  #: whether all nodes met all criteria in the last iteration
    #: One of `rule.CRITERIA`: the one that was met last if the run converged, else the
    #: one that is furthest from its limit
    criterion: str
    part: str | None  #: of theta; None means all of it
    node: int | None  #: its original number; None means the sum over all nodes
    node_name: str  #: of ``node``, if the nodes of the graph have names
    iteration: int  #: the last one in which the criterion was not met
    factor: float  #: its value then, divided by its limit; inf if unknown
    #: The largest factor of any node and criterion, sampled at equal intervals
    trail: Vector
    spacing: int  #: iterations between two samples
    patience: int  #: iterations in a row in which all criteria must be met
    delay: int  #: iterations until all nodes know it
    last: int  #: the last iteration of the run
    eta0: float | None  #: None if the scheme does not use it
    convex: bool  #: whether the problem declares itself convex
    init: str  #: "merged", "shared" or "independent"; "given" if by the caller

    @property
    def what(self) -> str:
        """The criterion as text."""
        words = {"objective": "change of the objective"}
        if self.rule.name == "residuals":
            words |= {"disagreement": "primal residual", "residual": "dual residual"}
        part = f" of {self.part}" if self.part else ""
        alone = f" on node {self.node_name or self.node}"
        where = " of all nodes" if self.node is None else alone
        return f"the {words.get(self.criterion, self.criterion)}{part}{where}"

    def words(self, converged: bool) -> str:
        """Return the line of the report about the stopping rule."""
        at = self.iteration + 1
        if converged:
            text = "all criteria were met from the first iteration on"
            if self.iteration:
                text = f"criterion met last: {self.what}, in iteration {at}"
            if self.was_checked:
                text += f"; the check at the end held in iteration {self.last}"
            elif self.iteration:
                iterations = "iteration" + "s" * (self.delay != 1)
                text += f"; then all were met {self.patience} times in a row, and all "
                text += f"nodes knew it {self.delay} {iterations} later"
            return text
        if self.rule.tolerance == 0.0:
            return "the tolerance is 0, so no criterion stops the run"
        if self.met:
            held = "the check at the end did not hold"
            but = held if self.was_checked else "not for long enough"
            return f"all criteria met since iteration {at}, but {but}"
        is_known = math.isfinite(self.factor)
        times = f", {self.factor:.3g} times its limit" if is_known else ""
        return f"not met: {self.what}{times}"

    @property
    def was_checked(self) -> bool:
        """Whether a check at the end did not hold at least once."""
        return self.iteration + self.patience + self.delay < self.last

    def summary(self) -> dict[str, str | int | float | None]:
        """Return the entry in summary.json."""
        factor = self.factor if math.isfinite(self.factor) else None
        return {
            "rule": self.rule.name, "met": self.met, "criterion": self.criterion,
            "part": self.part, "node": self.node, "last_unmet": self.iteration,
            "in_a_row": self.patience, "delay": self.delay, "factor": factor,
        }  # fmt: skip


def find_ending(local: LocalRun, init: str) -> Ending:
    """Return the ending of a run, from the nodes of all processes."""
    run, eta0 = local.run, local.run.penalties.scheme.eta0
    log, joint = run.stopping.log_of_stop(), run.stopping.is_joint
    heard = local.iterations - joint
    worst = log.last_unmet(heard) if local.reason == "converged" else log.unmet
    whole = run.total([np.array([*worst, *log.trail])] * len(run.nodes), merge_endings)
    iteration, factor, criterion, part, node = whole[:-TRAIL].tolist()
    spacing, names = stride(max(heard, 1)), run.layout.names
    unnamed = part < 0 or names != run.kind.layout.names  # in z there are no parts
    alone, labels = not (joint or node < 0), run.topology.names
    place = int(np.searchsorted(run.names_of_all, node))
    return Ending(
        rule=run.kind.rule,
        met=iteration < heard,
        criterion=CRITERIA[int(criterion)],
        part=None if unnamed else names[int(part)],
        node=int(node) if alone else None,
        node_name=labels[place] if alone and labels else "",
        iteration=int(iteration),
        factor=factor,
        trail=whole[-TRAIL:][: -(-heard // spacing)],
        spacing=spacing,
        patience=log.patience,
        delay=log.delay + joint,
        last=local.iterations,
        eta0=eta0 if isinstance(eta0, float | int) else None,
        convex=bool(getattr(run.local.problems[0], "convex", False)),
        init=init,
    )


def advise(result: Result, rows: Matrix | None = None) -> str:
    """Return why a run likely did not converge, and a remedy; "" if it did.

    ``rows`` (n, d) are samples of a node; the scales of their columns are compared.
    """
    ending, rule, n = result.ending, result.ending.rule, result.iterations
    if result.converged or result.reason == "output":
        return ""
    if result.reason == "no_minimum":
        return (
            "use alpha > 0; if that is not enough, all rows have the same y, or a "
            "class has no rows at any node: leave out that class, or the intercept"
        )
    if rule.tolerance == 0.0:
        return ""  # as many iterations as were asked for
    if not math.isfinite(ending.factor) and result.settings.get("drop_probability"):
        return (
            "the dual residual is unknown if payloads are lost, so the rule "
            f'{rule.name} is never met; use stopping = "optimality"'
        )
    if ending.met:
        due = n / 3 if ending.was_checked else ending.patience + ending.delay
        return f"all criteria were met, but too late; {_allow(due)}"
    if n <= FEW:
        return f"{n} iterations are likely too few; raise max_iter"
    rate, fallen = _trend(ending)
    still = f"{ending.what} no longer decreases; raise tolerance"
    if not rate and fallen < LIMIT:
        return f"{still}, which double precision does not reach"
    apart = _scales(result, rows) if result.coordinates == "raw" else ""
    if apart:
        return apart
    more = math.log(ending.factor) / rate if rate else math.inf
    if more <= 2 * n:
        return f"max_iter is likely too low; {_allow(more)}"
    if ending.eta0 is not None and ending.criterion != "objective":
        small = ending.criterion == "disagreement"
        size, change = ("small", "raise") if small else ("large", "lower")
        return (
            f"the penalty eta0 = {ending.eta0:g} is likely too {size}; use "
            f'eta0 = "auto", or {change} eta0 tenfold'
        )
    diameter = result.topology.diameter_bound
    if diameter >= LONG and n < CROSSINGS * diameter:
        return (
            "the graph is likely the cause: information needs up to "
            f"{diameter} iterations to cross it; raise max_iter, or add edges that "
            "shorten its paths"
        )
    if rate:
        return f"the run converges slowly; {_allow(more)}"
    return still if ending.convex else f"{still}, or use another init or seed"


def _trend(ending: Ending) -> tuple[float, float]:
    """Return how the worst criterion fell from the third to the last quarter.

    It is the fall of its logarithm per iteration, 0 without progress; and its value,
    relative to its largest.
    """
    values = np.log(np.where(ending.trail > 0, ending.trail, np.nan))
    values = np.where(np.isfinite(values), values, np.nan)
    quarter = max(len(values) // 4, 1)
    last, before = values[-quarter:], values[-2 * quarter : -quarter]
    if np.isnan(last).all() or np.isnan(before).all():
        return 0.0, 1.0
    now = float(np.nanmedian(last))
    fall = float(np.nanmedian(before)) - now
    rate = fall / (quarter * ending.spacing) if fall > math.log(FALL) else 0.0
    return rate, math.exp(now - float(np.nanmax(values)))


def _scales(result: Result, rows: Matrix | None) -> str:
    """Return advice if columns are far apart, or parts of theta are by their unit."""
    sizes = np.empty(0) if rows is None or len(rows) < 2 else np.nanstd(rows, axis=0)
    known = sizes[sizes > 0]
    if not len(known):
        return ""
    usual, several = float(np.median(known)), len(result.layout.names) > 1
    has_units = several and not 1 / SCALES < usual < SCALES
    if known.max() < SCALES * known.min() and not has_units:
        return ""
    return (
        "scales are likely too far apart: the standard deviations of the columns are "
        f"from {known.min():.0e} (column {np.flatnonzero(sizes > 0)[known.argmin()]}, "
        f"counted from 0) to {known.max():.0e} (column {sizes.argmax()}); rescale "
        "the columns"
    )


def _allow(iterations: float) -> str:
    """Return advice on iterations, rounded up to one digit."""
    unit = 10 ** (len(str(math.ceil(iterations))) - 1)
    return f"allow at least {math.ceil(iterations / unit) * unit} iterations more"
