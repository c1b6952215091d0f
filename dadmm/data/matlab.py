"""A check of .mat files before scipy reads them.

scipy 1.17 looks up the type of a matrix's numbers without a check, and a file with an
unknown type ends the process.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from dadmm.core.errors import ShardError

COMPRESSED = 15
NUMBERS = (1, 2, 3, 4, 5, 6, 7, 9, 12, 13)  # types of integers and floats
COMPLEX = 0x0800  # a flag of a matrix
HEAD = 2**16  # bytes of a matrix in which its numbers must start


def check_numbers(file: Path, name: str) -> None:
    """Raise if a matrix of a MATLAB 5 file has numbers of an unknown type."""
    with file.open("rb") as stream:
        start = stream.read(128)
        if 0 in start[:4]:  # MATLAB 4
            return
        order = "<" if start[126:] == b"IM" else ">"
        while len(tag := stream.read(8)) == 8:
            kind, size = struct.unpack(f"{order}II", tag)
            after = stream.tell() + size
            head = stream.read(min(size, HEAD))
            if kind == COMPRESSED:
                head = zlib.decompressobj().decompress(head, HEAD)[8:]
            flags = int(struct.unpack_from(f"{order}I", head, 8)[0])
            parts = _parts(head[16:], order)
            next(parts)  # the shape
            if next(parts)[1].decode("latin-1") == name:
                if flags & COMPLEX:
                    raise ShardError(f"{name} has complex values; save real numbers")
                kind, _ = next(parts, (0, b""))
                if kind not in NUMBERS:
                    raise ValueError(f"{name} has numbers of an unknown type {kind}")
            stream.seek(after)


def _parts(data: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    """Yield the types and the bytes of the parts of a matrix, which may be cut."""
    at = 0
    while at + 8 <= len(data):
        kind, size = struct.unpack_from(f"{order}II", data, at)
        if kind >> 16:  # a short part, in its tag
            yield kind & 0xFFFF, data[at + 4 : at + 4 + (kind >> 16)]
            at += 8
        else:
            yield kind, data[at + 8 : at + 8 + size]
            at += 8 + size + -size % 8
