"""Steps of all ranks that are checked by one collective, and how ranks wait."""

from __future__ import annotations

import pytest

from dadmm.comm.world import Checks, World, from_rank_0
from dadmm.core.errors import ConfigError, DadmmError


def raises(error):
    def step():
        raise error

    return step


def test_steps_of_one_process_give_their_values():
    checks = Checks(World())

    assert checks.run(lambda: 5) == 5
    checks.compare(lambda: {"seed": "1"})
    assert checks.gather(a=1, b=[2]) == [{"a": 1, "b": [2]}]
    assert from_rank_0(World(), lambda: "text") == "text"


@pytest.mark.parametrize(
    ("error", "kind"),
    [(ConfigError("no"), ConfigError), (MemoryError(), DadmmError)],
)
def test_after_a_failure_further_steps_are_left_out(error, kind):
    """Too little memory is an error of the input; other exceptions are raised."""
    checks, done = Checks(World()), []
    checks.run(raises(error))
    checks.run(lambda: done.append(1))
    checks.compare(lambda: done.append(2))

    with pytest.raises(kind):
        checks.gather()
    assert not done
    with pytest.raises(ZeroDivisionError):
        Checks(World()).run(lambda: 1 / 0)


@pytest.mark.mpi
@pytest.mark.parametrize("wait", ["block", "poll"])
def test_a_long_wait_sleeps(wait, monkeypatch):
    """Else a rank that is stopped would keep the cores of all others busy."""
    from dadmm.comm import mpi_library

    answers, slept, now = iter([False] * 40 + [True]), [], iter(range(1000))
    monkeypatch.setattr(mpi_library, "_test_all", lambda requests: next(answers))
    monkeypatch.setattr(mpi_library, "monotonic", lambda: 0.1 * next(now))
    monkeypatch.setattr(mpi_library.time, "sleep", slept.append)
    mpi_library.waiting(wait, crowded=False)([])

    assert slept[-1] == mpi_library.LONG_INTERVAL
    assert (slept[0] == mpi_library.POLL_INTERVAL) == (wait == "poll")
