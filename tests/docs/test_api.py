"""Every public name has an example, its arguments are described, and examples run."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re

import pytest

import dadmm
from tests.support.processes import ROOT

MODULES = (
    "dadmm", "dadmm.problems", "dadmm.penalty", "dadmm.baselines", "dadmm.datasets",
    "dadmm.shard", "dadmm.metrics", "dadmm.sklearn", "dadmm.testing",
)  # fmt: skip
# a family with an example in its base class, and what functions return
WITHOUT_EXAMPLE = (
    dadmm.penalty.Scheme, dadmm.metrics.Pooled, dadmm.metrics.MaximumLikelihood,
)  # fmt: skip
WITHOUT_ARGUMENTS = (dadmm.Run, dadmm.baselines.BaselineRun)  # users make none
NEEDS = {"dadmm.sklearn": "sklearn", "dadmm.problems.cvxpy": "cvxpy"}


def module_of(name: str):
    """Return a public module; ``dadmm.shard`` is an attribute of the package."""
    if name == "dadmm.sklearn":
        pytest.importorskip("sklearn", reason="scikit-learn is not installed")
        return importlib.import_module(name)
    return getattr(dadmm, name.partition(".")[2], dadmm)


def public() -> list[tuple[str, str]]:
    """Return the module and the name of everything that users can import."""
    # from its file, since scikit-learn may be absent
    text = (ROOT / "dadmm" / "sklearn" / "__init__.py").read_text("utf-8")
    names = {"dadmm.sklearn": re.findall(r'^    "(\w+)",$', text, re.M)}
    names |= {m: module_of(m).__all__ for m in MODULES if m not in names}
    return [(module, name) for module, found in names.items() for name in found]


@pytest.mark.parametrize(
    ("module", "name"), [pytest.param(*pair, id=".".join(pair)) for pair in public()]
)
def test_a_public_name_has_an_example_and_its_arguments_are_described(module, name):
    """Names without a docstring of their own are in the examples of their module."""
    thing, find = getattr(module_of(module), name), doctest.DocTestParser().get_examples
    is_class, is_function = inspect.isclass(thing), inspect.isfunction(thing)
    if not (inspect.ismodule(thing) or is_class or is_function):
        examples = find(module_of(module).__doc__)
        assert any(re.search(rf"\b{name}\b", e.source) for e in examples)
        return
    assert thing.__doc__
    if is_function or (is_class and not issubclass(thing, WITHOUT_EXAMPLE)):
        assert find(thing.__doc__)
    if not (is_class or is_function) or (is_class and issubclass(thing, Exception)):
        return
    doc = inspect.getdoc(thing)
    if "LinearRegressor` has the parameters" in doc.replace("\n", " "):
        doc += inspect.getdoc(inspect.getmro(thing)[1])
    given = inspect.signature(thing).parameters.values()
    if is_class and issubclass(thing, (*WITHOUT_EXAMPLE, *WITHOUT_ARGUMENTS)):
        given = ()
    for argument in given:
        if argument.kind not in (argument.VAR_KEYWORD, argument.VAR_POSITIONAL):
            described = rf"^(\w+, )*\**{argument.name}(, \w+)*( :.*)?$"
            plain = len(given) == 1 and argument.name in doc.partition("\n")[0]
            assert plain or re.search(described, doc, re.M), argument
    if is_function and thing.__annotations__["return"] != "None":
        assert doc.startswith("Return ") or "\nReturns\n" in doc


def test_the_reference_lists_every_public_name():
    page = (ROOT / "docs" / "api" / "index.rst").read_text("utf-8")
    listed = re.findall(r"^   ~?([\w.]+)$|^.. py:data:: ([\w.]+)$", page, re.M)
    wanted = {f"{module}.{name}" for module, name in public()} - {*MODULES}

    assert wanted - {a or b for a, b in listed} == set()


def modules() -> list[str]:
    """Return the names of all modules that have an example."""
    files = (ROOT / "dadmm").rglob("*.py")
    found = [
        file.relative_to(ROOT) for file in files if ">>>" in file.read_text("utf-8")
    ]
    names = [".".join(file.with_suffix("").parts) for file in found]
    return sorted(name.removesuffix(".__init__") for name in names)


@pytest.mark.parametrize("name", modules())
def test_the_examples_of_a_module_run(name):
    for prefix, package in NEEDS.items():
        if name.startswith(prefix):
            pytest.importorskip(package, reason=f"{package} is not installed")
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

    found = doctest.testmod(importlib.import_module(name), optionflags=flags)

    assert found.attempted
    assert not found.failed
