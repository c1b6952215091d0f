"""Why a run ended when it did: which criterion of its stopping rule came last."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dadmm import penalty
from dadmm.admm.stopping import CRITERIA, TRAIL, Rule, stride
from dadmm.core.layout import Vector
from dadmm.resilience.runner import HostedNodes, NodeFactory


@dataclass(frozen=True)
class Ending:
    """What the stopping rule waited for last; the same on every rank.

    Parameters
    ----------
    rule : Rule
    met : bool
        Whether all nodes met all criteria in the last iteration.
    criterion : str
        One of `stopping.CRITERIA`: of a converged run the one that was met last, else
        the one that is furthest from being met.
    part : str or None
        The part of theta; None is all of it.
    node : int or None
        Which node, by its number at the start; None is the sum over all nodes.
    iteration : int
        The last one in which this criterion was not met.
    factor : float
        How many times its limit it was then; infinite if that is not known.
    trail : ndarray of shape (samples,)
        How far the network was from meeting all criteria, over the whole run: the
        largest factor of any node, sampled at equal distances.
    spacing : int
        Iterations between two samples.
    patience, delay : int
        For how many iterations in a row all criteria must be met, and how many more it
        takes until all nodes know that and stop.
    scheme : str
    eta0 : float or None
        None if the scheme has none.
    convex : bool
        Whether the problem says that it is.
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

    @property
    def what(self) -> str:
        """The criterion in words."""
        paper = {"disagreement": "primal residual", "residual": "dual residual"}
        name = self.criterion
        name = paper.get(name, name) if self.rule.name == "residuals" else name
        name = {"objective": "change of the objective"}.get(name, name)
        where = " of all nodes" if self.node is None else f" on node {self.node}"
        return f"the {name}{f' of {self.part}' if self.part else ''}{where}"

    def words(self, converged: bool) -> str:
        """Return what the run waited for last, in words."""
        if converged:
            return (
                f"last met: {self.what}, in iteration {self.iteration + 1}; all met "
                f"{self.patience} times in a row, and {self.delay} iterations later "
                "all nodes knew"
            )
        if self.met:
            return f"all criteria met since iteration {self.iteration + 1}"
        known = math.isfinite(self.factor)
        times = f", {self.factor:.3g} times its limit" if known else ""
        return f"not met: {self.what}{times}"

    def summary(self) -> dict[str, Any]:
        """Return what goes into summary.json."""
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
    local: HostedNodes, factory: NodeFactory, iterations: int, converged: bool
) -> Ending:
    """Return what the nodes of all processes waited for last."""
    rule, global_stopping, node = factory.rule, local.global_stopping, local.nodes[0]
    scheme: Any = factory.scheme
    together = global_stopping is not None and rule.name == "objective"
    standings = [node.standing for node in local.nodes]
    if together:
        assert global_stopping is not None
        standings = [global_stopping.standing] * len(local.nodes)
    heard = iterations - 1 if together else iterations
    own = []
    for each in standings:
        t, verdict = each.hurdle(heard) if converged else each.unmet
        worst = verdict.worst
        own.append((t, worst, verdict[worst], (-1, *verdict[3:])[worst], *each.trail))
    rows = local.exchange.collect(np.array(own))
    found, trails = rows[:, :-TRAIL], rows[:, -TRAIL:]
    # the latest, and the furthest from its limit where several are as late
    k = int(np.lexsort((-found[:, 2], -found[:, 0]))[0])
    iteration, criterion, factor, part = found[k].tolist()
    names = node.layout.names
    spacing = stride(max(heard, 1))
    return Ending(
        rule=rule,
        met=iteration < heard,
        criterion=CRITERIA[int(criterion)],
        part=None if part < 0 else names[int(part)],
        node=None if together else local.names[k],
        iteration=int(iteration),
        factor=factor,
        trail=trails[:, : -(-heard // spacing)].max(axis=0),
        spacing=spacing,
        patience=standings[0].patience,
        delay=standings[0].delay + together,
        scheme=penalty.name_of(scheme),
        eta0=scheme.eta0 if "eta0" in scheme.uses else None,
        convex=bool(getattr(node.problem, "convex", False)),
    )
