"""Which criterion a run waited for last, and advice where it did not converge."""

from dataclasses import replace

import numpy as np
import pytest

from dadmm import Layout, Topology, problems
from dadmm.admm.rule import CRITERIA
from dadmm.comm.sending import Sending
from dadmm.solver.ending import advise
from tests.support.problems import Quadratic, quadratics
from tests.support.solving import solve

RING = Topology.ring(5)


@pytest.mark.parametrize("stopping", ["optimality", "residuals", "objective"])
def test_the_ending_is_that_of_the_recorded_criteria(stopping):
    chain = Topology.chain(5)
    result = solve(quadratics(5), chain, stopping=stopping, tolerance=1e-6)
    columns = [result.history[f"{name}_over_limit"] for name in CRITERIA]
    ending, over = result.ending, np.stack(columns, axis=-1)
    unmet = (over >= 1).any(axis=(1, 2))  # by iteration, from 1
    until = ending.iteration + ending.patience
    assert unmet[ending.iteration - 1]
    assert not unmet[ending.iteration : until].any()
    assert result.iterations == until + ending.delay
    assert ending.delay == 2 * chain.diameter
    last = over[ending.iteration - 1, ending.node]
    assert last[CRITERIA.index(ending.criterion)] == ending.factor == np.nanmax(last)
    assert ending.summary()["last_unmet"] == ending.iteration
    said = ending.words(converged=True)
    assert f"node {ending.node}" in said
    assert str(ending.iteration + 1) in said


def test_the_part_of_theta_that_is_furthest_from_its_limit_is_named():
    own = []
    for row in np.eye(3):
        problem = Quadratic(np.eye(5), np.array([1.0, 1.0, *(10.0 * row)]))
        problem.layout = Layout.of(still=(2,), moving=(3,))
        problem.init = lambda rng: np.array([1.0, 1.0, 0.0, 0.0, 0.0])
        own.append(problem)
    settings = {"scheme": "fixed", "eta0": 0.01, "max_iter": 20}
    ending = solve(own, Topology.ring(3), **settings).ending
    assert (ending.part, ending.met) == ("moving", False)
    assert "moving" in ending.words(converged=False)


LOSSY = {"scheme": "fixed", "sending": Sending(drop_probability=0.2), "max_iter": 60}
FAR = {"scheme": "fixed", "max_iter": 300}


@pytest.mark.parametrize(
    ("n", "settings", "remedy"),
    [
        (5, LOSSY | {"stopping": "residuals"}, 'stopping = "optimality"'),
        (5, {"max_iter": 4}, "raise max_iter"),
        (5, {"eta0": 1e-6} | FAR, "raise eta0"),
        (5, {"eta0": 1e6} | FAR, "lower eta0"),
        (40, {"tolerance": 1e-9, "max_iter": 60}, "up to 39 iterations"),
        (5, {"tolerance": 1e-2}, ""),
    ],
)
def test_advice_names_the_remedy(n, settings, remedy):
    graph = RING if n == 5 else Topology.chain(n)
    said = advise(solve(quadratics(n), graph, **settings))
    assert remedy in said
    assert bool(said) == bool(remedy)


@pytest.mark.parametrize(
    ("first", "convex", "remedy"),
    [(53.0, False, "another init"), (53.0, True, "raise tolerance"),
     (1e13, False, "double precision")],
)  # fmt: skip
def test_a_standstill_has_a_remedy(first, convex, remedy):
    """A criterion that hardly decreases in the last half of a run does not."""
    result = solve(quadratics(5), RING, tolerance=1e-9, max_iter=35)
    trail = np.append(np.full(20, first), np.geomspace(53.0, 50.0, 20))
    still = {"trail": trail, "factor": 50.0, "convex": convex}
    assert remedy in advise(replace(result, ending=replace(result.ending, **still)))


def test_a_run_that_was_cut_short_is_told_how_many_iterations_it_needs():
    """A few if it ends on the threshold; else by how fast it falls."""
    last = solve(quadratics(5), RING, tolerance=1e-6).ending.iteration
    result = solve(quadratics(5), RING, tolerance=1e-6, max_iter=last + 2)
    assert result.ending.met
    assert "at least 8 iterations" in advise(result)
    slow = {"scheme": "fixed", "eta0": 2.0, "tolerance": 1e-9}
    need = solve(quadratics(8), Topology.chain(8), **slow).iterations
    cut = solve(quadratics(8), Topology.chain(8), max_iter=need // 2, **slow)
    said = advise(cut).split("at least ")[1].split()[0]
    assert need / 4 < int(said) < 1.5 * need


def test_scales_of_the_rows_of_one_node_count_in_raw_coordinates():
    rows = np.random.default_rng(0).standard_normal((50, 3))
    result = solve(quadratics(5), RING, tolerance=1e-14, max_iter=35)
    assert "column 1)" in advise(result, rows * [1.0, 1e4, 1.0])
    for scale in (1.0, 1e-5):  # one part of theta
        assert "scales" not in advise(result, scale * rows)
    own = [problems.PPCA(1e-4 * part, 1) for part in np.split(rows[:48], 4)]
    settings = {"max_iter": 35, "tolerance": 1e-9, "init": "shared"}
    for coordinates in ("raw", "units"):
        found = solve(own, Topology.ring(4), coordinates=coordinates, **settings)
        assert ("scales" in advise(found, 1e-4 * rows)) == (coordinates == "raw")
