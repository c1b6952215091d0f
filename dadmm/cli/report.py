"""What a run found, in numbers and in words."""

from __future__ import annotations

import math
import os
import shlex
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dadmm.cli.config import RunConfig
from dadmm.core.errors import ShardError
from dadmm.core.layout import Layout, Matrix, Vector
from dadmm.core.version import __version__
from dadmm.data.textfiles import Names
from dadmm.exchange.launcher import launched
from dadmm.exchange.world import together
from dadmm.graphs import placement
from dadmm.problems import PPCA, IncompletePPCA, builder, metrics
from dadmm.results.record import Observe
from dadmm.solver.advice import advise
from dadmm.solver.solve import Result, Seconds

PACKAGES = ("numpy", "mpi4py", "scipy", "networkx", "threadpoolctl")
SHOWN, LARGEST = 12, 8  # coefficients that are printed: all, or the largest
ENDINGS = {
    "max_iter": "max_iter reached",
    "max_seconds": "max_seconds reached",
    "signal": "stopped by a signal",
    "output": "results could not be written",
}


class Targets(NamedTuple):
    """What the estimates can be compared with."""

    layout: Layout
    W: dict[str, Matrix]  # by the name of the angle to it
    best: metrics.MaximumLikelihood | None  # the centralised solution
    pooled: metrics.Pooled | None  # the statistics of all data
    convex: bool = False  # whether a run can estimate its distance from the optimum
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

    For the latter rank 0 gathers what `PPCA` keeps of each node's rows (number, mean
    and scatter factor), and sends the solution to all. There is no closed form where
    entries are missing.
    """
    if not isinstance(own[0], PPCA):
        layouts = world.gather_texts("\n".join(repr(p.layout) for p in own))
        together(world, _check_layouts, world, layouts)
        convex = config.coupling == "symmetric" and getattr(own[0], "convex", False)
        return Targets(own[0].layout, {}, None, None, convex)
    gaps = _survey(world, own)
    W = {} if truth is None else {"angle_to_truth": truth}
    layout = own[0].layout
    if gaps or not config.compares:
        adrift = gaps and config.problem == "sfm"
        return Targets(layout, W, None, None, gaps=gaps, adrift=adrift)
    pooled, best = _pool(world, own)
    return Targets(layout, W | {"angle_to_centralised": best.W}, best, pooled)


def announcement(world: Any, config: RunConfig) -> str | None:
    """Return what to say about the rows' summaries that rank 0 gathers, if it does."""
    of_user = config.data is not None and world.comm is not None
    if not (of_user and config.has_subspace and config.compares):
        return None
    return (
        "compare_centralised: rank 0 gathers each node's number of rows, column means "
        "and scatter factor; for a node with no more rows than columns these are as "
        "good as its rows"
    )


def _pool(
    world: Any, own: list[PPCA]
) -> tuple[metrics.Pooled | None, metrics.MaximumLikelihood]:
    """Return the statistics of all data on rank 0, and their solution everywhere."""
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


def _survey(world: Any, own: list[PPCA]) -> bool:
    """Check that the nodes' columns fit together; return whether some have gaps."""
    gappy = [isinstance(problem, IncompletePPCA) for problem in own]
    words = [f"{p.dimension} {has:d}" for p, has in zip(own, gappy, strict=True)]
    found = world.gather_texts(" ".join(words))
    gaps = together(world, _check_dimensions, world, " ".join(found).split())
    gaps = world.share(gaps) == "gaps"
    if gaps:
        seen = [getattr(p, "seen", np.ones(p.dimension)) for p in own]
        together(world, _check_seen, world.gather(np.array(seen)))
    return gaps


def _check_dimensions(world: Any, found: list[str]) -> str:
    """Raise, on rank 0, if dimensions differ; return "gaps" if some node has any."""
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
    """Raise, on rank 0, if no node has seen anything of a column."""
    lost = ~counts.any(axis=0)
    if len(counts) and lost.any():
        raise ShardError(
            f"column {np.flatnonzero(lost)[0]} is missing in all samples of all "
            "nodes; drop it from the data"
        )


def _check_layouts(world: Any, found: list[str]) -> None:
    """Raise, on rank 0, if the nodes' parameters differ."""
    who = "node" if world.comm is None else "rank"
    layouts = "\n".join(found).split("\n")
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
    features: Names = None,
) -> dict[str, Any]:
    """Return what goes into summary.json; complete on rank 0, which writes it.

    The hosts are those of the ranks. ``elapsed`` seconds ago the run began, or was
    resumed after iteration ``start``. The features are the names of the columns of X.
    """
    samples = list(samples)
    observed = _observed(world, result, targets, samples)
    if world.rank:
        return {}
    ending = result.ending
    seeds = ("seed", "data_seed", "topology_seed", "loss_seed")
    n_nodes = result.topology.n_nodes
    homes = list(hosts) if world.comm is not None else [*hosts] * n_nodes
    far = placement.between(result.topology, homes)
    return {
        "converged": result.converged,
        "reason": result.reason,
        "iterations": result.iterations,
        "stopping": ending.summary(),  # what was met last, or is not met
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
        "outside_calls": 0,  # of set-up and end; filled in last
        "outside_bytes": 0,
        # since the run began or was resumed; by phase: mean over the nodes
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
    """Return the coefficients of a linear problem by name, the mean over the nodes."""
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
    from importlib.metadata import PackageNotFoundError, version  # slow to import

    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # no reason to lose the results
            found[name] = "not installed"
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
    if math.isfinite(residual):  # nobody knows it where messages get lost
        found["residual"] = residual
    if targets.convex and math.isfinite(result.certificate.gap):
        gap = result.certificate.gap  # far from the optimum it is too small
        found["objective_gap_estimate"] = gap if result.converged else None
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
    table = world.gather(np.array(own))
    if world.rank:
        return {}
    missing, entries, likelihood = table.sum(axis=0).tolist()
    found = {"missing": missing / entries}
    return found if targets.adrift else found | {"log_likelihood": likelihood}


def _sent(summary: dict[str, Any]) -> str:
    """Return what was sent, in words."""
    text = f"{summary['messages']:,} messages, {summary['bytes']:,} bytes"
    if summary["silent_messages"]:
        text += f"; {summary['silent_messages']:,} without payload"
    if summary["lost_payloads"]:
        text += f"; {summary['lost_payloads']:,} payloads lost"
    if summary["outside_calls"]:
        text += (
            f"; set-up and end: {summary['outside_calls']:,} calls of MPI, "
            f"{summary['outside_bytes']:,} bytes"
        )
    return text


def _lost(summary: dict[str, Any]) -> list[str]:
    """Return who did not live to see the end, in words."""
    names = ", ".join(map(str, summary["lost_nodes"]))
    said = f"WITHOUT the nodes that died on the way ({names}) and their data"
    return [said] if names else []


def _listed(coefficients: dict[str, float]) -> list[str]:
    """Return coefficients by name; of many only the largest, and the intercept."""
    shown, total = coefficients, len(coefficients)
    title = "coefficients (mean over the nodes):"
    if total > SHOWN:
        largest = sorted(shown, key=lambda name: -abs(shown[name]))[:LARGEST]
        names = [name for name in shown if name in {*largest, "intercept"}]
        shown = {name: shown[name] for name in names}
        title = f"the largest of {total} coefficients (mean over the nodes; all are in "
        title += "summary.json):"
    wide = max(map(len, shown), default=0)
    lines = [f"  {name:<{wide}}  {value:.6g}" for name, value in shown.items()]
    return [title, *lines] if lines else []


def _ending(config: RunConfig, reason: str) -> str:
    """Return whether the stopping rule ended the run, and what did if not."""
    rule = f"(rule {config.stopping}, tolerance {config.tolerance:g})"
    if reason == "converged":
        return f"converged {rule}"
    return f"NOT converged {rule}: {ENDINGS[reason]}"


def _resumes(config: RunConfig, summary: dict[str, Any], folder: Path) -> str:
    """Return the command that resumes a run: the launcher's, if it has said it."""
    place = shlex.quote(str(folder))
    if command := os.environ.get("DADMM_RESUME_COMMAND"):
        return f"{command} {place}"
    own = f" --problem {config.problem}" if ":" in config.problem else ""
    many = f"mpiexec -n {summary['n_nodes']} " if launched() else ""
    return f"{many}python -m dadmm.run{own} --resume {place}"


def words(config: RunConfig, summary: dict[str, Any], folder: Path) -> str:
    """Return the report that rank 0 prints."""
    seconds, found = summary["seconds"], summary["metrics"]
    nodes = summary["n_nodes"]
    start = summary["resumed_after"]
    since = f" since it was resumed after iteration {start}" if start else ""
    ending, iterations = _ending(config, summary["reason"]), summary["iterations"]
    lines = [
        f"{config.problem} by {config.scheme} on {config.topology}, "
        f"{nodes} node{'s' * (nodes != 1)}; MPI: {summary['mpi_library']}",
        f"{ending} after {iterations} iterations, {seconds['total']:.2f} s{since} "
        f"(a node's loop: solve {seconds['solve']:.2f}, "
        f"exchange {seconds['exchange']:.2f}, "
        f"update {seconds['update']:.2f}, observe {seconds['observe']:.2f})",
        *_lost(summary),
        summary["waited_for"],
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
    elif config.has_subspace and not config.compares:
        lines.append(
            "not compared with the centralised solution (--compare-centralised does)"
        )
    if found.get("objective_gap_estimate") is not None:
        lines.append(
            f"objective {found['objective']:.6g}; estimated distance from the optimum "
            f"{found['objective_gap_estimate']:.1e} (not a bound)"
        )
    lines += _listed(summary.get("coefficients", {}))
    lines.append(f"results in {folder}")
    if config.checkpoint and not summary["converged"] and not summary["lost_nodes"]:
        more = " --max-iter N" if summary["reason"] == "max_iter" else ""
        lines.append(f"to go on: {_resumes(config, summary, folder)}{more}")
    if summary["advice"]:
        lines.append(summary["advice"])
    return "\n".join(lines)
