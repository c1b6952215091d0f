"""The bytes of a message, read by hand."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dadmm.comm import wire
from dadmm.comm.wire import HEADER, NEVER, PAYLOAD, SLEEPY, Box


def test_a_message_is_as_long_as_its_table_says():
    assert HEADER.itemsize == struct.calcsize("=IHBB") == 8
    assert wire.length(40, with_eta=False) == 8 + 40
    assert wire.length(40, with_eta=True) == 16 + 40
    assert Box(3, 5, by_row=True).rows.shape == (3, 16 + 40)


def test_the_fields_are_views_of_the_rows():
    """What is written into them is what is sent, at the offsets of the table."""
    box = Box(3, 4, by_row=True)

    box.eta[1] = 2.5
    box.fields[1] = 1234, 5, 7, PAYLOAD | SLEEPY
    box.numbers[1] = [1.0, -2.0, 3.0, math.pi]

    sent = struct.unpack("=dIHBB4d", box.rows[1].tobytes())
    assert sent == (2.5, 1234, 5, 7, 3, 1.0, -2.0, 3.0, math.pi)
    assert_array_equal(box.payload[1], box.rows[1, 16:])
    assert not box.rows[[0, 2]].any()


@pytest.mark.parametrize("by_row", [True, False])
def test_a_header_is_one_number_of_eight_bytes(by_row):
    """Its words are read from the bytes that a neighbour wrote."""
    box = Box(2, 1, by_row)

    box.header[:] = wire.IDLE, np.frombuffer(struct.pack("=IHBB", 7, 3, 4, 2), "u8")[0]

    assert box.fields.tolist() == [(NEVER, 0, 0, PAYLOAD), (7, 3, 4, SLEEPY)]
