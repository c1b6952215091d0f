"""The files that a forge and a package index read."""

from __future__ import annotations

import configparser
import re

import pytest

from tests.support.processes import ROOT

yaml = pytest.importorskip("yaml", reason="pyyaml is not installed")


def load(name: str) -> dict:
    return yaml.safe_load((ROOT / name).read_text("utf-8"))


def test_jobs_run_the_commands_of_the_project_with_each_python_and_both_mpis():
    """Nothing is written to the repository, and each job has a time limit."""
    workflow = load(".github/workflows/ci.yml")
    jobs = workflow["jobs"]
    metadata = configparser.ConfigParser()
    metadata.read(ROOT / "setup.cfg")
    named = re.findall(r"Python :: (3\.\d+)", metadata["metadata"]["classifiers"])
    matrix = jobs["tests"]["strategy"]["matrix"]
    steps = [step for job in jobs.values() for step in job["steps"]]
    commands = [step["run"] for step in steps if "run" in step]

    assert matrix == {"python": named, "mpi": ["mpich", "openmpi"]}
    assert metadata["options"]["python_requires"] == f">={named[0]}"
    assert workflow["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] for job in jobs.values())
    assert {"./launch/test --mpi ${{ matrix.mpi }}", "./launch/docs"} <= {*commands}
    (wheel,) = re.findall(r"tests/\S+\.py", " ".join(commands))
    assert (ROOT / wheel).exists()


def test_what_others_may_change_is_pinned():
    """Actions by commit, packages by version; the image does not run as root."""
    steps = re.findall(r"uses: (\S+)", (ROOT / ".github/workflows/ci.yml").read_text())
    assert steps
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step) for step in steps)
    image = (ROOT / "launch/container/Dockerfile").read_text()
    assert int(re.search(r"^USER (\d+)$", image, re.M)[1]) > 0
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = dict(line.lower().split("==") for line in lines if line[0] != "#")
    metadata = configparser.ConfigParser()
    metadata.read(ROOT / "setup.cfg")
    extras = metadata["options.extras_require"]
    needed = metadata["options"]["install_requires"] + "\n".join(
        extras[name] for name in ("mpi", "plot", "report", "sklearn", "tables", "dev")
    )
    for name, least in re.findall(r"^([\w-]+) >= ([\d.]+)$", needed, re.M):
        have = pinned[name.lower()].split(".")
        assert [*map(int, have[:2])] >= [*map(int, least.split("."))], name
