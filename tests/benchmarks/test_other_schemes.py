"""The schemes that only the benchmarks have, as plug-ins; limits of their rules.

The rules themselves are compared with a reference in tests/admm.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from benchmarks.shared.schemes import (
    OTHERS,
    EdgeBalance,
    barzilai_borwein,
    build,
    relative_balance,
)
from dadmm import CheckpointError, Checkpoints, ConfigError, Topology, solve
from dadmm.penalty.schemes import Fixed
from tests.support.problems import distance, optimum, quadratics


@pytest.mark.parametrize(
    ("name", "relaxation"), [*((name, 1.6) for name in OTHERS), ("edge_balance", 1.0)]
)
def test_a_scheme_that_is_an_object_reaches_the_optimum(name, relaxation):
    problems, scheme = quadratics(5), build(name, relaxation=relaxation)
    result = solve(problems, Topology.ring(5), scheme=scheme, tolerance=0, max_iter=600)

    assert distance(result.theta, optimum(problems)) < 1e-8
    assert result.ending.scheme == type(scheme).__name__
    with pytest.raises(ConfigError, match=f"^unknown scheme '{name}'; choose one of"):
        solve(problems, Topology.ring(5), scheme=name)


def test_an_object_of_a_known_scheme_is_that_scheme():
    """An argument of solve would be ignored, so it is an error."""
    problems, topology = quadratics(5), Topology.ring(5)
    one = solve(problems, topology, scheme=Fixed(eta0=3.0))
    other = solve(problems, topology, scheme="fixed", eta0=3.0)

    assert_array_equal(one.theta, other.theta)
    assert one.ending.scheme == "fixed"
    message = r"^scheme is an object with its own eta0; pass EdgeBalance\(eta0=3.0\) "
    with pytest.raises(ConfigError, match=message):
        solve(problems, topology, scheme=EdgeBalance(), eta0=3.0)


@pytest.mark.parametrize("other", [EdgeBalance(eta0=2.0), build("edge_ratio"), "fixed"])
def test_a_checkpoint_knows_the_scheme_and_its_settings(tmp_path, other):

    def run(scheme, n, **more):
        checkpoints = Checkpoints(tmp_path, every=10, **more)
        settings = {"max_iter": n, "tolerance": 0, "checkpoints": checkpoints}
        return solve(quadratics(5), Topology.ring(5), scheme=scheme, **settings)

    run(EdgeBalance(), 20)
    whole = solve(
        quadratics(5), Topology.ring(5), scheme=EdgeBalance(), max_iter=40, tolerance=0
    )

    with pytest.raises(CheckpointError):
        run(other, 40, resume=True)
    assert_array_equal(run(EdgeBalance(), 40, resume=True).theta, whole.theta)


@pytest.mark.parametrize("nothing", ["gap", "drift", "multipliers", "size", "noise"])
def test_without_something_to_balance_the_ratio_is_one(nothing):
    """For this edge alone, as with zero multipliers at the start."""
    edge = dict.fromkeys(("gap", "size", "drift", "multipliers", "eta"), np.ones(2))
    name, value = ("gap", 0.9e-13) if nothing == "noise" else (nothing, 0.0)
    edge[name] = np.array([value, 1.0])
    with np.errstate(all="raise"):
        ratio = relative_balance(**edge)

    assert_allclose(ratio, [1.0, 1.0 / math.sqrt(2.0)])


@pytest.mark.parametrize(
    ("way", "turn"),
    [
        ((0.0, 0.0), (0.0, 0.0)),  # nothing has moved
        ((1.0, 0.0), (0.0, 0.0)),
        ((0.0, 0.0), (1.0, 0.0)),
        ((1.0, 0.0), (0.0, 1.0)),  # at a right angle
        ((1.0, 0.0), (-1.0, 0.0)),  # bent the wrong way
        ((1.0, 0.0), (0.19, math.sqrt(1 - 0.19**2))),  # correlated by 0.19
        ((math.nan, 0.0), (1.0, 0.0)),
        ((1.0, 0.0), (math.nan, 0.0)),
    ],
)
def test_a_move_that_shows_no_curvature_has_none(way, turn):
    with np.errstate(all="raise"):
        assert math.isnan(barzilai_borwein(np.array(way), np.array(turn)))
    enough = np.array([0.21, math.sqrt(1 - 0.21**2)])
    assert barzilai_borwein(np.array([1.0, 0.0]), enough) > 0
    assert math.isnan(barzilai_borwein(np.array([1.0, 0.0]), enough, least=0.3))
