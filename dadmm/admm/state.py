"""The state of a run after an iteration: taken, put away flat, and given back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dadmm.admm.node import Node
from dadmm.admm.stopping import GlobalStopping
from dadmm.core.interfaces import Exchange
from dadmm.core.layout import Matrix

States = dict[int, dict[str, Any]]  # by hosted node
Arrays = dict[str, np.ndarray]
_NONE, _TUPLE = "none", "tuple"


def take(
    nodes: Sequence[Node],
    exchange: Exchange,
    global_stopping: GlobalStopping | None,
    posted: Matrix | None,
) -> States:
    """Return the state of each hosted node; the arrays are those in use.

    Parameters
    ----------
    nodes : sequence of Node
        In the order of ``exchange.hosted``.
    exchange : Exchange
    global_stopping : GlobalStopping, optional
    posted : ndarray of shape (len(nodes), n), optional
        What the nodes let all others know, which is read in the next iteration.
    """
    return {
        i: {
            "node": nodes[k].state(),
            "sent": exchange.sent[i],
            "polls": exchange.posts,
            "posted": None if posted is None else posted[k],
            "council": None if global_stopping is None else global_stopping.state(),
        }
        for k, i in enumerate(exchange.hosted)
    }


def give(
    states: States,
    nodes: Sequence[Node],
    exchange: Exchange,
    global_stopping: GlobalStopping | None,
) -> None:
    """Restore nodes, after the initial exchange, from these states."""
    for i, node in zip(exchange.hosted, nodes, strict=True):
        node.restore(states[i]["node"])
        exchange.sent[i][...] = states[i]["sent"]
    first = states[exchange.hosted[0]]
    if global_stopping is not None and first["council"] is not None:
        global_stopping.restore(first["council"])
    if first["posted"] is not None:
        exchange.post(np.array([states[i]["posted"] for i in exchange.hosted]))
    exchange.posts = first["polls"]


def flatten(value: Any, name: str = "state") -> Arrays:
    """Return a value made of arrays, numbers, tuples, dicts and None as flat arrays."""
    if value is None:
        return {f"{name}:{_NONE}": np.empty(0)}
    if isinstance(value, np.ndarray) or not isinstance(value, (Mapping, tuple, list)):
        return {name: np.asarray(value)}
    items = value.items() if isinstance(value, Mapping) else enumerate(value)
    arrays: Arrays = {}
    if not isinstance(value, Mapping):
        arrays[f"{name}:{_TUPLE}"] = np.array(len(value))
    for key, inner in items:
        arrays |= flatten(inner, f"{name}/{key}")
    return arrays


def rebuild(like: Any, arrays: Arrays, name: str = "state") -> Any:
    """Return a value that `flatten` has put away.

    Parameters
    ----------
    like : Any
        A value of the same make, for its keys and the types of its tuples.
    arrays : dict of str to ndarray
    name : str
    """
    if f"{name}:{_NONE}" in arrays:
        return None
    if isinstance(like, Mapping):
        return {key: rebuild(like[key], arrays, f"{name}/{key}") for key in like}
    if f"{name}:{_TUPLE}" in arrays:
        count = int(arrays[f"{name}:{_TUPLE}"])
        models = like if isinstance(like, (tuple, list)) else [None] * count
        inner = [rebuild(models[k], arrays, f"{name}/{k}") for k in range(count)]
        kind = type(like)
        if hasattr(kind, "_fields"):
            return kind(*inner)
        return inner if isinstance(like, list) else tuple(inner)
    found = arrays[name]
    return found if found.ndim else found.item()
