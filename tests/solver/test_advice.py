"""Which criterion a run waited for last, and advice where it did not converge."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from dadmm import Layout, Topology, problems, run
from dadmm.admm.rule import CRITERIA
from dadmm.comm.sending import Sending
from dadmm.solver.ending import advise
from tests.support.problems import Quadratic, quadratics
from tests.support.runs import summary_of
from tests.support.solving import solve

RING = Topology.ring(5)


def judged(result):
    """Return all criteria over their limits, (iterations, n_nodes, 3)."""
    columns = [result.history[f"{name}_over_limit"] for name in CRITERIA]
    return np.stack(columns, axis=-1)


@pytest.mark.parametrize("graph", ["ring", "chain"])
@pytest.mark.parametrize("stopping", ["optimality", "residuals", "objective"])
def test_the_ending_is_that_of_the_recorded_criteria(stopping, graph):
    topology = getattr(Topology, graph)(5)
    result = solve(quadratics(5), topology, stopping=stopping, tolerance=1e-6)
    ending, over = result.ending, judged(result)
    unmet = (over >= 1).any(axis=(1, 2))  # by iteration, from 1

    assert result.converged
    assert ending.met is False or not unmet[-1]
    assert unmet[ending.iteration - 1]
    until = ending.iteration + ending.patience
    assert not unmet[ending.iteration : until].any()
    assert result.iterations == until + ending.delay
    assert ending.delay == 2 * topology.diameter
    last = over[ending.iteration - 1, ending.node]
    assert last[CRITERIA.index(ending.criterion)] == ending.factor == np.nanmax(last)
    assert f"node {ending.node}, in iteration {ending.iteration + 1}" in ending.words(
        converged=True
    )


def test_the_sum_of_objectives_is_what_a_council_judges():
    settings = {"stopping": "objective", "agreement": "global", "tolerance": 1e-6}
    result = solve(quadratics(5), RING, **settings)
    total = result.history["objective"].sum(axis=1)
    change = np.abs(np.diff(total)) / np.maximum(np.abs(total[1:]), 1) / 1e-6
    ending = result.ending

    assert (ending.node, ending.part, ending.delay) == (None, None, 1)
    assert change[ending.iteration - 2] == pytest.approx(ending.factor)
    assert (change[ending.iteration - 1 : ending.iteration + 3] < 1).all()
    assert result.iterations == ending.iteration + 4 + 1


def advice(problem_list, topology, rows=None, **settings):
    result = solve(problem_list, topology, **settings)
    assert not result.converged
    return advise(result, rows)


def test_a_run_that_converged_needs_no_advice():
    assert advise(solve(quadratics(5), RING)) == ""


LOSSY = {"scheme": "fixed", "sending": Sending(drop_probability=0.2), "max_iter": 60}
TIGHT = {"tolerance": 1e-18, "absolute_tolerance": 0.0, "max_iter": 600}
FAR = {"scheme": "fixed", "max_iter": 300}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (LOSSY, 'the rule optimality is never met; use stopping = "objective"'),
        ({"max_iter": 4}, "4 iterations are likely too few; raise max_iter"),
        (TIGHT, "the tolerance is likely too tight for double precision"),
        ({"eta0": 1e-6} | FAR, "eta0 = 1e-06 is likely too small for the scheme fixed"),
        ({"eta0": 1e-6} | FAR, "raise eta0 tenfold"),
        ({"eta0": 1e6} | FAR, "eta0 = 1e+06 is likely too large for the scheme fixed"),
        ({"eta0": 1e6} | FAR, "lower eta0 tenfold"),
    ],
)
def test_advice_names_the_cause_and_the_remedy(settings, words):
    assert words in advice(quadratics(5), RING, **settings)


def test_a_long_graph_is_named():
    chain = Topology.chain(40)
    said = advice(quadratics(40), chain, tolerance=1e-9, max_iter=60)
    assert "information needs up to 39 iterations to cross it" in said


def test_the_part_of_theta_that_is_furthest_from_its_limit_is_named():
    own = []
    for row in np.eye(3):
        problem = Quadratic(np.eye(5), np.array([1.0, 1.0, *(10.0 * row)]))
        problem.layout = Layout.of(still=(2,), moving=(3,))
        problem.init = lambda rng: np.array([1.0, 1.0, 0.0, 0.0, 0.0])
        own.append(problem)
    settings = {"scheme": "fixed", "eta0": 0.01, "max_iter": 20}
    ending = solve(own, Topology.ring(3), **settings).ending

    assert ending.part == "moving"
    assert not ending.met
    words = f"{ending.criterion} of moving on node {ending.node}, "
    assert words in ending.words(converged=False)


def test_a_run_that_ends_on_the_threshold_needs_a_few_more():
    last = solve(quadratics(5), RING, tolerance=1e-6).ending.iteration
    result = solve(quadratics(5), RING, tolerance=1e-6, max_iter=last + 2)
    said = f"all criteria met since iteration {last + 1},"
    assert result.ending.words(converged=False).startswith(said)
    said = advice(quadratics(5), RING, tolerance=1e-6, max_iter=last + 2)
    assert "allow at least 8 more iterations" in said


def test_a_run_that_still_falls_is_told_how_long():
    slow = {"scheme": "fixed", "eta0": 2.0, "tolerance": 1e-9}
    need = solve(quadratics(8), Topology.chain(8), **slow).iterations
    limit = need // 2
    said = advice(quadratics(8), Topology.chain(8), max_iter=limit, **slow)

    assert said.startswith("max_iter is likely too low")
    more = int(said.split("about ")[1].split()[0])
    assert 0.5 * (need - limit) < more < 3 * (need - limit)


def test_units_are_looked_at_in_the_rows_of_one_node():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((50, 3))
    result = solve(quadratics(5), RING, tolerance=1e-14, max_iter=35)
    assert not result.converged
    assert "column 1 of the data varies 1e+04 times" in advise(
        result, rows * [1.0, 1e4, 1.0]
    )
    assert "units" not in advise(result, rows)
    assert "units" not in advise(result, rows * 1e-5)  # one part of theta, one unit
    own = [problems.PPCA(1e-4 * part, 1) for part in np.split(rows[:48], 4)]
    result = solve(own, Topology.ring(4), coordinates="raw", max_iter=35)
    assert not result.converged
    said = advise(result, 1e-4 * rows)
    assert "the scales of W, mu, a are likely too far apart" in said


def rows_of(n, units=1.0, d=3):
    """Return rows of n nodes, with columns in these units, and targets."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((n, 12, d)) * units
    return X, rng.standard_normal((n, 12))


def test_in_coordinates_of_the_run_units_are_no_cause():
    """Nor is there an absolute tolerance; a tolerance that is met is named."""
    X, y = rows_of(14, [1.0, 1e5, 1e-5])
    own = [problems.LeastSquares(*each) for each in zip(X, y, strict=True)]
    ring, settings = Topology.ring(14), {"tolerance": 1e-6, "max_iter": 31}
    short = solve(own, ring, **settings)
    assert (short.status, short.coordinates) == ("not converged", "metric")
    said = advise(short, X[0])
    assert "column" not in said
    assert "absolute" not in said
    still = replace(short.ending, trail=np.full(40, 50.0), factor=50.0, met=False)
    said = advise(replace(short, ending=still), X[0])
    tolerance = float(said.split("raise tolerance to ")[1].split(",")[0])
    assert said.startswith("allow more iterations, or raise tolerance to ")
    assert said.endswith(", at which this result is certified")
    looser = solve(own, ring, max_iter=31, tolerance=tolerance)
    assert looser.status == "certified"
    assert "rescale the columns" in advise(
        solve(own, ring, coordinates="raw", **settings), X[0]
    )


def test_without_a_minimum_a_penalty_is_the_remedy():
    X, _ = rows_of(4)
    own = [problems.LogisticRegression(x, x[:, 0] > 0.0, 0.0) for x in X]
    result = solve(own, Topology.ring(4))
    assert (result.status, result.reason) == ("not converged", "no_minimum")
    assert advise(result).startswith("use alpha > 0; if that is not enough")


def test_a_class_without_rows_needs_more_than_a_penalty():
    """The remedies that the advice names give a minimum."""
    X, _ = rows_of(4)
    y = [(x[:, 0] > 0.0).astype(float) for x in X]
    ring, kind = Topology.ring(4), problems.MultinomialLogistic

    def ending(n_classes, **more):
        own = [kind(x, k, n_classes, 1.0, **more) for x, k in zip(X, y, strict=True)]
        return solve(own, ring)

    result = ending(3)
    assert result.reason == "no_minimum"
    assert result.why.startswith("some classes can")
    assert "leave out that class, or the intercept" in advise(result)
    assert ending(2).status == "certified"
    assert ending(3, fit_intercept=False).status == "certified"


def test_a_standstill_of_a_problem_that_is_not_convex_is_named():
    result = solve(quadratics(5), RING, tolerance=1e-9, max_iter=35)
    still = replace(result.ending, trail=np.full(40, 50.0), factor=50.0)
    assert advise(replace(result, ending=still)).endswith(
        "not convex; use another seed"
    )
    own = replace(still, init="independent")
    assert advise(replace(result, ending=own)).endswith(
        'not convex; use init = "shared", or another seed'
    )
    convex = replace(still, convex=True)
    assert "no longer decreases; raise tolerance to 1e-07" in advise(
        replace(result, ending=convex)
    )


@pytest.mark.parametrize("init", ["shared", "independent"])
def test_an_ending_knows_how_the_nodes_started(init):
    """So that the advice does not propose the start that was used."""
    assert solve(quadratics(5), RING, init=init, max_iter=3).ending.init == init
    given = solve(quadratics(5), RING, max_iter=3, init=np.ones((5, 2)))
    assert given.ending.init == "given"


# In the folder of a run


def test_a_run_writes_and_says_both(tmp_path, capsys):
    short = ["--nodes", "4", "--n-samples", "60", "--dimension", "6", "--init"]
    short += ["shared", "--max-iter"]
    assert run.main([*short, "12", "--out", str(tmp_path / "a")]) == 0
    said = capsys.readouterr().out.splitlines()
    text = (tmp_path / "a" / "summary.json").read_text()
    summary = json.loads(text, parse_constant=lambda name: pytest.fail(name))

    assert summary["waited_for"] in said
    assert summary["advice"] == said[-1]
    assert "too few" in summary["advice"]
    found = summary["stopping"]
    assert (found["rule"], found["met"], found["last_unmet"]) == ("optimality", 0, 12)
    assert 1 < found["factor"] < math.inf
    assert found["criterion"] in CRITERIA
    assert found["part"] in ("W", "mu", "a")
    assert found["node"] in range(4)
    run.main([*short, "2000", "--tolerance", "0.01", "--out", str(tmp_path / "b")])
    summary = summary_of(tmp_path / "b")
    assert (summary["converged"], summary["advice"]) == (True, "")
    assert "criterion met last: the " in capsys.readouterr().out
