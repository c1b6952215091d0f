"""Host files: which host has how many ranks, as MPICH or Open MPI write it."""

from __future__ import annotations

import re
from pathlib import Path

from launch.base.environment import UsageError

# host, host:4, host slots=4; Open MPI's max_slots is allowed and changes nothing
LINE = re.compile(
    r"(?P<host>[\w.-]+)(?::(?P<count>\d+)|(?:\s+slots\s*=\s*(?P<slots>\d+))?"
    r"(?:\s+max[_-]slots\s*=\s*\d+)?)"
)


def read(file: str) -> list[str]:
    """Return the host of each slot of a host file; lines of one host add up."""
    try:
        lines = Path(file).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise UsageError(f"cannot read the host file {file!r}: {reason}") from None
    places = []
    for number, line in enumerate(lines, 1):
        if words := line.partition("#")[0].strip():
            places += slots(words, f"line {number} of {file}")
    if not places:
        raise UsageError(f"{file} names no host; write one in a line, as node1:4")
    return sorted(places, key=list(dict.fromkeys(places)).index)


def slots(words: str, where: str) -> list[str]:
    """Return the host of a line, once for each slot; one if it says no number."""
    found = LINE.fullmatch(words)
    count = int(found["count"] or found["slots"] or 1) if found else 0
    if not found or not count:
        raise UsageError(
            f"{where} must be a host and its ranks, as node1:4 or node1 slots=4, "
            f"got {words!r}"
        )
    return [found["host"]] * count


def first(places: list[str], ranks: int | None) -> list[str]:
    """Return the hosts of so many ranks, or of all slots without a number."""
    if ranks is None:
        return places
    if ranks > len(places):
        raise UsageError(
            f"the host file has {len(places)} slots, too few for -n {ranks}; "
            "give its hosts more, or leave out -n to use all"
        )
    return places[:ranks]
