"""The bytes of a message, read by hand."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dadmm.admm.stopping import REQUESTS, StopState
from dadmm.exchange import wire
from dadmm.exchange.wire import HEADER, MOST_QUIET, NEVER, PAYLOAD, SLEEPY, Rows

SIGNAL = REQUESTS.index("signal")


def box(degree, size):
    """Return empty rows, as an exchange makes them."""
    return np.zeros((degree, wire.width(size)), dtype=np.uint8)


def header(row):
    """Return stop_at, quiet, requests and flags of a row."""
    return struct.unpack("=IHBB", row[:8].tobytes())


def test_a_message_is_as_long_as_its_table_says():
    assert HEADER.itemsize == struct.calcsize("=IHBB") == 8
    assert wire.length(5, with_eta=False) == 8 + 40
    assert wire.length(5, with_eta=True) == wire.width(5) == 16 + 40
    assert wire.width(0) == 16


def test_the_words_on_stopping_stand_where_the_table_says():
    """In every row; what is beside them stays as it is."""
    rows = box(3, 2)
    rows[:, 7:] = 77

    Rows(rows, True).write(
        StopState(streak=9, quiet_count=5.0, stop_at=1234.0, requests=SIGNAL)
    )

    assert [header(row) for row in rows] == [(1234, 5, SIGNAL, 77)] * 3
    assert (rows[:, 8:] == 77).all()


@pytest.mark.parametrize(
    ("stop_at", "quiet", "written"),
    [
        (math.inf, 0.0, (NEVER, 0)),
        (0.0, 65534.0, (0, 65534)),
        (2.0**32 - 2, 65535.0, (NEVER - 1, MOST_QUIET)),
        (2.0**32 - 1, 65536.0, (NEVER - 1, MOST_QUIET)),  # late, but not never
        (1e15, 1e9, (NEVER - 1, 2**16 - 1)),
    ],
)
def test_numbers_that_are_too_large_never_wrap_round(stop_at, quiet, written):
    """And no number of iterations is mistaken for never."""
    rows = box(2, 1)
    parts = Rows(rows, False)

    parts.write(StopState(stop_at=stop_at, quiet_count=quiet))

    assert header(rows[1])[:2] == written
    heard = math.inf if stop_at == math.inf else float(written[0])
    assert_array_equal(parts.headers().stop_at, [heard] * 2)
    assert_array_equal(parts.headers().quiet_count, [float(written[1])] * 2)


def test_a_node_hears_what_its_neighbours_wrote():
    """Each by itself, as numbers that can be compared and added."""
    rows = box(2, 1)
    rows[0, :8] = np.frombuffer(struct.pack("=IHBB", 7, 3, 4, 1), np.uint8)
    rows[1, :8] = np.frombuffer(struct.pack("=IHBB", NEVER, 0, 0, 2), np.uint8)
    parts = Rows(rows, False)

    headers = parts.headers()

    assert_array_equal(headers.stop_at, [7.0, math.inf])
    assert_array_equal(headers.quiet_count, [3.0, 0.0])
    assert_array_equal(headers.requests, [4, 0])
    assert_array_equal(parts.flags, [PAYLOAD, SLEEPY])
    rows[:] = 0  # the words were copied: the next swap may come
    assert headers.stop_at[0] == 7.0


@pytest.mark.parametrize("with_eta", [True, False])
def test_the_parts_are_views_of_the_rows(with_eta):
    """What is written into them is what is sent, at the offsets of the table."""
    rows = box(3, 4)
    parts = Rows(rows, with_eta)
    start = 16 if with_eta else 8

    parts.flags[1] = PAYLOAD | SLEEPY
    if with_eta:
        parts.eta[1] = 2.5
    parts.numbers(4)[1] = [1.0, -2.0, 3.0, math.pi]

    assert parts.start == start
    assert header(rows[1]) == (0, 0, 0, 3)
    numbers = struct.unpack("=4d", rows[1, start : start + 32].tobytes())
    assert numbers == (1.0, -2.0, 3.0, math.pi)
    if with_eta:
        assert struct.unpack("=d", rows[1, 8:16].tobytes()) == (2.5,)
    assert not rows[[0, 2]].any()
    for part in (parts.stop_at, parts.eta, parts.payload, parts.numbers(4)):
        assert np.shares_memory(part, rows)
