"""Every public name has an example and is in the reference, and examples run."""

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
# families with an example in their base class, and what functions return
WITHOUT_EXAMPLE = (
    dadmm.penalty.Scheme, dadmm.metrics.Pooled, dadmm.metrics.MaximumLikelihood,
    dadmm.DadmmError,
)  # fmt: skip
NEEDS = {"dadmm.sklearn": "sklearn", "dadmm.problems.cvxpy": "cvxpy"}


def module_of(name):
    """Return a public module; ``dadmm.shard`` is an attribute of the package."""
    if name == "dadmm.sklearn":
        pytest.importorskip("sklearn", reason="scikit-learn is not installed")
        return importlib.import_module(name)
    return getattr(dadmm, name.partition(".")[2], dadmm)


def public():
    """Return the module and the name of everything that users can import."""
    # from its file, since scikit-learn may be absent
    text = (ROOT / "dadmm" / "sklearn" / "__init__.py").read_text("utf-8")
    names = {"dadmm.sklearn": re.findall(r'^    "(\w+)",$', text, re.M)}
    names |= {m: module_of(m).__all__ for m in MODULES if m not in names}
    return [(module, name) for module, found in names.items() for name in found]


@pytest.mark.parametrize("module", MODULES)
def test_a_public_name_has_an_example(module):
    """Names without a docstring of their own are in the examples of their module."""
    for name in (name for where, name in public() if where == module):
        thing = getattr(module_of(module), name)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            inherits = inspect.isclass(thing) and issubclass(thing, WITHOUT_EXAMPLE)
            assert inherits or ">>> " in thing.__doc__, name
        elif not inspect.ismodule(thing):
            assert re.search(rf">>> .*\b{name}\b", module_of(module).__doc__), name


def test_the_reference_lists_every_public_name():
    page = (ROOT / "docs" / "api" / "index.rst").read_text("utf-8")
    listed = re.findall(r"^   ~?([\w.]+)$|^.. py:data:: ([\w.]+)$", page, re.M)
    wanted = {f"{module}.{name}" for module, name in public()} - {*MODULES}

    assert wanted - {a or b for a, b in listed} == set()


def modules():
    """Return the names of all modules that have an example."""
    files = [f for f in (ROOT / "dadmm").rglob("*.py") if ">>>" in f.read_text("utf-8")]
    names = [".".join(f.relative_to(ROOT).with_suffix("").parts) for f in files]
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
