"""An error at the n-th system call of a run: nothing that was finished is lost.

Calls that open, write, rename, sync or remove files of the run's folder fail, one by
one: with EIO or EINTR once, or with ENOSPC from then on. ``DADMM_ALL=1`` tries all n.
"""

import errno
import io
import json
import os
import shutil
from functools import partial
from pathlib import Path

import pytest

from dadmm.core import files
from dadmm.run import main
from dadmm.runs import row_files
from dadmm.solver.checkpoint import complete
from tests.campaigns.faults.fuzz import in_process
from tests.support.runs import SINCE_RESUME, TINY, assert_same_arrays

ALL, NODES = bool(os.environ.get("DADMM_ALL")), 3
SMALL = (*TINY, "--checkpoint-every", 4, "--missing-fraction", 0.1, "--record-edges")
START = (*SMALL, "--max-iter", 10, "--overwrite", "--out", "run")
RESUME = ("--resume", "run", "--max-iter", 14)
CALLS = ("open", "replace", "unlink", "fsync", "mkdir")
ERRORS = ("EIO", "EINTR", "ENOSPC")
TRIED = 3  # calls of each way and error, unless all are tried


class Calls:
    """Counts the calls of this process, and lets those from `first` to `last` fail."""

    def __init__(self, first=0, last=0, error="EIO"):
        self.count, self.first, self.last, self.error = 0, first, last, error
        for name in CALLS:
            setattr(os, name, partial(self.call, getattr(os, name)))
        for module in (files, row_files):
            module.open = self.open

    def call(self, real, *words, **named):
        self.step()
        return real(*words, **named)

    def step(self):
        self.count += 1
        if self.first <= self.count <= self.last:
            if self.count == self.first:  # what was finished before
                done = complete(Path("run"), NODES)
                ended = Path("run/summary.json").exists()
                Path("before.json").write_text(json.dumps([done, ended]))
            code = getattr(errno, self.error)
            raise OSError(code, os.strerror(code))

    def open(self, handle, mode="r", **options):
        """Open as the builtin does, with writes that are calls."""
        calls = self

        class Raw(io.FileIO):
            def write(self, data):
                calls.step()
                return super().write(data)

        plain = mode.replace("b", "").replace("w+", "r+")
        raw = Raw(handle, plain)
        wide = {"r": io.BufferedReader, "r+": io.BufferedRandom}
        buffer = wide.get(plain, io.BufferedWriter)(raw)
        return buffer if "b" in mode else io.TextIOWrapper(buffer, **options)


def play(home, words, *failing):
    """Run a command in a process of its own; return its exit code and errors."""

    def start():
        os.chdir(home)
        os.environ["TMPDIR"] = str(home)
        calls = Calls(*failing)
        code = main([str(word) for word in words])
        Path("calls.txt").write_text(str(calls.count))
        return code

    ended = in_process(start, home)
    assert ended.code is not None, "it hangs"
    return ended.code, ended.err


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of 10 iterations, and the same resumed to 14; how many calls both have."""
    home, counts = tmp_path_factory.mktemp("calls"), {}
    for way, words in (("start", START), ("resume", RESUME)):
        assert play(home, words) == (0, "")
        counts[way] = int((home / "calls.txt").read_text())
        shutil.copytree(home / "run", home / way)
    return home, counts


@pytest.mark.timeout(3600 if ALL else 240)
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("way", ["start", "resume"])
def test_a_call_that_fails_loses_nothing(whole, tmp_path, way, error):
    """A correct result, or one sentence and a folder that comes to it afterwards."""
    home, counts = whole
    every = 1 if ALL else max(1, counts[way] // TRIED)
    offset = ERRORS.index(error) * every // 3
    for n in range(1 + offset, counts[way] + 1, every):
        case = tmp_path / f"{n}"
        case.mkdir()
        if way == "resume":
            shutil.copytree(home / "start", case / "run")
        last = 10**9 if error == "ENOSPC" else n
        code, said = play(case, START if way == "start" else RESUME, n, last, error)
        told = f"{error} at call {n}: {code} {said}"
        assert "Traceback" not in said, told
        assert (code, len(said.splitlines())) in ((0, 0), (2, 1)), told
        before, ended = json.loads((case / "before.json").read_text())
        after = complete(case / "run", NODES) if (case / "run").exists() else []
        over = (case / "run" / "summary.json").exists()
        assert over >= ended, told
        assert over or max(after, default=0) >= max(before, default=0), told
        if code:
            goes_on = RESUME if way == "resume" else (*RESUME[:3], 10)
            code, said = play(case, goes_on if after else START)
            if code == 2 and over:  # all had been written but rows
                code = 0
            assert code == 0, f"{told}; then {said}"
        results = (folder / "result.npz" for folder in (home / way, case / "run"))
        assert_same_arrays(*results, SINCE_RESUME)
        shutil.rmtree(case)
