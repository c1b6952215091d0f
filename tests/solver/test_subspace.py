"""PPCA: in units, raw, bounds on angles, and a start from merged axes."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dadmm import ProblemError, Topology, datasets
from dadmm.admm.rule import Rule
from dadmm.comm.world import World
from dadmm.data.patterns import remove_entries
from dadmm.data.shard import split_frames
from dadmm.problems import PPCA, IncompletePPCA, StructureFromMotion, metrics
from dadmm.solver.kind import TIMES, RawKind, relative_errors
from dadmm.solver.merged import MergedKind
from dadmm.solver.plan import Judge, Kind, Plan
from dadmm.solver.subspace import Units, UnitsKind, bound_subspace
from tests.campaigns.properties.ppca import draw
from tests.support import shards as support
from tests.support.problems import Quadratic
from tests.support.shards import GRAPH, NODES, PPCAS, D, M, built, right, shards
from tests.support.solving import solve
from tests.support.subspaces import expected_objective, largest_angle, principal_axes

SHARED = {"init": "shared"}
RAW = PPCAS["raw"][1]


def units_of(blocks):
    """Return the problems of these rows, and what their nodes agree on."""
    problems = dict(enumerate(built(blocks)))
    kind = UnitsKind(problems)
    kind.choose(support.total_of(GRAPH)[0], NODES)
    return problems, kind.record


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
    off = flat - flat.mean(axis=(0, 1))
    spread = (few - few.mean(axis=(0, 1))).std()
    for rows, unit in ((few, spread), (flat, 1e-6 * off.std() * math.sqrt(6))):
        assert_allclose(units_of(rows)[1].unit, unit, rtol=1e-12)


@pytest.mark.parametrize(("c", "b"), [(1e-6, 100.0), (1e6, 0.0)])
@pytest.mark.parametrize(
    ("name", "close"), [("units", 1e-6), ("merged", 1e-9), ("gaps", 1e-7)]
)
def test_units_and_shifts_give_the_same_run(name, close, c, b):
    blocks, settings = PPCAS[name]
    plain, other = (
        solve(built(own), GRAPH, **settings, max_iter=25)
        for own in (blocks, [c * (own + b) for own in blocks])
    )
    assert plain.iterations == other.iterations
    (W, mu, a), found = map(plain.layout.views, (plain.theta, other.theta))
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
    blocks, seen = PPCAS[name][0], []
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
    for i, own in result.duals.items():  # minus gradients, with mu held
        slopes = built(blocks)[i].gradient(result.theta[i])
        found, wanted = result.layout.views(own), result.layout.views(-slopes)
        for mine, true in ((found.W, wanted.W), (found.a, wanted.a)):
            assert_allclose(mine, true, atol=0.05 * np.abs(true).max())
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
        assert result.start is None  # not from merged axes
        assert (result.status, angle < 0.5, off < 1e-2) == ("stationary", True, True)
        if rows is blocks:
            assert_allclose(result.theta, first.theta, rtol=1e-4, atol=1e-5 * factor)


def errors_of(problem, theta, slope, gaps=None):
    """Return the errors of a network whose nodes all have the same rows."""
    gaps = theta[None][:0] if gaps is None else gaps
    return relative_errors(problem, theta, slope, gaps, problem.moment(theta))


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def model(rng, rows=40):
    """Return a problem, its maximum likelihood solution, and that as theta."""
    samples = rng.standard_normal((rows, 6)) * [9.0, 6.0, 0.5, 0.5, 0.5, 0.5]
    problem, best = PPCA(samples, M), metrics.ppca_reference(samples, M)
    return problem, best, problem.layout.pack(W=best.W, mu=best.mu, a=best.a)


def test_differences_are_relative_to_the_model(rng):
    """Along the axes r of W: |d r| / |W r|; mu in standard deviations of a row."""
    problem, best, theta = model(rng)
    gaps, none = rng.standard_normal((3, theta.size)), np.zeros(theta.size)
    W, mu, a = errors_of(problem, theta, none, gaps)[0]
    axes = np.linalg.eigh(best.W.T @ best.W)[1]
    dW, dmu, da = problem.layout.views(gaps)
    moved = np.linalg.norm(dW @ axes, axis=1) / np.linalg.norm(best.W @ axes, axis=0)
    assert_allclose(W, np.sqrt(np.mean(moved**2, axis=0)).max(), rtol=1e-10)
    C = best.W @ best.W.T + np.eye(6) / best.a
    squares = np.vecdot(dmu, np.linalg.solve(C, dmu.T).T)
    assert_allclose(mu, math.sqrt(squares.mean() / 6), rtol=1e-10)
    assert_allclose(a, np.sqrt(np.mean(da**2)) / best.a, rtol=1e-10)
    assert_array_equal(errors_of(problem, theta, none), np.zeros((2, 3)))


def test_errors_by_the_true_gradient_are_those_of_the_model(rng):
    """One per cent off the optimum is seen as about one per cent; a turn is free."""
    problem, (W, mu, a), _ = model(rng, rows=400)
    axes, lengths, right = np.linalg.svd(W, full_matrices=False)
    out = np.linalg.qr(np.hstack([W, np.eye(6)]))[0][:, M]
    far = math.sqrt(6) * axes[:, 0] * math.hypot(lengths[0], a**-0.5)
    turn = np.linalg.qr(rng.standard_normal((M, M)))[0]
    for part, W_off, mu_off, a_off in (
        (0, (axes * lengths * [1.0, 1.01]) @ right, mu, a),
        (0, W + 0.01 * lengths[1] * np.outer(out, right[1]), mu, a),
        (1, W, mu + 0.01 * far, a),
        (2, W, mu, 1.01 * a),
        (None, W @ turn, mu, a),
    ):
        theta = problem.layout.pack(W=W_off, mu=mu_off, a=a_off)
        errors = errors_of(problem, theta, problem.gradient(theta))
        if part is None:
            assert errors.max() < 1e-10
        else:
            assert_allclose(errors[1, part], 0.01, rtol=0.25)


def test_a_structure_counts_up_to_an_affine_map(rng):
    """Then W is stationary for the tracks, but not for their likelihood."""
    camera = StructureFromMotion(datasets.turntable(n_frames=20, n_points=30)[0])
    plain = PPCA(camera.rows, 3, zero_mean=True)
    best = metrics.ppca_reference(camera.rows, 3, zero_mean=True)
    W, found = best.W @ rng.standard_normal((3, 3)), []
    for problem in (camera, plain):
        theta = problem.layout.pack(W=W, mu=0.0, a=best.a)
        found.append(errors_of(problem, theta, problem.gradient(theta))[1, 0])
    assert found[0] < 1e-9 < 0.1 < found[1]


def test_the_rule_is_met_no_later_than_the_relative_errors(rng):
    """So that a review is never late; `scales` are for norms by part of theta."""
    problem, _, theta = model(rng)
    layout, kind = problem.layout, RawKind({0: problem})
    kind.plan = Plan(Kind.RAW, "shared", judge=Judge.MODEL)
    lengths = np.array([[np.linalg.norm(part)] for part in layout.views(theta)])
    scales = [kind.scales_of(np.array([0]))(k, lengths)[:, 0] for k in range(2)]
    for k in range(20):
        vectors = np.zeros((2, layout.size))
        part = layout.views(vectors)[k % 3]
        part[...] = rng.standard_normal(part.shape)
        errors = errors_of(problem, theta, vectors[1], vectors[:1])[:, k % 3]
        sizes = np.linalg.norm(part.reshape(2, -1), axis=1) / np.array(scales)[:, k % 3]
        assert (sizes <= 2.0 * errors / TIMES).all()


class Lazy(Quadratic):
    """A quadratic with steps of a tenth of the way."""

    def prox(self, theta, stats, centre, weight):
        return theta + 0.1 * (super().prox(theta, stats, centre, weight) - theta)


class Known(Lazy):
    def gradient(self, theta):
        return theta - self.b


@pytest.mark.parametrize(("kind", "status"), [(Lazy, "stopped"), (Known, "stationary")])
def test_a_gradient_of_ones_own_decides_on_stationary(kind, status):
    targets = np.random.default_rng(0).standard_normal((NODES, 2))
    problems = [kind(np.eye(2), b, floor=1e3) for b in targets]
    settings = SHARED | {"scheme": "fixed", "max_iter": 20000, "tolerance": 1e-2}
    found = solve(problems, GRAPH, **settings, record=False)
    off = np.abs(found.theta - targets.mean(axis=0)).max()
    assert (off < 0.005) == (kind is Known)
    assert found.status == status


def test_limits_follow_the_tolerance_but_other_rules_and_own_penalties_bound_nothing():
    blocks = PPCAS["raw"][0]
    loose, tight, by_objective, by_change, directed = (
        solve(built(blocks), GRAPH, **RAW, **more)
        for more in (
            {"tolerance": 1e-2}, {"tolerance": 1e-4}, {"stopping": "objective"},
            {"stopping": "residuals"},
            {"scheme": "nap", "coupling": "own", "tolerance": 1e-2},
        )
    )  # fmt: skip
    assert loose.iterations < tight.iterations
    assert right(tight, blocks)[1] < 0.1 * right(loose, blocks)[1] < 0.1
    assert by_objective.iterations < 100
    assert "gradient" in by_change.why
    for found in (by_objective, by_change, directed):
        assert (found.reason, found.status) == ("converged", "stopped")


def points(rng, axes, lengths, n_nodes):
    """Return W of each node, (n, D, M): turned from the axes, scaled and rotated."""
    D, M = axes.shape
    turned = axes + 10.0 ** rng.uniform(-12, 0) * rng.standard_normal((D, M))
    W = np.linalg.qr(turned)[0] * (lengths if rng.random() < 0.5 else 1.0)
    W = W @ np.linalg.qr(rng.standard_normal((M, M)))[0]
    size = np.abs(W).max() * 10.0 ** rng.uniform(-14, -1)
    return W + size * rng.standard_normal((n_nodes, D, M)) * (rng.random() < 0.7)


@pytest.mark.parametrize("first", [0, 12])
def test_the_bound_holds_at_any_point(first):
    rng = np.random.default_rng([17, first])
    ratios, near, bounded = [], 0, 0
    for case in map(draw, range(first, first + 12)):
        M, n = case.M, case.topology.n_nodes
        total, _ = support.total_of(case.topology)
        variances, axes = principal_axes(case.X, case.zero_mean)
        lengths = np.sqrt(variances)
        scale = np.maximum(lengths[:M], 1e-8 * lengths[0]).astype(float)
        for _ in range(5):
            W = points(rng, axes[:, :M].astype(float), scale, n)
            found = bound_subspace(total, case.problems(), W, W.mean(axis=0), n)
            true = max(largest_angle(own, axes[:, :M]) for own in W)
            assert true <= found.angle
            assert (found.why == "") == (found.angle <= 10.0)
            if true < 5.0 and lengths[M] < 0.9 * lengths[M - 1]:
                near += 1
                bounded += found.why == ""
            if true > 1e-6 and found.why == "":
                ratios.append(found.angle / true)
    assert np.median(ratios) < 3.0
    assert bounded > 0.7 * near > 0


def test_the_bound_counts_axes_that_nodes_leave_out():
    """Each node has eight long axes of its own, and sends eleven at most."""
    blocks, axes = np.zeros((4, 18, 33)), np.eye(33)
    for i, rows in enumerate(blocks):
        half = np.vstack([axes[0], axes[1 + 8 * i : 9 + 8 * i]])
        rows[...] = np.vstack([half, -half])
    centre = math.cos(math.radians(1.0)) * axes[:, :1]
    centre += math.sin(math.radians(1.0)) * axes[:, 1:2]
    total, _ = support.total_of(Topology.chain(4))
    W = np.tile(centre, (4, 1, 1))
    assert 1.0 <= bound_subspace(total, built(blocks, 1), W, centre, 4).angle < 2.0


EYE = np.tile(np.eye(6)[:, :2], (2, 1, 1))
SPREAD = np.array([9.0, 5.0, 1.0, 1.0, 1.0, 1.0])


@pytest.mark.parametrize(
    ("W", "scale", "why"),
    [
        (EYE * [[[1.0, 0.0]]], SPREAD, "agree"),
        (EYE * np.nan, SPREAD, "finite"),
        (EYE[:, ::-1], SPREAD, "variance outside"),
        (EYE, np.ones(6), "variance outside"),  # there is no gap
        (EYE + np.eye(6)[:, 3:5] * [[[0.0]], [[1.0]]], SPREAD, "agree"),
        (EYE, 1e-170 * SPREAD, "underflow"),
        (EYE, 1e160 * SPREAD, "overflow"),
    ],
)
def test_a_point_without_a_bound_says_why(W, scale, why):
    rows = np.random.default_rng(0).standard_normal((10, 6))
    blocks = np.array([np.vstack([rows, -rows]), np.vstack([rows[:, ::-1], -rows])])
    total, _ = support.total_of(Topology.chain(2))
    with np.errstate(invalid="ignore", over="ignore"):
        found = bound_subspace(total, built(blocks * scale), W, W.mean(axis=0), 2)
    assert found.angle == math.inf
    assert why in found.why


def test_only_complete_rows_whose_sums_may_be_sent_have_a_bound():
    blocks, gaps = PPCAS["merged"][0], PPCAS["gaps"][0]
    for rows, more in ((blocks, {"bound_angle": False}), (blocks, RAW), (gaps, {})):
        settings = more | {"max_iter": 3}
        assert solve(built(rows), GRAPH, **settings).subspace_bound is None


# a start from merged axes, also with missing entries, against pooled forms

SIX = 6
RING, ALONE = Topology.ring(SIX), Topology.from_edges(1, [])


@pytest.mark.parametrize("zero_mean", [False, True])
def test_a_start_with_all_axes_is_the_pooled_solution(zero_mean):
    """Gradients cancel, and duals are minus these; of zero_mean no sums are sent."""
    blocks, given, total = shards(), [], support.total_of(GRAPH)[0]
    problems = dict(enumerate(built(blocks, zero_mean=zero_mean)))
    best = metrics.ppca_reference(np.vstack(list(blocks)), M, zero_mean=zero_mean)
    kind = MergedKind(problems)
    kind.prepare(GRAPH, World())
    (theta,) = map(np.array, {tuple(start) for start in kind.starts.values()})
    point = kind.theta_of(theta[None])[0]
    W, mu, a = problems[0].layout.views(point)
    assert_allclose(W @ W.T, best.W @ best.W.T, atol=1e-12)
    assert_allclose(mu, best.mu, atol=1e-12)
    assert_allclose(a, best.a, rtol=1e-12)
    for i, own in kind.duals.items():
        assert_allclose(own, -kind.within[i].gradient(theta), atol=1e-9)
        mine = kind.gradients_of(own[None], theta[None])[0]
        assert_allclose(mine, -problems[i].gradient(point), atol=1e-9)
    spied = lambda rows, *more: given.append(rows) or total(rows, *more)  # noqa: E731
    MergedKind(problems).choose(spied, NODES)
    assert np.any([own[:D] for own in given[0]]) == (not zero_mean)


def test_impossible_starts_are_refused():
    """Rows are equal; or a direction is short, and two columns are equal."""
    rng = np.random.default_rng(0)
    blocks = rng.standard_normal((NODES, 2, 4)) * [1.0, 0.7, 0.5, 1e-7]
    with_copy = np.concatenate([blocks, blocks[..., :1]], axis=2)
    with_gaps = rng.standard_normal((NODES, 12, 4)) * [3.0, 2.0, 1.0, 0.0]
    with_gaps[rng.random(with_gaps.shape) < 0.25] = np.nan
    equal = np.full((NODES, 3, D), 3.0)
    for rows, m, culprit, init in (
        (equal, 2, "rows", None), (equal, 2, "rows", "shared"),
        (with_copy, 4, "noise", None), (with_gaps, 3, "noise", None),
    ):  # fmt: skip
        with pytest.raises(ProblemError, match=culprit):
            solve(built(rows, m), GRAPH, init=init)


def test_equal_components_are_told_by_a_small_gap():
    """The tolerance is stricter then, and the result is right or not converged."""
    white = np.random.default_rng(3).standard_normal((NODES, 60, D))
    result = solve(built(white), GRAPH)
    assert result.start.gap < 0.1
    assert result.start.strictness < 0.1
    assert not result.converged or max(right(result, white)) < 1e-2
    line = white[..., :1] * np.arange(1.0, D + 1.0)  # of fewer dimensions than M
    kind = MergedKind(dict(enumerate(built(line))))
    kind.choose(support.total_of(GRAPH)[0], NODES)
    assert kind.record.gap == 0.0


def test_a_stop_is_taken_back_if_the_rule_is_no_longer_met():
    """Something disturbs a node after all have agreed to stop."""
    blocks, done = shards(width=20), []

    def disturb(t, run):
        if run.stopping._fields["stop_at"][0] == t + 1 and not done:
            done.append(t)
            run.state.multipliers *= 1.5
            run.edges.sum_multipliers()

    result = solve(built(blocks), Topology.chain(NODES), callbacks=[disturb])
    assert result.converged
    assert result.iterations > done[0] + 1
    assert max(right(result, blocks)) < 1e-2


def samples_of(fraction, way="random", noise=1.0, units=1.0, D=12):
    """Return 240 rows of three components, without some entries or columns by node."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((240, 3)) * [4.0, 2.0, 1.0]
    rows = rows @ rng.standard_normal((3, D)) + noise * rng.standard_normal((240, D))
    rows = units * (rows + 3.0 * rng.standard_normal(D))
    if way == "random":
        return remove_entries(rows, fraction, 0)
    for i, own in enumerate(np.split(rows, SIX)):
        own[:, (i * D // SIX + np.arange(round(fraction * D))) % D] = np.nan
    return rows


def solved(samples, **settings):
    return solve(built(np.split(samples, SIX), 3), RING, **settings)


@pytest.mark.parametrize(
    ("fraction", "way", "noise", "exponents"),
    [(0.05, "random", 1e-3, 0), (0.4, "random", 1.0, 0), (0.4, "blocks", 1.0, 0),
     (0.05, "blocks", 1e-3, 4), (0.4, "random", 1.0, 4), (0.4, "blocks", 1e-3, 4)],
)  # fmt: skip
def test_stationary_is_near_pooled_em(fraction, way, noise, exponents):
    """EM by a node alone; some cases are hardly determined, and must not say so."""
    units = 10.0 ** (np.arange(12) % exponents - 1) if exponents else 1.0
    samples = samples_of(fraction, way, noise, units)
    result = solved(samples)
    assert result.status == "stationary" or exponents
    assert result.start.rounds > 0
    if result.status == "stationary":
        alone = solve(built([samples], 3), ALONE, tolerance=1e-9, max_iter=800)
        best = alone.layout.views(alone.solution).W
        began = result.layout.views(result.start.theta).W
        assert metrics.subspace_angle(began, best) < 5.0
        angle, off = support.errors(result, best)
        assert angle < 1.0
        assert off < 1e-2
        assert result.iterations < 100


def test_a_column_that_no_node_observes_has_no_part_in_the_result():
    samples = samples_of(0.1, noise=0.5)
    result, other = solved(np.insert(samples, 3, np.nan, axis=1)), solved(samples)
    assert result.status == "stationary"
    W, wanted = (r.layout.views(r.solution).W for r in (result, other))
    assert_allclose(W[3], 0.0, atol=1e-12)
    found, want = np.delete(W, 3, axis=0), wanted @ wanted.T
    assert_allclose(found @ found.T, want, atol=2e-3 * np.abs(want).max())


@pytest.mark.parametrize("fraction", [0.05, 0.3])
def test_lost_tracks_end_where_their_gradients_cancel(fraction):
    """One camera keeps all of its tracks."""
    tracks, _ = datasets.turntable(24, 8, noise=0.5)
    tracks[8:] = remove_entries(tracks[8:], fraction, 0, together=2)
    problems = [StructureFromMotion(rows) for rows in split_frames(tracks, SIX)]
    result = solve(problems, RING, init="merged")
    assert result.status == "stationary"
    assert result.iterations < 40
    start, end = (result.layout.views(x).a for x in (result.start[0], result.solution))
    by_node = [problem.gradient(result.solution) for problem in problems]
    total, size = np.sum(by_node, axis=0), np.linalg.norm(by_node, axis=1).sum()
    assert np.linalg.norm(total) < 0.05 * size
    assert np.linalg.norm(total[:-1]) / np.sqrt(end) < 1e-2 * len(tracks)
    assert_allclose(start, end, rtol=0.02)  # a row has a degree of freedom less


def test_gaps_that_rounds_fill_slowly_make_the_rule_stricter():
    for gaps, least, most in ((0.0, 0.99, 1.01), (0.05, 0.5, 0.95), (0.5, 0.0, 0.5)):
        assert least < solved(samples_of(gaps), max_iter=1).start.strictness < most


@pytest.mark.parametrize(("broken", "node"), [("completed_sum", 0), ("completed", 3)])
def test_a_node_whose_completion_breaks_down_ends_set_up_at_all(
    broken, node, monkeypatch
):
    problems = built(np.split(samples_of(0.1), SIX), 3)
    problems[node].marked, usual = True, getattr(IncompletePPCA, broken)

    def fails(self, theta):
        if hasattr(self, "marked"):
            raise np.linalg.LinAlgError("Singular matrix")
        return usual(self, theta)

    monkeypatch.setattr(IncompletePPCA, broken, fails)
    with pytest.raises(ProblemError, match="noise"):
        solve(problems, RING)
