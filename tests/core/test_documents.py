"""Files are written as a whole, and values are read back from TOML."""

from __future__ import annotations

import math
import os
import tomllib

import pytest

from dadmm.core.documents import toml_value, write_text
from dadmm.core.errors import ConfigError, OutputError

VALUES = [
    True, 0, -3, 1e-300, math.inf, -math.inf, math.nan, (1, 2), (), ["a", 'b"\\'],
    "\x7f\x00\n\t\u2028", "\N{GRINNING FACE} \xe4",
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES)
def test_a_value_is_read_back(value):
    found = tomllib.loads(f"x = {toml_value(value)}\n")["x"]

    assert repr(found) == repr(list(value) if isinstance(value, tuple) else value)


def test_undecodable_bytes_are_refused():
    with pytest.raises(ConfigError, match="Unicode"):
        toml_value("data-\udcff.npy")


def test_a_file_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    file, draft = tmp_path / "config.toml", tmp_path / ".config.toml.draft"
    write_text(file, "é = 1\n")
    assert file.read_bytes() == "é = 1\n".encode()

    def refuse(old, new, **folders):
        assert draft.read_text() == "new"
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OutputError, match="No space left"):
        write_text(file, "new")
    assert file.read_text("utf-8") == "é = 1\n"
    assert not draft.exists()
