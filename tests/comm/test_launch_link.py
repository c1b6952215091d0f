"""What a process owes to the launcher that started it."""

from __future__ import annotations

import io
import os
import threading

import pytest

from dadmm.comm.launch_link import wait_until_read


@pytest.mark.timeout(60)
def test_last_words_are_waited_for_until_they_are_read(tmp_path):
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
