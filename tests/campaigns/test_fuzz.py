"""Some cases of the fuzz test.

More cases: ``python -m tests.campaigns.faults.fuzz --cases 3000 --jobs 2``.
"""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.support.processes import ROOT, variables

ERROR = "dadmm: error: it is damaged\n"
BROKEN = """
import os, sys
from pathlib import Path
from tests.campaigns.faults import fuzz

home = Path(sys.argv[1])
fuzz.SECONDS = 2

def wait():
    os.read(os.pipe()[0], 1)

def crash():
    os.kill(os.getpid(), 11)

def allocate():
    bytearray(2**33)

for start in (wait, crash, allocate, lambda: 2):
    print(fuzz.judge(fuzz.in_process(start, home), []))
"""


def python(*words, timeout):
    return subprocess.run(
        [sys.executable, *map(str, words)], env=variables(), cwd=ROOT,
        capture_output=True, text=True, timeout=timeout, check=False,
    )  # fmt: skip


@pytest.mark.timeout(280)
def test_bad_inputs_get_one_sentence_and_touch_nothing(tmp_path):
    fuzz, out = "tests.campaigns.faults.fuzz", tmp_path / "out"
    done = python("-m", fuzz, "--cases", 160, "--out", out, timeout=270)

    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1].split("|")
    assert [cell.strip() for cell in last[1:3]] == ["all", "160"]
    assert [int(cell) for cell in last[5:-1]] == [0] * 5


@pytest.mark.timeout(100)
def test_hangs_crashes_and_tracebacks_are_noticed(tmp_path):
    done = python("-c", BROKEN, tmp_path, timeout=90)
    assert done.stdout.splitlines() == [
        "hangs", "wrong exit codes", "tracebacks", "unclear sentences",
    ], done.stderr  # fmt: skip


def test_the_judge_finds_fault():
    from tests.campaigns.faults import fuzz

    for code, err, touched, outcome in (
        (0, "", [], fuzz.ACCEPTED),
        (0, "dadmm: a note\n", [], fuzz.ACCEPTED),
        (2, ERROR, [], fuzz.REFUSED),
        (2, ERROR * 2, [], fuzz.UNCLEAR),
        (2, f"dadmm: a note\n{ERROR}", [], fuzz.UNCLEAR),
        (0, ERROR, [], fuzz.UNCLEAR),
        (0, "x.py:3: RuntimeWarning: overflow\n", [], fuzz.UNCLEAR),
        (2, ERROR.replace("it", "it" * 1000), [], fuzz.UNCLEAR),
        (2, ERROR, ["outside/kept.txt"], fuzz.TOUCHED),
        (1, ERROR, [], fuzz.CODE),
        (3, "", [], fuzz.CODE),
        (-signal.SIGSEGV, "", [], fuzz.CODE),
        (1, "Traceback (most recent call last):\n", [], fuzz.TRACEBACK),
        (None, "", [], fuzz.HANG),
        (-signal.SIGXCPU, "", [], fuzz.HANG),
    ):
        assert fuzz.judge(fuzz.Ended(code, "", err), touched) == outcome
