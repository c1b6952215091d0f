"""What estimates are compared with: the true and the centralised subspace."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dadmm.cli.config import RunConfig
from dadmm.core.errors import ShardError
from dadmm.core.layout import Layout, Matrix, Vector
from dadmm.exchange.world import together
from dadmm.problems import PPCA, IncompletePPCA, metrics
from dadmm.results.record import Observe


class Targets(NamedTuple):
    """The subspaces to compare estimates with, and facts about the problem."""

    layout: Layout
    W: dict[str, Matrix]  # by the name of the angle to it
    best: metrics.MaximumLikelihood | None  # the centralised solution
    pooled: metrics.Pooled | None  # the statistics of all data
    convex: bool = False  # whether the run can bound the objective gap
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


def gather(
    world: Any, config: RunConfig, own: list[Any], truth: Matrix | None
) -> Targets:
    """Return the true subspace, if known, and the centralised solution, if wanted.

    For the centralised solution, rank 0 gathers the number of rows, the mean and the
    scatter factor of each node, and sends the solution to all ranks. If entries are
    missing, there is no closed form, and no solution is computed.
    """
    if not isinstance(own[0], PPCA):
        layouts = world.gather_texts("\n".join(repr(p.layout) for p in own))
        together(world, _check_layouts, world, layouts)
        convex = config.coupling == "symmetric" and getattr(own[0], "convex", False)
        return Targets(own[0].layout, {}, None, None, convex)
    gaps = _check_columns(world, own)
    W = {} if truth is None else {"angle_to_truth": truth}
    layout = own[0].layout
    if gaps or not config.compares:
        adrift = gaps and config.problem == "sfm"
        return Targets(layout, W, None, None, gaps=gaps, adrift=adrift)
    pooled, best = _pool(world, own)
    return Targets(layout, W | {"angle_to_centralised": best.W}, best, pooled)


def _pool(
    world: Any, own: list[PPCA]
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


def _check_columns(world: Any, own: list[PPCA]) -> bool:
    """Check that nodes have the same columns; return whether entries are missing."""
    gappy = [isinstance(problem, IncompletePPCA) for problem in own]
    words = [f"{p.dimension} {has:d}" for p, has in zip(own, gappy, strict=True)]
    found = world.gather_texts(" ".join(words))
    word = together(world, _check_dimensions, world, " ".join(found).split())
    gaps = bool(world.share(word) == "gaps")
    if gaps:
        seen = [getattr(p, "seen", np.ones(p.dimension)) for p in own]
        together(world, _check_seen, world.gather(np.array(seen)))
    return gaps


def _check_dimensions(world: Any, found: list[str]) -> str:
    """Raise, on rank 0, if dimensions differ; return "gaps" if entries are missing."""
    who = "node" if world.comm is None else "rank"
    dimensions = found[::2]
    for i, dimension in enumerate(dimensions):
        if dimension != dimensions[0]:
            raise ShardError(
                f"{who} {i} has samples of dimension {dimension} but {who} 0 of "
                f"dimension {dimensions[0]}; all nodes must have the same columns"
            )
    return "gaps" if "1" in found[1::2] else ""


def _check_seen(counts: Matrix) -> None:
    """Raise, on rank 0, if a column is missing on all nodes."""
    lost = ~counts.any(axis=0)
    if len(counts) and lost.any():
        raise ShardError(
            f"column {np.flatnonzero(lost)[0]} is missing in all samples of all "
            "nodes; drop it from the data"
        )


def _check_layouts(world: Any, found: list[str]) -> None:
    """Raise, on rank 0, if the nodes' parameters have different shapes."""
    who = "node" if world.comm is None else "rank"
    layouts = "\n".join(found).split("\n")
    for i, layout in enumerate(layouts):
        if layout != layouts[0]:
            raise ShardError(
                f"{who} {i} has parameters {layout} but {who} 0 {layouts[0]}; all "
                "nodes must have the same columns"
            )
