"""Sending less over MPI: the same bits, counters and files as in one process."""

from __future__ import annotations

import re

import pytest

import dadmm.run
from tests.support.processes import mpiexec, program
from tests.support.runs import assert_same_arrays, summary_of

pytestmark = pytest.mark.mpi


def test_every_way_of_sending_has_the_same_bits():
    """With auto and nap, in turns or not; on 6 ranks, see sending.py."""
    ended = mpiexec(6, *program("sending.py"), timeout=200)

    assert ended.code == 0, ended.err
    words = r"32 agree, (\d+) stopped, (\d+) with silence, 3 with losses\n"
    found = re.fullmatch(words, ended.out)
    assert found, ended.out
    assert int(found[1]) >= 3
    assert int(found[2]) >= 15


def test_runs_move_from_mpi_to_one_process_and_back(tmp_path):
    """On graphs whose nodes have different degrees, and with all that a state holds."""
    ended = mpiexec(6, *program("resume.py"), tmp_path, timeout=200)

    assert ended.code == 0, ended.err
    assert ended.out == "20 agree\n"


def test_the_main_job_writes_the_same_over_mpi(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.edges").write_text("0 1\n2 3\n")
    (tmp_path / "b.edges").write_text("1 2\n3 0\n")
    flags = "--topology a.edges,b.edges --payload quantised --bits 5 --edge-sleep 0.4"
    flags += " --censor 0.1 --send-every 2 --n-components 2 --max-iter 30"
    flags += " --record-edges"
    arguments = [*flags.split(), "--out"]

    ended = mpiexec(4, "-m", "dadmm.run", *arguments, "ranks", cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert dadmm.run.main([*arguments, "alone", "--nodes", "4", "--quiet"]) == 0

    texts = [(tmp_path / f / "edges.csv").read_text() for f in ("ranks", "alone")]
    assert texts[0] == texts[1]
    summaries = [summary_of(f) for f in ("ranks", "alone")]
    for key in ("iterations", "messages", "bytes", "silent_messages", "metrics"):
        assert summaries[0][key] == summaries[1][key]
    assert summaries[0]["silent_messages"] > 0
    assert_same_arrays("ranks/result.npz", "alone/result.npz")
