"""The site that ``./launch/docs`` built, the commands of pages, and the reference.

Commands are in blocks of ``sh``. The block of ``text`` that follows has lines of their
output, in order; "..." stands for anything. Numbers may differ by 5 %: another
processor rounds otherwise.
"""

import doctest
import importlib
import inspect
import re
import sys
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest

import dadmm
import dadmm.sklearn
from tests.support.processes import ROOT, Job, find_mpiexec, variables
from tests.support.runs import write_program

SLOW = pytest.mark.slow
SITE = (ROOT / "docs" / "_build" / "html").resolve()
LOADS = re.compile(r"<(?:img|script|iframe|link)\b[^>]*>")
ELSEWHERE = re.compile(r"""(?:src="|href="|url\(['"]?|@import ?['"]?)(?:https?:)?//""")


def test_all_links_of_the_site_are_right_and_it_loads_nothing_from_elsewhere():
    """That targets inside pages exist is checked by Sphinx, which made them."""
    if not SITE.exists():
        pytest.skip("the site is not built; run ./launch/docs")
    files = [file for file in SITE.rglob("*.html") if "_static" not in file.parts]
    assert files
    for file in files:
        text = file.read_text("utf-8")
        for address in re.findall(r"""(?:src|href)="([^"#?:]+)["#?]""", text):
            target = (file.parent / unquote(address)).resolve()
            own = target.is_file() and target.is_relative_to(SITE)
            assert own or address.startswith("//"), (file, address)
        loaded = [tag for tag in LOADS.findall(text) if ELSEWHERE.search(tag)]
        assert [t for t in loaded if not re.search("canonical|author", t)] == [], file
    for file in SITE.rglob("*.css"):
        assert not ELSEWHERE.search(file.read_text("utf-8")), file


NUMBER = r"\d[\d,]*(?:\.\d+)?(?:e[-+]\d+)?"


def place_of(line, said, at):
    """Return where a line of a page ends in what was said after `at`, or -1."""
    parts = [text.split("...") for text in re.split(NUMBER, line)]
    texts = [".*?".join(map(re.escape, words)) for words in parts]
    shown = re.findall(NUMBER, line)
    pattern = re.compile(rf"^{f'({NUMBER})'.join(texts)}", re.M)
    for match in pattern.finditer(said, at):
        pairs = [found.replace(",", "") for found in (*match.groups(), *shown)]
        found, wanted = np.array(pairs, float).reshape(2, -1)
        if np.allclose(found, wanted, rtol=0.05):
            return match.end()
    return -1


@pytest.mark.mpi
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", ["start", pytest.param("slow", marks=SLOW)])
def test_the_commands_of_a_page_print_what_it_shows(page, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    mpiexec = find_mpiexec() or pytest.skip("there is no mpiexec")
    # `dadmm` and `mpiexec` are those of this Python, installed or not
    programs, inner = tmp_path / "bin", tmp_path / "bin" / "inner" / "dadmm"
    inner.parent.mkdir(parents=True)
    inner.write_text("import sys\nfrom dadmm.__main__ import main\nsys.exit(main())\n")
    write_program(programs / "dadmm", f'exec "{sys.executable}" "{inner}" "$@"')
    write_program(programs / "mpiexec", f'exec "{mpiexec}" "$@"')
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


MODULES = (
    "dadmm", "dadmm.problems", "dadmm.penalty", "dadmm.baselines", "dadmm.datasets",
    "dadmm.shard", "dadmm.metrics", "dadmm.sklearn", "dadmm.testing",
)  # fmt: skip
# families with an example in their base class, and what functions return
WITHOUT_EXAMPLE = (
    dadmm.penalty.Scheme, dadmm.metrics.Pooled, dadmm.metrics.MaximumLikelihood,
    dadmm.DadmmError,
)  # fmt: skip


def module_of(name):
    """Return a public module; ``dadmm.shard`` is an attribute of the package."""
    return getattr(dadmm, name.partition(".")[2], dadmm)


@pytest.mark.parametrize("module", MODULES)
def test_a_public_name_has_an_example(module):
    """Names without a docstring of their own are in the examples of their module."""
    for name in module_of(module).__all__:
        thing = getattr(module_of(module), name)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            inherits = inspect.isclass(thing) and issubclass(thing, WITHOUT_EXAMPLE)
            assert inherits or ">>> " in thing.__doc__, name
        elif not inspect.ismodule(thing):
            assert re.search(rf">>> .*\b{name}\b", module_of(module).__doc__), name


def test_the_reference_lists_every_public_name():
    page = (ROOT / "docs" / "api" / "index.rst").read_text("utf-8")
    listed = re.findall(r"^   ~?([\w.]+)$|^.. py:data:: ([\w.]+)$", page, re.M)
    for module in MODULES:
        names = {f"{module}.{name}" for name in module_of(module).__all__}
        assert names - {*MODULES} <= {a or b for a, b in listed}


def modules():
    """Return the names of all modules that have an example."""
    files = [f for f in (ROOT / "dadmm").rglob("*.py") if ">>>" in f.read_text("utf-8")]
    names = [".".join(f.relative_to(ROOT).with_suffix("").parts) for f in files]
    return sorted(name.removesuffix(".__init__") for name in names)


@pytest.mark.parametrize("name", modules())
def test_the_examples_of_a_module_run(name):
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    found = doctest.testmod(importlib.import_module(name), optionflags=flags)

    assert found.attempted
    assert not found.failed
