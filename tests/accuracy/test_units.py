"""Random starts in the mean and unit of all rows: equations, any units, resumed."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dadmm import Checkpoints, ProblemError
from dadmm.accuracy.units import RandomReview, UnitReview, Units, measure
from dadmm.admm.rule import Rule
from dadmm.penalty.beyond import Bounded
from dadmm.problems import PPCA, metrics
from tests.accuracy.test_coordinates import total_of
from tests.accuracy.test_merged import GRAPH, NODES, M, built, right, shards
from tests.support.processes import mpiexec, program
from tests.support.solving import solve
from tests.support.subspaces import expected_objective


@pytest.mark.parametrize("zero_mean", [False, True])
def test_mean_unit_and_length_are_those_of_all_rows(zero_mean):
    blocks = shards()
    rows = np.vstack(list(blocks))
    problems = dict(enumerate(built(blocks, zero_mean=zero_mean)))

    found = measure(total_of(GRAPH)[0], problems)

    mean = 0.0 * rows[0] if zero_mean else rows.mean(axis=0)
    own = [block - (0.0 if zero_mean else block.mean(axis=0)) for block in blocks]
    left = sum((np.linalg.svd(x)[1][M:] ** 2).sum() for x in own)
    n, D = rows.shape
    noise = left / ((n - NODES * (M + (not zero_mean))) * (D - M))
    assert_allclose(found.mean, mean, atol=1e-12)
    assert_allclose(found.unit, math.sqrt(noise), rtol=1e-12)
    signal = ((rows - mean) ** 2).sum() / (n * noise) - D
    assert_allclose(found.length, math.sqrt(signal / M), rtol=1e-12)


def test_the_unit_of_few_or_noiseless_rows_is_known_too():
    few = shards(rows=M + 1)
    rows = np.vstack(list(few))
    found = measure(total_of(GRAPH)[0], dict(enumerate(built(few))))
    assert_allclose(found.unit, (rows - rows.mean(axis=0)).std(), rtol=1e-12)
    flat = shards(rows=12)
    flat[..., M:] = 0.0
    found = measure(total_of(GRAPH)[0], dict(enumerate(built(flat))))
    squares = ((flat - flat.mean(axis=(0, 1))) ** 2).sum() / (NODES * 12)
    assert_allclose(found.unit, 1e-6 * math.sqrt(squares), rtol=1e-12)
    with pytest.raises(ProblemError, match="rows of all nodes are equal"):
        measure(total_of(GRAPH)[0], dict(enumerate(built(np.ones((NODES, 3, 4))))))


def test_points_and_gradients_are_in_the_units_of_the_user():
    """Also of the part a, whose scale the messages contain."""
    problems = dict(enumerate(built(shards())))
    review = RandomReview(problems, measure(total_of(GRAPH)[0], problems))
    drawn = problems[0].init(np.random.default_rng(0))
    theta = review.starts({0: drawn})[0]
    point = review.points(theta[None])[0]
    within = review.within[0]
    root = np.sqrt(within.layout.pull)

    found = review.gradients((within.gradient(theta) / root)[None])[0]

    assert_allclose(found, problems[0].gradient(point), rtol=1e-9, atol=1e-9)
    W, _, a = problems[0].layout.views(point)
    unit, length = float(review.start.unit), float(review.start.length)
    assert_allclose(W.T @ W, (unit * length) ** 2 * np.eye(M), atol=1e-10)
    assert_allclose(a, unit**-2)


@pytest.mark.parametrize("init", ["shared", "independent"])
def test_a_run_ends_at_the_pooled_solution(init):
    blocks = shards(width=10, rows=40)
    result = solve(built(blocks), GRAPH, init=init)

    assert result.status == "stationary"
    assert result.ending.init == init
    assert result.ending.scheme == "auto"
    assert result.start is None
    assert result.layout == built(blocks)[0].layout
    angle, off = right(result, blocks)
    assert angle < 0.1
    assert off < 1e-2
    alone = sum(
        float(p.objectives(result.solution[None], p.expect(result.solution))[0])
        for p in built(blocks)
    )
    assert_allclose(result.objective, alone, rtol=1e-10)
    assert result.traffic.tree_bytes.sum() > 0


@pytest.mark.parametrize("c", [1e-6, 1e-3, 1e6])
@pytest.mark.parametrize("b", [0.0, 100.0])
def test_units_and_shifts_give_the_same_run(c, b):
    blocks = shards(width=10)
    plain, other = (
        solve(built(x), GRAPH, init="shared", max_iter=25)
        for x in (blocks, c * blocks + b * c)
    )

    W, mu, a = plain.layout.views(plain.theta)
    W_other, mu_other, a_other = plain.layout.views(other.theta)
    size = np.abs(W).max()
    assert_allclose(W_other / c, W, atol=1e-6 * size)
    assert_allclose(mu_other / c, mu + b, atol=1e-6 * size)
    assert_allclose(a_other * c**2, a, rtol=1e-6)
    assert_allclose(other.eta, plain.eta, rtol=1e-4)


class Own(PPCA):
    """PPCA with a start of its own, which keeps raw coordinates."""

    def init(self, rng):
        return super().init(rng)


def test_otherwise_the_run_is_in_the_units_of_the_data():
    blocks = shards()
    raw = [Own(own, M) for own in blocks]
    for settings in ({"metric": "none"}, {"scheme": "fixed"}, {"scheme": "nap"}):
        settings |= {"init": "shared", "max_iter": 4}
        found, plain = (solve(p, GRAPH, **settings) for p in (built(blocks), raw))
        assert_array_equal(found.theta, plain.theta)
        assert_array_equal(found.traffic.tree_bytes, plain.traffic.tree_bytes)
    settings = {"init": "shared", "max_iter": 4}
    found, plain = (solve(p, GRAPH, **settings) for p in (built(blocks), raw))
    assert np.abs(found.theta - plain.theta).max() > 1e-3


def test_a_resumed_run_has_the_bits_of_a_whole_one(tmp_path):
    blocks = shards(width=10)
    settings = {"max_iter": 14, "record": False, "init": "shared"}
    whole = solve(built(blocks), GRAPH, **settings)
    for max_iter, resume in ((7, False), (14, True)):
        keep = Checkpoints(tmp_path / "run", every=5, resume=resume)
        settings["max_iter"] = max_iter
        found = solve(built(blocks), GRAPH, checkpoints=keep, **settings)

    assert found.iterations == whole.iterations == 14
    for name in ("theta", "eta", "solution"):
        assert_array_equal(getattr(found, name), getattr(whole, name))


def test_a_warm_start_continues_from_a_random_start():
    blocks = shards(width=10, rows=40)
    first = solve(built(blocks), GRAPH, init="shared")
    again = solve(built(blocks), GRAPH, warm_start=first)

    assert again.status == "stationary"
    best = metrics.ppca_reference(np.vstack(list(blocks)), M)
    W = again.layout.views(again.theta).W
    assert metrics.subspace_angle(W, best.W).max() < 1.0


def test_turning_multipliers_keeps_them_opposite_and_drops_what_turns_W():
    parts = []

    def see(t, run):
        views = run.layout.views
        Z, L = views(run.state.anchors).W, views(run.state.multipliers).W
        moment = Z.mT @ L
        parts.append(np.abs(moment - moment.mT).max() / np.abs(moment).max())
        summed = np.add.reduce(run.state.multipliers, axis=0)
        assert np.abs(summed).max() < 1e-12 * np.abs(run.state.multipliers).max()

    solve(built(shards()), GRAPH, init="independent", max_iter=6, callbacks=[see])
    assert len(parts) == 6
    assert max(parts) < 1e-12


def test_penalties_stay_within_their_bounds():
    result = solve(built(shards()), GRAPH, init="independent", max_iter=40)
    known = 0.5 * 12 / 2 * math.sqrt(1.0 + (GRAPH.diameter / 3.2) ** 2)
    least, most = Bounded.RANGE
    assert (result.eta >= least * known * (1 - 1e-12)).all()
    assert (result.eta <= most * known * (1 + 1e-12)).all()


@pytest.mark.mpi
def test_over_mpi_the_bits_are_those_of_one_process():
    ended = mpiexec(NODES, *program("units.py"))
    assert ended.code == 0, ended.err
    assert ended.out.strip() == "units agree"


def test_components_of_unlike_length_cost_the_objective_no_digits():
    """W is known up to a rotation only; the E-step loses digits in most of them."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 6)) * [1e5, 3e4, 1.0, 1.0, 1.0, 1.0]
    problem = PPCA(rows, 3)
    review = UnitReview({0: problem}, Units(0.0, 1.0, 1.0))
    W = np.eye(6)[:, :3] * [1e5, 3e4, 1e-4]
    W = W @ np.linalg.qr(rng.normal(size=(3, 3)))[0]
    mu = rows.mean(axis=0)

    found = review.rotated(problem.layout.pack(W=W, mu=mu, a=1.0))

    turned = problem.layout.views(found).W
    assert_allclose(turned @ turned.T, W @ W.T, atol=1e-5)
    value = float(problem.objectives(found[None], problem.expect(found))[0])
    assert_allclose(value, expected_objective(rows, W, mu, 1.0)[0], rtol=1e-9)


def test_limits_of_the_rule_are_those_of_the_lengths():
    """Those of docs/accuracy.md; the gradient has a third of the residual's limit."""
    problems = dict(enumerate(built(shards(width=10, rows=40))))
    n, D = problems[0].n_samples, problems[0].dimension
    for L, flat in ((0.1, 1.0), (2.0, math.sqrt(2.0)), (50.0, 7.0 / 50.0)):
        review = RandomReview(problems, Units(np.zeros(D), 1.0, L))
        long = max(L, 1.0)
        apart = [math.sqrt(M) * long, math.sqrt(M) * long, math.sqrt(D / 2.0)]
        slope = [math.sqrt(M) * flat, math.sqrt(M) * flat, math.sqrt(D / 2.0)]
        wanted = np.array([apart, 3.0 * n * np.array(slope)])
        assert_allclose(review.scales[0], wanted)
    at = review.starts({0: problems[0].init(np.random.default_rng(0))})[0]
    gradient = review.within[0].gradient(at) / np.sqrt(review.within[0].layout.pull)
    for part, limit in zip(("W", "mu", "a"), n * np.array(slope), strict=True):
        off = problems[0].layout.pack(**{"W": 0.0, "mu": 0.0, "a": 0.0, part: 1.0})
        off *= 1e-3 * limit / np.linalg.norm(off)
        for times, holds in ((0.99, True), (1.01, False)):
            run = SimpleNamespace(
                names=np.array([0]),
                state=SimpleNamespace(theta=at[None]),
                work=SimpleNamespace(multiplier=(times * off - gradient)[None] / 2.0),
                stopping=SimpleNamespace(rule=Rule(tolerance=1e-3, scaled=True)),
            )
            assert review.is_stationary(run).tolist() == [holds], part


@pytest.mark.parametrize("factor", [1.0, 1e-6, 1e5])
def test_a_warm_start_is_the_same_run_in_any_units(factor):
    """From the end of a run for the same rows, and for columns in another order."""
    blocks = factor * shards()
    first = solve(built(blocks), GRAPH)
    again = solve(built(blocks), GRAPH, warm_start=first)
    turned = blocks[..., ::-1]
    other = solve(built(turned), GRAPH, warm_start=first)

    assert again.status == other.status == "stationary"
    assert_allclose(again.theta, first.theta, rtol=1e-4, atol=1e-5 * factor)
    for result, rows in ((again, blocks), (other, turned)):
        angle, off = right(result, rows)
        assert angle < 0.5
        assert off < 1e-2
