"""The bytes of a message: a header of 8 bytes, the penalty if needed, the payload.

====== ===== =========================================================
bytes  type  content
====== ===== =========================================================
0..3   uint  ``stop_at``, the iteration after which all stop, or NEVER
4..5   uint  ``quiet_count``, see `dadmm.admm.stopping`
6      uint  ``requests``, see `dadmm.admm.stopping`
7      bits  PAYLOAD: one follows; SLEEPY: the edge may sleep
8..15  float eta, unless both ends compute the same
rest         the payload, as `dadmm.exchange.codec` writes it
====== ===== =========================================================

The initial message, before iteration 1, always has eta and theta in double precision.
Numbers are in native byte order, which all ranks share.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dadmm.core.interfaces import StopState
from dadmm.core.layout import Matrix, Vector

HEADER = np.dtype(
    [("stop_at", "u4"), ("quiet_count", "u2"), ("requests", "u1"), ("flags", "u1")]
)
NEVER = 2**32 - 1
MOST_QUIET = 2**16 - 1
PAYLOAD, SLEEPY = 1, 2
Bytes = np.ndarray  # of uint8


def width(size: int) -> int:
    """Return the bytes of the longest message, the initial one."""
    return length(size, with_eta=True)


def length(size: int, with_eta: bool) -> int:
    """Return the bytes of a message whose payload is theta in double precision."""
    return HEADER.itemsize + 8 * with_eta + 8 * size


class Headers(NamedTuple):
    """The headers of the neighbours' messages, each (degree,); see `StopState`."""

    quiet_count: Vector
    stop_at: Vector
    requests: np.ndarray


class Rows:
    """The parts of message rows, as views.

    Parameters
    ----------
    box : ndarray of uint8, shape (degree, width)
    with_eta : bool
        Whether eta is between header and payload.
    """

    def __init__(self, box: Bytes, with_eta: bool) -> None:
        head = HEADER.itemsize
        header = box[:, :head].view(HEADER)[:, 0]
        self.stop_at, self.quiet_count = header["stop_at"], header["quiet_count"]
        self.requests, self.flags = header["requests"], header["flags"]
        self.eta: Vector = box[:, head : head + 8].view(np.float64)[:, 0]
        self.start = head + 8 * with_eta  # of the payload
        self.payload: Bytes = box[:, self.start :]
        self._never = np.full(len(box), NEVER, HEADER["stop_at"]).tobytes()
        self._endless: Vector = np.full(len(box), math.inf)

    def numbers(self, size: int) -> Matrix:
        """Return the payload as doubles, (degree, size)."""
        return self.payload[:, : 8 * size].view(np.float64)

    def write(self, state: StopState) -> None:
        """Write the header of every row."""
        stop_at = state.stop_at
        self.stop_at[:] = NEVER if stop_at == math.inf else min(stop_at, NEVER - 1)
        self.quiet_count[:] = min(state.quiet_count, MOST_QUIET)
        self.requests[:] = state.requests

    def headers(self) -> Headers:
        """Return the headers of all rows."""
        stop_at = self._endless
        if self.stop_at.tobytes() != self._never:  # the usual case is NEVER everywhere
            stop_at = np.where(self.stop_at == NEVER, math.inf, self.stop_at)
        return Headers(self.quiet_count.astype(np.float64), stop_at, self.requests)
