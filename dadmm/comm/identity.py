"""Facts that decide the numbers of a run, to compare ranks, or it and a checkpoint."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from numbers import Real

import numpy as np

from dadmm.core import version
from dadmm.core.errors import ConfigError, ProblemError, TopologyError, listed
from dadmm.graphs.schedule import Schedule
from dadmm.graphs.topology import Topology

Facts = Mapping[str, str]  # by name: values as they are, or hashes of long ones
KINDS = {"graph": TopologyError, "problems": ProblemError, "layout": ProblemError}


def identity(
    given: Mapping[str, object], topology: Topology, schedule: Schedule | None = None
) -> dict[str, str]:
    """Return the facts by which a run, with these settings, knows its checkpoints."""
    return {
        "version": version.__version__,
        "configuration": digest(settings(given)),
        "graph": of_graph(topology, schedule),
    }


def settings(given: Mapping[str, object]) -> dict[str, str]:
    """Return settings as texts that are equal if the settings are.

    Numbers are compared by value, dicts by their keys, dataclasses by type and fields,
    and other objects by their presence.
    """
    found: dict[str, str] = {}
    for name, value in given.items():
        if isinstance(value, np.generic):
            value = value.item()
        if is_dataclass(value) and not isinstance(value, type):
            found |= {name: type(value).__name__} | settings(asdict(value))
        elif isinstance(value, Mapping):
            found[name] = repr([str(key) for key in value])
        elif isinstance(value, float) and value.is_integer():
            found[name] = repr(int(value))
        else:
            is_plain = isinstance(value, str | Real | None)
            found[name] = repr(value) if is_plain else "given"
    return found


def of_graph(topology: Topology, schedule: Schedule | None = None) -> str:
    """Return a checksum of the edges, and of the rounds of the schedule."""
    parts = [np.array(topology.n_nodes), topology.edges]
    if schedule is not None:
        parts += [schedule.union.edges[rows] for rows in schedule.rows]
    return of_data(parts)


def of_data(samples: Iterable[np.ndarray]) -> str:
    """Return a checksum of the shapes, types and bytes of arrays."""
    code = 0
    for array in samples:
        code = zlib.crc32(f"{array.shape} {array.dtype.str}".encode(), code)
        code = zlib.crc32(np.ascontiguousarray(array).data, code)
    return f"{code:08x}"


def digest(facts: Facts) -> str:
    """Return a hash of facts, in any order."""
    from hashlib import blake2b  # loads OpenSSL, which importing dadmm need not

    lines = sorted(f"{name} = {value}" for name, value in facts.items())
    return blake2b("\n".join(lines).encode(), digest_size=8).hexdigest()


def raise_difference(everyone: Sequence[Facts]) -> None:
    """Raise an error for the first fact that differs between ranks, if any does."""
    for name in dict.fromkeys(name for facts in everyone for name in facts):
        mine, *values = (str(facts.get(name)) for facts in everyone)
        ranks = [str(rank) for rank, value in enumerate(values, 1) if value != mine]
        if ranks:
            theirs, who = values[int(ranks[0]) - 1], f"rank {ranks[0]} has"
            if len(ranks) > 1:
                who = f"ranks {listed(ranks, 4)} have"
            raise KINDS.get(name, ConfigError)(
                f"{who} {name} = {theirs}, but rank 0 has {mine}; start all ranks with "
                "the same versions, settings, graph and kind of data"
            )
