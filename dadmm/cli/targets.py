"""What estimates are compared with: the true and the centralised subspace."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dadmm.cli.tables import Shards
from dadmm.comm.world import World
from dadmm.core.errors import ShardError
from dadmm.core.interfaces import Problem
from dadmm.core.layout import Layout, Matrix, Vector
from dadmm.data.encoding import Rows
from dadmm.graphs.topology import Topology
from dadmm.problems import PPCA, metrics
from dadmm.runs.config import RunConfig
from dadmm.solver.result import Result
from dadmm.solver.rows import Observe


class Targets(NamedTuple):
    """The subspaces to compare estimates with, and facts about the problem."""

    layout: Layout
    W: dict[str, Matrix]  # by the name of the angle to it
    best: metrics.MaximumLikelihood | None = None  # the centralised solution
    pooled: metrics.Pooled | None = None  # the statistics of all data
    gaps: bool = False  # whether any node has missing entries
    adrift: bool = False  # whether structure is known up to a translation only

    def angles(self, name: str, theta: Vector | Matrix) -> Any:
        """Return the angle of theta (..., size) to a target in degrees, (...)."""
        W = self.layout.views(theta).W
        W = W - W.mean(axis=-2, keepdims=True) if self.adrift else W
        return metrics.subspace_angle(W, self.W[name])

    @property
    def observe(self) -> Observe:
        """Return the angles as functions of one node's theta (size,)."""
        return {name: partial(self.angles, name) for name in self.W}

    def metrics(
        self, world: World, result: Result, own: Sequence[Rows]
    ) -> dict[str, float]:
        """Return how far a result is from the targets, on rank 0; all ranks call it.

        If entries are missing, each rank computes the likelihood of the others of its
        own samples; a structure that is adrift has no likelihood.
        """
        found: dict[str, float] = {}
        if self.gaps:
            parts = result.layout.views(result.solution)

            def measure(x: Matrix) -> Vector:
                likelihood = metrics.ppca_log_likelihood(x, *parts)
                return np.array([np.isnan(x).sum(), x.size, likelihood])

            counted = [sum(measure(p.X) for p in rows.blocks()) for rows in own]
            sums = world.reduce(result.topology, counted)
            missing, entries, likelihood = sums.tolist()
            found = {"missing": missing / entries}
            found |= {} if self.adrift else {"log_likelihood": likelihood}
        if world.rank:
            return {}
        for name in self.W:
            found[f"{name}_degrees"] = float(self.angles(name, result.theta).max())
        found["disagreement"] = float(result.residuals.disagreement.max())
        residual = float(result.residuals.residual.max())
        if math.isfinite(residual):  # unknown if payloads are lost
            found["residual"] = residual
        best = self.best  # without noise the likelihood is unbounded
        if self.pooled is not None and best is not None and best.a < math.inf:
            mean = result.layout.views(result.theta.mean(axis=0))
            most = metrics.ppca_log_likelihood(self.pooled, *best)
            reached = metrics.ppca_log_likelihood(self.pooled, *mean)
            found |= {"log_likelihood": reached, "log_likelihood_gap": most - reached}
        return found


def find_targets(
    world: World,
    config: RunConfig,
    graph: Topology,
    problems: Mapping[int, Problem],
    data: Shards,
    gaps: bool,
) -> Targets:
    """Return the true subspace, if known, and the centralised solution, if wanted.

    For the centralised solution, rank 0 gathers the number of rows, the mean and the
    scatter factor of each node, and sends the solution to all ranks. If entries are
    missing, there is no closed form, and no solution is computed. Nothing is sent if
    each rank has the ``whole`` data, because it generates them. ``gaps`` is whether any
    node has missing entries.
    """
    own = [p for p in problems.values() if isinstance(p, PPCA)]
    layout = next(iter(problems.values())).layout
    if not own:
        return Targets(layout, {})
    if gaps:
        seen = [getattr(p, "observed_counts", np.ones(p.dimension)) for p in own]
        lost = np.flatnonzero(world.reduce(graph, seen) == 0)
        if len(lost):
            raise ShardError(
                f"column {lost[0]} is missing in all samples of all nodes; drop it "
                "from the data"
            )
    W = {} if data.truth is None else {"angle_to_truth": data.truth}
    if gaps or not config.compares:
        return Targets(layout, W, gaps=gaps, adrift=gaps and config.traits.tracks)
    M, zero_mean = own[0].n_components, own[0].zero_mean
    pooled: metrics.Pooled | None = None
    if data.whole is None:
        pooled, best = _pool(world, own)
    else:
        best = metrics.ppca_reference(data.whole, M, zero_mean=zero_mean)
        pooled = metrics.summarise(data.whole)
    return Targets(layout, W | {"angle_to_centralised": best.W}, best, pooled)


def _pool(
    world: World, own: Sequence[PPCA]
) -> tuple[metrics.Pooled | None, metrics.MaximumLikelihood]:
    """Return the pooled statistics, on rank 0, and their solution, on all ranks."""
    counts = world.gather_nodes([np.array([[float(p.n_samples)]]) for p in own])
    means = world.gather_nodes([p.mean[None] for p in own])
    factors = world.gather_nodes([p.factor for p in own])
    D, M, pooled, found = own[0].dimension, own[0].n_components, None, np.empty(0)
    if world.rank == 0:
        pooled = metrics.pool(counts[:, 0], means, factors)
        best = metrics.ppca_reference(pooled, M, zero_mean=own[0].zero_mean)
        found = np.concatenate([best.W.ravel(), best.mu, [best.a]])
    W, mu, (a,) = np.split(world.share_array(found), [D * M, D * M + D])
    return pooled, metrics.MaximumLikelihood(W.reshape(D, M), mu, float(a))
