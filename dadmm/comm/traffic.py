"""What was sent: counters, arrays whose last axis is (messages, bytes).

Exchanges count the messages of the iterations, `dadmm.comm.tree` those of sums.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Counter = NDArray[np.int64]  # (..., 2)


def count(counted: Counter, lengths: NDArray[np.int64], times: int = 1) -> None:
    """Count messages of these lengths; a length of 0 is no message."""
    counted[..., 0] += times * (lengths > 0)
    counted[..., 1] += times * lengths


#: calls of MPI outside the iterations, and the bytes that this process sent by them
outside: Counter = np.zeros(2, np.int64)


class Traffic(NamedTuple):
    """What was sent, counted as it was sent; aligned with ``topology.edges``."""

    edge_messages: np.ndarray  #: (E,) point-to-point messages
    edge_bytes: np.ndarray  #: (E,) their bytes, headers included
    edge_silent: np.ndarray  #: (E,) messages that were a header without payload
    edge_lost: np.ndarray  #: (E,) payloads that were dropped on purpose
    collectives: int  #: collective calls inside the loop (agreement = "global")
    collective_bytes: int  #: payload that all nodes put into them
    tree_messages: np.ndarray  #: (E,) of sums over a tree in this session
    tree_bytes: np.ndarray  #: (E,)
    #: (pairs, 4) messages of the iterations between ranks in this session: the rank
    #: that sends, the one that receives, their number, and their bytes
    wire: np.ndarray
    #: whether the messages of a node to its neighbours have the same bytes in every
    #: iteration, so that a radio sends them once; opening messages differ by penalties
    is_broadcast: bool = False

    def __repr__(self) -> str:
        return (
            f"<Traffic on {len(self.edge_bytes)} directed edges: {self.messages:,} "
            f"messages, {self.bytes:,} bytes>"
        )

    @property
    def messages(self) -> int:
        """Messages over all directed edges, the opening ones included."""
        return int(self.edge_messages.sum())

    @property
    def bytes(self) -> int:
        """Bytes of these messages."""
        return int(self.edge_bytes.sum())

    @property
    def silent(self) -> int:
        """Messages without payload."""
        return int(self.edge_silent.sum())

    @property
    def lost(self) -> int:
        """Payloads that did not arrive."""
        return int(self.edge_lost.sum())
