"""PPCA in the mean and unit of all rows: equations, and what holds for every run."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import dadmm
from dadmm import ProblemError
from dadmm.admm.rule import Rule
from dadmm.data.patterns import remove_entries
from dadmm.problems import metrics
from dadmm.solver.subspace import Units, UnitsKind, find_units, kept_fraction
from tests.support.shards import GRAPH, NODES, M, built, right, shards, total_of
from tests.support.solving import solve
from tests.support.subspaces import expected_objective


def units_of(blocks):
    """Return the problems of these rows, and what their nodes agree on."""
    problems = dict(enumerate(built(blocks)))
    return problems, find_units(total_of(GRAPH)[0], problems)


def test_points_and_gradients_are_in_the_units_of_the_user():
    """Also of the part a, whose scale the messages contain."""
    problems, found = units_of(shards())
    layout = problems[0].layout
    kind = UnitsKind(problems, starts={0: problems[0].init(np.random.default_rng(0))})
    kind.enter(found)
    theta, within = kind.starts[0], kind.within[0]
    point = kind.theta_of(theta[None])[0]
    slopes = within.gradient(theta)[None] / np.sqrt(within.layout.pull)

    gradient = kind.gradients_of(slopes, theta[None])[0]

    wanted = layout.views(problems[0].gradient(point))
    assert_allclose(layout.views(gradient).W, wanted.W, rtol=1e-9, atol=1e-9)
    assert_allclose(layout.views(gradient).a, wanted.a, rtol=1e-9)
    assert not layout.views(gradient).mu.any()  # mu is not part of the problem
    warm = UnitsKind(problems, None, {0: point}, {0: gradient})
    warm.enter(kind.record)
    assert_allclose(warm.starts[0], theta, rtol=1e-9, atol=1e-12)
    assert_allclose(warm.duals[0], slopes[0], rtol=1e-9, atol=1e-9)
    W, _, a = layout.views(point)
    unit, length = float(kind.record.unit), float(kind.record.length)
    assert_allclose(W.T @ W, (unit * length) ** 2 * np.eye(M), atol=1e-10)
    assert_allclose(a, unit**-2)


def test_turning_multipliers_keeps_them_opposite_and_part_of_what_turns_W():
    parts = []

    def turning(run):
        views = run.layout.views
        moment = views(run.state.anchors).W.mT @ views(run.state.multipliers).W
        return moment - moment.mT

    def see(t, run):
        before = turning(run)
        run.kind.turn(t, run)
        share = kept_fraction(GRAPH.diameter, 1.6)
        assert_allclose(turning(run), share * before, atol=1e-9 * np.abs(before).max())
        summed = np.add.reduce(run.state.multipliers, axis=0)
        assert np.abs(summed).max() < 1e-12 * np.abs(run.state.multipliers).max()
        assert_allclose(run.by_node(run.work.multiplier).sum(axis=0), summed, atol=1e-9)
        parts.append(np.abs(before).max())

    solve(built(shards()), GRAPH, init="independent", max_iter=6, callbacks=[see])
    assert len(parts) == 6
    assert min(parts) > 0.0


def test_components_of_unlike_length_cost_the_objective_no_digits():
    """W is known up to a rotation only; the E-step loses digits in most of them."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 6)) * [1e5, 3e4, 1.0, 1.0, 1.0, 1.0]
    (problem,), mu = built([rows], 3), rows.mean(axis=0)
    W = np.eye(6)[:, :3] * [1e5, 3e4, 1e-4] @ np.linalg.qr(rng.normal(size=(3, 3)))[0]

    found = UnitsKind({0: problem}).rotated(problem.layout.pack(W=W, mu=mu, a=1.0))

    turned = problem.layout.views(found).W
    assert_allclose(turned @ turned.T, W @ W.T, atol=1e-5)
    value = float(problem.objectives(found[None], problem.expect(found))[0])
    assert_allclose(value, expected_objective(rows, W, mu, 1.0)[0], rtol=1e-9)


@pytest.mark.parametrize("precision", [4.0, 1.0, 0.25])
def test_limits_of_the_rule_are_those_of_the_curvature(precision):
    """Those of docs/accuracy.md; that of W is less if the noise exceeds the unit."""
    problems = dict(enumerate(built(shards(width=10, rows=40))))
    n, D, layout = problems[0].n_samples, problems[0].dimension, problems[0].layout
    kind = UnitsKind(problems, starts={0: problems[0].init(np.random.default_rng(0))})
    kind.enter(Units(np.zeros(D), 1.0, 5.0))
    parts = np.sqrt([M, M, D / 2.0])
    assert_allclose(kind.scales[0], [parts, 3.0 * n * parts])
    at = kind.starts[0]
    layout.views(at).a[...] = precision
    gradient = kind.within[0].gradient(at) / np.sqrt(kind.within[0].layout.pull)
    less = min(math.sqrt(precision), 1.0)
    limits = n * parts * [less, less, 1.0]
    for part, limit in zip(("W", "mu", "a"), limits, strict=True):
        off = layout.pack(**{"W": 0.0, "mu": 0.0, "a": 0.0, part: 1.0})
        off *= 1e-3 * limit / np.linalg.norm(off)
        for times, holds in ((0.99, True), (1.01, False)):
            run = SimpleNamespace(
                names=np.array([0]),
                state=SimpleNamespace(theta=at[None]),
                work=SimpleNamespace(multiplier=(times * off - gradient)[None] / 2.0),
                stopping=SimpleNamespace(rule=Rule(tolerance=1e-3, scaled=True)),
            )
            assert (kind.slope(run) <= 1.0).tolist() == [holds], part


def test_the_unit_of_few_or_noiseless_rows_is_known_too():
    few, flat = shards(rows=M + 1), shards()
    flat[..., M:] = 0.0
    squares = ((flat - flat.mean(axis=(0, 1))) ** 2).sum() / (NODES * 12)
    spread = (few - few.mean(axis=(0, 1))).std()
    assert_allclose(units_of(few)[1].unit, spread, rtol=1e-12)
    assert_allclose(units_of(flat)[1].unit, 1e-6 * math.sqrt(squares), rtol=1e-12)
    with pytest.raises(ProblemError, match="rows of all nodes are equal"):
        units_of(np.ones((NODES, 3, 4)))


@pytest.mark.parametrize("size", [1e-3, 1e5])
def test_no_component_of_the_solution_reaches_the_bound_on_lengths(size):
    """Of one component much or less long than the noise."""
    blocks = shards() * [size, 1.0, 1.0, 1.0, 1.0, 1.0]
    problems, found = units_of(blocks)
    kind = UnitsKind(problems)
    kind.enter(found)
    best = metrics.ppca_reference(np.vstack(list(blocks)), M)

    within = kind.within[0]
    assert 1e3 * np.linalg.norm(best.W, 2) / float(found.unit) <= within.longest
    assert within.longest >= within.knee


SHARED = {"init": "shared"}
RAW = SHARED | {"coordinates": "raw", "max_iter": 3000}
WIDE = np.vstack(list(shards(width=30, decay=1.2)))
RUNS = {  # the rows of all nodes, and settings
    "raw": (shards(rows=40), RAW),
    "units": (shards(width=10, rows=40), SHARED),
    "merged": (shards(width=30, rows=8, decay=1.2), {}),
    "gaps": (np.array_split(remove_entries(WIDE, 0.1, 0), NODES), {}),
}


@pytest.mark.parametrize(("c", "b"), [(1e-6, 100.0), (1e6, 0.0)])
@pytest.mark.parametrize(
    ("name", "close"), [("units", 1e-6), ("merged", 1e-9), ("gaps", 1e-7)]
)
def test_units_and_shifts_give_the_same_run(name, close, c, b):
    blocks, settings = RUNS[name]
    plain, other = (
        solve(built(own), GRAPH, **settings, max_iter=25)
        for own in (blocks, [c * (own + b) for own in blocks])
    )

    assert plain.iterations == other.iterations
    (W, mu, a), found = plain.layout.views(plain.theta), plain.layout.views(other.theta)
    size = np.abs(W @ W.mT).max()
    assert_allclose(found.W @ found.W.mT / c**2, W @ W.mT, atol=close * size)
    assert_allclose(found.mu / c, mu + b, atol=close * (size + b))
    assert_allclose(found.a * c**2, a, rtol=close)


@pytest.mark.parametrize(
    ("name", "settings"),
    [("units", {}), ("units", SHARED), ("units", {"init": "independent"}),
     ("raw", RAW | {"init": "independent"}), ("raw", RAW | {"scheme": "nap"})],
)  # fmt: skip
def test_a_run_of_ppca_ends_at_the_pooled_solution(name, settings):
    """Also where mu is zero; callbacks and columns have the units of the user."""
    blocks, seen = RUNS[name][0], []
    blocks = blocks - (name == "raw") * blocks.mean(axis=(0, 1))
    watch = {"callbacks": [lambda t, run: seen.append(run.theta)]}
    watch["observe"] = {"last": lambda theta: theta[-1]}
    result = solve(built(blocks), GRAPH, **settings, **watch)

    assert_array_equal(seen[-1], result.theta)
    assert_array_equal(result.history["last"][-1], result.theta[:, -1])
    names = ("disagreement_over_limit", "residual_over_limit")
    unmet = np.max([result.history[name] for name in names], axis=(0, 2)) >= 1.0
    assert result.ending.iteration == np.append(0, 1 + np.flatnonzero(unmet))[-1]
    assert result.ending.was_checked == (name == "raw")
    assert (result.status, result.why) == ("stationary", "")
    assert result.ending.init == settings.get("init", "merged")
    assert result.coordinates == name
    assert max(right(result, blocks)) < (0.5 if name == "raw" else 0.1)
    at = result.solution
    alone = sum(p.objectives(at[None], p.expect(at))[0] for p in built(blocks))
    assert_allclose(result.objective, alone, rtol=1e-10)


@pytest.mark.parametrize("factor", [1e-6, 1e5])
def test_a_warm_start_of_ppca_is_the_same_run_in_any_units(factor):
    """From the end of a run for the same rows, and for columns in another order."""
    blocks = factor * shards()
    first = solve(built(blocks), GRAPH)
    for rows in (blocks, blocks[..., ::-1]):
        result = solve(built(rows), GRAPH, warm_start=first)
        angle, off = right(result, rows)
        assert (result.status, angle < 0.5, off < 1e-2) == ("stationary", True, True)
        if rows is blocks:
            assert_allclose(result.theta, first.theta, rtol=1e-4, atol=1e-5 * factor)


@pytest.mark.parametrize("lost", [False, True])
def test_cameras_start_from_their_frames_and_end(lost):
    tracks, points = dadmm.datasets.turntable(n_frames=30, n_points=30)
    if lost:
        tracks[:12, 0] = tracks[20:30, 7] = np.nan
    frames = dadmm.shard.split_frames(tracks, NODES)
    found = solve([dadmm.problems.StructureFromMotion(r) for r in frames], GRAPH)

    assert (found.status, found.coordinates) == ("stationary", "raw")
    W = found.layout.views(found.theta).W
    W, truth = W - W.mean(axis=1, keepdims=True), points - points.mean(axis=0)
    assert metrics.subspace_angle(W, truth).max() < 2.0
