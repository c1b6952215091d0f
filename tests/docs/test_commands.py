"""The commands of pages run in order, and print what the pages show.

Commands are in blocks of ``sh``. The block of ``text`` that follows has lines of their
output, in order; "..." stands for anything.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.support.processes import Job, find_mpiexec, variables

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("start", "slow")


def steps(page: str) -> list[tuple[str, str]]:
    """Return the commands of a page, each with the lines that it is said to print."""
    text = (ROOT / "docs" / f"{page}.md").read_text("utf-8")
    blocks = re.findall(r"^```(sh|text)\n(.*?)^```", text, re.M | re.S)
    found: list[tuple[str, str]] = []
    for language, block in blocks:
        found = (
            [*found, (block, "")]
            if language == "sh"
            else [*found[:-1], (found[-1][0], block)]
        )
    return found


def pattern(line: str) -> str:
    return ".*?".join(re.escape(part) for part in line.split("..."))


@pytest.mark.mpi
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_print_what_it_shows(page, tmp_path):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    mpiexec = find_mpiexec() or pytest.skip("there is no mpiexec")
    # `dadmm` and `mpiexec` are those of this Python, installed or not
    programs, inner = tmp_path / "bin", tmp_path / "bin" / "inner" / "dadmm"
    inner.parent.mkdir(parents=True)
    inner.write_text("import sys\nfrom dadmm.__main__ import main\nsys.exit(main())\n")
    for name, words in (
        ("dadmm", f'"{sys.executable}" "{inner}" "$@"'),
        ("mpiexec", f'"{mpiexec}" "$@"'),
    ):
        (programs / name).write_text(f"#!/bin/sh\nexec {words}\n")
        (programs / name).chmod(0o755)
    path = f"{programs}:{Path(sys.executable).parent}:/usr/bin:/bin"
    for commands, shown in steps(page):
        ended = Job(["sh", "-ec", commands], tmp_path, variables(PATH=path)).end()

        assert ended.code == 0, ended.err
        said, at = ended.out + ended.err, 0
        for line in shown.splitlines():
            match = re.compile(rf"^{pattern(line)}", re.M).search(said, at)
            assert match, f"{line!r} is not in\n{said}"
            at = match.end()
