"""The results of a run: summary.json, result.npz, and files of imputed samples."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from dadmm.cli import models
from dadmm.cli.job import Job
from dadmm.cli.models import Fit
from dadmm.cli.targets import Targets
from dadmm.comm.world import World
from dadmm.core.documents import write_arrays, writing
from dadmm.core.layout import Layout, Matrix
from dadmm.core.version import __version__
from dadmm.data.encoding import Rows
from dadmm.data.files import Names
from dadmm.graphs import placement
from dadmm.problems import IncompletePPCA, StructureFromMotion, metrics, motion
from dadmm.solver.ending import advise
from dadmm.solver.result import Result, Seconds

PACKAGES = ("numpy", "mpi4py", "scipy", "networkx", "threadpoolctl")


def build(job: Job) -> dict[str, Any]:
    """Return the content of summary.json, on rank 0."""
    elapsed = monotonic() - job.started  # since the start, or since the resume
    world, config, result, hosts = job.world, job.config, job.result, job.hosts
    features, fit = job.features, job.fit
    samples = [rows.X for rows in job.data.rows.values()]
    observed = _observed(world, result, job.targets, samples)
    calls, n_bytes = world.sent()
    if world.rank:
        return {}
    columns = samples[0] if isinstance(samples[0], np.ndarray) else None  # sparse
    seeds = ("seed", "data_seed", "topology_seed", "drop_seed")
    n_nodes = result.topology.n_nodes
    homes = list(hosts) if world.comm is not None else [*hosts] * n_nodes
    far = placement.crosses_hosts(result.topology, homes)
    consensus = _consensus(result, features, fit)
    return {
        "status": result.status,
        "converged": result.converged,
        "why": result.why,  # why it is not certified
        "reason": result.reason,
        "iterations": result.iterations,
        "stopping": result.ending.summary(),  # the criterion met last, or not met
        "waited_for": result.ending.words(result.reason == "converged"),
        "advice": advise(result, columns),
        "coordinates": result.coordinates,
        "penalties": _penalties(result),
        "objective": _known(result.objective),  # at the solution
        "certificate": _certificate(result, features, fit),
        "start": _start(result),
        "subspace": _subspace(result),
        "consensus": consensus,
        "resumed_after": job.checkpoints.start,  # 0 for a run that was not resumed
        "n_nodes": n_nodes,
        "lost_nodes": list(result.lost),
        "messages": result.traffic.messages,
        "bytes": result.traffic.bytes,
        "silent_messages": result.traffic.silent,  # a header without payload
        "lost_payloads": result.traffic.lost,
        "edges_between_hosts": int(far.sum()) // 2,
        "bytes_between_hosts": int(result.traffic.edge_bytes[far].sum()),
        "tree_bytes": int(result.traffic.tree_bytes.sum()),  # of sums over a tree
        "collectives": result.traffic.collectives,
        "collective_bytes": result.traffic.collective_bytes,
        "outside_calls": calls,  # of set-up and end
        "outside_bytes": n_bytes,
        # since the run began or was resumed; phases: mean over the nodes
        "seconds": {
            "total": elapsed,
            **_means(result.seconds),
            "curvature": result.curvature_seconds,  # for the first penalties
            "of_all_sessions": _means(result.seconds_of_all_sessions),
        },
        "metrics": {
            "consensus_error": consensus["error"],
            **_metrics(result, job.targets),
            **observed,
        },
        **_coefficients(result, features, fit),
        **_scores(result, fit),
        "seeds": {name: getattr(config, name) for name in seeds},
        "versions": _versions(),
        "mpi_library": world.library,
        "hosts": {name: hosts.count(name) for name in sorted(set(hosts))},
        "node_hosts": homes,
        **_gaps(job),
    }


def _gaps(job: Job) -> dict[str, Any]:
    """Return rows dropped and rows filled, by node, if there are any."""
    if not job.gaps:
        return {}
    return {"gaps": {"on_missing": job.config.on_missing, "nodes": sorted(job.gaps)}}


def _means(seconds: Seconds) -> dict[str, float]:
    """Return the mean over the nodes of each phase."""
    return {phase: float(own.mean()) for phase, own in seconds._asdict().items()}


def _penalties(result: Result) -> dict[str, Any]:
    """Return the range of the penalties of all edges, and their budgets."""
    found, n_edges = result.penalties, len(result.topology.edges)
    entries: dict[str, Any] = {"edges": n_edges}  # directed
    for name in ("eta0", "eta") if n_edges else ():
        values = getattr(found, name)
        entries[name] = [float(values.min()), float(values.max())]
    if n_edges:
        entries["guessed"] = int(found.guessed.sum())
    if n_edges and found.budget.any():
        moved = (found.spent > 0.0) | (found.eta != found.eta0)  # some are reset
        entries["changed"] = int(moved.sum())
        spent = np.minimum(found.spent, found.budget)  # the paper's count on
        entries["spent"] = [float(spent.min()), float(spent.max())]
        entries["raised"] = int((found.raised > 0.0).sum())
        entries["used_up"] = int(found.used_up.sum())
    return entries


def _known(number: float) -> float | None:
    """Return a number; None if it is unknown or unbounded."""
    return float(number) if math.isfinite(number) else None


def _names(layout: Layout, features: Names) -> list[str]:
    """Return a name for each entry of theta: a column, a part, or part[index]."""
    found: list[str] = []
    for part, shape in layout.shapes.items():
        if part == "coef" and features is not None and shape == (len(features),):
            found += features
        else:
            places = [list(place) for place in np.ndindex(shape)]
            found += [f"{part}{place}" if place else part for place in places]
    return found


def _coefficients(result: Result, features: Names, fit: Fit) -> dict[str, Any]:
    """Return the coefficients of a linear problem by name, in the table's units."""
    if fit.linear is not None:
        found = models.coefficients(fit.linear)
        return {"coefficients": found, **models.comparison(fit.linear)}
    shapes = result.layout.shapes
    if features is None or shapes.get("coef") != (len(features),):
        return {}
    named = zip(_names(result.layout, features), result.solution.tolist(), strict=True)
    wanted = {*features, *(["intercept"] if shapes.get("intercept") == () else [])}
    return {"coefficients": {name: value for name, value in named if name in wanted}}


def _scores(result: Result, fit: Fit) -> dict[str, Any]:
    """Return scores, standard errors, and the number of rows of each node."""
    if fit.scores is None:
        return {}
    nodes = map(str, result.nodes.tolist())
    return {
        "scores": fit.scores.values,
        "standard_errors": dict(fit.standard_errors),
        "rows_by_node": dict(zip(nodes, fit.n_rows, strict=True)),
    }


def _certificate(result: Result, features: Names, fit: Fit) -> dict[str, Any] | None:
    """Return the bounds on the error of the solution; None without any."""
    found = result.certificate
    if found is None:
        return None
    if fit.linear is not None:
        bounds = models.bounds(fit.linear, result)
    else:
        values = map(_known, found.coefficients.tolist())
        bounds = dict(zip(_names(result.layout, features), values, strict=True))
    entries: dict[str, Any] = {
        "gap": _known(found.gap),
        "radius": _known(found.radius),
        "coefficients": bounds,
        "open_directions": found.open_directions,
        "assumed": list(found.assumed),
    }
    if result.coordinates == "raw":  # then coordinates are those of theta
        distance = float(f"{np.linalg.norm(result.solution):.3g}")  # as printed
        entries["within"] = distance
        entries["lower_by"] = _known(found.lower_within(distance))
    return entries


def _start(result: Result) -> dict[str, Any]:
    """Return how a run started, and how far from its result if that is known."""
    found: dict[str, Any] = {"init": result.ending.init}
    if result.start is not None:
        found |= {
            "angle_to_result_degrees": result.start.angle,
            "gap": result.start.gap,
            "strictness": result.start.strictness,
            "rounds": result.start.rounds,
        }
    return found


def _subspace(result: Result) -> dict[str, Any] | None:
    """Return the bound on the angle to the principal axes of all rows, or None."""
    found = result.subspace_bound
    if found is None:
        return None
    return {"within_degrees": _known(found.angle), "why_not": found.why}


def _consensus(result: Result, features: Names, fit: Fit) -> dict[str, Any]:
    """Return how far the nodes are from the solution, by what, and where.

    Coefficients of a linear problem are judged one by one: the largest distance of any
    node's value from the solution, over the largest value of any node, or over the
    bound of a certified result if that is larger. In other problems each part of theta
    is judged so, by lengths.
    """
    layout, shared = result.layout, result.layout.shared_size
    apart = np.abs(result.theta - result.solution)[:, :shared]
    sizes = np.abs(result.theta[:, :shared])
    if _coefficients(result, features, fit):
        names, scale = _names(layout, features), sizes.max(axis=0)
        if fit.linear is not None:
            names = models.entry_names(fit.linear)
        if result.status == "certified" and result.certificate is not None:
            bounds = result.certificate.coefficients
            scale = np.where(np.isfinite(bounds), np.maximum(scale, bounds), scale)
        worst, by = apart.max(axis=0), "coefficient"
    else:
        names, by = layout.names, "part"
        squares = [np.add.reduceat(x**2, layout.starts, axis=1) for x in (apart, sizes)]
        worst, scale = np.sqrt(squares).max(axis=1)
    ratio = worst / np.where(scale > 0, scale, 1.0)
    k = int(ratio.argmax())
    return {"error": float(ratio[k]), "by": by, "where": names[k]}


def _versions() -> dict[str, str]:
    """Return versions; those of packages are from the names of their records.

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
    return {"dadmm": __version__, "python": sys.version.split()[0]} | found


def _metrics(result: Result, targets: Targets) -> dict[str, float | None]:
    found: dict[str, float | None] = {
        f"{name}_degrees": float(targets.angles(name, result.theta).max())
        for name in targets.W
    }
    found["disagreement"] = float(result.residuals.disagreement.max())
    residual = float(result.residuals.residual.max())
    if math.isfinite(residual):  # unknown if payloads are lost
        found["residual"] = residual
    best = targets.best  # without noise the likelihood is unbounded
    if targets.pooled is not None and best is not None and best.a < math.inf:
        mean = result.layout.views(result.theta.mean(axis=0))
        most = metrics.ppca_log_likelihood(targets.pooled, *best)
        reached = metrics.ppca_log_likelihood(targets.pooled, *mean)
        found |= {"log_likelihood": reached, "log_likelihood_gap": most - reached}
    return found


def _observed(
    world: World, result: Result, targets: Targets, samples: Sequence[Matrix]
) -> dict[str, float]:
    """Return the fraction of missing entries, and the likelihood of the others.

    Each rank computes the likelihood of its own samples at the mean of all nodes. If
    the structure is adrift, there is no likelihood.
    """
    if not targets.gaps:
        return {}
    parts = result.layout.views(result.solution)
    own = [
        np.array([np.isnan(x).sum(), x.size, metrics.ppca_log_likelihood(x, *parts)])
        for x in samples
    ]
    missing, entries, likelihood = world.reduce(result.topology, own).tolist()
    found = {"missing": missing / entries}
    return found if targets.adrift else found | {"log_likelihood": likelihood}


def arrays(
    world: World, result: Result, features: Names, frames: Matrix | None, adrift: bool
) -> dict[str, Any]:
    """Return the arrays of result.npz, all of them on rank 0.

    These are the parts of theta by name, the edges with their penalties and traffic,
    structure and motion of sfm, and the names of the features, if there are any.
    ``frames`` is the motion of all cameras, as `gather_motion` returns it.
    """
    if world.rank:
        return {}
    found: dict[str, Any] = result.layout.views(result.theta)._asdict()
    found |= {"edges": result.nodes[result.topology.edges], "eta": result.eta}
    if frames is not None:
        found |= _reconstruct(frames, result, adrift)
    found |= {} if features is None else {"feature_names": np.array(features)}
    traffic = result.traffic._asdict().items()
    return found | {name: value for name, value in traffic if name.startswith("edge_")}


def gather_motion(
    world: World, problems: dict[int, Any], result: Result
) -> Matrix | None:
    """Return the motion of all cameras on rank 0, or None if the problem is not sfm."""
    cameras = {i: p for i, p in problems.items() if isinstance(p, StructureFromMotion)}
    if not cameras:
        return None
    return world.gather(np.vstack([p.motion(result.of(i)) for i, p in cameras.items()]))


def _reconstruct(frames: Matrix, result: Result, adrift: bool) -> dict[str, Any]:
    """Return structure and motion of sfm after the metric upgrade.

    A structure that is ``adrift``, known up to a translation, is centred at the origin.
    """
    structure = result.layout.views(result.theta.mean(axis=0)).W
    if adrift:
        structure = structure - structure.mean(axis=0)
    return motion.upgrade(frames, structure)._asdict()


def write_imputed(
    folder: Path, problems: dict[int, Any], rows: dict[int, Rows], result: Result
) -> None:
    """Write the imputed samples of each node to ``imputed-00000.npz`` and so on.

    A file has the filled ``samples``, the ``variances`` of the imputed entries, and the
    ``latent`` means. Only the owner can read it. The folder is made if it is that of
    another machine.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for i, problem in problems.items():
        if isinstance(problem, IncompletePPCA):
            filled, variances = problem.impute(result.of(i), rows[i].X)
            latent = problem.latent(result.of(i), rows[i].X)
            found = {"samples": filled, "variances": variances, "latent": latent}
            path = folder / f"imputed-{i:05d}.npz"
            write_arrays(path, found, private=True)
