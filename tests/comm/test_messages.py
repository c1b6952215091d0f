"""The bytes of a message, read by hand; both ends have the same bits."""

import math
import struct

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dadmm.comm import wire
from dadmm.comm.codec import Coder, codec_of
from dadmm.comm.wire import HEADER, NEVER, PAYLOAD, SLEEPY, Box
from dadmm.core.errors import ConfigError
from dadmm.core.layout import Layout


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
    assert not by_row or box.rows[1].tobytes() == b"".join(parts)
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


LAYOUT = Layout.of(W=(3, 2), mu=(3,), a=())
PRIVATE = Layout({"w": (5,), "b": (2,), "own": (4,)}, private=["own"], scales={"b": 9})
ONE = Layout.of(x=())
# by payload, the share of the largest difference that a message may leave in an entry
LEFT = {"float64": 0.0, "float32": 2.0**-24, "float16": 2.0**-11}
LEFT |= {f"quantised:{b}": 2.0**-b * (1 + 2.0**-7) for b in (2, 3, 8, 11, 16)}
UNITS = [(p, u) for p in LEFT for u in (1.0, 1e-30, 1e30)]  # ranges are float32
UNITS += [(p, u) for p in ("float32", "float16") for u in (1e-300, 1e300)]


def coder(payload, layout):
    return Coder(codec_of(payload), layout)


def send(one, theta, said, heard):
    """Move both ends by a message, and return its bytes."""
    out = np.zeros((len(theta), one.length), dtype=np.uint8)
    one.write(theta, said, out)
    one.read(out.copy(), heard)
    assert_array_equal(said.view(np.uint64), heard.view(np.uint64))
    return out


def walk(layout, steps, unit=1.0):
    """Yield thetas of two nodes that move less and less, as those of a run do."""
    rng = np.random.default_rng(0)
    theta = unit * rng.standard_normal((2, layout.shared_size))
    for k in range(steps):
        theta = theta + unit * 0.8**k * rng.standard_normal(theta.shape)
        yield theta


def decoded(payload, layout, row, heard):
    """Return where a message leads, by plain integers and struct."""
    data, size = row.tobytes(), layout.shared_size
    if payload == "float64":
        return list(struct.unpack(f"={size}d", data))
    if payload in ("float32", "float16"):
        whole, real = ("i", "f") if payload == "float32" else ("h", "e")
        power, *numbers = struct.unpack(f"={whole}{size}{real}", data)
        pairs = zip(heard, numbers, strict=True)
        return [was + number * 2.0**power for was, number in pairs]
    n_parts, bits = len(layout.sizes), int(payload.partition(":")[2])
    halves = [data[2 * k : 2 * k + 2] for k in range(n_parts)]
    ranges = [struct.unpack("<f", b"\0\0" + half)[0] for half in halves]
    digits = "".join(f"{byte:08b}" for byte in data[2 * n_parts :])
    codes = [digits[k * bits : (k + 1) * bits][::-1] for k in range(size)]
    found = zip(heard, np.repeat(ranges, layout.sizes).tolist(), codes, strict=True)
    return [
        was + reach * ((2 * int(code, 2) + 1) / 2**bits - 1)
        for was, reach, code in found
    ]


@pytest.mark.parametrize(("payload", "unit"), UNITS)
@pytest.mark.parametrize("layout", [LAYOUT, PRIVATE, ONE])
def test_both_ends_have_the_same_bits_and_what_is_left_is_bounded(
    payload, unit, layout
):
    """As a decoder by hand finds; each part has its own range if it is quantised."""
    one, said = coder(payload, layout), np.zeros((2, layout.shared_size))
    heard = said.copy()
    starts = layout.starts if "quantised" in payload else [0]
    for theta in walk(layout, 60, unit):
        before, was = np.abs(theta - said), said.tolist()
        out = send(one, theta, said, heard)
        for row, old, now in zip(out, was, said.tolist(), strict=True):
            assert decoded(payload, layout, row, old) == now
        most, after = (
            np.maximum.reduceat(gap, starts, axis=1)
            for gap in (before, np.abs(theta - said))
        )
        assert (after <= LEFT[payload] * most + 4e-16 * np.abs(theta).max()).all()
    assert np.abs(said - theta).max() < 1e-4 * unit
    still = said.copy()
    with np.errstate(all="raise"):  # no difference is sent as none
        send(one, still, said, heard)
    assert_array_equal(said, still)


@pytest.mark.parametrize("layout", [LAYOUT, PRIVATE, ONE])
def test_the_largest_entries_are_sent_and_the_others_later(layout):
    """Each message has one entry, in single precision."""
    size, one = layout.shared_size, coder("topk:0.01", layout)
    (theta,) = walk(layout, 1)
    said = np.zeros((2, size))
    heard = said.copy()
    for k in range(1, size + 1):
        left_out = np.abs(theta - said).max(axis=1)
        send(one, theta, said, heard)
        assert ((said != 0.0).sum(axis=1) == k).all()
        assert (np.abs(theta - said).max(axis=1) <= left_out).all()
    assert_allclose(said, theta, rtol=1e-7)


def test_lengths_are_what_the_formats_say():
    """None is longer than the parameters themselves; private parts cost nothing."""
    assert {kind: coder(kind, LAYOUT).length for kind in (*LEFT, "topk:0.2")} == {
        "float64": 8 * 10, "float32": 4 + 4 * 10, "float16": 2 + 2 * 10,
        "quantised:2": 3 * 2 + 3, "quantised:3": 3 * 2 + 4,  # 30 bits are 4 bytes
        "quantised:8": 3 * 2 + 10, "quantised:11": 3 * 2 + 14,
        "quantised:16": 3 * 2 + 20, "topk:0.2": 2 * 6,
    }  # fmt: skip
    assert all(coder(kind, ONE).length <= 8 for kind in (*LEFT, "topk"))
    assert coder("float64", PRIVATE).length == 8 * 7
    assert coder("quantised:8", PRIVATE).length == 2 * 2 + 7
    for payload in ("int8", "quantised:x", "quantised:1", "float32:4"):
        with pytest.raises(ConfigError, match=payload):
            codec_of(payload)
