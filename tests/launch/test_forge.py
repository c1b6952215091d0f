"""What others may change is pinned, in the files that a forge and an image use."""

import configparser
import re

from tests.support.processes import ROOT


def test_actions_are_pinned_by_commit_and_packages_at_allowed_versions():
    text = (ROOT / ".github/workflows/ci.yml").read_text("utf-8")
    assert all((ROOT / f).exists() for f in re.findall(r"tests/\S+\.py", text))
    for step in re.findall(r"uses: (\S+)", text):
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step)
    metadata = configparser.ConfigParser()
    metadata.read(ROOT / "setup.cfg")
    lines = (ROOT / "constraints.txt").read_text().lower().splitlines()
    pinned = dict(line.split("==") for line in lines if line[0] != "#")
    extras = metadata["options.extras_require"]
    names = ("mpi", "plot", "report", "sklearn", "tables", "dev")
    needed = [metadata["options"]["install_requires"], *(extras[k] for k in names)]
    for name, least in re.findall(r"^([\w-]+) >= ([\d.]+)$", "\n".join(needed), re.M):
        have, wanted = pinned[name.lower()].split("."), least.split(".")
        assert [*map(int, have[:2])] >= [*map(int, wanted)], name
