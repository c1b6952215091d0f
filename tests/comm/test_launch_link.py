"""What a process owes to the launcher that started it."""

from __future__ import annotations

import io
import os
import threading

import pytest

from dadmm.comm.launch_link import wait_until_read


@pytest.fixture
def pipe():
    """A pipe with some words in it that nobody has read yet."""
    reader, writer = os.pipe()
    with open(reader, "rb") as outlet, open(writer, "w") as inlet:
        inlet.write("last words")
        inlet.flush()
        yield outlet, inlet


@pytest.mark.timeout(60)
def test_last_words_are_waited_for_until_they_are_read(pipe):
    outlet, inlet = pipe
    waiting = threading.Thread(target=wait_until_read, args=(inlet, 1e6))
    waiting.start()
    waiting.join(0.05)

    assert waiting.is_alive()
    os.read(outlet.fileno(), 4)
    waiting.join(0.05)
    assert waiting.is_alive()
    os.read(outlet.fileno(), 100)
    waiting.join(30)
    assert not waiting.is_alive()


@pytest.mark.timeout(60)
def test_there_is_no_wait_without_a_pipe_or_beyond_the_limit(pipe, tmp_path):
    wait_until_read(pipe[1], 0.01)  # nobody reads it
    with open(tmp_path / "file", "w") as file:
        file.write("words")
        wait_until_read(file, 1e6)
    wait_until_read(None, 1e6)
    wait_until_read(io.StringIO("words"), 1e6)
