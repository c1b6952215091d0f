"""The commands of pages run in order, and print what the pages show.

Commands are in blocks of ``sh``. The block of ``text`` that follows has lines of their
output, in order; "..." stands for anything. Numbers may differ by 5 %: another
processor rounds otherwise.
"""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.processes import ROOT, Job, find_mpiexec, variables

SLOW = pytest.mark.slow
NUMBER = r"\d[\d,]*(?:\.\d+)?(?:e[-+]\d+)?"


def values(numbers):
    return [float(number.replace(",", "")) for number in numbers]


def place_of(line, said, at):
    """Return where a line of a page ends in what was said after `at`, or -1."""
    parts = [text.split("...") for text in re.split(NUMBER, line)]
    texts = [".*?".join(map(re.escape, words)) for words in parts]
    shown = values(re.findall(NUMBER, line))
    pattern = re.compile(rf"^{f'({NUMBER})'.join(texts)}", re.M)
    near = (match for match in pattern.finditer(said, at)
            if np.allclose(values(match.groups()), shown, rtol=0.05))  # fmt: skip
    return next((match.end() for match in near), -1)


@pytest.mark.mpi
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "page", ["start", pytest.param("slow", marks=pytest.mark.slow)]
)
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
    text, said, at = (ROOT / "docs" / f"{page}.md").read_text("utf-8"), "", 0
    for kind, block in re.findall(r"^```(sh|text)\n(.*?)^```", text, re.M | re.S):
        if kind == "sh":
            ended = Job(["sh", "-ec", block], tmp_path, variables(PATH=path)).end()
            assert ended.code == 0, ended.err
            said, at = ended.out + ended.err, 0
            continue
        for line in block.splitlines():
            at = place_of(line, said, at)
            assert at >= 0, f"{line!r} is not in\n{said}"
