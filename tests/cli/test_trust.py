"""A file names data and numbers; code is named by a user, on the command line."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from dadmm.core.errors import ConfigError
from dadmm.problems import builder
from dadmm.run import main
from dadmm.runs.config import RunConfig
from launch.runs import plan

SMALL = (
    "--nodes", "3", "--n-samples", "30", "--dimension", "6", "--tolerance", "0",
    "--quiet",
)  # fmt: skip
OWN = "theirs:Mean"
MODULE = """
from pathlib import Path

from dadmm.problems import PPCA

Path("imported").touch()


class Mean(PPCA):
    def __init__(self, rows):
        super().__init__(rows, 2)
"""


@pytest.fixture(autouse=True)
def theirs(tmp_path, monkeypatch):
    """A module beside a file of settings that names its class."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("theirs.py").write_text(MODULE)
    Path("theirs.toml").write_text(f'problem = "{OWN}"\nmax_iter = 5\n')
    yield
    sys.modules.pop("theirs", None)


def run(*words):
    return main([*SMALL, *map(str, words)])


def test_a_file_does_not_name_code(capsys):
    """Nothing is imported, and nothing made; the sentence says both ways."""
    for words in ((), ("--dry-run",)):
        assert run("--config", "theirs.toml", *words) == 2
        assert capsys.readouterr().err == (
            "dadmm: error: theirs.toml names the problem 'theirs:Mean', and a file may "
            "not name code to run; if you trust it, repeat --problem theirs:Mean, or "
            "add --trust\n"
        )
    assert "theirs" not in sys.modules
    assert not Path("imported").exists()
    assert not Path("runs").exists()


def test_a_command_line_does():
    """By its name, or by trust in the file. Trust is no setting of the run."""
    for out, words in (("a", ["--problem", OWN]), ("b", ["--trust"])):
        assert run("--config", "theirs.toml", "--out", out, *words) == 0
    assert run("--config", "theirs.toml", "--problem", "ppca", "--dry-run") == 0

    assert "trust" not in Path("b/config.toml").read_text()
    with np.load("a/result.npz") as a, np.load("b/result.npz") as b:
        assert (a["W"] == b["W"]).all()


def test_ones_own_run_is_resumed_by_the_same_words(capsys):
    assert run("--problem", OWN, "--max-iter", 5, "--out", "run") == 0
    assert run("--problem", OWN, "--max-iter", 5, "--out", "b", "--no-quiet") == 0
    assert f" -m dadmm.run --problem {OWN} --resume b" in capsys.readouterr().out
    again = ["--resume", "run", "--max-iter"]
    Path("imported").unlink()
    del sys.modules["theirs"]

    assert main([*again, "6", "--quiet"]) == 2
    assert "repeat --problem theirs:Mean, or add --trust" in capsys.readouterr().err
    assert not Path("imported").exists()
    assert main([*again, "6", "--quiet", "--problem", OWN]) == 0
    assert main([*again, "7", "--quiet", "--trust"]) == 0


def test_a_file_does_not_ask_to_remove_results(capsys):
    """It may say where results go, and not that others make room for them."""
    assert run("--out", "mine", "--max-iter", 3) == 0
    before = Path("mine/result.npz").read_bytes()
    Path("a.toml").write_text('out = "mine"\noverwrite = true\nmax_iter = 4\n')

    assert run("--config", "a.toml") == 2
    assert "a.toml asks for overwrite" in capsys.readouterr().err
    assert Path("mine/result.npz").read_bytes() == before
    assert run("--config", "a.toml", "--overwrite") == 0


def test_a_registered_name_does_not_come_from_the_current_folder(monkeypatch):
    here = str(Path.cwd())
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", ".", here)])
    monkeypatch.setattr(builder, "_from_packages", lambda: {"mean": OWN})

    assert RunConfig(problem="mean").is_plugin
    with pytest.raises(ConfigError, match="there is no module 'theirs'"):
        builder.find("mean")
    assert not Path("imported").exists()


def test_a_job_that_goes_on_says_the_class_again():
    assert run("--problem", OWN, "--max-iter", 5, "--out", "run") == 0
    again = [*SMALL, "--problem", OWN, "--max-iter", "9", "--out", "run"]
    given = RunConfig.from_argv(list(map(str, again)))
    given.config.settle(3)
    words = plan(given, ["--out", "run"], Path("run"), 3)

    assert words[:4] == ["--resume", "run", "--problem", OWN]
    assert main([*words, "--quiet"]) == 0
