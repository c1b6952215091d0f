"""The numbers of a run: the content of summary.json."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from dadmm.cli.config import RunConfig
from dadmm.cli.targets import Targets
from dadmm.core.interfaces import World
from dadmm.core.layout import Matrix, Vector
from dadmm.core.version import __version__
from dadmm.data.textfiles import Names
from dadmm.graphs import placement
from dadmm.problems import builder, metrics
from dadmm.solver.advice import advise
from dadmm.solver.result import Result, Seconds

PACKAGES = ("numpy", "mpi4py", "scipy", "networkx", "threadpoolctl")


def build(
    world: World,
    config: RunConfig,
    result: Result,
    targets: Targets,
    samples: Iterable[Matrix],
    hosts: Sequence[str],
    elapsed: float,
    start: int = 0,
    features: Names = None,
) -> dict[str, Any]:
    """Return the content of summary.json, on rank 0.

    Parameters
    ----------
    world : World
    config : RunConfig
    result : Result
    targets : Targets
    samples : iterable of ndarray
        Rows of each node of this process.
    hosts : sequence of str
        Host of each rank.
    elapsed : float
        Seconds since the start, or since the resume.
    start : int
        Iteration after which the run was resumed.
    features : tuple of str, optional
        Names of the columns of X.
    """
    samples = list(samples)
    observed = _observed(world, result, targets, samples)
    if world.rank:
        return {}
    ending = result.ending
    seeds = ("seed", "data_seed", "topology_seed", "drop_seed")
    n_nodes = result.topology.n_nodes
    homes = list(hosts) if world.comm is not None else [*hosts] * n_nodes
    far = placement.crosses_hosts(result.topology, homes)
    return {
        "converged": result.converged,
        "reason": result.reason,
        "iterations": result.iterations,
        "stopping": ending.summary(),  # the criterion that was met last, or is not met
        "waited_for": ending.words(result.converged),
        "advice": advise(result, _columns(config, samples[0])),
        "resumed_after": start,  # 0 for a run that was not resumed
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
        "outside_calls": 0,  # of set-up and end; set later
        "outside_bytes": 0,
        # since the run began or was resumed; phases: mean over the nodes
        "seconds": {
            "total": elapsed,
            **_means(result.seconds),
            "of_all_sessions": _means(result.seconds_of_all_sessions),
        },
        "metrics": _metrics(result, targets) | observed,
        **_coefficients(result, features),
        "seeds": {name: getattr(config, name) for name in seeds},
        "versions": {
            "dadmm": __version__,
            "python": sys.version.split()[0],
            **_versions(),
        },
        "mpi_library": world.library,
        "hosts": {name: hosts.count(name) for name in sorted(set(hosts))},
        "node_hosts": homes,
    }


def _means(seconds: Seconds) -> dict[str, float]:
    """Return the mean over the nodes of each phase."""
    return {phase: float(own.mean()) for phase, own in seconds._asdict().items()}


def _coefficients(result: Result, features: Names) -> dict[str, dict[str, float]]:
    """Return the coefficients of a linear problem by name, averaged over the nodes."""
    parts = result.layout.views(result.theta.mean(axis=0))._asdict()
    if features is None or np.shape(parts.get("coef")) != (len(features),):
        return {}
    found = dict(zip(features, parts["coef"].tolist(), strict=True))
    if np.shape(parts.get("intercept", [])) == ():
        found["intercept"] = float(parts["intercept"])
    return {"coefficients": found}


def _columns(config: RunConfig, rows: Matrix) -> Matrix:
    """Return a node's rows without the target."""
    takes = builder.arguments(builder.find(config.problem))
    return rows[:, :-1] if takes.takes("y") else rows


def _versions() -> dict[str, str]:
    """Return the versions of installed packages, from the names of their records.

    `importlib.metadata` reads the records, too, and takes 40 ms.
    """
    found = dict.fromkeys(PACKAGES, "not installed")
    for folder in reversed(sys.path):  # the first has precedence
        with suppress(OSError):
            for name in os.listdir(folder or "."):
                stem, _, kind = name.rpartition(".")
                package, *version = stem.split("-")
                if kind in ("dist-info", "egg-info") and package in found and version:
                    found[package] = version[0]
    return found


def _metrics(result: Result, targets: Targets) -> dict[str, float | None]:
    found: dict[str, float | None] = {
        f"{name}_degrees": float(targets.angles(name, result.theta).max())
        for name in targets.W
    }
    shared = result.theta[:, : result.layout.shared_size]
    found["consensus_error"] = metrics.consensus_error(shared)
    found["objective"] = float(result.objectives.sum())
    found["disagreement"] = float(result.certificate.disagreement.max())
    residual = float(result.certificate.residual.max())
    if math.isfinite(residual):  # unknown if payloads are lost
        found["residual"] = residual
    if targets.convex and math.isfinite(result.certificate.gap):
        gap = result.certificate.gap  # too small far from the optimum
        found["objective_gap_estimate"] = gap if result.converged else None
    best = targets.best  # without noise the likelihood is unbounded
    if targets.pooled is not None and best is not None and best.a < math.inf:
        mean: Vector = result.theta.mean(axis=0)
        most = metrics.ppca_log_likelihood(targets.pooled, *best)
        reached = metrics.ppca_log_likelihood(
            targets.pooled, *result.layout.views(mean)
        )
        found |= {"log_likelihood": reached, "log_likelihood_gap": most - reached}
    return found


def _observed(
    world: World, result: Result, targets: Targets, samples: Iterable[Matrix]
) -> dict[str, float]:
    """Return the fraction of missing entries, and the likelihood of the others.

    Each rank computes the likelihood of its own samples at the mean of all nodes. If
    the structure is adrift, there is no likelihood.
    """
    if not targets.gaps:
        return {}
    parts = result.layout.views(result.theta.mean(axis=0))
    own = [
        np.array([np.isnan(x).sum(), x.size, metrics.ppca_log_likelihood(x, *parts)])
        for x in samples
    ]
    missing, entries, likelihood = world.reduce(result.topology, own).tolist()
    found = {"missing": missing / entries}
    return found if targets.adrift else found | {"log_likelihood": likelihood}
