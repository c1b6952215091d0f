"""One node: its parameters, multipliers, penalties, and its part of an iteration."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dadmm.admm import consensus, stopping
from dadmm.admm.curvature import curvature
from dadmm.core.errors import ConfigError, ProblemError
from dadmm.core.interfaces import (
    Edges,
    Observation,
    PenaltyScheme,
    Problem,
    StopState,
)
from dadmm.core.layout import Vector
from dadmm.exchange.links import Links

COUPLINGS = ("symmetric", "own")
PROBES = ("midpoint", "neighbour")
# all that the next iteration and the results depend on, with links and standing
STATE = (
    "theta", "multipliers", "anchors", "mean", "eta", "penalty", "accord", "network",
    "objective", "objective_previous", "primal", "dual", "satisfied",
    "disagreement", "residual", "lag", "_idled", "total_seconds",
)  # fmt: skip
SOLVE, EXCHANGE, UPDATE, OBSERVE = PHASES = range(4)  # of an iteration, in this order


class Node:
    """The state of one node; it does no I/O.

    An iteration is ``propose()``, a swap of messages by the exchange, ``absorb(t)``.
    The smaller steps of which these consist are for `dadmm.admm.crew`.

    Parameters
    ----------
    index : int
        Which node of the graph this is.
    problem : Problem
    theta : ndarray of shape (size,)
        Starting parameters.
    scheme : PenaltyScheme
    rule : stopping.Rule
    links : Links
        The node's edges.
    diameter : int
        Of the graph.
    reach : int, optional
        How many iterations a word takes to all nodes; the diameter by default.
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
        links: Links,
        diameter: int,
        reach: int | None = None,
        coupling: str = "symmetric",
        probe: str = "midpoint",
        decentralised: bool = True,
    ) -> None:
        self.layout, self.links = problem.layout, links
        degree, size = links.said.shape
        self.index, self.problem, self.scheme, self.rule = index, problem, scheme, rule
        self.reach = diameter if reach is None else reach
        self.decentralised = decentralised
        self.symmetric = _chosen("coupling", coupling, COUPLINGS) == "symmetric"
        self.at_midpoint = _chosen("probe", probe, PROBES) == "midpoint"
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
        bend = curvature(problem, self.theta) if scheme.needs_curvature else math.nan
        self.penalty = scheme.init(degree, bend, diameter)
        self.eta = self.penalty.eta  # what prox and dual step use
        self.network: tuple[float, float] | None = None
        self.accord = StopState()
        self.objective, self.primal, self.dual = math.inf, math.nan, math.nan
        self.objective_previous = math.inf  # in the last iteration that was not idle
        self._idled = 0  # iterations that were, see `Links.idle`
        # optimality is a fact of each iteration, a standstill takes all edges' turns
        spell = 1 if rule.name == "optimality" else links.cycle
        patience = stopping.PATIENCE * spell
        delay = 2 * self.reach if decentralised else 1  # see `stopping.update`
        self.verdict = stopping.Verdict(math.inf)  # on this iteration
        self.standing = stopping.Standing(patience, delay)
        self.disagreement = self.residual = math.inf
        self.behind, self.lag = np.zeros(size), 0.0  # of the neighbours' knowledge
        self.satisfied = self.done = False
        self.eta_mean = 0.0  # of the penalties just used, the paper's eta_i
        self.seconds = [0.0] * len(PHASES)  # of this iteration, by phase
        self.total_seconds = [0.0] * len(PHASES)

    def greet(self) -> None:
        """Write the starting parameters into the outbox."""
        self.links.greet(self.shared, self.penalty.eta, self.accord)

    def meet(self) -> None:
        """Take in the neighbours' starting parameters."""
        links = self.links
        links.meet()
        consensus.midpoint(links.said, links.heard, out=self.anchors)
        self.mean = consensus.neighbour_mean(self.shared, links.heard)
        self.penalty = self.scheme.start(self.penalty, links.eta_heard, self.anchors)
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
        word: Any = self.shared
        if self.links.sending.drop_probability:
            word = consensus.reflect(self.shared, self.anchors)
        self.links.send(word, self.penalty.eta, self.accord)

    def hear(self) -> None:
        """Move the edges, measure the residuals, and lay out what to try."""
        self.headers = self.links.receive()
        self.eta_mean = float(self.eta.sum()) / max(len(self.eta), 1)
        if self.links.sending.drop_probability:
            self._arrive()
        else:
            self._meet_halfway()
        self.disagreement = consensus.norm(self.apart)
        self.residual = consensus.norm(self.slope)
        self.trial[0] = self.theta
        if self.scheme.probes:
            tried = self.midpoints if self.at_midpoint else self.links.heard
            self.trial[1:] = self.layout.whole(tried, self.theta)

    def _meet_halfway(self) -> None:
        """Move multipliers and anchors by what was said and heard on live edges."""
        links, shared = self.links, self.shared
        said, heard = links.said, links.heard
        step: Any = self.scheme.alpha
        if links.live is not None:
            step = step * links.live  # an edge that is not live stays as it is
        consensus.ascend(
            self.multipliers, said, heard, step * self.eta, out=self.multipliers
        )
        self.multiplier = self.multipliers.sum(axis=0)
        consensus.midpoint(said, heard, out=self.midpoints)
        np.subtract(self.midpoints, self.anchors, out=self.drift)
        consensus.relax(self.anchors, self.midpoints, step)
        mean = consensus.neighbour_mean(shared, heard)
        if not links.idle:
            self.primal, self.dual = consensus.residuals(
                shared, mean, self.mean, self.eta_mean
            )
        self.mean = mean
        self.apart = consensus.disagreement(shared, heard)
        self.slope = consensus.optimality(self.drift, self.eta)
        lag = links.lag(shared)
        if lag is not None:
            self.slope += consensus.optimality(lag, self.eta)
            self.behind = consensus.disagreement(shared, said)
            self.lag = consensus.norm(self.behind)
        if links.sending.edge_sleep:
            links.rest(consensus.influence(self.drift, said, heard, self.eta))

    def _arrive(self) -> None:
        """Move the anchors, here c_ij, of the edges on which a message arrived.

        Multipliers are within the anchors, and stay zero. What the neighbours' own
        parameters are, and how far the optimum is, a node cannot tell.
        """
        consensus.midpoint(self.anchors, self.links.heard, out=self.midpoints)
        np.subtract(self.midpoints, self.anchors, out=self.drift)
        arrived: Any = self.links.live
        consensus.relax(self.anchors, self.midpoints, self.scheme.alpha * arrived)
        still = np.zeros_like(self.shared)
        self.apart = consensus.disagreement(still, self.drift)
        self.slope = np.full_like(self.shared, math.nan)
        self.primal, self.dual = consensus.norm(self.apart), math.nan

    def conclude(self, t: int, values: Vector) -> None:
        """Judge the iteration and move the penalties, given f_i of what was tried."""
        self.objective = float(values[0])
        if not math.isfinite(self.objective):
            raise ProblemError(
                f"node {self.index}: the objective is {self.objective} in iteration "
                f"{t}; the local problem has no finite minimum here (are the data free "
                "of noise, or the penalty far too small?), or its numbers overflow; "
                "rescale columns with very large entries"
            )
        edges = Edges(
            self.shared, self.links.said, self.links.heard, self.anchors, self.drift,
            self.multipliers, self.eta, self.centre, self.weight,
        )  # fmt: skip
        obs = Observation(
            t - self._idled, self.objective, self.objective_previous, values[1:],
            self.primal, self.dual, edges, self.network,
        )  # fmt: skip
        self._judge(t, obs)
        self._adapt(obs)

    @property
    def gap(self) -> float:
        """This node's share of the estimated objective gap, see `Certificate.gap`."""
        apart, lag = self.shared - self.links.heard, self.links.lag(self.shared)
        if lag is not None:
            apart += lag
        across = abs(float(np.vdot(self.multipliers, apart)))
        return across + self.residual * consensus.norm(self.shared)

    @property
    def nodes(self) -> Sequence[Node]:
        """This node; so that one node is worked on as a crew is."""
        return (self,)

    def add_request(self, t: int, request: str) -> None:
        """Request something of all nodes, see `stopping.REQUESTS`."""
        self.accord = stopping.add_request(self.accord, t, request, self.reach)

    def due_request(self, t: int) -> str:
        """Return the request that is due after this iteration, or ""."""
        request, self.accord = stopping.due_request(self.accord, t, self.reach)
        return request

    def state(self) -> dict[str, Any]:
        """Return all that the next iteration depends on; the arrays are in use."""
        own = {name: getattr(self, name) for name in STATE}
        return own | {"links": self.links.state(), "standing": self.standing.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state of a node like this one, which has met its neighbours."""
        for name in STATE:
            setattr(self, name, state[name])
        self.links.restore(state["links"])
        self.standing.restore(state["standing"])
        self.shared = self.layout.shared(self.theta)
        self.multiplier = self.multipliers.sum(axis=0)
        self.accord = self.accord._replace(requests=0)  # their time was then

    def _judge(self, t: int, obs: Observation) -> None:
        now = stopping.Progress(
            obs.own,
            obs.own_previous,
            obs.primal,
            obs.dual,
            consensus.norm(self.shared),
            consensus.norm(self.mean),
            2.0 * consensus.norm(self.multiplier),
            self._parts() if self.rule.name == "optimality" else (),
        )
        self.verdict = self.rule.judge(now)
        standing = self.standing
        standing.enter(t, self.verdict)
        self.satisfied = standing.held > standing.patience - stopping.PATIENCE
        vote = self.satisfied and self.decentralised
        self.accord = stopping.update(self.accord, self.headers, t, vote, self.reach)
        self.done = t >= self.accord.stop_at

    def _parts(self) -> list[tuple[float, ...]]:
        """Return the lengths of each shared part of theta, see `stopping.Part`."""
        apart = self.apart if self.links.direct else self.apart + self.behind
        rows = (apart, self.slope, self.shared, self.mean, 2.0 * self.multiplier)
        squares = np.square(rows)
        lengths = np.sqrt(np.add.reduceat(squares, self.layout.starts, axis=1))
        return list(zip(*lengths.tolist(), self.layout.sizes, strict=True))

    def _adapt(self, obs: Observation) -> None:
        if self.links.idle:  # there is nothing new to learn from
            self._idled += 1
            return
        self.objective_previous = self.objective
        if not len(self.eta):
            return
        self.penalty = self.scheme.update(self.penalty, obs)
        if self.symmetric and not self.scheme.is_symmetric:
            self.eta = consensus.couple(self.links.eta_said, self.links.eta_heard)
        else:
            self.eta = self.penalty.eta


def _chosen(name: str, value: str, allowed: Sequence[str]) -> str:
    if value not in allowed:
        raise ConfigError(
            f"unknown {name} {value!r}; choose one of {', '.join(allowed)}"
        )
    return value
