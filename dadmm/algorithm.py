"""The algorithm: all nodes of a process, iteration by iteration (Algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

import numpy as np

from dadmm.crew import Crew, crews
from dadmm.errors import ProblemError
from dadmm.interfaces import Exchange
from dadmm.layout import Matrix
from dadmm.node import EXCHANGE, OBSERVE, PHASES, SOLVE, UPDATE, Node
from dadmm.stopping import REASONS, Council

Watcher = Callable[[int, Sequence[Node]], str | None]


def iterate(
    nodes: Sequence[Node],
    exchange: Exchange,
    max_iter: int,
    council: Council | None = None,
    watchers: Sequence[Watcher] = (),
) -> tuple[int, str]:
    """Run the algorithm; return the number of iterations and why it ended.

    Parameters
    ----------
    nodes : sequence of Node
        Those that the exchange hosts, in its order.
    exchange : Exchange
    max_iter : int
    council : Council, optional
        Agreement over the whole network instead of between neighbours.
    watchers : sequence of callables
        Each is shown ``(t, nodes)`` after every iteration and may return a reason to
        stop. Their time is counted apart.
    """
    workers = crews(nodes)
    reduces = nodes[0].scheme.reduces
    posts, posted = reduces or council is not None, np.empty((0, 0))
    prime(nodes, exchange)
    for t in range(1, max_iter + 1):
        for worker in workers:
            _timed(SOLVE, worker, worker.propose)
        start = perf_counter()
        exchange.swap()
        if posts and t > 1:
            posted = exchange.read()
        share = (perf_counter() - start) / len(nodes)
        if reduces and t > 1:
            _tell(nodes, posted)
        for worker in workers:
            _timed(UPDATE, worker, worker.absorb, t)
        for node in nodes:
            node.seconds[EXCHANGE] = share
        start = perf_counter()
        agreed = council is not None and t > 1 and council.hear(posted[:, 0])
        if posts and not agreed:
            exchange.post(_shared(nodes, council))
        _watch(watchers, t, nodes)
        share = (perf_counter() - start) / len(nodes)
        for node in nodes:
            _tally(node, share)
        if agreed:
            return t, "converged"
        if nodes[0].done:  # all nodes are done after the same iteration
            return t, REASONS[int(nodes[0].accord.reason)]
    return max_iter, "max_iter"


def prime(nodes: Sequence[Node], exchange: Exchange) -> None:
    """Let all nodes know their neighbours' starting parameters."""
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
            f"the local problem of node {nodes} broke down ({error}); are its samples "
            "all alike, or fewer than two?"
        ) from error
    share = (perf_counter() - start) / len(worker.nodes)
    for node in worker.nodes:
        node.seconds[phase] = share


def _tally(node: Node, observe_seconds: float) -> None:
    """Close a node's books on an iteration."""
    node.seconds[OBSERVE] = observe_seconds
    for phase in PHASES:
        node.total_seconds[phase] += node.seconds[phase]


def _watch(watchers: Sequence[Watcher], t: int, nodes: Sequence[Node]) -> None:
    for watcher in watchers:
        reason = watcher(t, nodes)
        if reason is not None:
            for node in nodes:
                node.ask_to_stop(t, reason)


def _shared(nodes: Sequence[Node], council: Council | None) -> Matrix:
    """Return what each node lets all others know, read one iteration later."""
    rows = []
    for node in nodes:
        vote = council and council.vote(node.objective, node.satisfied)
        lengths = (node.primal, node.dual) if node.scheme.reduces else ()
        rows.append((*([] if vote is None else [vote]), *lengths))
    return np.array(rows)


def _tell(nodes: Sequence[Node], posted: Matrix) -> None:
    """Let the nodes know the residuals of the whole network."""
    primal, dual = np.sqrt(np.sum(posted[:, -2:] ** 2, axis=0)).tolist()
    for node in nodes:
        node.network = primal, dual
