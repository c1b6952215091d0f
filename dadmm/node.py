"""One node and its iteration, in the order of the paper's Algorithm 1."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from dadmm import consensus, stopping
from dadmm.errors import ConfigError, ProblemError
from dadmm.interfaces import Exchange, PenaltyScheme, Problem, Sighting
from dadmm.layout import Layout, Matrix, Vector

COUPLINGS = ("symmetric", "own")
PROBES = ("midpoint", "neighbour")


def message(size: int) -> Layout:
    """Return the layout of a message: parameters, penalty, and words on stopping."""
    return Layout.of(theta=(size,), eta=(), quiet=(), stop_at=(), reason=())


class Node:
    """The state of one node; it does no I/O.

    An iteration is ``propose()``, a swap of messages by the exchange, ``absorb(t)``.

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
        degree, size = len(outbox), problem.layout.size
        self.index, self.problem, self.scheme, self.rule = index, problem, scheme, rule
        self.diameter, self.decentralised = diameter, decentralised
        self.symmetric = _chosen("coupling", coupling, COUPLINGS) == "symmetric"
        self.at_midpoint = _chosen("probe", probe, PROBES) == "midpoint"
        self.sent: Any = message(size).views(outbox)
        self.heard: Any = message(size).views(inbox)
        self.theta = np.array(theta, dtype=np.float64)
        self.multipliers = np.zeros((degree, size))
        self.multiplier = np.zeros(size)  # their sum, the paper's lambda_i
        self.midpoints = np.empty((degree, size))
        self.mean = self.theta  # the neighbours', once they are met
        self.trial = np.empty((1 + degree * scheme.probes, size))
        self.penalty = scheme.init(degree)
        self.eta = self.penalty.eta  # what prox and dual step use
        self.accord = stopping.Accord()
        self.objective, self.primal, self.dual = math.inf, math.inf, math.inf
        self.satisfied = self.done = False
        self.eta_mean = 0.0  # of the penalties just used, the paper's eta_i
        self.solve_seconds = self.exchange_seconds = self.observe_seconds = 0.0
        self.seconds = [0.0, 0.0, 0.0]  # solve, exchange and observe, of the whole run

    def greet(self) -> None:
        """Write the starting parameters into the outbox."""
        self._write()

    def meet(self) -> None:
        """Take in the neighbours' starting parameters."""
        consensus.midpoint(self.theta, self.heard.theta, out=self.midpoints)
        self.mean = consensus.neighbour_mean(self.theta, self.heard.theta)

    def propose(self) -> None:
        """Solve the local problem and write its solution into the outbox."""
        start = perf_counter()
        self.stats = self.problem.expect(self.theta)
        centre, weight = consensus.prox_point(self.midpoints, self.multiplier, self.eta)
        self.theta = self.problem.prox(self.theta, self.stats, centre, weight)
        self._write()
        self.solve_seconds = perf_counter() - start

    def absorb(self, t: int) -> None:
        """Move multipliers, verdict and penalties by what the neighbours sent."""
        start = perf_counter()
        theta, neighbours = self.theta, self.heard.theta
        consensus.ascend(
            self.multipliers, theta, neighbours, self.eta, out=self.multipliers
        )
        self.multiplier = self.multipliers.sum(axis=0)
        consensus.midpoint(theta, neighbours, out=self.midpoints)
        mean = consensus.neighbour_mean(theta, neighbours)
        self.eta_mean = float(self.eta.sum()) / max(len(self.eta), 1)
        self.primal, self.dual = consensus.residuals(
            theta, mean, self.mean, self.eta_mean
        )
        self.mean = mean

        previous, tried = self.objective, self._evaluate(t)
        seen = Sighting(t, self.objective, previous, tried, self.primal, self.dual)
        self._judge(seen)
        self._adapt(seen)
        self.solve_seconds += perf_counter() - start

    def tally(self, observe_seconds: float) -> None:
        """Close the books on an iteration."""
        self.observe_seconds = observe_seconds
        self.seconds[0] += self.solve_seconds
        self.seconds[1] += self.exchange_seconds
        self.seconds[2] += observe_seconds

    def ask_to_stop(self, t: int, reason: str) -> None:
        """Want the whole network to stop as soon as all can know."""
        self.accord = stopping.request(self.accord, t, reason, self.diameter)
        self.done = t >= self.accord.stop_at

    def _write(self) -> None:
        self.sent.theta[:] = self.theta
        self.sent.eta[:] = self.penalty.eta
        self.sent.quiet[:] = self.accord.quiet
        self.sent.stop_at[:] = self.accord.stop_at
        self.sent.reason[:] = self.accord.reason

    def _evaluate(self, t: int) -> Vector:
        """Set f_i at the new parameters and return it at each edge's probe."""
        self.trial[0] = self.theta
        if self.scheme.probes:
            self.trial[1:] = self.midpoints if self.at_midpoint else self.heard.theta
        values = self.problem.objectives(self.trial, self.stats)
        self.objective = float(values[0])
        if not math.isfinite(self.objective):
            raise ProblemError(
                f"node {self.index}: the objective is {self.objective} in iteration "
                f"{t}; the local problem has no finite minimum here (are the data free "
                "of noise, or the penalty far too small?)"
            )
        return values[1:]

    def _judge(self, seen: Sighting) -> None:
        now = stopping.Progress(
            seen.own,
            seen.own_previous,
            seen.primal,
            seen.dual,
            consensus.norm(self.theta),
            consensus.norm(self.mean),
            2.0 * consensus.norm(self.multiplier),
        )
        self.satisfied = self.rule.holds(now)
        vote = self.satisfied and self.decentralised
        self.accord = stopping.agree(
            self.accord, self.heard, seen.t, vote, self.diameter
        )
        self.done = seen.t >= self.accord.stop_at

    def _adapt(self, seen: Sighting) -> None:
        if not len(self.eta):
            return
        told = self.penalty.eta  # what the neighbours know by now
        self.penalty = self.scheme.update(self.penalty, seen)
        if self.symmetric:
            self.eta = consensus.couple(told, self.heard.eta)
        else:
            self.eta = self.penalty.eta


Watcher = Callable[[int, Sequence[Node]], str | None]


def iterate(
    nodes: Sequence[Node],
    exchange: Exchange,
    max_iter: int,
    council: stopping.Council | None = None,
    watchers: Sequence[Watcher] = (),
) -> tuple[int, str]:
    """Run the algorithm; return the number of iterations and why it ended.

    Parameters
    ----------
    nodes : sequence of Node
        Those that the exchange hosts, in its order.
    exchange : Exchange
    max_iter : int
    council : Council, optional
        Agreement over the whole network instead of between neighbours.
    watchers : sequence of callables
        Each is shown ``(t, nodes)`` after every iteration and may return a reason to
        stop. Their time is counted apart.
    """
    for node in nodes:
        node.greet()
    exchange.swap()
    for node in nodes:
        node.meet()
    for t in range(1, max_iter + 1):
        for node in nodes:
            node.propose()
        start = perf_counter()
        exchange.swap()
        share = (perf_counter() - start) / len(nodes)
        for node in nodes:
            node.exchange_seconds = share
            node.absorb(t)
        start = perf_counter()
        agreed = council is not None and _consult(council, exchange, nodes, t)
        for watcher in watchers:
            reason = watcher(t, nodes)
            if reason is not None:
                for node in nodes:
                    node.ask_to_stop(t, reason)
        share = (perf_counter() - start) / len(nodes)
        for node in nodes:
            node.tally(share)
        if agreed:
            return t, "converged"
        if nodes[0].done:  # all nodes are done after the same iteration
            return t, stopping.REASONS[int(nodes[0].accord.reason)]
    return max_iter, "max_iter"


def _consult(
    council: stopping.Council, exchange: Exchange, nodes: Sequence[Node], t: int
) -> bool:
    """Hear the votes of the last iteration, then share those of this one."""
    agreed = t > 1 and council.hear(exchange.read())
    if not agreed:
        votes = [council.vote(node.objective, node.satisfied) for node in nodes]
        exchange.post(np.array(votes))
    return agreed


def _chosen(name: str, value: str, allowed: Sequence[str]) -> str:
    if value not in allowed:
        raise ConfigError(
            f"unknown {name} {value!r}; choose one of {', '.join(allowed)}"
        )
    return value
