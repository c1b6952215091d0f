"""The bytes of a message, read by hand."""

from __future__ import annotations

import math
import struct

import pytest

from dadmm.comm import wire
from dadmm.comm.wire import HEADER, NEVER, SLEEPY, Box


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
