"""Options of the launch commands, and settings of the run that they start."""

from __future__ import annotations

import os

import pytest

from launch.base.arguments import run_setting, trust_flags


@pytest.mark.parametrize(
    ("given", "repeated"),
    [
        ("--seed 3", ""),
        ("--problem lasso", ""),
        ("--problem mine:Mean --seed 3", "--problem mine:Mean"),
        ("--problem=mine:Mean --trust", "--problem mine:Mean"),
        ("--config a.toml --trust", "--trust"),
    ],
)
def test_the_problem_class_is_repeated_on_resuming(given, repeated):
    """The config.toml of a run must not name code."""
    assert trust_flags(given.split()) == repeated.split()


@pytest.mark.parametrize("text", ['out = "run"\n', "out = [", None])
def test_a_setting_is_read_from_the_file(tmp_path, text):
    """A file that cannot be read is left to the run, and a pipe is not waited for."""
    file = tmp_path / "a.toml"
    os.mkfifo(file) if text is None else file.write_text(text)
    found = run_setting(["--config", str(file)], "out")

    assert found == ("run" if text == 'out = "run"\n' else "")
