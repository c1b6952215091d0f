"""What a run found, in numbers and in words."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import dadmm
from dadmm.cli.config import RunConfig
from dadmm.core import metrics
from dadmm.core.errors import ShardError
from dadmm.core.layout import Layout, Matrix, Vector
from dadmm.graphs import placement
from dadmm.problems import PPCA, IncompletePPCA
from dadmm.results.record import Observe
from dadmm.solver.solve import Result

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
    gaps: bool = False  # whether entries are missing, on any node
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


def targets(
    world: Any, config: RunConfig, own: list[Any], truth: Matrix | None
) -> Targets:
    """Return the truth, where known, and the centralised solution, where asked for.

    The samples stay where they are: the ranks pool their sufficient statistics. There
    are none, and no closed form, where entries are missing.
    """
    if not isinstance(own[0], PPCA):
        _check_layouts(world, [repr(problem.layout) for problem in own])
        convex = config.coupling == "symmetric" and getattr(own[0], "convex", False)
        return Targets(own[0].layout, {}, None, None, convex)
    gaps = _survey(world, own)
    W = {} if truth is None else {"angle_to_truth": truth}
    layout = own[0].layout
    if gaps or not config.reference:
        adrift = gaps and config.problem == "sfm"
        return Targets(layout, W, None, None, gaps=gaps, adrift=adrift)
    pooled = metrics.pool(
        world.collect(np.array([[float(p.n_samples)] for p in own]))[:, 0],
        world.collect(np.array([p.mean for p in own])),
        world.collect(np.vstack([p.factor for p in own])),
    )
    best = metrics.ppca_reference(
        pooled, own[0].n_components, zero_mean=own[0].zero_mean
    )
    return Targets(layout, W | {"angle_to_centralised": best.W}, best, pooled)


def _survey(world: Any, own: list[PPCA]) -> bool:
    """Check that the nodes' columns fit together; return whether some have gaps."""
    who = "node" if world.comm is None else "rank"
    gappy = [isinstance(problem, IncompletePPCA) for problem in own]
    words = [f"{p.dimension} {has:d}" for p, has in zip(own, gappy, strict=True)]
    found = " ".join(world.texts(" ".join(words))).split()
    dimensions, gaps = found[::2], "1" in found[1::2]
    for i, dimension in enumerate(dimensions):
        if dimension != dimensions[0]:
            raise ShardError(
                f"{who} {i} has samples of dimension {dimension} but {who} 0 of "
                f"dimension {dimensions[0]}; all nodes must have the same columns"
            )
    if gaps:
        seen = [getattr(p, "seen", np.ones(p.dimension)) for p in own]
        lost = ~world.collect(np.array(seen)).any(axis=0)
        if lost.any():
            raise ShardError(
                f"column {np.flatnonzero(lost)[0]} is missing in all samples of all "
                "nodes; drop it from the data"
            )
    return gaps


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
    world: Any,
    config: RunConfig,
    result: Result,
    targets: Targets,
    samples: Iterable[Matrix],
    hosts: Sequence[str],
    elapsed: float,
    start: int = 0,
) -> dict[str, Any]:
    """Return what goes into summary.json; complete on rank 0, which writes it.

    The hosts are those of the ranks. ``elapsed`` seconds ago the run began, or went on
    after iteration ``start``.
    """
    observed = _observed(world, result, targets, samples)
    if world.rank:
        return {}
    seconds = {k: float(v.mean()) for k, v in result.seconds._asdict().items()}
    seeds = ("seed", "data_seed", "topology_seed", "loss_seed")
    n_nodes = result.topology.n_nodes
    homes = list(hosts) if world.comm is not None else [*hosts] * n_nodes
    far = placement.between(result.topology, homes)
    return {
        "converged": result.converged,
        "reason": result.reason,
        "iterations": result.iterations,
        "resumed_after": start,  # since then is the total of seconds
        "n_nodes": n_nodes,
        "lost_nodes": list(result.lost),
        "messages": result.traffic.messages,
        "bytes": result.traffic.bytes,
        "silent_messages": result.traffic.silent,  # a header without payload
        "lost_payloads": result.traffic.lost,
        "edges_between_hosts": int(far.sum()) // 2,
        "bytes_between_hosts": int(result.traffic.edge_bytes[far].sum()),
        "collectives": result.traffic.collectives,
        "collective_bytes": result.traffic.collective_bytes,
        "seconds": {"total": elapsed, **seconds},  # by phase: mean over the nodes
        "metrics": _metrics(result, targets) | observed,
        "seeds": {name: getattr(config, name) for name in seeds},
        "versions": {
            "dadmm": dadmm.__version__,
            "python": sys.version.split()[0],
            **_versions(),
        },
        "mpi_library": world.library,
        "hosts": {name: hosts.count(name) for name in sorted(set(hosts))},
        "node_hosts": homes,
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
    residual = float(result.certificate.residual.max())
    if math.isfinite(residual):  # nobody knows it where messages get lost
        found["residual"] = residual
    if targets.convex and math.isfinite(result.certificate.gap):
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


def _observed(
    world: Any, result: Result, targets: Targets, samples: Iterable[Matrix]
) -> dict[str, float]:
    """Return how much is missing, and the likelihood of what is not.

    Each rank finds that of its own samples at the mean of the nodes. Rows with free
    offsets have none.
    """
    if not targets.gaps:
        return {}
    parts = result.layout.views(result.theta.mean(axis=0))
    own = [
        (np.isnan(x).sum(), x.size, metrics.ppca_log_likelihood(x, *parts))
        for x in samples
    ]
    missing, entries, likelihood = world.collect(np.array(own)).sum(axis=0).tolist()
    found = {"missing": missing / entries}
    return found if targets.adrift else found | {"log_likelihood": likelihood}


def _sent(summary: dict[str, Any]) -> str:
    """Return what was sent, in words."""
    text = f"{summary['messages']:,} messages, {summary['bytes']:,} bytes"
    if summary["silent_messages"]:
        text += f"; {summary['silent_messages']:,} without payload"
    if summary["lost_payloads"]:
        text += f"; {summary['lost_payloads']:,} payloads lost"
    return text


def _lost(summary: dict[str, Any]) -> list[str]:
    """Return who did not live to see the end, in words."""
    names = ", ".join(map(str, summary["lost_nodes"]))
    said = f"WITHOUT the nodes that died on the way ({names}) and their data"
    return [said] if names else []


def words(config: RunConfig, summary: dict[str, Any], folder: Path) -> str:
    """Return the report that rank 0 prints."""
    seconds, found = summary["seconds"], summary["metrics"]
    nodes = summary["n_nodes"]
    start = summary["resumed_after"]
    since = f" since iteration {start}, when it was resumed" if start else ""
    lines = [
        f"{config.problem} by {config.scheme} on {config.topology}, "
        f"{nodes} node{'s' * (nodes != 1)}; MPI: {summary['mpi_library']}",
        f"{ENDINGS[summary['reason']]} after {summary['iterations']} iterations, "
        f"{seconds['total']:.2f} s{since} (a node's loop: "
        f"solve {seconds['solve']:.2f}, exchange {seconds['exchange']:.2f}, "
        f"update {seconds['update']:.2f}, observe {seconds['observe']:.2f})",
        *_lost(summary),
        _sent(summary),
        f"nodes agree to {found['consensus_error']:.1e} (relative)",
    ]
    for name, what in (
        ("angle_to_truth_degrees", "the true subspace"),
        ("angle_to_centralised_degrees", "the centralised solution"),
    ):
        if name in found:
            lines.append(f"largest angle to {what}: {found[name]:.3f} degrees")
    if "missing" in found:
        lines.append(
            f"{found['missing']:.1%} of the entries are missing: filled in by node in "
            "imputed-*.npz; there is no centralised solution to compare with"
        )
    if "objective_gap" in found:
        lines.append(
            f"objective {found['objective']:.6g}, within about "
            f"{found['objective_gap']:.1e} of the optimum"
        )
    lines.append(f"results in {folder}")
    if config.checkpoint and not summary["converged"] and not summary["lost_nodes"]:
        more = " --max-iter N" if summary["reason"] == "max_iter" else ""
        lines.append(f"go on with --resume {folder}{more}")
    return "\n".join(lines)
