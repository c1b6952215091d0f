"""The library against the plain reference, beyond t_max and through raised budgets."""

from __future__ import annotations

from dataclasses import asdict, fields
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_allclose

import dadmm
from dadmm.admm.first import curvature
from dadmm.penalty import Scheme, build
from tests.support import reference
from tests.support.reference import AGREEING, SCHEMES, Settings, Theta
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
EDGES = ("eta", "spent", "budget", "raised", "used_up")
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
    own["eta0"] = "auto" if scheme == "snap" else own["eta0"]
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
        coordinates="raw",
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
    """Its result, every row of the history, and every edge."""
    run, case = busy_run(graph, scheme, coupling, probe), make_case(graph)
    settings = change(BUSY, coupling=coupling, probe=probe)
    degrees = [len(around) for around in case.neighbours]
    starts = np.cumsum([0, *degrees[:-1]])
    eta_of_node = np.add.reduceat(run["used"], starts, axis=1) / degrees

    result = solve(case, scheme, settings, LAST, record_edges=True)

    assert_same(result, run, LAST)
    history = result.history
    wanted = {"objective": run["f"], "eta": eta_of_node}
    wanted |= {name: run[name] for name in ("primal", "dual")}
    for name, rows in wanted.items():
        assert_allclose(history[name], rows, rtol=1e-9, err_msg=name)
    for name in EDGES if scheme in ("nap", "vp_nap") else EDGES[:1]:
        assert_allclose(history.edges[name], run[name], rtol=1e-9, err_msg=name)


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
    # there is no objective before the first, so no change that could raise a budget
    "soon without budget": (
        ("cluster",), {"budget0": 0.4, "budget_decay": 0.95, "budget_trigger": 0.0}
    ),
    "pair": (("pair",), {}),
    "alone": (("alone",), {}),
}  # fmt: skip


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("corner", CORNERS)
def test_library_follows_the_reference_into_corners(scheme, corner):
    given, changes = CORNERS[corner]
    case, settings = make_case(*given), change(BUSY, **changes)
    run = follow(case, scheme, settings)

    for t in (1, LAST):
        assert_same(solve(case, scheme, settings, t), run, t)


def bends(case):
    """Return the curvature of each node's objective where it starts."""
    starts = zip(case.shards, case.theta0, strict=True)
    return tuple(
        curvature(dadmm.problems.PPCA(x, M), reference.stack(theta))
        for x, theta in starts
    )


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize(
    ("scheme", "relaxation", "budget"),
    [
        ("snap", 1.6, (0.3, 0.8, 0.3)),
        ("snap", 0.8, (32.0, 0.5, 0.01)),
        ("snap", 1.0, (0.0, 0.5, 0.0)),
        ("global_balance", 1.0, ()),
        ("fixed", 1.6, ()),
        ("vp_nap", 0.8, ()),
    ],
)
def test_beyond_the_paper_and_over_relaxed(graph, scheme, relaxation, budget):
    """Every iteration is the reference's."""
    case, n = make_case(graph), 21
    names = ("budget0", "budget_decay", "budget_trigger")
    changes = dict(zip(names, budget, strict=True)) if budget else {}
    more = {"relaxation": relaxation, "curvature": bends(case), **changes}
    settings, thetas, multipliers = change(BUSY, **more), [], []

    def keep(t, run):
        thetas.append(run.theta)
        multipliers.append(run.by_edge(run.state.multipliers))

    result = solve(case, scheme, settings, n, record_edges=True, callbacks=[keep])
    run, history = follow(case, scheme, settings, n), result.history
    want = [
        [reference.stack(Theta(*parts)) for parts in zip(*row, strict=True)]
        for row in zip(run["W"], run["mu"], run["a"], strict=True)
    ]

    for got, expected in (
        (thetas, want),
        (multipliers, run["multipliers"]),
        *((history[name], run[name]) for name in ("primal", "dual")),
        (history["objective"], run["f"]),
    ):
        expected = np.reshape(expected, np.shape(got))  # a node alone has no edges
        largest = np.abs(expected).max(initial=0.0)
        assert_allclose(got, expected, rtol=0, atol=1e-12 * largest)
    for name in EDGES if "budget0" in build(scheme).uses else EDGES[:1]:
        assert_allclose(history.edges[name], run[name], 1e-10, 1e-13, err_msg=name)
    if graph in ("ring", "cluster", "star") and scheme in AGREEING:
        assert (run["eta"] != run["eta"][0]).any() == (changes.get("budget0") != 0.0)
    if graph == "cluster" and changes.get("budget0") == 0.3:
        assert run["raised"].max() >= 2  # so that the comparison means something
        assert run["used_up"].any()
