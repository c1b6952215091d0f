"""Problems are made with one BLAS thread, so that their bits do not depend on more."""

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

from dadmm import Topology, problems
from tests.support.solving import solve

X = np.random.default_rng(0).normal(size=(30, 4))
SETTINGS = {"ppca": (2,), "multinomial": (3,)}
CONTROLLER = ThreadpoolController().select(threading_layer=["pthreads", "openmp"])


def threads():
    """Return the numbers of threads of each BLAS that can have several."""
    return {lib["num_threads"] for lib in CONTROLLER.select(user_api="blas").info()}


@pytest.mark.parametrize("name", problems.PROBLEMS)
def test_a_problem_is_made_and_starts_with_one_thread(name, monkeypatch):
    calls = []

    def watched(function):
        return lambda *args, **named: (
            calls.append(threads()) or function(*args, **named)
        )

    for of in (np.linalg.qr, np.linalg.svd, np.linalg.eigh, np.vecdot):
        place = np if of is np.vecdot else np.linalg
        monkeypatch.setattr(place, of.__name__, watched(of))
    kind = problems.PROBLEMS[name]
    targets = () if issubclass(kind, problems.PPCA) else (X[:, 0] > 0,)
    with CONTROLLER.limit(limits=2, user_api="blas"):
        if threads() != {2}:
            pytest.skip("this BLAS has no threads")
        made = kind(X, *targets, *SETTINGS.get(name, ()))
        assert threads() == {2}
        solve([made] * 3, Topology.ring(3), max_iter=1)

    assert calls
    assert calls == [{1}] * len(calls)
