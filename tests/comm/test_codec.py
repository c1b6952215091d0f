"""Codecs: both ends have the same bits, and what rounding loses comes later."""

from __future__ import annotations

import struct
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dadmm.comm.codec import Coder, codec_of
from dadmm.core.errors import ConfigError
from dadmm.core.layout import Layout

LAYOUT = Layout.of(W=(3, 2), mu=(3,), a=())
PRIVATE = Layout({"w": (5,), "b": (2,), "own": (4,)}, private=["own"], scales={"b": 9})
ONE = Layout.of(x=())
KINDS = ["float64", "float32", "float16"]
KINDS += [f"quantised:{bits}" for bits in (2, 3, 8, 11, 16)]
# how much of a part's largest difference is left in any entry, after one message
LEFT = {"float64": 0.0, "float32": 2.0**-24, "float16": 2.0**-11}


def coder(payload, layout):
    return Coder(codec_of(payload), layout)


def bits_of(payload):
    return int(payload.partition(":")[2])


def left(payload):
    """Return the share that one message may leave; the range has 8 binary digits."""
    if payload in LEFT:
        return LEFT[payload]
    return 2.0 ** -bits_of(payload) * (1 + 2.0**-7)


def send(one, theta, said, heard):
    """Move both ends by a message, and return its bytes."""
    out = np.zeros((len(theta), one.length), dtype=np.uint8)
    one.write(theta, said, out)
    one.read(out.copy(), heard)
    return out


def walk(layout, rows, steps, seed=0, unit=1.0):
    """Yield thetas that move less and less, as those of a run do."""
    rng = np.random.default_rng(seed)
    theta = unit * rng.standard_normal((rows, layout.shared_size))
    for k in range(steps):
        theta = theta + unit * 0.8**k * rng.standard_normal(theta.shape)
        yield theta


@pytest.mark.parametrize("payload", KINDS)
@pytest.mark.parametrize("layout", [LAYOUT, PRIVATE, ONE])
@pytest.mark.parametrize("unit", [1.0, 1e-30, 1e30])
def test_both_ends_have_the_same_bits(payload, layout, unit):
    one = coder(payload, layout)
    said = np.zeros((2, layout.shared_size))
    heard = said.copy()
    for theta in walk(layout, 2, 60, unit=unit):
        send(one, theta, said, heard)
        assert_array_equal(said.view(np.uint64), heard.view(np.uint64))
    assert np.abs(said - theta).max() < 1e-4 * unit


@pytest.mark.parametrize("payload", KINDS)
@pytest.mark.parametrize("unit", [1.0, 1e-30, 1e30])
def test_what_one_message_leaves_is_bounded(payload, unit):
    one = coder(payload, LAYOUT)
    said = np.zeros((3, LAYOUT.size))
    for theta in walk(LAYOUT, 3, 20, seed=1, unit=unit):
        before = np.abs(theta - said)
        send(one, theta, said, said.copy())
        after = np.abs(theta - said)
        edges = [0, 6, 9, 10] if "quantised" in payload else [0, 10]
        for start, stop in pairwise(edges):
            most = before[:, start:stop].max(axis=1)
            allowed = left(payload) * most + 4e-16 * np.abs(theta).max()
            assert (after[:, start:stop].max(axis=1) <= allowed).all()


@pytest.mark.parametrize("payload", KINDS)
def test_no_difference_is_sent_as_none(payload):
    (theta,) = walk(LAYOUT, 2, 1)
    said, heard = theta.copy(), theta.copy()

    with np.errstate(all="raise"):
        send(coder(payload, LAYOUT), theta, said, heard)

    assert_array_equal([said, heard], [theta, theta])


@pytest.mark.parametrize("payload", ["float32", "float16"])
@pytest.mark.parametrize("unit", [1e-300, 1e-160, 1e160, 1e300])
def test_powers_of_two_reach_as_far_as_doubles_do(payload, unit):
    one = coder(payload, LAYOUT)
    (theta,) = walk(LAYOUT, 2, 1, seed=3, unit=unit)
    said = np.zeros_like(theta)
    for _ in range(8):
        send(one, theta, said, said.copy())

    assert_allclose(said, theta, rtol=1e-15)


def decoded(payload, layout, row, heard):
    """Return where a message leads, by plain integers and struct."""
    data = row.tobytes()
    size = layout.shared_size
    if payload == "float64":
        return list(struct.unpack(f"={size}d", data))
    if payload in ("float32", "float16"):
        whole, real = ("i", "f") if payload == "float32" else ("h", "e")
        power, *numbers = struct.unpack(f"={whole}{size}{real}", data)
        pairs = zip(heard, numbers, strict=True)
        return [was + number * 2.0**power for was, number in pairs]
    n_parts = len(layout.sizes)
    bits, halves = bits_of(payload), [data[2 * k : 2 * k + 2] for k in range(n_parts)]
    ranges = [struct.unpack("<f", b"\0\0" + half)[0] for half in halves]
    digits = "".join(f"{byte:08b}" for byte in data[2 * n_parts :])
    reach = [r for r, n in zip(ranges, layout.sizes, strict=True) for _ in range(n)]
    found = []
    for k, was in enumerate(heard):
        code = int(digits[k * bits : (k + 1) * bits][::-1], 2)  # lowest digit first
        found.append(was + reach[k] * ((2 * code + 1) / 2**bits - 1))
    return found


@pytest.mark.parametrize("payload", KINDS)
@pytest.mark.parametrize("layout", [LAYOUT, PRIVATE, ONE])
def test_a_decoder_written_by_hand_finds_the_same(payload, layout):
    one = coder(payload, layout)
    said = np.zeros((2, layout.shared_size))
    for theta in walk(layout, 2, 8, seed=4):
        before = said.tolist()
        out = send(one, theta, said, said.copy())
        for row, was, now in zip(out, before, said.tolist(), strict=True):
            assert decoded(payload, layout, row, was) == now


def test_lengths_are_what_the_formats_say():
    """None is longer than the parameters themselves; private parts cost nothing."""
    assert {kind: coder(kind, LAYOUT).length for kind in (*KINDS, "topk:0.2")} == {
        "float64": 8 * 10, "float32": 4 + 4 * 10, "float16": 2 + 2 * 10,
        "quantised:2": 3 * 2 + 3, "quantised:3": 3 * 2 + 4,  # 30 bits are 4 bytes
        "quantised:8": 3 * 2 + 10, "quantised:11": 3 * 2 + 14,
        "quantised:16": 3 * 2 + 20, "topk:0.2": 2 * 6,
    }  # fmt: skip
    assert all(coder(kind, ONE).length <= 8 for kind in (*KINDS, "topk"))
    assert coder("float64", PRIVATE).length == 8 * 7
    assert coder("quantised:8", PRIVATE).length == 2 * 2 + 7


@pytest.mark.parametrize("layout", [LAYOUT, PRIVATE, ONE])
def test_the_largest_entries_are_sent_and_the_others_later(layout):
    """Each message has one entry, in single precision; both ends have the same bits."""
    size, one = layout.shared_size, coder("topk:0.01", layout)
    (theta,) = walk(layout, 2, 1, seed=5)
    said = np.zeros((2, size))
    heard = said.copy()
    for k in range(1, size + 1):
        left_out = np.abs(theta - said).max(axis=1)
        send(one, theta, said, heard)
        assert ((said != 0.0).sum(axis=1) == k).all()
        assert (np.abs(theta - said).max(axis=1) <= left_out).all()
    assert_array_equal(said, heard)
    assert_allclose(said, theta, rtol=1e-7)


@pytest.mark.parametrize("payload", ["int8", "quantised:x", "quantised:1", "float32:4"])
def test_an_unknown_payload_is_named(payload):
    with pytest.raises(ConfigError, match=payload):
        codec_of(payload)
