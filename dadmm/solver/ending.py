"""Why a run stopped when it did: the criterion that was met last, and advice."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dadmm import penalty
from dadmm.admm.rule import CRITERIA, TRAIL, Rule, merge_endings, stride
from dadmm.core.layout import Matrix, Vector
from dadmm.solver.kind import SolveKind
from dadmm.solver.recovery import LocalRun

if TYPE_CHECKING:
    from dadmm.solver.result import Result

FEW = 30  # fewer iterations say nothing about convergence
SCALES = 1e3  # largest ratio of the scales of columns, or of a scale to 1
FALL = 1.1  # smallest decrease in a quarter of the run that is progress
LIMIT = 1e-10  # without progress below it, relative to the start, it is rounding
LONG = 8  # smallest diameter that may explain slow convergence
CROSSINGS = 50  # diameters; in a longer run the diameter is not the cause
OTHER_START = {  # by `Ending.init`
    "merged": 'init = "shared"',
    "shared": "another seed",
    "independent": 'init = "shared", or another seed',
    "given": "other starting parameters",
}


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
    iteration: int  #: the last one in which the criterion was not met
    factor: float  #: its value then, divided by its limit; inf if unknown
    #: The largest factor of any node and criterion, sampled at equal intervals
    trail: Vector
    spacing: int  #: iterations between two samples
    patience: int  #: iterations in a row in which all criteria must be met
    delay: int  #: iterations until all nodes know it
    last: int  #: the last iteration of the run
    scheme: str
    eta0: float | None  #: None if the scheme does not use it
    convex: bool  #: whether the problem declares itself convex
    init: str  #: "merged", "shared" or "independent"; "given" if by the caller
    node_name: str = ""  #: of ``node``, if the nodes of the graph have names

    @property
    def what(self) -> str:
        """The criterion as text."""
        paper = {"disagreement": "primal residual", "residual": "dual residual"}
        name = self.criterion
        name = paper.get(name, name) if self.rule.name == "residuals" else name
        name = {"objective": "change of the objective"}.get(name, name)
        who = self.node_name or self.node
        where = " of all nodes" if self.node is None else f" on node {who}"
        return f"the {name}{f' of {self.part}' if self.part else ''}{where}"

    def words(self, converged: bool) -> str:
        """Return the line of the report about the stopping rule."""
        first = "all criteria were met from the first iteration on"
        if converged:
            if self.iteration:
                first = f"criterion met last: {self.what}, in iteration "
                first += f"{self.iteration + 1}"
            if self.was_checked:
                return f"{first}; the check at the end held in iteration {self.last}"
            if not self.iteration:
                return first
            return (
                f"{first}; all are met {self.patience} times in a row, and all nodes "
                f"know it {self.delay} iteration{'s' * (self.delay != 1)} later"
            )
        if self.rule.tolerance == 0.0:
            return "the tolerance is 0, so no criterion stops the run"
        if self.met:
            but = "the check at the end did not hold"
            return f"all criteria met since iteration {self.iteration + 1}, but " + (
                but if self.was_checked else "not for long enough"
            )
        known = math.isfinite(self.factor)
        times = f", {self.factor:.3g} times its limit" if known else ""
        return f"not met: {self.what}{times}"

    @property
    def was_checked(self) -> bool:
        """Whether a check at the end did not hold at least once."""
        return self.iteration + self.patience + self.delay < self.last

    def summary(self) -> dict[str, Any]:
        """Return the entry in summary.json."""
        return {
            "rule": self.rule.name,
            "met": self.met,
            "criterion": self.criterion,
            "part": self.part,
            "node": self.node,
            "last_unmet": self.iteration,
            "in_a_row": self.patience,
            "delay": self.delay,
            "factor": self.factor if math.isfinite(self.factor) else None,
        }


def find_ending(local: LocalRun, kind: SolveKind, init: str) -> Ending:
    """Return the ending of a run, from the nodes of all processes."""
    run, scheme = local.run, local.run.penalties.scheme
    log, joint = run.stopping.log_of_stop(), run.stopping.is_joint
    heard = local.iterations - joint
    worst = log.last_unmet(heard) if local.reason == "converged" else log.unmet
    own = np.array([*worst, *log.trail])
    whole = run.total([own] * len(run.nodes), merge_endings)
    iteration, factor, criterion, part, node = whole[:-TRAIL].tolist()
    spacing, unnamed = stride(max(heard, 1)), part < 0 or not kind.KEEPS_PARTS
    alone = not (joint or node < 0)
    labels = run.topology.names
    name = labels[local.names.index(int(node))] if alone and labels else ""
    return Ending(
        node_name=name,
        rule=kind.rule,
        met=iteration < heard,
        criterion=CRITERIA[int(criterion)],
        part=None if unnamed else run.layout.names[int(part)],
        node=int(node) if alone else None,
        iteration=int(iteration),
        factor=factor,
        trail=whole[-TRAIL:][: -(-heard // spacing)],
        spacing=spacing,
        patience=log.patience,
        delay=log.delay + joint,
        last=local.iterations,
        scheme=penalty.name_of(scheme),
        eta0=scheme.eta0 if isinstance(scheme.eta0, float | int) else None,
        convex=bool(getattr(run.local.problems[0], "convex", False)),
        init=init,
    )


def advise(result: Result, rows: Matrix | None = None) -> str:
    """Return why a run likely did not converge, and a remedy; "" if it did.

    With the samples (n, d) of a node, the scales of their columns are compared.
    """
    ending, rule = result.ending, result.ending.rule
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
    if ending.met and ending.was_checked:
        return (
            "all criteria were met, but the check at the end did not hold; allow about "
            f"{_round(result.iterations / 3)} more iterations"
        )
    if ending.met:
        return (
            "all criteria were met at the end, but not for long enough; allow at least "
            f"{ending.patience + ending.delay} more iterations ({ending.patience} in a "
            f"row, and {ending.delay} until all nodes know)"
        )
    if result.iterations <= FEW:
        return f"{result.iterations} iterations are likely too few; raise max_iter"
    rate, fallen = _trend(ending)
    scaled = rule.scaled  # then limits may have changed during the run
    least = min(ending.factor * rule.tolerance, fallen)
    if not rate and not scaled and least < LIMIT:
        return (
            "the tolerance is likely too tight for double precision: "
            f"{ending.what} no longer decreases; {_looser(ending)}"
        )
    apart = _units(result, rows) if result.coordinates == "raw" else ""
    if apart:
        return apart
    more = math.log(ending.factor) / rate if rate else math.inf
    if more <= 2 * result.iterations:
        return (
            "max_iter is likely too low: the criteria still approach their limits; "
            f"allow {'at least' if scaled else 'about'} {_round(more)} more iterations"
        )
    if ending.eta0 is not None and ending.criterion != "objective":
        small = ending.criterion == "disagreement"
        return (
            f"the penalty eta0 = {ending.eta0:g} is likely too "
            f"{'small' if small else 'large'} for the scheme {ending.scheme}: "
            f"{'nodes do not agree' if small else 'residuals stay large'}; use "
            f'eta0 = "auto", or {"raise" if small else "lower"} eta0 tenfold'
        )
    diameter = result.topology.diameter_bound
    if diameter >= LONG and result.iterations < CROSSINGS * diameter:
        return (
            "the graph is likely the cause: information needs up to "
            f"{diameter} iterations to cross it; raise max_iter, or add edges that "
            "shorten its paths"
        )
    if scaled:
        return f"allow more iterations, or {_certifying(result)}"
    if not ending.convex and not rate:
        return (
            "progress likely stopped because the problem is not convex; use "
            f"{OTHER_START[ending.init]}"
        )
    if not rate:
        return (
            f"{ending.what} no longer decreases; {_looser(ending)} if that is accurate "
            "enough"
        )
    return (
        f"the run converges slowly; allow about {_round(more)} more iterations, or "
        "raise tolerance"
    )


def _trend(ending: Ending) -> tuple[float, float]:
    """Return how the worst criterion changed from the third to the last quarter.

    The decrease of its logarithm per iteration is 0 without progress. The second number
    is its value, relative to its largest.
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


def _looser(ending: Ending) -> str:
    """Return advice on a tolerance that the run would meet."""
    rule, more = ending.rule, 2.0 * ending.factor
    words = f"raise tolerance to {more * rule.tolerance:.0e}"
    least = more * rule.absolute_tolerance
    if least and rule.name == "optimality" and ending.criterion != "objective":
        words += f" and absolute_tolerance to {least:.0e}"
    return words


def _certifying(result: Result) -> str:
    """Return advice on a tolerance at which the result is certified, if known."""
    found = result.certificate
    if found is None or found.objective <= 0.0:
        return "raise tolerance"
    by_radius = found.radius / math.sqrt(2.0 * found.objective / len(result.topology))
    needed = min(by_radius, math.sqrt(found.gap / found.objective))
    if not math.isfinite(needed):
        return "raise tolerance"
    digit = 10.0 ** math.floor(math.log10(needed))
    enough = math.ceil(needed / digit) * digit
    return f"raise tolerance to {enough:.0e}, at which this result is certified"


def _units(result: Result, rows: Matrix | None) -> str:
    """Return advice if the scales of columns or of parts of theta are far apart."""
    sizes = np.empty(0) if rows is None or len(rows) < 2 else np.nanstd(rows, axis=0)
    known = np.flatnonzero(sizes > 0)
    if not len(known):
        return ""
    most, least = known[sizes[known].argmax()], known[sizes[known].argmin()]
    if sizes[most] / sizes[least] >= SCALES:
        return (
            f"the scales of the columns are likely too far apart: column {most} of the "
            f"data varies {sizes[most] / sizes[least]:.0e} times as much as column "
            f"{least} (counted from 0); rescale the columns"
        )
    usual, names = float(np.median(sizes[known])), result.layout.names
    if len(names) > 1 and not 1 / SCALES < usual < SCALES:
        return (
            f"the scales of {', '.join(names)} are likely too far apart: the standard "
            f"deviation of the data is about {usual:.0e}; divide the data by it"
        )
    return ""


def _round(iterations: float) -> int:
    """Return a number of iterations, rounded up to one digit."""
    unit = 10 ** max(len(str(math.ceil(iterations))) - 1, 1)
    return int(math.ceil(iterations / unit) * unit)
