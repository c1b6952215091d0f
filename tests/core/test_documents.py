"""Files are written as a whole, and values are read back from TOML."""

import os
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dadmm.core.documents import toml_value, write_text
from dadmm.core.errors import ConfigError, OutputError

PLAIN = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats()
PLAIN |= st.text(st.characters(exclude_categories=["Cs"]))


@given(PLAIN | st.lists(PLAIN))
def test_a_value_is_read_back(value):
    found = tomllib.loads(f"x = {toml_value(value)}\n")["x"]

    assert repr(found) == repr(value)
    assert toml_value((1, 2)) == toml_value([1, 2])


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
