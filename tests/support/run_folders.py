"""Folders of runs and projects, as tests of the launch commands need them."""

import shutil
from pathlib import Path

from tests.support.processes import ROOT


def write_run(folder: Path, hosts=("vm",) * 4) -> Path:
    """Write the folder of a run that has started, with one rank per host."""
    folder.mkdir()
    rows = [f"{k},{k},{host},{11 + k}\n" for k, host in enumerate(hosts)]
    (folder / "ranks.csv").write_text("rank,node,host,pid\n" + "".join(rows))
    (folder / "config.toml").write_text(f'scheme = "snap"\nnodes = {len(hosts)}\n')
    return folder


def write_checkpoint(folder: Path, iteration: int, nodes) -> None:
    """Write the checkpoint files of some nodes."""
    place = folder / "checkpoints" / f"{iteration:08d}"
    place.mkdir(parents=True)
    for i in nodes:
        (place / f"node-{i:05d}.npz").touch()


def copy_launch(folder: Path) -> None:
    """Copy the launch commands into a project of their own, with this dadmm."""
    shutil.copytree(ROOT / "launch", folder / "launch")
    (folder / "dadmm").symlink_to(ROOT / "dadmm")
