"""Every public name has an example, its arguments are described, and examples run."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import dadmm

ROOT = Path(__file__).resolve().parents[2]
MODULES = (
    "dadmm",
    "dadmm.problems",
    "dadmm.penalty",
    "dadmm.baselines",
    "dadmm.datasets",
    "dadmm.shard",
    "dadmm.metrics",
    "dadmm.sklearn",
    "dadmm.testing",
)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
NEEDS = {"dadmm.sklearn": "sklearn", "dadmm.problems.cvxpy": "cvxpy"}


def module_of(name: str):
    """Return a public module; ``dadmm.shard`` is an attribute of the package."""
    if name == "dadmm.sklearn":
        pytest.importorskip("sklearn", reason="scikit-learn is not installed")
        return importlib.import_module(name)
    return getattr(dadmm, name.partition(".")[2], dadmm)


def public() -> list[tuple[str, str]]:
    """Return the module and the name of everything that users can import."""
    names = []
    for module in MODULES:
        if module == "dadmm.sklearn":  # its file, since scikit-learn may be absent
            text = (ROOT / "dadmm" / "sklearn" / "__init__.py").read_text("utf-8")
            found = re.findall(r'^    "(\w+)",$', text, re.M)
        else:
            found = module_of(module).__all__
        names += [(module, name) for name in found]
    return names


NAMES = [pytest.param(*pair, id=".".join(pair)) for pair in public()]


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_a_public_name_has_an_example(module, name):
    """Names without a docstring of their own are in the examples of their module."""
    thing = getattr(module_of(module), name)
    if inspect.ismodule(thing) or inspect.isclass(thing) or inspect.isfunction(thing):
        assert doctest.DocTestParser().get_examples(thing.__doc__ or "")
    else:
        examples = doctest.DocTestParser().get_examples(module_of(module).__doc__)
        assert any(re.search(rf"\b{name}\b", e.source) for e in examples)


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_the_arguments_and_the_result_of_a_public_name_are_described(module, name):
    thing = getattr(module_of(module), name)
    is_error = inspect.isclass(thing) and issubclass(thing, Exception)
    if is_error or not (inspect.isclass(thing) or inspect.isfunction(thing)):
        return
    doc = inspect.getdoc(thing)
    if "LinearRegressor` has the parameters" in doc.replace("\n", " "):
        doc += inspect.getdoc(inspect.getmro(thing)[1])
    given = inspect.signature(thing).parameters.values()
    named = [p.name for p in given if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    if issubclass(thing, dadmm.penalty.Scheme) if inspect.isclass(thing) else False:
        named = []  # the fields of `Scheme`, which lists them
    for argument in named:
        described = rf"^(\w+, )*\**{argument}(, \w+)*( :.*)?$"
        assert re.search(described, doc, re.M), f"{argument} is not described"
    if inspect.isfunction(thing) and thing.__annotations__["return"] != "None":
        assert "\nReturns\n" in doc


def test_the_reference_lists_every_public_name():
    page = (ROOT / "docs" / "api" / "index.rst").read_text("utf-8")
    listed = set(re.findall(r"^   ~?([\w.]+)$|^.. py:data:: ([\w.]+)$", page, re.M))
    listed = {a or b for a, b in listed}
    wanted = {f"{module}.{name}" for module, name in public()}

    assert wanted - listed - {f"dadmm.{m.partition('.')[2]}" for m in MODULES} == set()


def modules() -> list[str]:
    """Return the names of all modules that have an example."""
    found = pkgutil.walk_packages(dadmm.__path__, "dadmm.")
    files = {"dadmm": ROOT / "dadmm" / "__init__.py"}
    for info in found:
        path = ROOT.joinpath(*info.name.split("."))
        files[info.name] = path / "__init__.py" if info.ispkg else f"{path}.py"
    return [
        name for name, file in files.items() if ">>>" in Path(file).read_text("utf-8")
    ]


@pytest.mark.parametrize("name", modules())
def test_the_examples_of_a_module_run(name):
    for prefix, package in NEEDS.items():
        if name.startswith(prefix):
            pytest.importorskip(package, reason=f"{package} is not installed")

    found = doctest.testmod(importlib.import_module(name), optionflags=FLAGS)

    assert found.attempted
    assert not found.failed
