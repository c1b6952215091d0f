"""The command ``dadmm``: its subcommands, alone and under mpiexec."""

from __future__ import annotations

import sys

import pytest

from dadmm.__main__ import COMMANDS, FOR_RANKS, main
from dadmm.core.arguments import program


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


def test_a_rank_without_an_mpi_library_says_what_to_install(capsys, monkeypatch):
    """Not all of them: the first one."""
    monkeypatch.setitem(sys.modules, "dadmm.comm.mpi_library", None)
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
    for name in COMMANDS.keys() - set(FOR_RANKS):
        assert main([name, "missing"]) == 0
    assert capsys.readouterr() == ("", "")
    monkeypatch.setenv("PMI_RANK", "0")
    assert main(["waiting", "missing"]) == 2
