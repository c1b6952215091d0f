"""The library against the plain reference: over-relaxation, and new penalties."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from benchmarks.shared.schemes import SCHEMES
from dadmm.admm.curvature import curvature
from dadmm.problems import PPCA
from tests.admm.test_reference import BUSY, M, change, follow, make_case, solve
from tests.support import reference
from tests.support import reference_beyond as beyond

LAST = 20
RELAXED = [(name, SCHEMES[name].RELAXATION) for name in beyond.SCHEMES]
RELAXED += [(name, 1.6) for name in beyond.SCHEMES if name != "auto"]
RELAXED += [("fixed", 1.6), ("fixed", 0.8), ("vp_nap", 1.6), ("auto", 0.8)]


def bends(case):
    """Return the curvature of each node's objective where it starts."""
    starts = zip(case.shards, case.theta0, strict=True)
    return tuple(curvature(PPCA(x, M), reference.stack(theta)) for x, theta in starts)


def assert_follows(case, scheme, settings):
    """Assert that every iteration of the library is the reference's."""
    thetas, multipliers = [], []

    def keep(t, run):
        thetas.append(run.theta)
        multipliers.append(run.by_edge(run.state.multipliers))

    more = {"record_edges": True, "callbacks": [keep]}
    history = solve(case, scheme, settings, LAST, **more).history
    run = follow(case, scheme, settings, LAST)
    want = [
        [reference.stack(reference.Theta(*parts)) for parts in zip(*row, strict=True)]
        for row in zip(run["W"], run["mu"], run["a"], strict=True)
    ]

    for got, expected in (
        (thetas, want),
        (multipliers, run["multipliers"]),
        (history["objective"], run["f"]),
        (history["primal"], run["primal"]),
        (history["dual"], run["dual"]),
    ):
        expected = np.reshape(expected, np.shape(got))  # a node alone has no edges
        largest = np.abs(expected).max(initial=0.0)
        assert_allclose(got, expected, rtol=0, atol=1e-12 * largest)
    assert_allclose(history.edges["eta"], run["eta"], rtol=1e-10)
    return run


@pytest.mark.parametrize("graph", ["ring", "cluster", "star", "pair", "alone"])
@pytest.mark.parametrize(("scheme", "relaxation"), RELAXED)
def test_library_follows_the_reference(graph, scheme, relaxation):
    case = make_case(graph)
    settings = change(BUSY, relaxation=relaxation, curvature=bends(case))

    run = assert_follows(case, scheme, settings)

    moved = (run["eta"] != run["eta"][0]).any()
    assert moved == (scheme != "fixed") or graph in ("pair", "alone")


@pytest.mark.parametrize("coupling", ["symmetric", "own"])
@pytest.mark.parametrize("scheme", beyond.SCHEMES)
def test_small_and_uneven_shards(scheme, coupling):
    case = make_case("cluster", sizes=(1, 3, 12, 1, 2, 5))
    settings = change(
        BUSY,
        coupling=coupling,
        relaxation=SCHEMES[scheme].RELAXATION,
        curvature=bends(case),
    )

    assert_follows(case, scheme, settings)


def test_a_curvature_is_that_between_two_steps_of_the_reference():
    """With a weight of a tenth of the result, found by halving an interval."""
    case = make_case("cluster")
    nodes = zip(case.shards, case.theta0, bends(case), strict=True)
    for samples, theta, found in nodes:
        low, high = 1e-4, 1e6
        while high / low > 1 + 1e-7:
            middle = math.sqrt(low * high)
            too_light = 0.1 * bend(samples, theta, middle) > middle
            low, high = (middle, high) if too_light else (low, middle)

        assert_allclose(found, bend(samples, theta, low), rtol=1e-5)


def bend(samples, theta, weight):
    """Return how much the slope turns per way, between steps of 2 weight and weight."""
    beliefs = [reference.expect(theta, x) for x in samples]
    nothing = reference.Theta(0 * theta.W, 0 * theta.mu, 0.0)
    ends, slopes = [], []
    for w in (2 * weight, weight):
        edge = ({0: theta}, {0: nothing}, {0: w / 2})
        end = reference.maximise(theta, samples, beliefs, *edge, zero_mean=False)
        ends.append(reference.stack(end))
        slopes.append(w * (reference.stack(theta) - ends[-1]))
    return beyond.length(slopes[1] - slopes[0]) / beyond.length(ends[1] - ends[0])
