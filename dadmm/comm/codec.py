"""Codecs: how parameters are written as bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dadmm.comm.wire import Bytes
from dadmm.core import schema
from dadmm.core.errors import ConfigError
from dadmm.core.layout import Layout, Matrix

KNOWN = "float64, float32, float16, quantised:4 (bits per entry), topk:0.05 (share)"


class Codec:
    """How a payload is written; each row of the arrays belongs to one neighbour.

    A codec that rounds sends the *difference* between a node's parameters and the
    receiver's copy of them, and both ends add what the bytes say. What was left out is
    part of the next difference (error feedback), so the optimum is exact.

    Examples
    --------
    This codec sends whole numbers from -127 to 127, in units of the largest entry:

    >>> import dadmm
    >>> import numpy as np
    >>> class Whole(dadmm.comm.codec.Codec):
    ...     def length(self, layout):
    ...         return 8 + layout.shared_size
    ...
    ...     def write(self, step, layout):
    ...         unit = np.maximum(np.abs(step).max(axis=1, keepdims=True), 1e-300) / 127
    ...         numbers = np.round(step / unit).astype(np.int8)
    ...         return np.hstack([unit.view(np.uint8), numbers.view(np.uint8)])
    ...
    ...     def read(self, box, layout):
    ...         unit = np.ascontiguousarray(box[:, :8]).view(np.float64)
    ...         return unit * box[:, 8:].view(np.int8)
    >>> X, y, _ = dadmm.datasets.regression(600, 20)
    >>> problems = [dadmm.problems.LeastSquares(X[i::6], y[i::6]) for i in range(6)]
    >>> sending = dadmm.Sending(payload=Whole())
    >>> dadmm.solve(problems, dadmm.Topology.ring(6), sending=sending).status
    'certified'
    """

    differences: ClassVar[bool] = True  # else the parameters themselves are sent

    def length(self, layout: Layout) -> int:
        """Return the bytes of a payload, at most 8 for each shared entry."""
        raise NotImplementedError(f"{type(self).__name__} needs a method length")

    def write(self, step: Matrix, layout: Layout) -> Bytes:
        """Return payloads (rows, length) of differences (rows, shared size)."""
        raise NotImplementedError(f"{type(self).__name__} needs a method write")

    def read(self, box: Bytes, layout: Layout) -> Matrix:
        """Return what payloads (rows, length) say, (rows, shared size)."""
        raise NotImplementedError(f"{type(self).__name__} needs a method read")


@dataclass(frozen=True)
class Exact(Codec):
    """The parameters themselves, in double precision."""

    differences = False

    def length(self, layout: Layout) -> int:
        return 8 * layout.shared_size

    def write(self, step: Matrix, layout: Layout) -> Bytes:
        return np.ascontiguousarray(step).view(np.uint8)

    def read(self, box: Bytes, layout: Layout) -> Matrix:
        return box.view(np.float64)


@dataclass(frozen=True)
class Rounded(Codec):
    """The difference in 16 or 32 bits per entry, in units of a power of two.

    The payload starts with the power, without which half precision would lose
    differences below 1e-7.
    """

    bits: int

    def length(self, layout: Layout) -> int:
        return self.bits // 8 * (1 + layout.shared_size)

    def write(self, step: Matrix, layout: Layout) -> Bytes:
        power = np.frexp(np.abs(step).max(axis=1, keepdims=True))[1]
        first = power.astype(f"i{self.bits // 8}").view(np.uint8)
        numbers = np.ldexp(step, -power).astype(f"f{self.bits // 8}")
        return np.hstack([first, numbers.view(np.uint8)])

    def read(self, box: Bytes, layout: Layout) -> Matrix:
        power = box.view(f"i{self.bits // 8}")[:, :1].astype(np.int32)
        numbers = box.view(f"f{self.bits // 8}")[:, 1:].astype(np.float64)
        return np.asarray(np.ldexp(numbers, power))


@dataclass(frozen=True)
class Quantised(schema.Checked, Codec):
    """The difference in 2 to 16 bits b per entry, each part of theta in its own range.

    For a part whose largest difference is R, the payload has R, rounded up to the first
    2 bytes of its single precision, and for each entry the number of its cell, of
    ``2^b`` equal cells of ``[-R, R]``. The receiver takes its middle, so the error is
    at most ``R / 2^b``. (With 1 bit `snap` diverged.)
    """

    bits: int = schema.entry(8, schema.integer(2, 16))

    def length(self, layout: Layout) -> int:
        return 2 * len(layout.sizes) + -(-layout.shared_size * self.bits // 8)

    def write(self, step: Matrix, layout: Layout) -> Bytes:
        most = np.maximum.reduceat(np.abs(step), layout.starts, axis=1)
        rounded = most.astype(np.float32)
        short = rounded < most
        rounded[short] = np.nextafter(rounded[short], np.float32(np.inf))
        ranges = ((rounded.view(np.uint32) + np.uint32(0xFFFF)) >> 16).astype(np.uint16)
        reach, cells = _reach(ranges, layout), 2.0**self.bits
        with np.errstate(invalid="ignore", divide="ignore"):
            cell = np.floor((step / reach + 1.0) * (0.5 * cells))
        cell[reach == 0.0] = 0.0
        code = np.clip(cell, 0.0, cells - 1.0).astype(np.uint16)
        digits = (code[:, :, None] >> np.arange(self.bits, dtype=np.uint16)) & 1
        flat = digits.reshape(len(code), -1).astype(np.uint8)
        return np.hstack([ranges.view(np.uint8), np.packbits(flat, axis=1)])

    def read(self, box: Bytes, layout: Layout) -> Matrix:
        size, first = layout.shared_size, 2 * len(layout.sizes)
        ranges = np.ascontiguousarray(box[:, :first]).view(np.uint16)
        flat = np.unpackbits(box[:, first:], axis=1, count=size * self.bits)
        digits = flat.reshape(len(box), size, self.bits).astype(np.uint16)
        shifts = np.arange(self.bits, dtype=np.uint16)
        code = (digits << shifts).sum(axis=2, dtype=np.uint16)
        middles = (2.0 * code + 1.0) * 2.0**-self.bits - 1.0
        return np.asarray(_reach(ranges, layout) * middles)


def _reach(ranges: np.ndarray, layout: Layout) -> Matrix:
    """Return the range of each entry, given those of the parts in 2 bytes."""
    whole = (ranges.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return np.repeat(whole, layout.sizes, axis=1)


@dataclass(frozen=True)
class TopK(schema.Checked, Codec):
    """The largest entries of the difference, at least one, in 32 bits, with indices."""

    share: float = schema.entry(
        0.05, schema.number("above 0 and at most 1", lambda x: 0 < x <= 1)
    )

    def _format(self, layout: Layout) -> tuple[int, np.dtype]:
        """Return how many entries are sent, and the type of an index."""
        size = layout.shared_size
        count = min(max(1, round(self.share * size)), 8 * size // 6)
        return min(count, size), np.dtype("u2" if size <= 2**16 else "u4")

    def length(self, layout: Layout) -> int:
        count, index = self._format(layout)
        return count * (4 + index.itemsize)

    def write(self, step: Matrix, layout: Layout) -> Bytes:
        count, index = self._format(layout)
        order = np.argsort(-np.abs(step), axis=1, kind="stable")[:, :count]
        most = float(np.finfo(np.float32).max)
        values = np.clip(np.take_along_axis(step, order, axis=1), -most, most)
        first = values.astype(np.float32).view(np.uint8)
        return np.hstack([first, order.astype(index).view(np.uint8)])

    def read(self, box: Bytes, layout: Layout) -> Matrix:
        count, index = self._format(layout)
        values = np.ascontiguousarray(box[:, : 4 * count]).view(np.float32)
        order = np.ascontiguousarray(box[:, 4 * count :]).view(index)
        step = np.zeros((len(box), layout.shared_size))
        np.put_along_axis(step, order.astype(np.int64), values.astype(float), axis=1)
        return step


class Coder:
    """A codec for one layout, whose payloads have ``length`` bytes."""

    def __init__(self, codec: Codec, layout: Layout) -> None:
        self._codec, self._layout = codec, layout
        self.length, most = codec.length(layout), 8 * layout.shared_size
        if not 0 < self.length <= most:
            raise ConfigError(
                f"{codec} has payloads of {self.length} bytes; from 1 to {most} are "
                "allowed, as many as double precision has"
            )

    def write(self, theta: Matrix, sent: Matrix, out: Bytes) -> None:
        """Write theta (rows, size) into out (rows, length).

        ``sent``, the receiver's copy as the sender knows it, is updated by the same
        operations as the copy itself, so bits are equal.
        """
        step = theta - sent if self._codec.differences else theta
        out[...] = self._codec.write(step, self._layout)
        self.read(out, sent)

    def read(self, box: Bytes, received: Matrix) -> None:
        """Update ``received`` (rows, size) with the payloads in box (rows, length)."""
        said = self._codec.read(box, self._layout)
        if self._codec.differences:
            received += said
        else:
            received[...] = said


CODECS: dict[str, Codec] = {
    "float64": Exact(), "float32": Rounded(32), "float16": Rounded(16),
    "quantised": Quantised(), "topk": TopK(),
}  # fmt: skip
