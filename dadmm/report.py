"""What a run found, in numbers and in words."""

from __future__ import annotations

import math
import sys
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import dadmm
from dadmm import metrics
from dadmm.config import RunConfig
from dadmm.errors import ShardError
from dadmm.layout import Layout, Matrix, Vector
from dadmm.problems import PPCA
from dadmm.record import Observe
from dadmm.solver import Result
from dadmm.world import host

PACKAGES = ("numpy", "mpi4py", "scipy", "networkx", "threadpoolctl")
ENDINGS = {
    "converged": "converged",
    "max_iter": "NOT converged: max_iter reached",
    "max_seconds": "NOT converged: max_seconds reached",
    "signal": "NOT converged: stopped by a signal",
    "output": "NOT converged: results could not be written",
}


class Targets(NamedTuple):
    """What the estimates can be compared with."""

    layout: Layout
    W: dict[str, Matrix]  # by the name of the angle to it
    best: metrics.MaximumLikelihood | None  # the centralised solution
    pooled: metrics.Pooled | None  # the statistics of all data
    convex: bool = False  # whether the run itself tells how far the optimum may be

    def angles(self, name: str, theta: Vector | Matrix) -> Any:
        """Return the angle of theta (..., size) to a target in degrees, (...)."""
        return metrics.subspace_angle(self.layout.views(theta).W, self.W[name])

    @property
    def observe(self) -> Observe:
        """Return the angles as functions of one node's theta (size,)."""
        return {name: partial(self.angles, name) for name in self.W}


def targets(
    world: Any, config: RunConfig, own: list[Any], truth: Matrix | None
) -> Targets:
    """Return the truth, where known, and the centralised solution, where asked for.

    The samples stay where they are: the ranks pool their sufficient statistics.
    """
    if not isinstance(own[0], PPCA):
        _check_layouts(world, [repr(problem.layout) for problem in own])
        convex = config.coupling == "symmetric" and getattr(own[0], "convex", False)
        return Targets(own[0].layout, {}, None, None, convex)
    _check_dimensions(world, [problem.dimension for problem in own])
    W = {} if truth is None else {"angle_to_truth": truth}
    layout = own[0].layout
    if not config.reference:
        return Targets(layout, W, None, None)
    pooled = metrics.pool(
        world.collect(np.array([[float(p.n_samples)] for p in own]))[:, 0],
        world.collect(np.array([p.mean for p in own])),
        world.collect(np.vstack([p.factor for p in own])),
    )
    best = metrics.ppca_reference(
        pooled, own[0].n_components, zero_mean=own[0].zero_mean
    )
    return Targets(layout, W | {"angle_to_centralised": best.W}, best, pooled)


def _check_dimensions(world: Any, own: list[int]) -> None:
    who = "node" if world.comm is None else "rank"
    dimensions = " ".join(world.texts(" ".join(map(str, own)))).split()
    for i, dimension in enumerate(dimensions):
        if dimension != dimensions[0]:
            raise ShardError(
                f"{who} {i} has samples of dimension {dimension} but {who} 0 of "
                f"dimension {dimensions[0]}; all nodes must have the same columns"
            )


def _check_layouts(world: Any, own: list[str]) -> None:
    who = "node" if world.comm is None else "rank"
    layouts = "\n".join(world.texts("\n".join(own))).split("\n")
    for i, layout in enumerate(layouts):
        if layout != layouts[0]:
            raise ShardError(
                f"{who} {i} has parameters {layout} but {who} 0 {layouts[0]}; all "
                "nodes must have the same columns"
            )


def summary(
    world: Any, config: RunConfig, result: Result, targets: Targets, elapsed: float
) -> dict[str, Any]:
    """Return what goes into summary.json; complete on rank 0, which writes it."""
    hosts = world.texts(host())
    if world.rank:
        return {}
    seconds = {k: float(v.mean()) for k, v in result.seconds._asdict().items()}
    seeds = ("seed", "data_seed", "topology_seed")
    return {
        "converged": result.converged,
        "reason": result.reason,
        "iterations": result.iterations,
        "n_nodes": result.topology.n_nodes,
        "messages": result.traffic.messages,
        "bytes": result.traffic.bytes,
        "collectives": result.traffic.collectives,
        "collective_bytes": result.traffic.collective_bytes,
        "seconds": {"total": elapsed, **seconds},  # by phase: mean over the nodes
        "metrics": _metrics(result, targets),
        "seeds": {name: getattr(config, name) for name in seeds},
        "versions": {
            "dadmm": dadmm.__version__,
            "python": sys.version.split()[0],
            **_versions(),
        },
        "mpi_library": world.library,
        "hosts": {name: hosts.count(name) for name in sorted(set(hosts))},
    }


def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version  # slow to import

    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # no reason to lose the results
            found[name] = "not installed"
    return found


def _metrics(result: Result, targets: Targets) -> dict[str, float]:
    found = {
        f"{name}_degrees": float(targets.angles(name, result.theta).max())
        for name in targets.W
    }
    shared = result.theta[:, : result.layout.shared_size]
    found["consensus_error"] = metrics.consensus_error(shared)
    found["objective"] = float(result.objectives.sum())
    found["disagreement"] = float(result.certificate.disagreement.max())
    found["residual"] = float(result.certificate.residual.max())
    if targets.convex:
        found["objective_gap"] = result.certificate.gap
    best = targets.best  # unbounded likelihood where the data have no noise at all
    if targets.pooled is not None and best is not None and best.a < math.inf:
        mean: Vector = result.theta.mean(axis=0)
        most = metrics.ppca_log_likelihood(targets.pooled, *best)
        reached = metrics.ppca_log_likelihood(
            targets.pooled, *result.layout.views(mean)
        )
        found |= {"log_likelihood": reached, "log_likelihood_gap": most - reached}
    return found


def words(config: RunConfig, summary: dict[str, Any], folder: Path) -> str:
    """Return the report that rank 0 prints."""
    seconds, found = summary["seconds"], summary["metrics"]
    nodes = summary["n_nodes"]
    lines = [
        f"{config.problem} by {config.scheme} on {config.topology}, "
        f"{nodes} node{'s' * (nodes != 1)}; MPI: {summary['mpi_library']}",
        f"{ENDINGS[summary['reason']]} after {summary['iterations']} iterations, "
        f"{seconds['total']:.2f} s (a node's loop: solve {seconds['solve']:.2f}, "
        f"exchange {seconds['exchange']:.2f}, observe {seconds['observe']:.2f})",
        f"{summary['messages']:,} messages, {summary['bytes']:,} bytes",
        f"nodes agree to {found['consensus_error']:.1e} (relative)",
    ]
    for name, what in (
        ("angle_to_truth_degrees", "the true subspace"),
        ("angle_to_centralised_degrees", "the centralised solution"),
    ):
        if name in found:
            lines.append(f"largest angle to {what}: {found[name]:.3f} degrees")
    if "objective_gap" in found:
        lines.append(
            f"objective {found['objective']:.6g}, within about "
            f"{found['objective_gap']:.1e} of the optimum"
        )
    lines.append(f"results in {folder}")
    return "\n".join(lines)
