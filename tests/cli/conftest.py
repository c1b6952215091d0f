"""Every test of the command line starts in an empty folder, without a launcher."""

from pathlib import Path

import pytest

from dadmm.core import ranks


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder."""
    monkeypatch.chdir(tmp_path)
    for name in {name for pair in ranks.LAUNCHERS for name in pair}:
        monkeypatch.delenv(name, raising=False)
    return tmp_path
