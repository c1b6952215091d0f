"""The bytes of a message: the penalty if needed, a header of 2 or 8 bytes, the payload.

====== ===== =========================================================
bytes  type  content
====== ===== =========================================================
0..7   float eta, unless both ends compute the same
8..11  uint  ``stop_at``, the iteration after which all stop, or NEVER
12..13 uint  ``quiet_count``, see `dadmm.admm.stopping`
14     uint  ``requests``, see `dadmm.admm.stopping`
15     bits  PAYLOAD: a payload follows; SLEEPY: may be skipped
rest         the payload, as `dadmm.comm.codec` writes it
====== ===== =========================================================

A message without eta begins at byte 8. If its payload is shorter than double precision,
it has a brief header instead: 2 bytes with three bits of flags, eight of ``requests``
and five of ``quiet_count``. If that is not enough, the flag MORE is set, and the whole
header follows. Requests do not change the length of a message, since they depend on the
clock. The initial message, before iteration 1, has eta and theta in double precision.
Numbers are in native byte order, which all ranks share.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dadmm.core.layout import Matrix, Vector
from dadmm.graphs.topology import Integers

HEADER = np.dtype(
    [("stop_at", "u4"), ("quiet_count", "u2"), ("requests", "u1"), ("flags", "u1")]
)
NEVER = 2**32 - 1
MOST_QUIET = 2**16 - 1
PAYLOAD, SLEEPY, MORE = 1, 2, 4
ETA = 8  # bytes of eta, and of a header; a message without eta begins there
BRIEF = 14  # where a message with a brief header begins
MOST_BRIEF = 2**5 - 1  # the largest quiet count in a brief header
Bytes = np.ndarray  # of uint8
# the header of a node that neither stops nor requests anything
IDLE = np.array([(NEVER, 0, 0, PAYLOAD)], HEADER).view(np.uint64)[0]


class Box:
    """The messages of all edges, as an array per field.

    With ``by_row``, each message is one row of ``rows`` (E, width), ready to send; else
    each field is an array of its own. ``fields`` are the parts of the ``header`` (E,),
    and ``numbers`` (E, size) the ``payload`` (E, 8 size) in double precision.
    """

    def __init__(self, n_edges: int, size: int, by_row: bool = False) -> None:
        self.rows: Bytes = np.zeros((0, 0), np.uint8)
        if by_row:
            self.rows = np.zeros((n_edges, 2 * ETA + 8 * size), np.uint8)
            self.eta: Vector = self.rows[:, :ETA].view(np.float64)[:, 0]
            self.header = self.rows[:, ETA : 2 * ETA].view(np.uint64)[:, 0]
            self.payload: Bytes = self.rows[:, 2 * ETA :]
        else:
            self.eta, self.header = np.zeros(n_edges), np.zeros(n_edges, np.uint64)
            self.payload = np.zeros((n_edges, 8 * size), np.uint8)
        self.fields = self.header.view(HEADER)
        self.numbers: Matrix = self.payload.view(np.float64)

    @property
    def needs_more(self) -> NDArray[np.bool_]:
        """Whether a brief header is not enough, (E,)."""
        more: NDArray[np.bool_] = self.fields["stop_at"] != NEVER
        return more | (self.fields["quiet_count"] > MOST_BRIEF)

    def pack(
        self, rows: Integers, due: Integers, begin: int, width: int, out: Bytes
    ) -> None:
        """Write messages of these rows as one: by field, payloads of ``due`` last."""
        at = 0
        if begin == BRIEF:
            more = self.needs_more[rows]
            brief = self.fields["flags"][rows] | np.uint16(MORE) * more
            brief |= self.fields["requests"][rows].astype(np.uint16) << 3
            brief |= (self.fields["quiet_count"][rows] & np.uint16(MOST_BRIEF)) << 11
            heads = [brief.view(np.uint8), self.header[rows[more]].view(np.uint8)]
            at = sum(map(len, heads))
            np.concatenate(heads, out=out[:at])
        for field in (self.eta, self.header)[-(-begin // ETA) :]:
            part = out[at : at + ETA * len(rows)].view(field.dtype)
            np.take(field, rows, out=part, mode="clip")
            at += ETA * len(rows)
        payloads = out[at : at + width * len(due)].reshape(len(due), width)
        if width == self.payload.shape[1]:
            np.take(self.numbers, due, 0, payloads.view(np.float64), mode="clip")
        else:
            payloads[...] = self.payload[due, :width]

    def unpack(self, rows: Integers, begin: int, width: int, data: Bytes) -> None:
        """Read what `pack` has written; headers say which messages have payloads."""
        at = 0
        if begin == BRIEF:
            at = 2 * len(rows)
            brief = data[:at].view(np.uint16)
            self.header[rows] = IDLE
            self.fields["requests"][rows] = brief >> 3 & 255
            self.fields["quiet_count"][rows] = brief >> 11
            self.fields["flags"][rows] = brief & (PAYLOAD | SLEEPY)
            longer = rows[(brief & MORE) > 0]
            whole = data[at : at + HEADER.itemsize * len(longer)]
            self.header[longer] = whole.view(np.uint64)
            at += len(whole)
        for field in (self.eta, self.header)[-(-begin // ETA) :]:
            field[rows] = data[at : at + ETA * len(rows)].view(field.dtype)
            at += ETA * len(rows)
        due = rows[(self.fields["flags"][rows] & PAYLOAD) > 0]
        payloads = data[at : at + width * len(due)].reshape(len(due), width)
        if width == self.payload.shape[1]:
            self.numbers[due] = payloads.view(np.float64)
        else:
            self.payload[due, :width] = payloads
