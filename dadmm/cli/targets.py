"""What estimates are compared with: the true and the centralised subspace."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dadmm.comm.world import World
from dadmm.core.errors import ShardError
from dadmm.core.layout import Layout, Matrix, Vector
from dadmm.graphs.topology import Topology
from dadmm.problems import PPCA, IncompletePPCA, metrics
from dadmm.runs.config import RunConfig
from dadmm.solver.rows import Observe


class Targets(NamedTuple):
    """The subspaces to compare estimates with, and facts about the problem."""

    layout: Layout
    W: dict[str, Matrix]  # by the name of the angle to it
    best: metrics.MaximumLikelihood | None  # the centralised solution
    pooled: metrics.Pooled | None  # the statistics of all data
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


def describe(own: list[Any]) -> dict[str, Any]:
    """Return the columns or parameters of the nodes of this process, to compare ranks.

    Raise if the nodes differ.
    """
    if not isinstance(own[0], PPCA):
        layouts = [repr(problem.layout) for problem in own]
        _check_layouts("node", layouts)
        return {"layout": layouts[0]}
    dimensions = [problem.dimension for problem in own]
    _check_dimensions("node", dimensions)
    gaps = any(isinstance(problem, IncompletePPCA) for problem in own)
    return {"dimension": dimensions[0], "gaps": gaps}


def gather(
    world: World,
    config: RunConfig,
    graph: Topology,
    own: list[Any],
    truth: Matrix | None,
    described: list[dict[str, Any]],
    whole: Matrix | None = None,
) -> Targets:
    """Return the true subspace, if known, and the centralised solution, if wanted.

    For the centralised solution, rank 0 gathers the number of rows, the mean and the
    scatter factor of each node, and sends the solution to all ranks. If entries are
    missing, there is no closed form, and no solution is computed. Nothing is sent if
    each rank has all rows, because it generates them.

    Parameters
    ----------
    world : World
    config : RunConfig
    graph : Topology
        Of the nodes of all ranks.
    own : list of Problem
        Of the nodes of this process.
    truth : ndarray, optional
    described : list of dict
        What `describe` returns on each rank.
    whole : ndarray, optional
        All rows.
    """
    if not isinstance(own[0], PPCA):
        _check_layouts("rank", [their["layout"] for their in described])
        return Targets(own[0].layout, {}, None, None)
    _check_dimensions("rank", [their["dimension"] for their in described])
    gaps = any(their["gaps"] for their in described)
    if gaps:
        seen = [getattr(p, "observed_counts", np.ones(p.dimension)) for p in own]
        _check_seen(world.reduce(graph, seen))
    W = {} if truth is None else {"angle_to_truth": truth}
    layout = own[0].layout
    if gaps or not config.compares:
        adrift = gaps and config.traits.tracks
        return Targets(layout, W, None, None, gaps=gaps, adrift=adrift)
    if whole is not None:
        M, zero_mean = own[0].n_components, own[0].zero_mean
        best = metrics.ppca_reference(whole, M, zero_mean=zero_mean)
        pooled: metrics.Pooled | None = metrics.summarise(whole)
    else:
        pooled, best = _pool(world, own)
    return Targets(layout, W | {"angle_to_centralised": best.W}, best, pooled)


def _pool(
    world: World, own: list[PPCA]
) -> tuple[metrics.Pooled | None, metrics.MaximumLikelihood]:
    """Return the pooled statistics, on rank 0, and their solution, on all ranks."""
    counts = world.gather(np.array([[float(p.n_samples)] for p in own]))
    means = world.gather(np.array([p.mean for p in own]))
    factors = world.gather(np.vstack([p.factor for p in own]))
    D, M, pooled, found = own[0].dimension, own[0].n_components, None, np.empty(0)
    if world.rank == 0:
        pooled = metrics.pool(counts[:, 0], means, factors)
        best = metrics.ppca_reference(pooled, M, zero_mean=own[0].zero_mean)
        found = np.concatenate([best.W.ravel(), best.mu, [best.a]])
    W, mu, (a,) = np.split(world.share_array(found), [D * M, D * M + D])
    return pooled, metrics.MaximumLikelihood(W.reshape(D, M), mu, float(a))


def _check_dimensions(who: str, found: list[int]) -> None:
    """Raise if dimensions differ."""
    for i, dimension in enumerate(found):
        if dimension != found[0]:
            raise ShardError(
                f"{who} {i} has samples of dimension {dimension} but {who} 0 of "
                f"dimension {found[0]}; all nodes must have the same columns"
            )


def _check_seen(counts: Vector) -> None:
    """Raise if a column is missing on all nodes."""
    lost = np.flatnonzero(counts == 0)
    if len(lost):
        raise ShardError(
            f"column {lost[0]} is missing in all samples of all nodes; drop it from "
            "the data"
        )


def _check_layouts(who: str, found: list[str]) -> None:
    """Raise if the nodes' parameters have different shapes."""
    for i, layout in enumerate(found):
        if layout != found[0]:
            raise ShardError(
                f"{who} {i} has parameters {layout} but {who} 0 {found[0]}; all "
                "nodes must have the same columns"
            )
