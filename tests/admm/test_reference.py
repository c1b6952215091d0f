"""The library against the plain reference, beyond t_max and through budget growth."""

from __future__ import annotations

from dataclasses import asdict, fields
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_allclose

import dadmm
from benchmarks.shared.schemes import build
from dadmm.penalty import Scheme
from tests.support import reference
from tests.support.reference import SCHEMES, Settings, Theta
from tests.support.solving import solve as run_solve

D, M = 4, 2
GRAPHS = {
    "ring": ((1, 5), (0, 2), (1, 3), (2, 4), (3, 5), (0, 4)),
    "cluster": ((1, 2), (0, 2), (0, 1, 3), (2, 4, 5), (3, 5), (3, 4)),
    "star": ((1, 2, 3, 4), (0,), (0,), (0,), (0,)),
    "pair": ((1,), (0,)),
    "alone": ((),),
}
T_MAX, LAST = 6, 15
BUSY = Settings(
    eta0=3.0,
    t_max=T_MAX,
    residual_ratio=2.0,
    budget0=1.2,
    budget_decay=0.8,
    budget_trigger=0.5,
)
COUPLINGS = ("symmetric", "own")
PROBES = ("midpoint", "neighbour")


class Case(NamedTuple):
    """A network with data and initial values."""

    neighbours: tuple[tuple[int, ...], ...]
    shards: list[np.ndarray]
    theta0: list[Theta]


@lru_cache
def make_case(graph, sizes=(6, 7, 8, 9, 10, 6), offset=0.0, start=0.0, noise=0.2):
    """Return nodes that draw from one subspace, each with a mean of its own.

    ``offset`` moves all samples, ``start`` all initial means.
    """
    rng = np.random.default_rng(1)
    neighbours = GRAPHS[graph]
    W = rng.normal(size=(D, M))
    shards, theta0 = [], []
    for size in sizes[: len(neighbours)]:
        clean = rng.normal(size=(size, M)) @ W.T + 0.3 * rng.normal(size=D)
        shards.append(clean + np.sqrt(noise) * rng.normal(size=(size, D)) + offset)
        W0 = np.linalg.qr(rng.normal(size=(D, M)))[0]
        theta0.append(Theta(W0, np.full(D, start), 1.0))
    return Case(neighbours, shards, theta0)


def change(settings, **changes):
    """Return the settings with some of them changed."""
    return Settings(**{**asdict(settings), **changes})


def follow(case, scheme, settings, n_iterations=LAST):
    """Return the reference's trajectory."""
    return reference.run(
        case.shards, case.neighbours, case.theta0, scheme, settings, n_iterations
    )


def solve(case, scheme, settings, n_iterations, **more):
    """Return the library's result after some iterations."""
    keywords = asdict(settings)
    zero_mean, _ = keywords.pop("zero_mean"), keywords.pop("curvature")
    own = {field.name: keywords.pop(field.name) for field in fields(Scheme)}
    edges = [(i, j) for i, around in enumerate(case.neighbours) for j in around]
    return run_solve(
        [
            dadmm.problems.PPCA(samples, n_components=M, zero_mean=zero_mean)
            for samples in case.shards
        ],
        dadmm.Topology.from_edges(len(case.shards), edges),
        scheme=build(scheme, **own),
        init=np.array([reference.stack(theta) for theta in case.theta0]),
        tolerance=0,
        max_iter=n_iterations,
        **keywords,
        **more,
    )


def assert_same(result, run, t, rtol=1e-9):
    """Assert that the library's result is the reference's iteration t.

    Each part is compared on its own scale; that of mu is its spread, so that data far
    from zero buy no indulgence.
    """
    assert result.iterations == t
    scales = {"W": np.abs, "mu": lambda mu: mu - mu.mean(), "a": np.abs}
    for name, scale in scales.items():
        got = [getattr(result.parts(i), name) for i in range(len(result.theta))]
        want = run[name][t - 1]
        atol = rtol * np.abs(scale(want)).max()
        message = f"{name} after iteration {t}"
        assert_allclose(np.array(got), want, rtol=0, atol=atol, err_msg=message)
    message = f"eta after iteration {t}"
    assert_allclose(result.eta, run["eta"][t - 1], rtol=rtol, err_msg=message)


def every_kind():
    """Return all schemes with both couplings and, where they probe, both probes."""
    return [
        (scheme, coupling, probe)
        for scheme in SCHEMES
        for coupling in COUPLINGS
        for probe in (PROBES if scheme not in ("fixed", "vp") else PROBES[:1])
    ]


@lru_cache
def busy_run(graph, scheme, coupling, probe):
    """Return the reference's trajectory with the busy settings."""
    settings = change(BUSY, coupling=coupling, probe=probe)
    return follow(make_case(graph), scheme, settings)


@pytest.mark.parametrize("graph", ["ring", "cluster", "star"])
@pytest.mark.parametrize(("scheme", "coupling", "probe"), every_kind())
def test_library_follows_the_reference(graph, scheme, coupling, probe):
    run = busy_run(graph, scheme, coupling, probe)
    settings = change(BUSY, coupling=coupling, probe=probe)

    for t in (2, T_MAX, LAST):
        assert_same(solve(make_case(graph), scheme, settings, t), run, t)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("coupling", COUPLINGS)
def test_every_row_of_the_history_is_the_references(scheme, coupling):
    run = busy_run("cluster", scheme, coupling, "midpoint")
    settings = change(BUSY, coupling=coupling)
    case = make_case("cluster")
    history = solve(case, scheme, settings, LAST, record_edges=True).history
    degrees = [len(around) for around in case.neighbours]
    starts = np.cumsum([0, *degrees[:-1]])
    eta_of_node = np.add.reduceat(run["used"], starts, axis=1) / degrees

    assert_allclose(history["objective"], run["f"], rtol=1e-9)
    assert_allclose(history["primal"], run["primal"], rtol=1e-9)
    assert_allclose(history["dual"], run["dual"], rtol=1e-9)
    assert_allclose(history["eta"], eta_of_node, rtol=1e-9)
    assert_allclose(history.edges["eta"], run["eta"], rtol=1e-9)
    if scheme in ("nap", "vp_nap"):
        assert_allclose(history.edges["spent"], run["spent"], rtol=1e-9)
        assert_allclose(history.edges["budget"], run["budget"], rtol=1e-9)


@pytest.mark.parametrize("graph", ["ring", "cluster", "star"])
@pytest.mark.parametrize("coupling", COUPLINGS)
def test_every_rule_has_its_turn(graph, coupling):
    """So that the comparison above means something.

    Penalties are doubled, halved and left alone; some budgets grow three times, some
    edges come back, some are refused a raise.
    """
    for scheme in ("vp", "vp_ap", "vp_nap"):
        balance = busy_run(graph, scheme, coupling, "midpoint")["balance"][: T_MAX - 1]
        assert set(np.unique(balance)) == {0.5, 1.0, 2.0}
    for scheme in ("nap", "vp_nap"):
        run = busy_run(graph, scheme, coupling, "midpoint")
        start = np.full_like(run["budget"][:1], BUSY.budget0)
        budget = np.concatenate([start, run["budget"]])
        blocked = run["spent"] >= budget[:-1]
        raised = np.diff(budget, axis=0) > 0
        assert raised.sum(axis=0).max() >= 3
        assert (blocked[:-1] & ~blocked[1:]).any()
        assert (blocked & ~raised).any()


MANY, FEW = (8, 7, 9, 10, 6, 6), (3, 2, 1, 3, 3, 2)
# arguments of `make_case` and changes of the settings
CORNERS = {
    "small shards": (("cluster", (1, 3, 12, 1, 2, 5)), {}),
    "small shards, own": (("cluster", (1, 3, 12, 1, 2, 5)), {"coupling": "own"}),
    "zero mean": (("ring", (3, 7, 8, 1, 6, 6), 0.5), {"zero_mean": True}),
    "far from zero": (("ring", MANY, 1e4, 1e4 + 1, 1e-2), {}),
    "far from the start": (("ring", MANY, 100.0, 0.0, 1e-2), {}),
    "few and far from zero": (("ring", FEW, 1e4, 1e4 + 1, 1e-2), {}),
    "few and far from the start": (("ring", FEW, 100.0, 0.0, 1e-2), {}),
    "pair": (("pair",), {}),
    "alone": (("alone",), {}),
}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("corner", CORNERS)
def test_library_follows_the_reference_into_corners(scheme, corner):
    given, changes = CORNERS[corner]
    case, settings = make_case(*given), change(BUSY, **changes)
    run = follow(case, scheme, settings)

    for t in (1, LAST):
        assert_same(solve(case, scheme, settings, t), run, t)


@pytest.mark.parametrize("scheme", ["nap", "vp_nap"])
@pytest.mark.parametrize("coupling", COUPLINGS)
def test_no_budget_grows_in_the_first_iteration(scheme, coupling):
    """There is no objective before the first, so no change that could count."""
    case = make_case("cluster")
    settings = change(
        BUSY, coupling=coupling, budget0=0.4, budget_decay=0.95, budget_trigger=0.0
    )
    run = follow(case, scheme, settings)
    blocked = run["spent"][0] >= settings.budget0

    assert blocked.any()
    assert (run["budget"][0] == settings.budget0).all()
    assert (run["budget"][1][blocked] > settings.budget0).all()
    result = solve(case, scheme, settings, LAST, record_edges=True)
    assert_allclose(result.history.edges["budget"], run["budget"], rtol=1e-9)
    assert_same(result, run, LAST)
