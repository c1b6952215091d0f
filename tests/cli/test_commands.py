"""The command ``dadmm``: its subcommands, alone and under mpiexec."""

from __future__ import annotations

import shutil
import sys
from importlib import import_module
from pathlib import Path

import pytest

import dadmm
from dadmm.__main__ import COMMANDS, main
from dadmm.core.arguments import program
from tests.support.processes import mpiexec, python

SCRIPT = shutil.which("dadmm", path=str(Path(sys.executable).parent))
SMALL = ("--topology", "ring", "--max-iter", "3", "--dry-run")


def test_every_command_has_a_module_of_its_name():
    for name in COMMANDS:
        assert callable(import_module(f"dadmm.{name}").main)


@pytest.mark.parametrize(
    ("place", "start", "run"),
    [
        ("/usr/bin/dadmm", "dadmm", "dadmm run"),
        ("/a/dadmm/__main__.py", "python -m dadmm", "python -m dadmm run"),
        ("/a/dadmm/run.py", "python -m dadmm", "python -m dadmm.run"),
        ("/usr/bin/pytest", "python -m dadmm", "python -m dadmm.run"),
    ],
)
def test_a_command_is_named_as_it_was_started(place, start, run, monkeypatch):
    monkeypatch.setattr(sys, "argv", [place])

    assert (program(), program("run")) == (start, run)


def test_the_commands_are_those_of_python_m(tmp_path):
    """Also their errors and exit codes."""
    for words in (["--nodes", "0"], ["--nodes", "4", *SMALL]):
        new = python("-m", "dadmm", "run", *words, cwd=tmp_path).end()
        old = python("-m", "dadmm.run", *words, cwd=tmp_path).end()
        assert new == old
    job = python("-m", "dadmm.plot", "missing", cwd=tmp_path).end()
    assert (job.code, len(job.said)) == (2, 1)


def test_a_rank_without_an_mpi_library_says_what_to_install(capsys, monkeypatch):
    """Not all of them: the first one."""
    monkeypatch.setitem(sys.modules, "dadmm.comm.mpi_world", None)
    monkeypatch.setenv("PMI_SIZE", "2")
    monkeypatch.setenv("PMI_RANK", "0")
    for words in (["run"], ["rnu"]):
        assert main(words) == 2
        out, said = capsys.readouterr()
        assert (out, said.count("\n")) == ("", 1)
        assert "dadmm[mpi]" in said
    monkeypatch.setenv("PMI_RANK", "1")
    with pytest.raises(SystemExit, match="2"):
        main(["run"])
    assert capsys.readouterr() == ("", "")


def test_the_first_rank_does_what_is_not_for_ranks(capsys, monkeypatch):
    """Others would write the same files at the same time."""
    monkeypatch.setenv("PMI_SIZE", "2")
    monkeypatch.setenv("PMI_RANK", "1")
    for name in COMMANDS.keys() - {"run"}:
        assert main([name, "missing"]) == 0
    assert capsys.readouterr() == ("", "")
    monkeypatch.setenv("PMI_RANK", "0")
    assert main(["waiting", "missing"]) == 2


@pytest.mark.mpi
@pytest.mark.skipif(SCRIPT is None, reason="there is no command dadmm beside Python")
def test_ranks_of_the_installed_command(tmp_path):
    """It prints once, and names itself."""
    said = {"--version": f"dadmm {dadmm.__version__}\n", "run": "usage: dadmm run ["}
    for word, line in said.items():
        job = mpiexec(3, SCRIPT, word, *["--help"] * (word == "run"), cwd=tmp_path)
        assert (job.code, job.out.count(line), job.said) == (0, 1, [])
