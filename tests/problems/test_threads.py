"""Problems are made with one BLAS thread, so that their bits do not depend on more."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from dadmm import Topology, problems
from tests.support.solving import solve

X = np.random.default_rng(0).normal(size=(30, 4))
SETTINGS = {"ppca": (2,), "multinomial": (3,)}


def threads() -> set[int]:
    """Return the number of threads that each BLAS has."""
    found = [lib for lib in threadpool_info() if lib["user_api"] == "blas"]
    return {lib["num_threads"] for lib in found}


@pytest.fixture
def calls(monkeypatch):
    """The numbers of threads during calls of numpy's functions that use BLAS."""
    found: list[set[int]] = []

    def watched(function):
        def call(*args, **named):
            found.append(threads())
            return function(*args, **named)

        return call

    for place, name in (
        (np.linalg, "qr"), (np.linalg, "svd"), (np.linalg, "eigh"), (np, "vecdot"),
    ):  # fmt: skip
        monkeypatch.setattr(place, name, watched(getattr(place, name)))
    with threadpool_limits(limits=2, user_api="blas"):
        if threads() != {2}:
            pytest.skip("this BLAS has no threads")
        yield found


@pytest.mark.parametrize("name", problems.PROBLEMS)
def test_a_problem_is_made_and_starts_with_one_thread(name, calls):
    kind = problems.PROBLEMS[name]
    targets = () if issubclass(kind, problems.PPCA) else (X[:, 0] > 0,)
    made = kind(X, *targets, *SETTINGS.get(name, ()))
    assert threads() == {2}

    solve([made] * 3, Topology.ring(3), max_iter=1)

    assert calls
    assert calls == [{1}] * len(calls)
