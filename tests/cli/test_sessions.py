"""The command line by sessions: what commands print, and their exit codes.

A file of ``sessions`` has commands, each after ``$``, and what they print: ``!`` is
before lines of stderr, ``?`` before an exit code, and ``#`` stands for a number.
``DADMM_SESSIONS=write`` writes the files again.
"""

import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from dadmm.__main__ import main
from tests.support.processes import Ended, mpiexec
from tests.support.runs import contents

PLACE = Path(__file__).parent / "sessions"
FILES = PLACE / "files"  # tables and settings that commands read
SESSIONS = [
    pytest.param(file, marks=pytest.mark.mpi) if file.stem == "mpi" else file
    for file in sorted(PLACE.glob("*.txt"))
]
NUMBER = re.compile(r"(?<![\w^])[-+]?\d(?:[\d,.]*\d)?(?:e[-+]\d+)?(?!\w)")
EXACT = ("--dry-run", "--help", "--version")
MODULE = """
import numpy as np
from dadmm import Layout

class Mean:
    def __init__(self, rows, *, weight=1.0, offset=0.0, n_components=2, alpha=0.0):
        self.layout = Layout.of(mean=(rows.shape[1],))
        self.rows = rows[~np.isnan(rows).any(axis=1)] + np.array(offset)
        self.weight, self.n_components, self.alpha = weight, n_components, alpha

    def init(self, rng):
        return np.zeros(self.layout.size)

    def expect(self, theta):
        return None

    def prox(self, theta, stats, centre, weight):
        pull = self.weight * self.rows.sum(axis=0) + weight * centre
        return pull / (self.weight * len(self.rows) + weight)

    def objectives(self, thetas, stats):
        off = thetas[:, None, :] - self.rows
        return 0.5 * self.weight * (off**2).sum(axis=(1, 2))

class Group:
    Inner = Mean

class NoProx:
    def __init__(self, rows):
        self.layout = Layout.of(x=())

    init = expect = objectives = lambda self, *arguments: None

class NoLayout(Mean):
    def __init__(self, rows):
        pass

class Demanding(Mean):
    def __init__(self, rows, beta):
        super().__init__(rows)

class Uneven(Mean):
    def __init__(self, rows):
        super().__init__(rows)
        self.layout = Layout.of(mean=(2 + int(rows[0, 0] > 0),))

NUMBER = 3
"""


def write_files(folder: Path) -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((60, 5)) @ np.diag([3.0, 2.0, 1.0, 0.5, 0.5])
    twice = rng.integers(-9, 9, size=(40, 3)).astype(float)
    twice[:, 2] = twice[:, 0]
    apart = rng.standard_normal((40, 2))
    arrays = {
        "rows": rows,
        "holed": np.where(np.abs(rows) > 3.0, np.nan, rows),
        "lost": np.where(np.arange(60)[:, None] // 20 == 1, np.nan, rows),
        "moved": np.where(rows == rows[25, 3], rows + 1e-9, rows),
        "flat": np.full((20, 5), 3.0),  # without noise
        "twice": np.column_stack([twice, twice @ [1.0, 2.0, 0.0]]),
        "apart": np.column_stack([apart, apart.sum(axis=1) > 0]),
        "wide": rng.standard_normal((40, 31)),
        "counts": np.column_stack([rows[:, :2] / 4, rng.poisson(2.0, size=60)]),
    }
    for i in range(3):
        arrays[f"columns-{i}"] = rows[i::3, : 3 + i]
        arrays[f"few-{i}"] = rows[: 3 + 20 * i]
        arrays[f"nan-{i}"] = np.where(np.arange(5) == 3, np.nan, rows[i::3])
        arrays[f"inf-{i}"] = np.where(rows[i::3] == rows[5, 3], np.inf, rows[i::3])
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    np.savez(folder / "named.npz", X=rows, z=rows[:, 0], table=rows)
    shutil.copytree(FILES, folder, symlinks=True, dirs_exist_ok=True)
    (folder / "own.py").write_text(MODULE)
    (folder / "sick.py").write_text("import no_such_library\n")


def start(words: list[str], folder: Path, capsys) -> Ended:
    """Run ``mpiexec -n N dadmm ...``, ``dadmm ...`` in this process, or ``head``."""
    if words[0] == "head":
        lines = Path(words[1]).read_text().splitlines(keepends=True)[:4]
        return Ended(0, re.sub(r"\d+\.\d+(e-?\d+)?", "#", "".join(lines)), "")
    if words[0] == "mpiexec":
        ranks = int(words[2]), "-m", "dadmm", *words[4:]
        ended = mpiexec(*ranks, cwd=folder)
        # Open MPI adds words of its own to errors
        return ended._replace(err=re.split(r"(?m)^(?:-{9}|\[warn)", ended.err)[0])
    try:
        code = main(words[1:])
    except SystemExit as leaving:
        code = leaving.code
    return Ended(code, *capsys.readouterr())


def transcript(line: str, ended: Ended) -> list[str]:
    out = ended.out
    if ended.code in (0, 3) and not any(word in line for word in EXACT):
        out = NUMBER.sub("#", re.sub("MPI: .*", "MPI", out))
        out = re.sub("(?<=#) +", " ", out)  # columns of numbers
    lines = [f"$ {line}", *out.splitlines()]
    lines += [f"! {text}" for text in ended.err.splitlines()]
    return lines + [f"? {ended.code}"] * (ended.code != 0)


@pytest.mark.parametrize("file", SESSIONS, ids=lambda file: file.stem)
def test_a_session(file, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "argv", ["dadmm"])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # of the user's module
    monkeypatch.syspath_prepend(tmp_path)
    write_files(tmp_path)
    before = file.read_text().splitlines()
    lines = []
    for line in (text[2:] for text in before if text.startswith("$ ")):
        files = contents(tmp_path)
        ended = start(shlex.split(line), tmp_path, capsys)
        lines += transcript(line, ended)
        if ended.code == 2 or "--dry-run" in line:  # it leaves everything as it was
            assert contents(tmp_path) == files, line
    for summary in tmp_path.glob("*/summary.json"):
        assert not re.search("NaN|Infinity", summary.read_text()), summary
    sys.modules.pop("own", None)  # the module of `write_files`
    if os.environ.get("DADMM_SESSIONS") == "write":
        file.write_text("\n".join([*lines, ""]))

    assert lines == before
