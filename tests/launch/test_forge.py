"""The files that a forge and a package index read."""

import configparser
import re

import pytest

from tests.support.processes import ROOT


def test_jobs_use_each_python_both_mpis_and_pinned_packages():
    yaml = pytest.importorskip("yaml", reason="pyyaml is not installed")
    metadata = configparser.ConfigParser()
    metadata.read(ROOT / "setup.cfg")
    text = (ROOT / ".github/workflows/ci.yml").read_text("utf-8")
    workflow = yaml.safe_load(text)
    named = re.findall(r"Python :: (3\.\d+)", metadata["metadata"]["classifiers"])
    matrix = workflow["jobs"]["tests"]["strategy"]["matrix"]

    assert matrix == {"python": named, "mpi": ["mpich", "openmpi"]}
    assert metadata["options"]["python_requires"] == f">={named[0]}"
    assert workflow["permissions"] == {"contents": "read"}
    assert all((ROOT / f).exists() for f in re.findall(r"tests/\S+\.py", text))
    for step in re.findall(r"uses: (\S+)", text):
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step)
    image = (ROOT / "launch/container/Dockerfile").read_text()
    assert int(re.search(r"^USER (\d+)$", image, re.M)[1]) > 0  # not root
    lines = (ROOT / "constraints.txt").read_text().lower().splitlines()
    pinned = dict(line.split("==") for line in lines if line[0] != "#")
    extras = metadata["options.extras_require"]
    names = ("mpi", "plot", "report", "sklearn", "tables", "dev")
    needed = [metadata["options"]["install_requires"], *(extras[k] for k in names)]
    for name, least in re.findall(r"^([\w-]+) >= ([\d.]+)$", "\n".join(needed), re.M):
        have, wanted = pinned[name.lower()].split("."), least.split(".")
        assert [*map(int, have[:2])] >= [*map(int, wanted)], name
