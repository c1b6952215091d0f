"""`snap`: its equations, its bound, and what both ends of an edge agree on."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dadmm import Topology
from dadmm.admm.mail import Mail
from dadmm.core.errors import ProblemError
from dadmm.graphs.incidence import Incidence
from dadmm.penalty import SCHEMES, SNAP
from dadmm.penalty.schemes import spectral_ratio
from dadmm.problems import PPCA
from tests.support import reference
from tests.support.problems import quadratics, samples
from tests.support.solving import solve

KEYS = ("eta", "spent", "budget", "raised", "used_up")


def wander(seed, n_edges=20, n=40, size=3):
    """Return sequences that shrink, grow, stand still or move on one side only."""
    rng = np.random.default_rng(seed)
    steps = rng.standard_normal((2, n, n_edges, size))
    steps *= np.exp(rng.normal(0, 3, (2, 1, n_edges, 1)))
    steps *= np.exp(np.arange(n)[:, None, None] * rng.uniform(-0.4, 0.2, (n_edges, 1)))
    steps[rng.random((2, n, n_edges)) < 0.1] = steps[:, 0] = 0.0
    return steps.cumsum(axis=1)


def follow(scheme, anchors, multipliers):
    """Return the states (t, E) of all updates; rows of the sequences are (E, size)."""
    n_edges = anchors.shape[1]
    state = scheme.init(Incidence(np.array([n_edges])), np.full(n_edges, 2.0))
    states = [scheme.start(state, state["eta"], anchors[0], multipliers[0])]
    for k, (z, y) in enumerate(zip(anchors, multipliers, strict=True)):
        obs = SimpleNamespace(t=3 * k, anchors=z, multipliers=y)
        with np.errstate(all="ignore"):  # as in a run
            states += [scheme.update(states[-1], obs)] if k else []
    return {name: np.array([state[name] for state in states]) for name in KEYS}


BUDGETS = [
    (32.0, 0.5, 0.01), (5.0, 0.5, 0.1), (1.0, 0.9, 0.0), (1e-300, 0.5, 0.0),
    (0.0, 0.5, 0.0), (2.0, 0.0, 0.0), (2.0, 0.5, math.inf),
]  # fmt: skip


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize(("seed", "first", "scale"), [(0, 0.0, 1e-9), (2, 3.0, 1.0)])
def test_an_edge_is_adapted_as_by_the_plain_reference_and_its_total_is_bounded(
    budget, seed, first, scale
):
    budget0, decay, trigger = budget
    scheme = SNAP(budget0=budget0, budget_decay=decay, budget_trigger=trigger)
    z, y = scale * wander(seed)
    y += first
    found = follow(scheme, z, y)

    for e in range(z.shape[1]):
        edge = reference.start_edge(2.0, budget0)
        for k in range(1, len(z)):
            now, old = (z[k, e], y[k, e]), (z[k - 1, e], y[k - 1, e])
            reference.adapt_edge(edge, *now, *old, *budget)
            for name in KEYS:
                assert_allclose(found[name][k, e], edge[name], 1e-9, 1e-300)
    assert np.all(found["spent"] <= found["budget"] * (1 + 1e-15))
    assert np.all(found["budget"] <= budget0 / (1 - decay) * (1 + 1e-15))
    bits = np.abs(np.diff(np.log2(found["eta"]), axis=0)).sum(axis=0)
    assert_allclose(bits, found["spent"][-1], rtol=1e-9, atol=1e-12)
    assert trigger > 0.0 or budget0 > 5.0 or found["raised"].max() > 0


@pytest.mark.parametrize("size", [0.0, 1.0, 1e9])
def test_noise_has_no_spectral_ratio(size):
    whole, quiet, loud = (np.full(1, size * x) for x in (1.0, 0.5e-13, 2e-13))

    assert np.isnan(spectral_ratio(quiet, quiet, whole, whole))
    for turn, way in [(quiet, loud), (loud, quiet), (loud, loud)] if size else ():
        assert spectral_ratio(turn, way, whole, whole) == turn / way


@pytest.fixture
def poison(monkeypatch):
    """Return a function that spoils the penalty in all messages but the first."""
    read = Mail.read

    def spoil(mail, turn):
        read(mail, turn)
        mail.inbox.eta[:] = mail.outbox.eta[:] = math.nan

    return lambda: monkeypatch.setattr(Mail, "read", spoil)


PPCAS = [PPCA(samples(15, 7, seed), 2) for seed in range(6)]


@pytest.mark.parametrize(
    ("problems", "coordinates"),
    [(quadratics(6, size=5), "raw"), (PPCAS, "raw"), (PPCAS, "auto")],
)
@pytest.mark.parametrize("graph", [Topology.ring(6), Topology.cluster(6)])
@pytest.mark.parametrize("scheme", ["snap", "global_balance"])
def test_both_ends_agree_bit_for_bit_without_a_message(
    scheme, graph, problems, coordinates, poison
):
    etas = []

    def watch(t, run):
        etas.append(run.by_edge(run.state.eta))
        rows = run.by_edge(run.state.multipliers)
        kept = {"eta": run.state.eta} | run.state.penalty
        for name in {*KEYS, "largest_move"} & set(kept):
            both = run.by_edge(kept[name])
            assert_array_equal(both, both[graph.reverse], err_msg=name)
        assert_array_equal(rows, -rows[graph.reverse])

    given = {"scheme": scheme, "coordinates": coordinates, "init": "independent"}
    given |= {"max_iter": 40, "tolerance": 0, "callbacks": [watch]}
    poison()
    solve(problems, graph, **given)

    assert len(np.unique(etas[39])) > 1 or scheme == "global_balance"
    assert len(np.unique(etas)) > 1 or coordinates == "auto"  # they do move


@pytest.mark.parametrize("name", SCHEMES)
def test_only_schemes_that_couple_read_the_penalty_of_a_message(name, poison):
    poison()
    given = {"scheme": name, "max_iter": 5, "tolerance": 0}
    if SCHEMES[name]().couples:
        with pytest.raises(ProblemError):
            solve(quadratics(6), Topology.ring(6), **given)
        given["coupling"] = "own"
    solve(quadratics(6), Topology.ring(6), **given)
