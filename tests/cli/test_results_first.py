"""Results are written before rows, and beside a folder that is gone."""

from __future__ import annotations

import errno
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from dadmm.core.errors import ConfigError
from dadmm.run import main
from dadmm.runs import folder as run_folder
from dadmm.runs.stored import StoredRun
from dadmm.solver import checkpoint

SMALL = ("--nodes", "4", "--n-samples", "40", "--dimension", "5", "--n-components", "2")


def run(*words: str) -> int:
    return main([*SMALL, *words])


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_disk_that_fills_while_rows_are_merged_loses_no_result(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(run_folder, "write_rows", full)

    assert run("--out", str(tmp_path / "a")) == 2
    assert "No space left" in capsys.readouterr().err
    monkeypatch.undo()
    assert run("--out", str(tmp_path / "b")) == 0
    for name in ("W", "mu", "a"):
        found, wanted = (np.load(tmp_path / k / "result.npz")[name] for k in "ab")
        assert found.tobytes() == wanted.tobytes()
    one, other = (StoredRun.read(tmp_path / k) for k in "ab")
    assert one.entry("status") == other.entry("status")
    assert one.column("objective").tobytes() == other.column("objective").tobytes()


@pytest.mark.parametrize("how", ["renamed", "gone"])
def test_results_of_a_run_whose_folder_is_gone_are_rescued(
    how, tmp_path, monkeypatch, capsys
):
    out = tmp_path / "a"
    real = run_folder.RunFolder.finish

    def finish(self, *words):
        if how == "renamed":
            out.rename(tmp_path / "moved")
        else:
            shutil.rmtree(out)
        return real(self, *words)

    monkeypatch.setattr(run_folder.RunFolder, "finish", finish)

    assert run("--out", str(out)) == 2
    (place,) = re.findall(r"the results are in (\S+)", capsys.readouterr().err)
    assert np.load(Path(place, "result.npz"))["W"].shape == (4, 5, 2)
    assert StoredRun.read(place).entry("n_nodes") == 4


def test_a_checkpoint_with_a_file_of_another_run_is_refused(tmp_path, capsys):
    """Its settings and data may be the same; its state is not."""
    for name, seed in (("a", "0"), ("b", "0")):
        words = ("--max-iter", "6", "--seed", seed, "--out", str(tmp_path / name))
        assert run(*words) == 0
    for_node = [checkpoint.path_of(tmp_path / k, 6, 2) for k in "ab"]
    shutil.copy(*for_node[::-1])

    assert main(["--resume", str(tmp_path / "a"), "--max-iter", "20"]) == 2
    assert "node-00002" in capsys.readouterr().err


def test_tasks_of_slurm_that_no_mpi_connects_are_refused(monkeypatch):
    """They would each be a run of their own, in one folder."""
    from dadmm.comm import world

    monkeypatch.setattr(world, "rank_and_size", lambda: None)
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    monkeypatch.setenv("SLURM_PROCID", "0")
    with pytest.raises(ConfigError, match="pmi2"):
        world.connect()
    monkeypatch.setenv("SLURM_PROCID", "2")
    with pytest.raises(SystemExit):
        world.connect()
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "1")
    assert world.connect().size == 1
