"""Codecs: both ends have the same bits, and what rounding loses comes later."""

from __future__ import annotations

import struct
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dadmm.comm.codec import build_codec
from dadmm.core.errors import ConfigError
from dadmm.core.layout import Layout

LAYOUT = Layout.of(W=(3, 2), mu=(3,), a=())
PRIVATE = Layout({"w": (5,), "b": (2,), "own": (4,)}, private=["own"], scales={"b": 9})
ONE = Layout.of(x=())
KINDS = [("float64", 8), ("float32", 8), ("float16", 8)]
KINDS += [("quantised", bits) for bits in (1, 2, 3, 8, 11, 16)]
# how much of a part's largest difference is left in any entry, after one message
LEFT = {"float64": 0.0, "float32": 2.0**-24, "float16": 2.0**-11}


def left(payload, bits):
    """Return the share that one message may leave, with some for the range itself."""
    return LEFT.get(payload, 2.0**-bits * (1 + 2.0**-22))


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


@pytest.mark.parametrize(("payload", "bits"), KINDS)
@pytest.mark.parametrize("layout", [LAYOUT, PRIVATE, ONE])
@pytest.mark.parametrize("unit", [1.0, 1e-30, 1e30])
def test_both_ends_have_the_same_bits(payload, bits, layout, unit):
    one = build_codec(payload, layout, bits)
    said = np.zeros((2, layout.shared_size))
    heard = said.copy()
    for theta in walk(layout, 2, 60, unit=unit):
        send(one, theta, said, heard)
        assert_array_equal(said.view(np.uint64), heard.view(np.uint64))
    assert np.abs(said - theta).max() < 1e-4 * unit


@pytest.mark.parametrize(("payload", "bits"), KINDS)
@pytest.mark.parametrize("unit", [1.0, 1e-30, 1e30])
def test_what_one_message_leaves_is_bounded(payload, bits, unit):
    one = build_codec(payload, LAYOUT, bits)
    said = np.zeros((3, LAYOUT.size))
    for theta in walk(LAYOUT, 3, 20, seed=1, unit=unit):
        before = np.abs(theta - said)
        send(one, theta, said, said.copy())
        after = np.abs(theta - said)
        edges = [0, 6, 9, 10] if payload == "quantised" else [0, 10]
        for start, stop in pairwise(edges):
            most = before[:, start:stop].max(axis=1)
            allowed = left(payload, bits) * most + 4e-16 * np.abs(theta).max()
            assert (after[:, start:stop].max(axis=1) <= allowed).all()


@pytest.mark.parametrize(("payload", "bits"), KINDS)
def test_no_difference_is_sent_as_none(payload, bits):
    (theta,) = walk(LAYOUT, 2, 1)
    said, heard = theta.copy(), theta.copy()

    with np.errstate(all="raise"):
        send(build_codec(payload, LAYOUT, bits), theta, said, heard)

    assert_array_equal([said, heard], [theta, theta])


@pytest.mark.parametrize("payload", ["float32", "float16"])
@pytest.mark.parametrize("unit", [1e-300, 1e-160, 1e160, 1e300])
def test_powers_of_two_reach_as_far_as_doubles_do(payload, unit):
    one = build_codec(payload, LAYOUT)
    (theta,) = walk(LAYOUT, 2, 1, seed=3, unit=unit)
    said = np.zeros_like(theta)
    for _ in range(8):
        send(one, theta, said, said.copy())

    assert_allclose(said, theta, rtol=1e-15)


def decoded(payload, bits, layout, row, heard):
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
    ranges = struct.unpack(f"={n_parts}f", data[: 4 * n_parts])
    digits = "".join(f"{byte:08b}" for byte in data[4 * n_parts :])
    reach = [r for r, n in zip(ranges, layout.sizes, strict=True) for _ in range(n)]
    found = []
    for k, was in enumerate(heard):
        code = int(digits[k * bits : (k + 1) * bits][::-1], 2)  # lowest digit first
        found.append(was + reach[k] * ((2 * code + 1) / 2**bits - 1))
    return found


@pytest.mark.parametrize(("payload", "bits"), KINDS)
@pytest.mark.parametrize("layout", [LAYOUT, PRIVATE, ONE])
def test_a_decoder_written_by_hand_finds_the_same(payload, bits, layout):
    one = build_codec(payload, layout, bits)
    said = np.zeros((2, layout.shared_size))
    for theta in walk(layout, 2, 8, seed=4):
        before = said.tolist()
        out = send(one, theta, said, said.copy())
        for row, was, now in zip(out, before, said.tolist(), strict=True):
            assert decoded(payload, bits, layout, row, was) == now


def test_lengths_are_what_the_formats_say():
    """None is longer than the parameters themselves; private parts cost nothing."""
    lengths = {kind: build_codec(kind[0], LAYOUT, kind[1]).length for kind in KINDS}

    assert lengths == {
        ("float64", 8): 8 * 10, ("float32", 8): 4 + 4 * 10, ("float16", 8): 2 + 2 * 10,
        ("quantised", 1): 3 * 4 + 2, ("quantised", 2): 3 * 4 + 3,
        ("quantised", 3): 3 * 4 + 4,  # 30 bits are 4 bytes
        ("quantised", 8): 3 * 4 + 10, ("quantised", 11): 3 * 4 + 14,
        ("quantised", 16): 3 * 4 + 20,
    }  # fmt: skip
    assert all(build_codec(kind[0], ONE, kind[1]).length <= 8 for kind in KINDS)
    assert build_codec("float64", PRIVATE).length == 8 * 7
    assert build_codec("quantised", PRIVATE, 8).length == 2 * 4 + 7
    with pytest.raises(ConfigError, match="int8"):
        build_codec("int8", LAYOUT)
