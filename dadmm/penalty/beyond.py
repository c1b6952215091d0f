"""Schemes beyond the paper, made of the equations in `rules`."""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import numpy as np

from dadmm.core.interfaces import Edges, PenaltyState, Sighting
from dadmm.core.layout import Matrix, Vector
from dadmm.penalty import equations, rules
from dadmm.penalty.schemes import Scheme


class Snapshot(NamedTuple):
    """An edge scheme's memory: its penalties at the start, and where edges stood."""

    start: Vector  # (degree,)
    anchors: Matrix  # (degree, size)
    multipliers: Matrix  # (degree, size)


class EdgeBalance(Scheme):
    """Balance the relative residuals of each edge."""

    agrees = True
    BOUND: ClassVar[float] = 2.0
    SCALE: ClassVar[float] = 150.0

    def update(self, state: PenaltyState, seen: Sighting) -> PenaltyState:
        edges = _edges(seen)
        size = rules.lengths(edges.neighbours)
        ratio = rules.relative_balance(
            rules.lengths(edges.neighbours - edges.said),
            np.maximum(size, rules.lengths(edges.said)),
            self.alpha * rules.lengths(edges.drift),
            rules.lengths(edges.multipliers),
            state.eta,
        )
        factor = rules.bounded(np.sqrt(ratio), self.BOUND)
        eta = state.eta * factor ** rules.damping(seen.t, self.SCALE)
        return state._replace(eta=equations.clamp(eta, self.eta0))


class EdgeRatio(Scheme):
    """Every third iteration, follow the spectral ratio of each edge."""

    agrees = True
    PERIOD: ClassVar[int] = 3
    BOUND: ClassVar[float] = 10.0
    SCALE: ClassVar[float] = 200.0

    def settle(
        self, state: PenaltyState, eta_theirs: Vector, anchors: Matrix
    ) -> PenaltyState:
        memory = Snapshot(state.eta, anchors.copy(), np.zeros_like(anchors))
        return state._replace(memory=memory)

    def update(self, state: PenaltyState, seen: Sighting) -> PenaltyState:
        if seen.t % self.PERIOD:
            return state
        edges, before = _edges(seen), state.memory
        wanted = rules.spectral_ratio(
            rules.lengths(edges.multipliers - before.multipliers),
            rules.lengths(edges.anchors - before.anchors),
            rules.lengths(edges.multipliers),
            rules.lengths(edges.anchors),
        )
        factor = rules.bounded(wanted / state.eta, self.BOUND)
        factor[np.isnan(factor)] = 1.0
        eta = state.eta * factor ** rules.damping(seen.t, self.SCALE)
        memory = Snapshot(before.start, edges.anchors.copy(), edges.multipliers.copy())
        return state._replace(eta=equations.clamp(eta, before.start), memory=memory)

    def _recall(self, memory: Snapshot, kept: np.ndarray) -> Snapshot:
        return Snapshot(*(array[kept] for array in memory))


class Auto(EdgeRatio):
    """The spectral ratio, started from curvature and graph; eta0 is not needed.

    Each node measures the curvature of its own objective and proposes a penalty with
    its starting parameters; an edge starts from the geometric mean of both proposals,
    from one of them if the other end found no curvature, else from eta0.
    """

    surveys = True
    RELAXATION = 1.6

    def init(
        self, degree: int, curvature: float = math.nan, diameter: int = 1
    ) -> PenaltyState:
        eta = rules.opening(curvature, max(degree, 1), diameter)
        return super().init(degree)._replace(eta=np.full(degree, eta))

    def settle(
        self, state: PenaltyState, eta_theirs: Vector, anchors: Matrix
    ) -> PenaltyState:
        mine, theirs = state.eta, eta_theirs
        mine, theirs = (
            np.where(np.isnan(mine), theirs, mine),
            np.where(np.isnan(theirs), mine, theirs),
        )
        eta = np.sqrt(mine) * np.sqrt(theirs)
        eta[np.isnan(eta)] = self.eta0
        return super().settle(state._replace(eta=eta), eta_theirs, anchors)


class NodeSpectral(Scheme):
    """Spectral penalty of each node, by Barzilai-Borwein curvatures; ACADMM-like.

    The node's problem has the curvature of its gradient against theta, the rest of the
    network that of its multipliers against the centre; the geometric mean of both is
    the node's proximal weight, shared evenly by its edges. Xu et al. (ICML 2017) have a
    centre; here each end proposes and the edge takes the mean, as in the paper's
    schemes.
    """

    PERIOD: ClassVar[int] = 2
    SAFEGUARD: ClassVar[float] = 1e5  # steps of a factor within 1 + SAFEGUARD / t^2

    def update(self, state: PenaltyState, seen: Sighting) -> PenaltyState:
        if (seen.t - 1) % self.PERIOD:
            return state
        edges = _edges(seen)
        gradient = edges.weight * (edges.centre - edges.theta)
        anchor = edges.eta @ edges.anchors / edges.eta.sum()
        pull = 2.0 * edges.multipliers.sum(axis=0)
        now = np.stack([edges.theta, gradient, anchor, pull])
        if state.memory is None:
            return state._replace(memory=now)
        move = now - state.memory
        own = rules.barzilai_borwein(move[0], move[1])
        rest = rules.barzilai_borwein(move[2], move[3])
        weight = 2.0 * float(state.eta.sum())
        known = [found for found in (own, rest) if not math.isnan(found)]
        wanted = math.prod(known) ** (1.0 / len(known)) if known else weight
        most = 1.0 + self.SAFEGUARD / seen.t**2
        factor = min(max(wanted / weight, 1.0 / most), most)
        eta = equations.clamp(state.eta * factor, self.eta0)
        return state._replace(eta=eta, memory=now)


class GlobalBalance(Scheme):
    """Balance the residuals of the whole network, until t_max; then keep.

    He, Yang and Wang (2000) as Boyd et al. (2011, section 3.4.1) state it. It needs a
    reduction over all nodes in every iteration, so it is a centralised baseline: the
    collectives are counted, and their numbers are one iteration old.
    """

    agrees = True
    reduces = True

    def update(self, state: PenaltyState, seen: Sighting) -> PenaltyState:
        if seen.network is None or seen.t >= self.t_max:
            return state
        factor = equations.balance(*seen.network, self.residual_ratio)
        return state._replace(eta=equations.clamp(state.eta * factor, self.eta0))


def _edges(seen: Sighting) -> Edges:
    assert seen.edges is not None, "this scheme needs Sighting.edges"
    return seen.edges
