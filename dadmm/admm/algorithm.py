"""The algorithm: all nodes of a process, iteration by iteration (Algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Protocol

import numpy as np

from dadmm.admm import state
from dadmm.admm.crew import Crew, crews
from dadmm.admm.node import EXCHANGE, OBSERVE, PHASES, SOLVE, UPDATE, Node
from dadmm.admm.stopping import REASONS, GlobalStopping
from dadmm.core.errors import ProblemError
from dadmm.core.interfaces import Exchange
from dadmm.core.layout import Matrix

Callback = Callable[[int, Sequence[Node]], str | None]


class Checkpointer(Protocol):
    """Saves states of a run."""

    def save(self, t: int, request: str, take: Callable[[], state.States]) -> None:
        """Save the state after iteration ``t`` if a save is due.

        ``take`` returns the state. ``request`` is the request that is due now, or
        "max_iter" in the last iteration.
        """


def iterate(
    nodes: Sequence[Node],
    exchange: Exchange,
    max_iter: int,
    global_stopping: GlobalStopping | None = None,
    callbacks: Sequence[Callback] = (),
    checkpointers: Sequence[Checkpointer] = (),
    start: int = 0,
) -> tuple[int, str]:
    """Run the algorithm; return the number of iterations and why it ended.

    Parameters
    ----------
    nodes : sequence of Node
        The nodes that the exchange hosts, in its order, after `prime`.
    exchange : Exchange
    max_iter : int
    global_stopping : GlobalStopping, optional
        Stopping by a collective instead of by headers.
    callbacks : sequence of callables
        Each is called with ``(t, nodes)`` after every iteration and may return a
        request, see `stopping.REQUESTS`. Their time is counted separately.
    checkpointers : sequence of Checkpointer
    start : int
        Number of iterations that the nodes have done before.
    """
    reduces = nodes[0].scheme.needs_global_residuals
    posts, posted = reduces or global_stopping is not None, np.empty((0, 0))
    shared: Matrix | None = None

    def take() -> state.States:
        return state.take(nodes, exchange, global_stopping, shared)

    workers = crews(nodes)
    for t in range(start + 1, max_iter + 1):
        for worker in workers:
            _timed(SOLVE, worker, worker.propose)
        began = perf_counter()
        exchange.swap()
        if posts and t > 1:
            posted = exchange.read()
        share = (perf_counter() - began) / len(nodes)
        if reduces and t > 1:
            _set_network_residuals(nodes, posted)
        for worker in workers:
            _timed(UPDATE, worker, worker.absorb, t)
        for node in nodes:
            node.seconds[EXCHANGE] = share
        began = perf_counter()
        agreed = (
            global_stopping is not None
            and t > 1
            and global_stopping.update(posted[:, 0])
        )
        if posts and not agreed:
            shared = _posts(nodes, global_stopping)
            exchange.post(shared)
        request = max(node.due_request(t) for node in nodes)  # all alike
        _call(callbacks, t, nodes)
        share = (perf_counter() - began) / len(nodes)
        for node in nodes:
            _add_seconds(node, share)
        if agreed or nodes[0].done:  # all nodes are done after the same iteration
            return t, "converged"
        if t == max_iter:
            request = "max_iter"
        if checkpointers:
            _save(checkpointers, t, request, nodes, take)
        if request in REASONS:
            return t, request
    return max_iter, "max_iter"


def prime(nodes: Sequence[Node], exchange: Exchange) -> None:
    """Exchange the starting parameters between neighbours."""
    for node in nodes:
        node.greet()
    exchange.swap()
    for node in nodes:
        node.meet()


def _timed(
    phase: int, worker: Node | Crew, step: Callable[..., None], *args: int
) -> None:
    start = perf_counter()
    try:
        step(*args)
    except (np.linalg.LinAlgError, ZeroDivisionError) as error:
        nodes = ", ".join(str(node.index) for node in worker.nodes)
        raise ProblemError(
            f"the local problem of node {nodes} broke down ({error}); check that it "
            "has at least two samples, and that they differ"
        ) from error
    share = (perf_counter() - start) / len(worker.nodes)
    for node in worker.nodes:
        node.seconds[phase] = share


def _add_seconds(node: Node, observe_seconds: float) -> None:
    """Add the seconds of an iteration to the totals of a node."""
    node.seconds[OBSERVE] = observe_seconds
    for phase in PHASES:
        node.total_seconds[phase] += node.seconds[phase]


def _call(callbacks: Sequence[Callback], t: int, nodes: Sequence[Node]) -> None:
    for callback in callbacks:
        request = callback(t, nodes)
        if request is not None:
            for node in nodes:
                node.add_request(t, request)


def _save(
    checkpointers: Sequence[Checkpointer],
    t: int,
    request: str,
    nodes: Sequence[Node],
    take: Callable[[], state.States],
) -> None:
    began = perf_counter()
    for checkpointer in checkpointers:
        checkpointer.save(t, request, take)
    share = (perf_counter() - began) / len(nodes)
    for node in nodes:
        node.total_seconds[OBSERVE] += share


def _posts(nodes: Sequence[Node], global_stopping: GlobalStopping | None) -> Matrix:
    """Return the numbers that each node posts, to be read one iteration later."""
    rows = []
    for node in nodes:
        vote = global_stopping and global_stopping.vote(node.objective, node.satisfied)
        lengths = (node.primal, node.dual) if node.scheme.needs_global_residuals else ()
        rows.append((*([] if vote is None else [vote]), *lengths))
    return np.array(rows)


def _set_network_residuals(nodes: Sequence[Node], posted: Matrix) -> None:
    """Set the residuals of the whole network on each node."""
    primal, dual = np.sqrt(np.sum(posted[:, -2:] ** 2, axis=0)).tolist()
    for node in nodes:
        node.network = primal, dual
