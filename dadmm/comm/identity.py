"""Facts that decide the numbers of a run, to compare ranks, or it and a checkpoint."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from numbers import Real

import numpy as np

from dadmm.core import version
from dadmm.core.errors import ConfigError, ProblemError, TopologyError
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
        "configuration": f"{digest(settings(given)):016x}",
        "graph": of_graph(topology, schedule),
    }


def versions() -> dict[str, str]:
    return {"dadmm": version.__version__, "numpy": np.__version__}


def settings(given: Mapping[str, object]) -> dict[str, str]:
    """Return settings as texts that are equal if the settings are, see `_plain`."""
    found: dict[str, str] = {}
    for name, value in given.items():
        if is_dataclass(value) and not isinstance(value, type):
            found |= {name: type(value).__name__} | settings(asdict(value))
        else:
            found[name] = _plain(value)
    return found


def _plain(value: object) -> str:
    """Return numbers by value, dicts by their keys, other objects by their presence."""
    if isinstance(value, Mapping):
        return repr([str(name) for name in value])
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Real) and not isinstance(value, bool | int):
        value = int(float(value)) if float(value).is_integer() else float(value)
    return repr(value) if isinstance(value, str | Real | None) else "given"


def of_graph(topology: Topology, schedule: Schedule | None = None) -> str:
    """Return a hash of the edges, and of the rounds of the schedule."""
    parts = [topology.edges]
    if schedule is not None:
        parts += [schedule.union.edges[rows] for rows in schedule.rows]
    counts = [topology.n_nodes, *map(len, parts)]
    numbers = np.concatenate([counts, *(part.ravel() for part in parts)])
    return _hash(numbers.astype("<i8").tobytes())


def of_data(samples: Iterable[np.ndarray]) -> str:
    """Return a checksum of the shapes, types and bytes of arrays."""
    code = 0
    for array in samples:
        code = zlib.crc32(f"{array.shape} {array.dtype.str}".encode(), code)
        code = zlib.crc32(np.ascontiguousarray(array).data, code)
    return f"{code:08x}"


def digest(facts: Facts) -> int:
    """Return a hash of facts, in any order, as a number of 64 bits."""
    lines = sorted(f"{name} = {value}" for name, value in facts.items())
    return int(_hash("\n".join(lines).encode()), 16)


def _hash(data: bytes) -> str:
    from hashlib import blake2b  # loads OpenSSL, which importing dadmm need not

    return blake2b(data, digest_size=8).hexdigest()


def raise_difference(everyone: Sequence[Facts]) -> None:
    """Raise an error for the first fact that differs between ranks, if any does."""
    for name in dict.fromkeys(name for facts in everyone for name in facts):
        mine, *values = (str(facts.get(name)) for facts in everyone)
        ranks = [str(rank) for rank, value in enumerate(values, 1) if value != mine]
        if ranks:
            theirs, who = values[int(ranks[0]) - 1], f"rank {ranks[0]} has"
            if len(ranks) > 4:
                ranks[3:] = [f"{len(ranks) - 3} others"]
            if len(ranks) > 1:
                who = f"ranks {', '.join(ranks[:-1])} and {ranks[-1]} have"
            raise KINDS.get(name, ConfigError)(
                f"{who} {name} = {theirs}, but rank 0 has {mine}; start all ranks with "
                "the same versions, settings, graph and kind of data"
            )
