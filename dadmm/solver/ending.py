"""The criterion of the stopping rule that a run met last, or did not meet."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from dadmm import penalty
from dadmm.admm.build import RunFactory
from dadmm.admm.criteria_log import TRAIL, stride
from dadmm.admm.rule import CRITERIA, Rule
from dadmm.admm.stopping import GlobalStopping
from dadmm.core.layout import Vector
from dadmm.penalty import Scheme
from dadmm.resilience.runner import LocalRun
from dadmm.solver.metric import MetricReview


@dataclass(frozen=True)
class Ending:
    """The criterion that was met last, or was not met; the same on every rank.

    Parameters
    ----------
    rule : Rule
    met : bool
        Whether all nodes met all criteria in the last iteration.
    criterion : str
        One of `rule.CRITERIA`. If the run converged, the one that was met last;
        else the one that is furthest from its limit.
    part : str or None
        The part of theta; None means all of it.
    node : int or None
        Original number of the node; None means the sum over all nodes.
    iteration : int
        The last iteration in which the criterion was not met.
    factor : float
        Its value in that iteration, divided by its limit; inf if unknown.
    trail : ndarray of shape (samples,)
        The largest factor of any node and criterion during the run, sampled at equal
        intervals.
    spacing : int
        Iterations between two samples.
    patience, delay : int
        The number of consecutive iterations in which all criteria must be met, and the
        number of iterations until all nodes know it.
    scheme : str
    eta0 : float or None
        None if the scheme does not use it.
    convex : bool
        Whether the problem declares itself convex.
    init : {"merged", "shared", "independent", "given"}
        How the starting parameters were chosen; "given" if by the caller.
    """

    rule: Rule
    met: bool
    criterion: str
    part: str | None
    node: int | None
    iteration: int
    factor: float
    trail: Vector
    spacing: int
    patience: int
    delay: int
    scheme: str
    eta0: float | None
    convex: bool
    init: str

    @property
    def what(self) -> str:
        """The criterion as text."""
        paper = {"disagreement": "primal residual", "residual": "dual residual"}
        name = self.criterion
        name = paper.get(name, name) if self.rule.name == "residuals" else name
        name = {"objective": "change of the objective"}.get(name, name)
        where = " of all nodes" if self.node is None else f" on node {self.node}"
        return f"the {name}{f' of {self.part}' if self.part else ''}{where}"

    def words(self, converged: bool) -> str:
        """Return the line of the report about the stopping rule."""
        if converged and not self.iteration:
            return "all criteria were met from the first iteration on"
        if converged:
            return (
                f"criterion met last: {self.what}, in iteration {self.iteration + 1}; "
                f"all are met {self.patience} times in a row, and all nodes know it "
                f"{self.delay} iteration{'s' * (self.delay != 1)} later"
            )
        if self.rule.tolerance == 0.0:
            return "the tolerance is 0, so that no criterion stops the run"
        if self.met:
            return (
                f"all criteria met since iteration {self.iteration + 1}, but not for "
                "long enough, or the check at the end did not hold"
            )
        known = math.isfinite(self.factor)
        times = f", {self.factor:.3g} times its limit" if known else ""
        return f"not met: {self.what}{times}"

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


def find(
    local: LocalRun,
    factory: RunFactory,
    init: str,
    iterations: int,
    converged: bool,
) -> Ending:
    """Return the ending of a run, from the nodes of all processes."""
    run, scheme = local.run, cast(Scheme, factory.scheme)
    rule, stopping = factory.rule, run.stopping
    joint = isinstance(stopping, GlobalStopping) and stopping.is_joint
    heard = iterations - 1 if joint else iterations
    if joint:
        assert isinstance(stopping, GlobalStopping)
        log = stopping.votes.log
        worst = log.last_unmet(heard) if converged else log.unmet
    else:
        worst, log = stopping.ending(heard, converged), stopping.log
    own = np.array([*worst, *log.trail])
    whole = run.total([own] * len(run.nodes), _merge)
    iteration, factor, criterion, part, node = whole[:-TRAIL].tolist()
    spacing, names = stride(max(heard, 1)), run.layout.names
    unnamed = part < 0 or isinstance(run.review, MetricReview)
    return Ending(
        rule=rule,
        met=iteration < heard,
        criterion=CRITERIA[int(criterion)],
        part=None if unnamed else names[int(part)],
        node=None if joint or node < 0 else int(node),
        iteration=int(iteration),
        factor=factor,
        trail=whole[-TRAIL:][: -(-heard // spacing)],
        spacing=spacing,
        patience=log.patience,
        delay=log.delay + joint,
        scheme=penalty.name_of(scheme),
        eta0=scheme.eta0 if isinstance(scheme.eta0, float | int) else None,
        convex=bool(getattr(run.local.problems[0], "convex", False)),
        init=init,
    )


def _merge(mine: Vector, other: Vector) -> Vector:
    """Return the criterion that was met last, and the largest factors of the trails.

    Of criteria that were met in the same iteration, it is the one that was furthest
    from its limit; of several such, that of the lowest node.
    """
    if mine is other:  # nodes of one process have one value
        return mine
    latest = max(mine, other, key=_order)
    trail = np.maximum(mine[-TRAIL:], other[-TRAIL:])
    return np.concatenate([latest[:-TRAIL], trail])


def _order(row: Vector) -> tuple[float, float, float]:
    iteration, factor, _, _, node = row[:-TRAIL].tolist()
    return iteration, -1.0 if math.isnan(factor) else factor, -node
