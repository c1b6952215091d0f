"""What holds for every kind of run: bits, units, starts and ends; each a parameter."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import dadmm
from dadmm import Checkpoints, Topology
from dadmm.data.patterns import remove_entries
from tests.solver.test_merged import GRAPH, NODES, built, right, shards
from tests.support.solving import solve
from tests.support.tables import table

RING = Topology.ring(6)


def gappy(blocks):
    """Return rows of which a tenth is missing."""
    whole = np.vstack(list(blocks))
    return np.array_split(remove_entries(whole, 0.1, 0), NODES)


SHARED = {"init": "shared"}
RAW = SHARED | {"coordinates": "raw", "max_iter": 3000}
PPCA = {  # the rows of all nodes, and settings
    "raw": (shards(rows=40), RAW),
    "units": (shards(width=10, rows=40), SHARED),
    "merged": (shards(width=30, rows=8, decay=1.2), {"tolerance": 1e-6}),
    "gaps": (gappy(shards(width=30, decay=1.2)), {"tolerance": 1e-6}),
}
METRIC = ("lasso", "logistic", "huber", "multinomial")
STATED = ("theta", "eta", "solution", "objective", "iterations", "status", "why")


def run_of(name, **more):
    if name in PPCA:
        blocks, settings = PPCA[name]
        return solve(built(blocks), GRAPH, **(settings | more))
    return solve(table(name, 6), RING, **more)


def assert_same(one, two):
    """Assert that two results are the same to the last bit."""
    for name in STATED:
        assert_array_equal(getattr(one, name), getattr(two, name), err_msg=name)
    assert one.traffic.bytes == two.traffic.bytes
    assert one.subspace_bound == two.subspace_bound
    assert_array_equal(one.ending.trail, two.ending.trail)
    if one.start is not None:
        assert one.start[1:] == two.start[1:]
    if one.certificate is not None:
        assert one.certificate.gap == two.certificate.gap


@pytest.mark.parametrize("cut", [3, 0.5])
@pytest.mark.parametrize("name", [*PPCA, *METRIC])
def test_a_resumed_run_has_the_bits_of_a_whole_one(tmp_path, name, cut):
    """Also before and after coordinates change, and between reviews that fail."""
    seen = []

    def watch(t, run):
        changes = getattr(run.kind, "changes", 0)
        seen.append(run.state.coordinates | {"so far": changes})

    whole = run_of(name, callbacks=[watch])
    known = seen[-1]
    cut = cut if isinstance(cut, int) else int(cut * whole.iterations)
    run_of(name, max_iter=cut, checkpoints=Checkpoints(tmp_path))

    keep = Checkpoints(tmp_path, resume=True)
    again = run_of(name, checkpoints=keep, callbacks=[watch])

    assert whole.iterations > cut
    assert_same(again, whole)
    for key, value in known.items():
        assert_array_equal(seen[-1][key], value, err_msg=key)
    if name != "raw":  # the sums of set-up are not repeated
        assert again.traffic.tree_bytes.sum() < whole.traffic.tree_bytes.sum()


@pytest.mark.parametrize("name", ["raw", "units", "merged", "logistic"])
def test_callbacks_and_columns_have_the_units_of_the_user(name):
    seen, observe = [], {"last": lambda theta: theta[-1]}
    result = run_of(
        name, observe=observe, callbacks=[lambda t, run: seen.append(run.theta)]
    )

    assert_array_equal(seen[-1], result.theta)
    assert_array_equal(result.history["last"][-1], result.theta[:, -1])
    assert_allclose(result.theta.mean(axis=0), result.solution, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("c", "b"), [(1e-6, 100.0), (1e6, 0.0)])
@pytest.mark.parametrize(
    ("name", "close"), [("units", 1e-6), ("merged", 1e-9), ("gaps", 1e-7)]
)
def test_units_and_shifts_give_the_same_run(name, close, c, b):
    blocks, settings = PPCA[name]
    settings = {"max_iter": 25} | settings | {"tolerance": 1e-3}
    plain, other = (
        solve(built([c * (own + b) for own in blocks]), GRAPH, **settings)
        for c, b in ((1.0, 0.0), (c, b))
    )

    assert plain.iterations == other.iterations
    W, mu, a = plain.layout.views(plain.theta)
    W_other, mu_other, a_other = plain.layout.views(other.theta)
    size = np.abs(W @ W.mT).max()
    assert_allclose(W_other @ W_other.mT / c**2, W @ W.mT, atol=close * size)
    assert_allclose(mu_other / c, mu + b, atol=close * (size + b))
    assert_allclose(a_other * c**2, a, rtol=close)


@pytest.mark.parametrize(
    ("name", "settings"),
    [("merged", {}), ("units", SHARED), ("units", {"init": "independent"})]
    + [
        ("raw", RAW | {"scheme": scheme, "init": init})
        for scheme in ("snap", "nap")
        for init in ("shared", "independent")
    ],
)
def test_a_run_of_ppca_ends_at_the_pooled_solution(name, settings):
    """Also where mu is zero, to which no difference is small."""
    blocks = shards(rows=40) if name == "raw" else shards(width=10, rows=40)
    blocks = blocks - (name == "raw") * blocks.mean(axis=(0, 1))
    result = solve(built(blocks), GRAPH, **settings)

    assert (result.status, result.why) == ("stationary", "")
    assert result.ending.init == settings.get("init", "merged")
    assert result.coordinates == ("raw" if name == "raw" else "units")
    assert max(right(result, blocks)) < (0.5 if name == "raw" else 0.1)
    alone = sum(
        float(p.objectives(result.solution[None], p.expect(result.solution))[0])
        for p in built(blocks)
    )
    assert_allclose(result.objective, alone, rtol=1e-10)


@pytest.mark.parametrize("factor", [1.0, 1e-6, 1e5])
def test_a_warm_start_of_ppca_is_the_same_run_in_any_units(factor):
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


@pytest.mark.parametrize("lost", [False, True])
def test_cameras_start_from_their_frames_and_end(lost):
    tracks, points = dadmm.datasets.turntable(n_frames=30, n_points=30)
    if lost:
        tracks[:12, 0] = tracks[20:30, 7] = np.nan
    frames = dadmm.shard.split_frames(tracks, NODES)
    found = dadmm.solve([dadmm.problems.StructureFromMotion(r) for r in frames], GRAPH)

    assert (found.status, found.coordinates) == ("stationary", "raw")
    W = found.layout.views(found.theta).W
    W = W - W.mean(axis=1, keepdims=True)
    truth = points - points.mean(axis=0)
    assert dadmm.metrics.subspace_angle(W, truth).max() < 2.0
