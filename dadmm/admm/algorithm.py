"""The algorithm: all nodes of a process, iteration by iteration (Algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Protocol

import numpy as np

from dadmm.admm import state
from dadmm.admm.crew import Crew, crews
from dadmm.admm.node import EXCHANGE, OBSERVE, PHASES, SOLVE, UPDATE, Node
from dadmm.admm.stopping import REASONS, Council
from dadmm.core.errors import ProblemError
from dadmm.core.interfaces import Exchange
from dadmm.core.layout import Matrix

Watcher = Callable[[int, Sequence[Node]], str | None]


class Keeper(Protocol):
    """Who keeps states of a run."""

    def keep(self, t: int, wish: str, take: Callable[[], state.States]) -> None:
        """Take the state after iteration ``t``, or not.

        ``wish`` is what all nodes fulfil now, or "max_iter" in the last iteration.
        """


def iterate(
    nodes: Sequence[Node],
    exchange: Exchange,
    max_iter: int,
    council: Council | None = None,
    watchers: Sequence[Watcher] = (),
    keepers: Sequence[Keeper] = (),
    start: int = 0,
) -> tuple[int, str]:
    """Run the algorithm; return the number of iterations and why it ended.

    Parameters
    ----------
    nodes : sequence of Node
        Those that the exchange hosts, in its order; they have met (`prime`).
    exchange : Exchange
    max_iter : int
    council : Council, optional
        Agreement over the whole network instead of between neighbours.
    watchers : sequence of callables
        Each is shown ``(t, nodes)`` after every iteration and may return a wish, see
        `stopping.WISHES`. Their time is counted apart.
    keepers : sequence of Keeper
    start : int
        The iteration after which the nodes are.
    """
    reduces = nodes[0].scheme.needs_global_residuals
    posts, posted = reduces or council is not None, np.empty((0, 0))
    shared: Matrix | None = None

    def take() -> state.States:
        return state.take(nodes, exchange, council, shared)

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
            _tell(nodes, posted)
        for worker in workers:
            _timed(UPDATE, worker, worker.absorb, t)
        for node in nodes:
            node.seconds[EXCHANGE] = share
        began = perf_counter()
        agreed = council is not None and t > 1 and council.hear(posted[:, 0])
        if posts and not agreed:
            shared = _shared(nodes, council)
            exchange.post(shared)
        wish = max(node.granted(t) for node in nodes)  # all alike
        _watch(watchers, t, nodes)
        share = (perf_counter() - began) / len(nodes)
        for node in nodes:
            _tally(node, share)
        if agreed or nodes[0].done:  # all nodes are done after the same iteration
            return t, "converged"
        if t == max_iter:
            wish = "max_iter"
        if keepers:
            _keep(keepers, t, wish, nodes, take)
        if wish in REASONS:
            return t, wish
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
        wish = watcher(t, nodes)
        if wish is not None:
            for node in nodes:
                node.ask(t, wish)


def _keep(
    keepers: Sequence[Keeper],
    t: int,
    wish: str,
    nodes: Sequence[Node],
    take: Callable[[], state.States],
) -> None:
    began = perf_counter()
    for keeper in keepers:
        keeper.keep(t, wish, take)
    share = (perf_counter() - began) / len(nodes)
    for node in nodes:
        node.total_seconds[OBSERVE] += share


def _shared(nodes: Sequence[Node], council: Council | None) -> Matrix:
    """Return what each node lets all others know, read one iteration later."""
    rows = []
    for node in nodes:
        vote = council and council.vote(node.objective, node.satisfied)
        lengths = (node.primal, node.dual) if node.scheme.needs_global_residuals else ()
        rows.append((*([] if vote is None else [vote]), *lengths))
    return np.array(rows)


def _tell(nodes: Sequence[Node], posted: Matrix) -> None:
    """Let the nodes know the residuals of the whole network."""
    primal, dual = np.sqrt(np.sum(posted[:, -2:] ** 2, axis=0)).tolist()
    for node in nodes:
        node.network = primal, dual
