"""Where a run starts: drawn or given parameters, or the end of another run."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dadmm.admm.local import as_numbers
from dadmm.core.errors import ConfigError, ProblemError, shown
from dadmm.core.interfaces import Problem
from dadmm.core.layout import Matrix, Vector
from dadmm.core.schema import SEED
from dadmm.solver.plan import INITS, Kind, Plan
from dadmm.solver.result import Result

Starts = dict[int, Vector]  # by node


def find_starts(
    hosted: Mapping[int, Problem],
    n_nodes: int,
    plan: Plan,
    seed: int,
    warm_start: Result | None,
) -> tuple[Starts, Starts | None]:
    """Return the parameters and, after another run, the duals of the hosted nodes.

    A run from merged axes finds them itself.
    """
    size = next(iter(hosted.values())).layout.size
    if warm_start is not None:
        _check_warm_start(warm_start, hosted, n_nodes)
        duals = {i: warm_start.duals[i] for i in hosted}
        return {i: warm_start.of(i) for i in hosted}, duals
    if plan.kind is Kind.MERGED:
        return {}, None
    if not isinstance(plan.init, str):
        given = _given(plan.init, n_nodes, size)
        return {i: given[i] for i in hosted}, None
    SEED.check("seed", seed)
    found = {}
    for i, problem in hosted.items():
        # one stream for all nodes, or one per node: the same with and without MPI
        key = [seed, 0] if plan.init == "shared" else [seed, 1, i]
        drawn = problem.init(np.random.default_rng(key))
        found[i] = as_numbers(drawn, (size,), "init")
    return found, None


def _given(init: object, n_nodes: int, size: int) -> Matrix:
    """Return the starting parameters of all nodes that the user gives."""
    try:
        given = np.array(init, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ProblemError(
            f"init must be one of {', '.join(INITS)}, or numbers of shape ({n_nodes}, "
            f"{size}), got {shown(init)}"
        ) from None
    if given.shape != (n_nodes, size):
        raise ProblemError(
            f"init must have shape ({n_nodes}, {size}), got {given.shape}"
        )
    if not np.isfinite(given).all():
        node = int(np.argwhere(~np.isfinite(given))[0, 0])
        raise ProblemError(f"init must be finite, but at node {node} it is not")
    return given


def _check_warm_start(
    result: Result, hosted: Mapping[int, Problem], n_nodes: int
) -> None:
    """Raise unless a run of these nodes can start from a result."""
    if not isinstance(result, Result):
        raise ConfigError(
            f"warm_start must be a result of dadmm.solve, got {shown(result)}"
        )
    layout = next(iter(hosted.values())).layout
    if result.layout != layout or result.topology.n_nodes != n_nodes or result.lost:
        raise ConfigError(
            f"warm_start has {result.topology.n_nodes} nodes with {result.layout}, and "
            f"this run has {n_nodes} nodes with {layout}; start without warm_start, or "
            "pass init"
        )
    if not hosted.keys() <= result.duals.keys():
        raise ConfigError(
            "warm_start needs a result of the same processes: this one has no "
            "multipliers of some nodes here"
        )
