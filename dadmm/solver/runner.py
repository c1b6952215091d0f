"""Run the algorithm on the nodes of this process, and continue after rank failures.

After a failure the remaining ranks continue on the remaining graph, if MPI allows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from dadmm.admm.loop import Callback, Run, iterate
from dadmm.admm.state import State
from dadmm.graphs.schedule import Schedule
from dadmm.graphs.topology import Topology
from dadmm.solver import recovery
from dadmm.solver.checkpoint import Checkpoints, restoring
from dadmm.solver.recovery import NodeFailure, StateBuffer


class LocalRun(NamedTuple):
    """The run of this process, and the failures before it."""

    run: Run
    schedule: Schedule | None
    names: tuple[int, ...]  # the original number of each node of the graph
    failures: tuple[NodeFailure, ...] = ()

    @property
    def lost(self) -> list[int]:
        """Original numbers of the failed nodes that this process knows of."""
        return sorted(i for failure in self.failures for i in failure.lost)

    @property
    def component_root(self) -> int | None:
        """The first node of this component; None in the first component."""
        found = None
        for failure in self.failures:
            if failure.component != failure.components[0]:
                found = failure.component[0]
        return found


def run_with_recovery(
    local: LocalRun,
    max_iter: int,
    callbacks: Sequence[Callback],
    checkpoints: Checkpoints | None = None,
) -> tuple[LocalRun, int, str]:
    """Run the algorithm, and run it again without the failed nodes after a failure.

    Parameters
    ----------
    local : LocalRun
    max_iter : int
    callbacks : sequence of callables
        After a failure, the method ``rewind`` of each callback that has one is called
        with the `NodeFailure`.
    checkpoints : Checkpoints, optional
        Nothing is saved after the first failure, because a checkpoint needs all nodes.

    Returns
    -------
    local : LocalRun
        The run that finished.
    iterations : int
    reason : str
        One of `stopping.REASONS`.
    """
    start, state = 0, None
    last = [] if checkpoints is None else [checkpoints]
    while True:
        run, exchange = local.run, local.run.exchange
        buffer = StateBuffer(run.stopping.reach, start, state)
        if _open(run):
            if local.failures:
                assert state is not None
                state.traffic[...] = exchange.sent  # with the initial messages
            elif checkpoints is not None:
                with restoring(checkpoints):
                    start, state = checkpoints.start, checkpoints.state(run.names)
            if state is not None:
                with restoring(checkpoints):
                    run.restore(state)
            called: list[Callback] = [*callbacks, *last]
            if exchange.rank_failure:
                buffer = StateBuffer(run.stopping.reach, start, run.snapshot())
                called.append(buffer)
            ended = None
            with suppress(*exchange.rank_failure):
                ended = iterate(run, max_iter, called, start)
            if exchange.all_finished(ended is not None):
                assert ended is not None
                return local, *ended
        elif buffer.empty:
            exchange.raise_failed()
        local, state, start = _without_failed(local, buffer)
        for callback in callbacks:
            if hasattr(callback, "rewind"):
                callback.rewind(local.failures[-1])
        if checkpoints is not None:
            checkpoints.saves = False


def _open(run: Run) -> bool:
    """Exchange initial parameters; return True if no rank failed."""
    finished = False
    with suppress(*run.exchange.rank_failure):
        run.open()
        finished = True
    return run.exchange.all_finished(finished)


def _without_failed(
    local: LocalRun, buffer: StateBuffer
) -> tuple[LocalRun, State, int]:
    """Return the run without the failed nodes, its state, and the iteration."""
    before = local.run
    (me,) = before.nodes.tolist()
    graph = before.topology

    def plan(alive: Sequence[int]) -> tuple[Sequence[int], Topology]:
        part = next(part for part in recovery.components(graph, alive) if me in part)
        return part, recovery.restrict(graph, local.schedule, part)[0]

    exchange, alive, t = before.exchange.shrink(buffer.last, plan)
    parts, (part, _) = recovery.components(graph, alive), plan(alive)
    kept = np.isin(graph.neighbours[me], part)

    def named(nodes: Sequence[int]) -> tuple[int, ...]:
        return tuple(local.names[i] for i in nodes)

    dead = sorted(set(range(graph.n_nodes)) - set(alive))
    failure = NodeFailure(t, named(dead), tuple(map(named, parts)), named(part), kept)
    topology, schedule = recovery.restrict(graph, local.schedule, part)
    run = Run(before.setup, exchange, topology, schedule, named(part))
    state = recovery.remove_edges(buffer.at(t), kept, run.layout)
    # these counts include the iterations that are repeated
    exchange.sent[...] = before.exchange.sent[kept]
    failures = *local.failures, failure
    return LocalRun(run, schedule, named(part), failures), state, t
