"""Facts that decide the numbers of a run, to compare ranks, or a run and a checkpoint.

Facts are texts by name: versions and settings as they are, and hashes of long values.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np

from dadmm.core import version
from dadmm.core.errors import ConfigError, ProblemError, TopologyError
from dadmm.graphs.schedule import Schedule
from dadmm.graphs.topology import Topology

Facts = Mapping[str, str]


def identity(
    given: Mapping[str, Any], topology: Topology, schedule: Schedule | None = None
) -> dict[str, str]:
    """Return the facts by which a run recognises its own checkpoints.

    ``given`` are the settings that decide the numbers.
    """
    return {
        "version": version.__version__,
        "configuration": f"{digest(settings(given)):016x}",
        "graph": of_graph(topology, schedule),
    }


def versions() -> dict[str, str]:
    """Return the versions of dadmm and numpy."""
    return {"dadmm": version.__version__, "numpy": np.__version__}


def settings(given: Mapping[str, Any]) -> dict[str, str]:
    """Return settings as texts that are equal if the settings are.

    Numbers are compared by value, dicts by their keys. Of arrays and other objects only
    their presence counts.
    """
    found: dict[str, str] = {}
    for name, value in given.items():
        if is_dataclass(value) and not isinstance(value, type):
            found |= {name: type(value).__name__} | settings(asdict(value))
        else:
            found[name] = _plain(value)
    return found


def _plain(value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return repr(bool(value))
    if isinstance(value, Integral):
        return repr(int(value))
    if isinstance(value, Real):
        number = float(value)
        return repr(int(number) if number.is_integer() else number)
    if isinstance(value, str):
        return repr(str(value))
    if isinstance(value, Mapping):
        return repr([str(name) for name in value])
    return "None" if value is None else "given"


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
    """Raise an error if the facts of the ranks, in order, differ."""
    names = dict.fromkeys(name for facts in everyone for name in facts)
    unlike = [name for name in names if len({own.get(name) for own in everyone}) > 1]
    if not unlike:
        return
    name = unlike[0]
    mine, *values = (facts.get(name) for facts in everyone)
    theirs = next(value for value in values if value != mine)
    ranks = [str(rank) for rank, value in enumerate(values, 1) if value == theirs]
    if len(ranks) > 4:
        ranks = [*ranks[:3], f"{len(ranks) - 3} others"]
    who = f"rank {ranks[0]} has"
    if len(ranks) > 1:
        who = f"ranks {', '.join(ranks[:-1])} and {ranks[-1]} have"
    if name == "graph":
        raise TopologyError(
            f"{who} another graph or schedule than rank 0; give all ranks the same"
        )
    if name == "problems":
        raise ProblemError(
            f"{who} {theirs}, but rank 0 has {mine}; give every rank the problem of "
            "its node, or a dict of problems by node"
        )
    if name == "layout":
        raise ProblemError(
            f"{who} parameters {theirs} but rank 0 {mine}; give every rank data of the "
            "same shape"
        )
    if name in versions():
        raise ConfigError(
            f"{who} {name} {theirs} but rank 0 has {name} {mine}; install the same "
            "version for all ranks"
        )
    raise ConfigError(
        f"{who} {name} = {theirs} but rank 0 has {mine}; start all ranks with the same "
        "settings"
    )
