"""Parts of theta that are private to a node, and parts with a penalty scale."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dadmm import Layout, ProblemError, Topology
from tests.support.problems import Varying
from tests.support.solving import solve

N, D, ROWS = 6, 3, 12
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, ROWS, D)) + RNG.standard_normal((N, 1, D))
Y = X @ RNG.standard_normal(D) + 5 * RNG.standard_normal((N, 1))
Y += RNG.standard_normal((N, ROWS))
ROUND = Topology.ring(N)


@pytest.mark.parametrize("scheme", ["snap", "nap", "fixed"])
def test_private_parts_are_never_sent_and_become_optimal(scheme):
    """Slopes and offsets are those of one regression with a dummy variable per node.

    A message holds a header and the shared parts, and nothing of the offset.
    """
    wide = np.hstack([X.reshape(-1, D), np.kron(np.eye(N), np.ones((ROWS, 1)))])
    best = np.linalg.lstsq(wide, Y.ravel(), rcond=None)[0]

    def watch(t, run):
        shared = np.repeat(run.theta[:, :D], 2, 0)
        assert_array_equal(run.exchange.outbox.numbers, shared)

    problems = list(map(Varying, X, Y))
    settings = {"tolerance": 0, "max_iter": 300, "callbacks": [watch]}
    result = solve(problems, ROUND, scheme=scheme, **settings)

    assert_allclose(result.theta[:, :D], np.tile(best[:D], (N, 1)), atol=1e-7)
    assert_allclose(result.theta[:, D], best[D:], atol=1e-7)
    each = 8 * (D + 1 + (scheme == "nap"))  # header, slopes, and perhaps eta
    assert result.traffic.bytes == 2 * N * (8 * (D + 2) + 300 * each)


@pytest.mark.parametrize("scheme", ["snap", "nap", "fixed"])
def test_a_scale_is_a_change_of_units(scheme):
    """The same run as with that part in other units, to rounding."""
    units = np.array([4.0, 4.0, 4.0, 1.0])
    scaled = [Varying(*pair, {"slope": 16.0}) for pair in zip(X, Y, strict=True)]
    changed = list(map(Varying, X / units[:D], Y))
    start = np.random.default_rng(3).standard_normal((N, D + 1))
    settings = {"scheme": scheme, "tolerance": 0, "max_iter": 40}

    one = solve(scaled, ROUND, init=start, **settings)
    two = solve(changed, ROUND, init=start * units, **settings)

    assert_allclose(one.theta, two.theta / units, rtol=1e-9)
    assert_allclose(one.eta, two.eta, rtol=1e-8)


@pytest.mark.parametrize(
    ("private", "scales"),
    [("a", {}), ("c", {}), ("b", {"b": 2.0}), ("", {"c": 2.0}), ("", {"b": 0.0})],
)
def test_bad_layouts_are_refused(private, scales):
    """Private parts are the last, and only shared parts have a scale, above zero."""
    with pytest.raises(ProblemError, match=private or next(iter(scales))):
        Layout({"a": (2,), "b": ()}, tuple(private), scales)
