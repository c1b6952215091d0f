"""Read host files, in the format of MPICH or of Open MPI."""

from __future__ import annotations

import re
from pathlib import Path

from launch.base.messages import UsageError
from launch.base.reading import read_text

# host, host:4, host slots=4; Open MPI's max_slots is accepted and ignored
LINE = re.compile(
    r"(?P<host>\w[\w.-]*)(?::(?P<count>\d+)|(?:\s+slots\s*=\s*(?P<slots>\d+))?"
    r"(?:\s+max[_-]slots\s*=\s*\d+)?)"
)


def read(file: str) -> list[str]:
    """Return the host of each slot; the slots of one host follow each other."""
    try:
        lines = read_text(Path(file)).splitlines()
    except FileNotFoundError as error:
        raise UsageError(
            f"cannot read the host file {file!r}: {error.strerror}"
        ) from None
    hosts = []
    for number, line in enumerate(lines, 1):
        if text := line.partition("#")[0].strip():
            hosts += slots(text, f"line {number} of {file}")
    if not hosts:
        raise UsageError(f"{file} names no host; write one per line, as node1:4")
    return sorted(hosts, key=list(dict.fromkeys(hosts)).index)


def slots(text: str, where: str) -> list[str]:
    """Return the host of a line, once for each slot; one slot without a number."""
    found = LINE.fullmatch(text)
    number = (found["count"] or found["slots"] or "1") if found else "0"
    count = int(number) if len(number) < 7 else 0
    if not found or not count:
        raise UsageError(
            f"{where} must be a host and its ranks, as node1:4 or node1 slots=4, "
            f"got {text!r}"
        )
    return [found["host"]] * count


def first(hosts: list[str], ranks: int | None) -> list[str]:
    """Return the hosts of the first `ranks` slots, or of all if it is None."""
    if ranks is None:
        return hosts
    if ranks > len(hosts):
        raise UsageError(
            f"the host file has {len(hosts)} slots, too few for -n {ranks}; "
            "give its hosts more, or leave out -n to use all"
        )
    return hosts[:ranks]
