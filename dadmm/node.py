"""One node: its parameters, multipliers, penalties, and its part of an iteration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dadmm import consensus, stopping
from dadmm.curvature import curvature
from dadmm.errors import ConfigError, ProblemError
from dadmm.interfaces import Edges, PenaltyScheme, Problem, Sighting
from dadmm.layout import Layout, Matrix, Vector

COUPLINGS = ("symmetric", "own")
PROBES = ("midpoint", "neighbour")


def message(size: int) -> Layout:
    """Return the layout of a message: parameters, penalty, and words on stopping."""
    return Layout.of(theta=(size,), eta=(), quiet=(), stop_at=(), reason=())


class Node:
    """The state of one node; it does no I/O.

    An iteration is ``propose()``, a swap of messages by the exchange, ``absorb(t)``.
    The smaller steps of which these consist are for `dadmm.crew`.

    Parameters
    ----------
    index : int
        Which node of the graph this is.
    problem : Problem
    theta : ndarray of shape (size,)
        Starting parameters.
    scheme : PenaltyScheme
    rule : stopping.Rule
    diameter : int
        Of the graph.
    outbox, inbox : ndarray of shape (degree, width)
        The exchange's rows, one per neighbour; see `message`.
    coupling : {"symmetric", "own"}
        One penalty per edge, or each end its own as the paper prints it.
    probe : {"midpoint", "neighbour"}
        Where neighbours' parameters are tried: rho_ij or theta_j.
    decentralised : bool
        Whether this node's verdict takes part in the neighbours' agreement.
    """

    def __init__(
        self,
        index: int,
        problem: Problem,
        theta: Vector,
        scheme: PenaltyScheme,
        rule: stopping.Rule,
        *,
        diameter: int,
        outbox: Matrix,
        inbox: Matrix,
        coupling: str = "symmetric",
        probe: str = "midpoint",
        decentralised: bool = True,
    ) -> None:
        self.layout = problem.layout
        degree, size = len(outbox), self.layout.shared_size
        self.index, self.problem, self.scheme, self.rule = index, problem, scheme, rule
        self.diameter, self.decentralised = diameter, decentralised
        self.symmetric = _chosen("coupling", coupling, COUPLINGS) == "symmetric"
        self.at_midpoint = _chosen("probe", probe, PROBES) == "midpoint"
        self.sent: Any = message(size).views(outbox)
        self.heard: Any = message(size).views(inbox)
        self.theta = np.array(theta, dtype=np.float64)
        self.shared = self.layout.shared(self.theta)  # what neighbours agree on
        self.multipliers = np.zeros((degree, size))
        self.multiplier = np.zeros(size)  # their sum, the paper's lambda_i
        self.midpoints = np.empty((degree, size))
        self.anchors = np.empty((degree, size))  # z_ij
        self.drift = np.empty((degree, size))
        self.centre, self.weight = self.shared, 0.0  # of the last proximal term
        self.mean = self.shared  # the neighbours', once they are met
        self.trial = np.empty((1 + degree * scheme.probes, self.layout.size))
        bend = curvature(problem, self.theta) if scheme.surveys else math.nan
        self.penalty = scheme.init(degree, bend, diameter)
        self.eta = self.penalty.eta  # what prox and dual step use
        self.network: tuple[float, float] | None = None
        self.accord = stopping.Accord()
        self.objective, self.primal, self.dual = math.inf, math.inf, math.inf
        self.disagreement = self.residual = math.inf
        self.satisfied = self.done = False
        self.eta_mean = 0.0  # of the penalties just used, the paper's eta_i
        self.solve_seconds = self.exchange_seconds = self.observe_seconds = 0.0
        self.seconds = [0.0, 0.0, 0.0]  # solve, exchange and observe, of the whole run

    def greet(self) -> None:
        """Write the starting parameters into the outbox."""
        self._write()

    def meet(self) -> None:
        """Take in the neighbours' starting parameters."""
        consensus.midpoint(self.shared, self.heard.theta, out=self.anchors)
        self.mean = consensus.neighbour_mean(self.shared, self.heard.theta)
        self.penalty = self.scheme.settle(self.penalty, self.heard.eta, self.anchors)
        self.eta = self.penalty.eta

    def propose(self) -> None:
        """Solve the local problem and write its solution into the outbox."""
        self.stats = self.problem.expect(self.theta)
        centre, weight = self.prox_point()
        self.accept(self.problem.prox(self.theta, self.stats, centre, weight))

    def absorb(self, t: int) -> None:
        """Move multipliers, verdict and penalties by what the neighbours sent."""
        self.hear()
        self.conclude(t, self.problem.objectives(self.trial, self.stats))

    def prox_point(self) -> tuple[Vector, float]:
        """Return centre and weight of the local problem's proximal term."""
        self.centre, self.weight = consensus.prox_point(
            self.anchors, self.multiplier, self.eta
        )
        return self.layout.whole(self.centre, self.theta), self.weight

    def accept(self, theta: Vector) -> None:
        """Take the solution of the local problem and write it into the outbox."""
        self.theta, self.shared = theta, self.layout.shared(theta)
        self._write()

    def hear(self) -> None:
        """Move the multipliers, measure the residuals, and lay out what to try."""
        shared, neighbours, alpha = self.shared, self.heard.theta, self.scheme.alpha
        consensus.ascend(
            self.multipliers, shared, neighbours, alpha * self.eta, out=self.multipliers
        )
        self.multiplier = self.multipliers.sum(axis=0)
        consensus.midpoint(shared, neighbours, out=self.midpoints)
        np.subtract(self.midpoints, self.anchors, out=self.drift)
        consensus.relax(self.anchors, self.midpoints, alpha)
        mean = consensus.neighbour_mean(shared, neighbours)
        self.eta_mean = float(self.eta.sum()) / max(len(self.eta), 1)
        self.primal, self.dual = consensus.residuals(
            shared, mean, self.mean, self.eta_mean
        )
        self.mean = mean
        self.apart = consensus.disagreement(shared, neighbours)
        self.slope = consensus.optimality(self.drift, self.eta)
        self.disagreement = consensus.norm(self.apart)
        self.residual = consensus.norm(self.slope)
        self.trial[0] = self.theta
        if self.scheme.probes:
            tried = self.midpoints if self.at_midpoint else neighbours
            self.trial[1:] = self.layout.whole(tried, self.theta)

    def conclude(self, t: int, values: Vector) -> None:
        """Judge the iteration and move the penalties, given f_i of what was tried."""
        previous, self.objective = self.objective, float(values[0])
        if not math.isfinite(self.objective):
            raise ProblemError(
                f"node {self.index}: the objective is {self.objective} in iteration "
                f"{t}; the local problem has no finite minimum here (are the data free "
                "of noise, or the penalty far too small?)"
            )
        edges = Edges(
            self.shared, self.heard.theta, self.anchors, self.drift, self.multipliers,
            self.eta, self.centre, self.weight,
        )  # fmt: skip
        seen = Sighting(
            t, self.objective, previous, values[1:], self.primal, self.dual,
            edges, self.network,
        )  # fmt: skip
        self._judge(seen)
        self._adapt(seen)

    @property
    def gap(self) -> float:
        """This node's share of the estimated objective gap, see `Certificate.gap`."""
        apart = self.shared - self.heard.theta
        across = abs(float(np.vdot(self.multipliers, apart)))
        return across + self.residual * consensus.norm(self.shared)

    @property
    def nodes(self) -> Sequence[Node]:
        """This node; so that one node is worked on as a crew is."""
        return (self,)

    def tally(self, observe_seconds: float) -> None:
        """Close the books on an iteration."""
        self.observe_seconds = observe_seconds
        self.seconds[0] += self.solve_seconds
        self.seconds[1] += self.exchange_seconds
        self.seconds[2] += observe_seconds
        self.solve_seconds = 0.0

    def ask_to_stop(self, t: int, reason: str) -> None:
        """Want the whole network to stop as soon as all can know."""
        self.accord = stopping.request(self.accord, t, reason, self.diameter)
        self.done = t >= self.accord.stop_at

    def _write(self) -> None:
        self.sent.theta[:] = self.shared
        self.sent.eta[:] = self.penalty.eta
        self.sent.quiet[:] = self.accord.quiet
        self.sent.stop_at[:] = self.accord.stop_at
        self.sent.reason[:] = self.accord.reason

    def _judge(self, seen: Sighting) -> None:
        now = stopping.Progress(
            seen.own,
            seen.own_previous,
            seen.primal,
            seen.dual,
            consensus.norm(self.shared),
            consensus.norm(self.mean),
            2.0 * consensus.norm(self.multiplier),
            self._parts() if self.rule.name == "optimality" else (),
        )
        self.satisfied = self.rule.holds(now)
        vote = self.satisfied and self.decentralised
        self.accord = stopping.agree(
            self.accord, self.heard, seen.t, vote, self.diameter
        )
        self.done = seen.t >= self.accord.stop_at

    def _parts(self) -> list[stopping.Part]:
        """Return the lengths of each shared part of theta."""
        rows = (self.apart, self.slope, self.shared, self.mean, 2.0 * self.multiplier)
        squares = np.square(rows)
        lengths = np.sqrt(np.add.reduceat(squares, self.layout.starts, axis=1))
        sizes = self.layout.sizes
        columns = zip(*lengths.tolist(), sizes, strict=True)
        return [stopping.Part(*column) for column in columns]

    def _adapt(self, seen: Sighting) -> None:
        if not len(self.eta):
            return
        told = self.penalty.eta  # what the neighbours know by now
        self.penalty = self.scheme.update(self.penalty, seen)
        if self.symmetric and not self.scheme.agrees:
            self.eta = consensus.couple(told, self.heard.eta)
        else:
            self.eta = self.penalty.eta


def _chosen(name: str, value: str, allowed: Sequence[str]) -> str:
    if value not in allowed:
        raise ConfigError(
            f"unknown {name} {value!r}; choose one of {', '.join(allowed)}"
        )
    return value
