"""What launch commands read may be damaged: one sentence, and nothing else.

``DADMM_ALL=1`` tries many more cases.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dadmm.core.errors import DadmmError
from launch import diagnosis, mpi, runs, sweep
from launch.batch import Allocation, describe, pbs
from launch.console import UsageError, print_message
from tests.support.run_folders import write_checkpoint

RECORD = {
    "ranks": 2,
    "varied": ["seed"],
    "jobs": ["7"],
    "tasks": {"seed=1": {"seed": 1}},
}
SUMMARY = {"reason": "signal", "iterations": 5, "converged": False, "status": "x"}
TEMPLATES = {
    "ranks.csv": b"rank,node,host,pid\n0,0,a,11\n1,1,b,12\n2,2,a,13\n3,3,b,14\n",
    "sweep.json": json.dumps(RECORD).encode(),
    "summary.json": json.dumps(SUMMARY).encode(),
    "config.toml": b'nodes = 4\nmax_iter = 9\nout = "x"\non_failure = "continue"\n',
    "failure.txt": b"failed with code 9; see the log\n",
    "grid.toml": b"ranks = 2\n[base]\nmax_iter = 3\n[grid]\nseed = [1, 2]\n",
    "hosts.txt": b"a:2\nb slots=3 max_slots=4\n# c\n",
    "log": b"=   RANK 2 PID 7 RUNNING AT b\n=   KILLED BY SIGNAL: 9 (Killed)\n"
    b"dadmm: rank 1 failed:\nTraceback (most recent call last):\nKeyError: 'a'\n",
}
WORDS = [b"", b"\0", b"\xff\xfe", b"\x1b[31m", b"9" * 400, b"nan", b"-1", b"1e400"]
WORDS += [b'"', b"\n", b",", b"[" * 3000, b"{}", b"null", b"../..", b"a." * 200, b"=9"]
WORDS += [b"\\u0000", "\u2028".encode(), b"x" * 200_000]


@st.composite
def damaged(draw) -> tuple[str, bytes]:
    """Return a file's name, and its content with words put in place of others."""
    name = draw(st.sampled_from(sorted(TEMPLATES)))
    text = TEMPLATES[name]
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(text)))
        length = draw(st.integers(0, 20))
        new = draw(st.sampled_from(WORDS) | st.binary(max_size=8))
        text = text[:start] + new + text[start + length :]
    return name, text


def use(folder: Path) -> None:
    """Let each command read all files of a folder."""
    log = (folder / "log").read_bytes().decode(errors="replace")
    runs.read_ranks(folder)
    diagnosis.explain("resume", log, folder, 1, out_of_memory=True)
    (folder / "summary.json").rename(folder / "kept")
    for first in (None, 2):
        for sentence in diagnosis.explain("resume", log, folder, 9, first):
            print_message(sentence)
    diagnosis.diagnose(str(folder), str(folder / "log"))
    (folder / "kept").rename(folder / "summary.json")
    for read in (
        lambda: describe(runs.read_state(folder)),
        lambda: sweep.collect(sweep.Sweep.read(folder)),
        lambda: sweep.read_grid(str(folder / "grid.toml"), str(folder / "out")),
        lambda: sweep.arguments_of_task(["--sweep", str(folder)], {}),
        lambda: mpi.read_hosts(str(folder / "hosts.txt"), 2),
        lambda: pbs({"PBS_NODEFILE": str(folder / "hosts.txt")}),
        lambda: start(folder),
    ):
        try:
            read()
        except (UsageError, DadmmError) as error:
            print_message(str(error))


def start(folder: Path) -> None:
    """Plan a job as a batch job does."""
    arguments = ["--config", str(folder / "config.toml")]
    given = runs.read_arguments(arguments)
    if given is not None:
        place = Path(given.config.out or Allocation("slurm", "1", 4, 4, 4).folder)
        runs.plan(given, arguments, folder if place == Path("x") else place, 4)


@settings(
    max_examples=3000 if os.environ.get("DADMM_ALL") else 60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(case=damaged())
def test_a_damaged_file_gives_a_sentence(case, tmp_path_factory, capsys):
    folder = tmp_path_factory.mktemp("damaged")
    os.chdir(folder)
    write_checkpoint(folder, 5, range(4))
    for name, text in {**TEMPLATES, case[0]: case[1]}.items():
        (folder / name).write_bytes(text)
    use(folder)

    out, err = capsys.readouterr()
    assert "\x1b" not in out + err
    assert "\0" not in out + err


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_a_named_pipe_is_not_waited_for(name, tmp_path):
    for other, text in TEMPLATES.items():
        (tmp_path / other).write_bytes(text)
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    if name == "log":
        with pytest.raises(UsageError):
            diagnosis.diagnose(str(tmp_path / "empty"), str(tmp_path / name))
    else:
        (tmp_path / "log").touch()
        use(tmp_path)
