"""How ranks wait for messages: awake at first, asleep while another rank is late."""

from __future__ import annotations

import pytest

from dadmm.comm import mpi_library


@pytest.mark.mpi
@pytest.mark.parametrize("wait", ["block", "poll"])
def test_a_long_wait_sleeps(wait, monkeypatch):
    """Else a rank that is stopped would keep the cores of all others busy."""
    answers, slept = iter([False] * 40 + [True]), []
    now = iter(range(1000))
    monkeypatch.setattr(mpi_library, "_test_all", lambda requests: next(answers))
    monkeypatch.setattr(mpi_library, "monotonic", lambda: 0.1 * next(now))
    monkeypatch.setattr(mpi_library.time, "sleep", slept.append)
    mpi_library.waiting(wait, crowded=False)([])

    assert slept[-1] == mpi_library.LONG_INTERVAL
    assert slept[0] == mpi_library.POLL_INTERVAL
