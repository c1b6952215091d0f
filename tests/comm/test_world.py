"""Steps of all ranks that are checked by one collective, and how processes wait."""

from __future__ import annotations

import io
import os
import threading

import pytest

from dadmm.comm import mpi_library
from dadmm.comm.launch_link import wait_until_read
from dadmm.comm.world import Checks, World
from dadmm.core.errors import ConfigError, DadmmError


def fail(error):
    raise error


@pytest.mark.parametrize(
    ("error", "kind"),
    [(ConfigError("no"), ConfigError), (MemoryError(), DadmmError)],
)
def test_after_a_failure_further_steps_are_left_out(error, kind):
    """Too little memory is an error of the input; other exceptions are raised."""
    checks, done = Checks(World()), []
    checks.run(lambda: fail(error))
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
    answers, slept, now = iter([False] * 40 + [True]), [], iter(range(1000))
    monkeypatch.setattr(mpi_library, "_test_all", lambda requests: next(answers))
    monkeypatch.setattr(mpi_library, "monotonic", lambda: 0.1 * next(now))
    monkeypatch.setattr(mpi_library.time, "sleep", slept.append)
    mpi_library.waiting(wait, crowded=False)([])

    assert slept[-1] == mpi_library.LONG_INTERVAL
    assert (slept[0] == mpi_library.POLL_INTERVAL) == (wait == "poll")


@pytest.mark.timeout(60)
def test_last_words_are_waited_for_until_the_launcher_has_read_them(tmp_path):
    """Without a pipe, or beyond the limit, there is no wait."""
    reader, writer = os.pipe()
    with open(reader, "rb") as outlet, open(writer, "w") as inlet:
        inlet.write("last words")
        inlet.flush()
        wait_until_read(inlet, 0.01)  # nobody reads it
        waiting = threading.Thread(target=wait_until_read, args=(inlet, 1e6))
        waiting.start()
        for count in (4, 100):
            waiting.join(0.05)
            assert waiting.is_alive()
            os.read(outlet.fileno(), count)
        waiting.join(30)
        assert not waiting.is_alive()
    with open(tmp_path / "file", "w") as file:
        file.write("words")
        for stream in (file, None, io.StringIO("words")):
            wait_until_read(stream, 1e6)
