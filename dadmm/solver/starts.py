"""Where a run starts: drawn or given parameters, or the end of another run."""

from __future__ import annotations

import numpy as np

from dadmm.admm.local import as_numbers
from dadmm.core.errors import ConfigError, ProblemError, shown
from dadmm.core.interfaces import Problem
from dadmm.core.layout import Layout, Matrix, Vector
from dadmm.core.schema import SEED
from dadmm.solver.plan import INITS
from dadmm.solver.result import Result


def draw_starts(
    hosted: dict[int, Problem],
    n_nodes: int,
    size: int,
    init: str | Matrix,
    seed: int,
) -> dict[int, Vector]:
    """Return the starting parameters of the hosted nodes."""
    if not isinstance(init, str):
        try:
            given = np.array(init, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            allowed = ", ".join(INITS)
            raise ProblemError(
                f"init must be one of {allowed}, or numbers of shape ({n_nodes}, "
                f"{size}), got {shown(init)}"
            ) from None
        if given.shape != (n_nodes, size):
            raise ProblemError(
                f"init must have shape ({n_nodes}, {size}), got {given.shape}"
            )
        if not np.isfinite(given).all():
            node = int(np.argwhere(~np.isfinite(given))[0, 0])
            raise ProblemError(f"init must be finite, but that of node {node} is not")
        return {i: given[i] for i in hosted}
    SEED.check("seed", seed)
    # one stream for all nodes, or one per node: the same with and without MPI
    key = {i: [seed, 0] if init == "shared" else [seed, 1, i] for i in hosted}
    drawn = {i: hosted[i].init(np.random.default_rng(key[i])) for i in hosted}
    return {i: as_numbers(drawn[i], (size,), "init") for i in hosted}


def starts_of_result(
    result: Result,
    hosted: dict[int, Problem],
    n_nodes: int,
    layout: Layout,
    init: str | Matrix | None,
) -> tuple[dict[int, Vector], dict[int, Vector]]:
    """Return the parameters and duals of the hosted nodes at the end of a run."""
    if not isinstance(result, Result):
        raise ConfigError(
            f"warm_start must be a result of dadmm.solve, got {shown(result)}"
        )
    if init is not None:
        raise ConfigError("give init or warm_start, not both")
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
    starts = {i: result.of(i) for i in hosted}
    return starts, {i: result.duals[i] for i in hosted}
