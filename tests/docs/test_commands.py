"""The commands of pages run in order, and print what the pages show.

Commands are in blocks of ``sh``. The block of ``text`` that follows has lines of their
output, in order; "..." stands for anything. Numbers may differ by 5 %: another
processor rounds otherwise.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
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
        if language == "sh":
            found.append((block, ""))
        else:
            found[-1] = (found[-1][0], block)
    return found


NUMBER = r"\d[\d,]*(?:\.\d+)?(?:e[-+]\d+)?"


def pattern(line: str) -> str:
    """Return a pattern of the line with a group for each of its numbers."""
    texts = [
        ".*?".join(map(re.escape, text.split("..."))) for text in re.split(NUMBER, line)
    ]
    return f"({NUMBER})".join(texts)


def shows(line: str, said: str, at: int) -> int:
    """Return where the line ends in what was said after `at`, or -1."""
    shown = [value(each) for each in re.findall(NUMBER, line)]
    for match in re.compile(rf"^{pattern(line)}", re.M).finditer(said, at):
        if np.allclose([value(each) for each in match.groups()], shown, rtol=0.05):
            return match.end()
    return -1


def value(number: str) -> float:
    return float(number.replace(",", ""))


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
            at = shows(line, said, at)
            assert at >= 0, f"{line!r} is not in\n{said}"
