"""Codecs: how parameters are written as bytes.

A codec that rounds sends the *difference* between a node's parameters and the
receiver's copy of them. Both ends add the same rounded difference. The rounding error
is part of the next difference (error feedback), so it shrinks with the steps and the
optimum is exact.

``write`` updates ``sent``, the receiver's copy as the sender knows it. ``read`` updates
``received``, the copy itself. Both use the same operations, so the bits are equal.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from dadmm.comm.wire import Bytes
from dadmm.core.layout import Layout, Matrix
from dadmm.core.schema import choice

PAYLOADS = ("float64", "float32", "float16", "quantised")
LEAST_BITS, MOST_BITS = 2, 16


class Codec(Protocol):
    """Writes and reads payloads; each row belongs to one neighbour."""

    length: int  # bytes of a payload

    def write(self, theta: Matrix, sent: Matrix, out: Bytes) -> None:
        """Write theta (rows, size) into out (rows, length) and update ``sent``."""

    def read(self, box: Bytes, received: Matrix) -> None:
        """Update ``received`` (rows, size) with the payloads in box (rows, length)."""


class Exact:
    """The parameters themselves, in double precision."""

    def __init__(self, size: int) -> None:
        self.length = 8 * size

    def write(self, theta: Matrix, sent: Matrix, out: Bytes) -> None:
        sent[:] = theta
        out.view(np.float64)[:] = theta

    def read(self, box: Bytes, received: Matrix) -> None:
        received[:] = box.view(np.float64)


class Rounded:
    """The difference in single or half precision, in units of a power of two.

    The payload starts with the power, of the largest entry, in as many bits.
    Without it, half precision would lose differences below 1e-7.
    """

    def __init__(self, size: int, bits: int) -> None:
        self.real, self.whole = np.dtype(f"f{bits // 8}"), np.dtype(f"i{bits // 8}")
        self.length = self.real.itemsize * (1 + size)

    def write(self, theta: Matrix, sent: Matrix, out: Bytes) -> None:
        step = theta - sent
        power = np.frexp(np.abs(step).max(axis=1, keepdims=True))[1]
        out.view(self.whole)[:, :1] = power
        out.view(self.real)[:, 1:] = np.ldexp(step, -power)
        self.read(out, sent)

    def read(self, box: Bytes, received: Matrix) -> None:
        power = box.view(self.whole)[:, :1].astype(np.int32)
        received += np.ldexp(box.view(self.real)[:, 1:].astype(np.float64), power)


class Quantised:
    """The difference in b bits per entry, each part of theta in its own range.

    For a part whose largest difference is R, the payload has R in single precision,
    and for each entry the number of its cell, of ``2^b`` equal cells of ``[-R, R]``.
    The receiver takes the middle of the cell. The error is at most ``R / 2^b``.
    """

    def __init__(self, layout: Layout, bits: int) -> None:
        self.bits, self.starts = bits, layout.starts
        self.part = np.repeat(np.arange(len(layout.sizes)), layout.sizes)
        self.ranges = 4 * len(layout.sizes)
        self.length = self.ranges + -(-layout.shared_size * bits // 8)
        self._shifts = np.arange(bits, dtype=np.uint16)

    def write(self, theta: Matrix, sent: Matrix, out: Bytes) -> None:
        step = theta - sent
        most = np.maximum.reduceat(np.abs(step), self.starts, axis=1)
        rounded = most.astype(np.float32)
        short = rounded < most
        rounded[short] = np.nextafter(rounded[short], np.float32(np.inf))
        out[:, : self.ranges] = rounded.view(np.uint8)
        reach = rounded.astype(np.float64)[:, self.part]
        cells = 2.0**self.bits
        with np.errstate(invalid="ignore", divide="ignore"):
            cell = np.floor((step / reach + 1.0) * (0.5 * cells))
        cell[reach == 0.0] = 0.0
        code = np.clip(cell, 0.0, cells - 1.0).astype(np.uint16)
        digits = (code[:, :, None] >> self._shifts) & 1
        flat = digits.reshape(len(code), -1).astype(np.uint8)
        out[:, self.ranges :] = np.packbits(flat, axis=1)
        self._add(code, reach, sent)

    def read(self, box: Bytes, received: Matrix) -> None:
        ranges = np.ascontiguousarray(box[:, : self.ranges]).view(np.float32)
        size = received.shape[1]
        flat = np.unpackbits(box[:, self.ranges :], axis=1, count=size * self.bits)
        digits = flat.reshape(len(box), size, self.bits).astype(np.uint16)
        code = (digits << self._shifts).sum(axis=2, dtype=np.uint16)
        self._add(code, ranges.astype(np.float64)[:, self.part], received)

    def _add(self, code: np.ndarray, reach: Matrix, to: Matrix) -> None:
        """Add the middles of cells: ``reach ((2 code + 1) / 2^b - 1)``."""
        to += reach * ((2.0 * code + 1.0) * 2.0**-self.bits - 1.0)


def build_codec(payload: str, layout: Layout, bits: int = 8) -> Codec:
    """Return the codec of a name in PAYLOADS, for the shared parts of a layout."""
    choice(PAYLOADS).check("payload", payload)
    if payload == "quantised":
        return Quantised(layout, bits)
    if payload == "float64":
        return Exact(layout.shared_size)
    return Rounded(layout.shared_size, int(payload.removeprefix("float")))
