"""Which criterion a run waited for last, and advice where it did not converge."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dadmm import Layout, Topology, problems, run, solve
from dadmm.admm.stopping import CRITERIA, TRAIL, Standing, Verdict, stride
from dadmm.exchange.sending import Sending
from dadmm.solver.advice import advise
from tests.support.problems import quadratics

RING = Topology.ring(5)


def judged(result):
    """Return all criteria over their limits, (iterations, n_nodes, 3)."""
    columns = [result.history[f"{name}_over_limit"] for name in CRITERIA]
    return np.stack(columns, axis=-1)


# What a run waited for


@pytest.mark.parametrize("graph", ["ring", "chain"])
@pytest.mark.parametrize("stopping", ["optimality", "residuals", "objective"])
def test_the_ending_is_that_of_the_recorded_criteria(stopping, graph):
    """All nodes meet all of them from the next iteration on, as long as counts."""
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
    """No node and no part of theta is named then."""
    settings = {"stopping": "objective", "agreement": "global", "tolerance": 1e-6}
    result = solve(quadratics(5), RING, **settings)
    total = result.history["objective"].sum(axis=1)
    change = np.abs(np.diff(total)) / np.maximum(np.abs(total[1:]), 1) / 1e-6
    ending = result.ending

    assert (ending.node, ending.part, ending.delay) == (None, None, 1)
    assert change[ending.iteration - 2] == pytest.approx(ending.factor)
    assert (change[ending.iteration - 1 : ending.iteration + 3] < 1).all()
    assert result.iterations == ending.iteration + 4 + 1


def test_the_part_of_theta_that_is_furthest_from_its_limit_is_named():
    """One part disagrees, the other one is the same from the start."""

    class TwoParts:
        def __init__(self, wanted):
            self.layout = Layout.of(still=(2,), moving=(3,))
            self.wanted = np.array([1.0, 1.0, *wanted])

        def init(self, rng):
            return np.array([1.0, 1.0, 0.0, 0.0, 0.0])

        def expect(self, theta):
            return None

        def prox(self, theta, stats, centre, weight):
            return (self.wanted + weight * centre) / (1.0 + weight)

        def objectives(self, thetas, stats):
            return 0.5 * ((thetas - self.wanted) ** 2).sum(axis=1)

    own = [TwoParts(10.0 * row) for row in np.eye(3)]
    settings = {"scheme": "fixed", "eta0": 0.01, "max_iter": 20}
    ending = solve(own, Topology.ring(3), **settings).ending

    assert ending.part == "moving"
    assert not ending.met
    assert f"{ending.criterion} of moving on node {ending.node}, " in ending.words(
        converged=False
    )


def test_a_standing_samples_the_run_and_survives_a_checkpoint():
    """At equal distances, at most TRAIL samples, whatever the length."""
    standing, whole = Standing(4, 6), []
    rng = np.random.default_rng(0)
    for t in range(1, 300):
        whole.append(float(rng.uniform(0.6, 1.2)))
        standing.enter(t, Verdict(whole[-1]))
        step = stride(t)
        samples = whole[::step]
        assert len(samples) <= TRAIL
        assert standing.trail[: len(samples)].tolist() == samples
        assert np.isnan(standing.trail[len(samples) :]).all()
        if t % 97 == 0:
            again = Standing(4, 6)
            again.restore(standing.state())
            standing = again
        # the last iteration in which one was unmet, before four in a row, six ago
        met = [False, *(factor < 1 for factor in whole)]
        ends = [s for s in range(4, t - 5) if all(met[s - 3 : s + 1])]
        if ends:
            before = max(s for s in range(ends[-1]) if not met[s])
            assert standing.hurdle(t)[0] == before


# Advice


def advice(problem_list, topology, rows=None, **settings):
    result = solve(problem_list, topology, **settings)
    assert not result.converged
    return advise(result, rows)


def test_a_run_that_converged_needs_no_advice():
    assert advise(solve(quadratics(5), RING)) == ""


def test_a_tolerance_of_zero_is_no_failure():
    said = advice(quadratics(5), RING, tolerance=0.0, max_iter=40)
    assert said.startswith("a tolerance of 0 never stops a run")


def test_lost_payloads_leave_the_residual_unknown():
    settings = {
        "scheme": "fixed",
        "sending": Sending(drop_probability=0.2),
        "max_iter": 60,
    }
    said = advice(quadratics(5), RING, **settings)
    assert 'the rule optimality is never met; use stopping = "objective"' in said


def test_a_run_that_ends_on_the_threshold_needs_a_few_more():
    done = solve(quadratics(5), RING, tolerance=1e-6)
    said = advice(
        quadratics(5), RING, tolerance=1e-6, max_iter=done.ending.iteration + 2
    )
    assert "not for long enough; allow about 8 more iterations" in said


def test_a_few_iterations_are_too_few():
    said = advice(quadratics(5), RING, max_iter=4)
    assert said == "4 iterations are likely too few; raise max_iter"


def test_a_run_that_still_falls_is_told_how_long():
    """And the guess is about right."""
    slow = {"scheme": "fixed", "eta0": 2.0, "tolerance": 1e-9}
    need = solve(quadratics(8), Topology.chain(8), **slow).iterations
    limit = need // 2
    said = advice(quadratics(8), Topology.chain(8), max_iter=limit, **slow)

    assert said.startswith("max_iter is likely too low")
    more = int(said.split("about ")[1].split()[0])
    assert 0.5 * (need - limit) < more < 3 * (need - limit)


def test_rounding_is_told_apart_from_other_standstills():
    said = advice(
        quadratics(5), RING, tolerance=1e-18, absolute_tolerance=0.0, max_iter=600
    )
    assert said.startswith("the tolerance is likely too tight for double precision")


@pytest.mark.parametrize(
    ("eta0", "size", "verb"), [(1e-6, "small", "raise"), (1e6, "large", "lower")]
)
def test_a_penalty_that_is_far_off_is_named_with_its_direction(eta0, size, verb):
    said = advice(quadratics(5), RING, scheme="fixed", eta0=eta0, max_iter=300)
    assert f"eta0 = {eta0:g} is likely too {size} for the scheme fixed" in said
    assert f'use scheme = "auto", or {verb} eta0 tenfold' in said


def test_a_long_graph_is_named():
    chain = Topology.chain(40)
    said = advice(quadratics(40), chain, tolerance=1e-9, max_iter=120)
    assert "information needs 39 iterations to cross it" in said


def test_units_are_looked_at_in_the_rows_of_one_node():
    """Columns apart from each other; and all of them from 1, if theta has parts."""
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
    result = solve(own, Topology.ring(4), max_iter=35)
    assert not result.converged
    said = advise(result, 1e-4 * rows)
    assert "the scales of W, mu, a are likely too far apart" in said


def test_a_standstill_of_a_problem_that_is_not_convex_is_named():
    """As its trail tells: it stands still far from the limits."""
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
    given = solve(quadratics(5), RING, init=init, max_iter=3, theta0=np.ones((5, 2)))
    assert given.ending.init == "theta0"


# In the folder of a run


def test_a_run_writes_and_says_both(tmp_path, capsys):
    """The summary has no number that JSON does not know."""
    short = ["--nodes", "4", "--n-samples", "60", "--dimension", "6", "--max-iter"]
    assert run.main([*short, "12", "--out", str(tmp_path / "a")]) == 0
    said = capsys.readouterr().out.splitlines()
    text = (tmp_path / "a" / "summary.json").read_text()
    summary = json.loads(text, parse_constant=lambda name: pytest.fail(name))

    assert summary["waited_for"] in said
    assert summary["advice"] == said[-1]
    assert "too few" in summary["advice"]
    found = summary["stopping"]
    assert found["rule"] == "optimality"
    assert not found["met"]
    assert found["last_unmet"] == 12
    assert found["factor"] > 1
    assert math.isfinite(found["factor"])
    assert found["criterion"] in CRITERIA
    assert found["part"] in ("W", "mu", "a")
    assert found["node"] in range(4)
    run.main([*short, "2000", "--tolerance", "0.01", "--out", str(tmp_path / "b")])
    said = capsys.readouterr().out
    summary = json.loads(Path(tmp_path / "b" / "summary.json").read_text())
    assert summary["converged"]
    assert summary["advice"] == ""
    assert "last met: the " in said
