"""The bytes of a message, read by hand."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest

from dadmm.comm import wire
from dadmm.comm.wire import HEADER, NEVER, PAYLOAD, SLEEPY, Box


@pytest.mark.parametrize("by_row", [True, False])
def test_fields_are_at_the_offsets_of_the_table(by_row):
    """A row is what is sent: eta, a header of eight bytes, and the payload."""
    box = Box(3, 4, by_row)
    box.header[:] = wire.IDLE
    box.eta[1], box.fields[1] = 2.5, (1234, 5, 7, SLEEPY)
    box.numbers[1] = [1.0, -2.0, 3.0, math.pi]

    parts = [part[1].tobytes() for part in (box.eta, box.header, box.payload)]
    sent = struct.unpack("=dIHBB4d", b"".join(parts))
    assert sent == (2.5, 1234, 5, 7, 2, 1.0, -2.0, 3.0, math.pi)
    assert box.fields[0].tolist() == (NEVER, 0, 0, 1)
    if by_row:
        assert box.rows[1].tobytes() == b"".join(parts)
    assert HEADER.itemsize == 8
    assert wire.length(32, with_eta=True) == 8 + wire.length(32, with_eta=False) == 48


def test_a_brief_header_has_two_bytes_and_the_whole_one_follows_if_needed():
    """Of three messages one has no payload, and one a time to stop and a request."""
    out, box, data = Box(3, 4), Box(3, 4), np.zeros(64, np.uint8)
    out.header[:] = wire.IDLE
    out.fields[1], out.fields[2] = (NEVER, 30, 18, SLEEPY), (77, 9000, 3, PAYLOAD)
    out.payload[:, :5] = np.arange(15).reshape(3, 5)
    rows = np.arange(3)
    out.pack(rows, rows[[0, 2]], wire.BRIEF, 5, data)
    box.unpack(rows, wire.BRIEF, 5, data)

    brief = (PAYLOAD, SLEEPY | 18 << 3 | 30 << 11,
             PAYLOAD | wire.MORE | 3 << 3 | (9000 & 31) << 11)  # fmt: skip
    sent = struct.unpack("=3HIHBB10B", data[:24].tobytes())
    assert sent == (*brief, 77, 9000, 3, PAYLOAD, *range(5), *range(10, 15))
    assert out.needs_more.tolist() == [False, False, True]
    assert box.fields.tolist() == out.fields.tolist()
    assert (box.payload[[0, 2], :5] == out.payload[[0, 2], :5]).all()
