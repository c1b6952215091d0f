"""What schemes promise, their settings, the first penalty of an edge, and `snap`."""

import math
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import dadmm
from dadmm import Topology
from dadmm.admm.mail import Mail
from dadmm.core.errors import ProblemError
from dadmm.core.linalg import EPS
from dadmm.graphs import measures
from dadmm.graphs.incidence import Incidence
from dadmm.penalty import SCHEMES, SNAP, equations
from dadmm.penalty.schemes import Observation, spectral_ratio
from dadmm.problems import PPCA, LeastSquares
from tests.support import reference
from tests.support.problems import quadratics, random_graph
from tests.support.runs import run_of
from tests.support.solving import solve

ONES = np.ones(6)  # for each edge of a ring of three


def build(name, **settings):
    return dadmm.penalty.build(name, **{"eta0": 10.0} | settings)


@pytest.fixture(params=SCHEMES)
def scheme(request):
    return build(request.param)


def wander(seed, degree=3, n=80, size=4):
    """Yield what a node observes: random numbers, by as much as a factor of 1e6.

    One residual is mostly the larger: the primal one if the seed is even.
    """
    rng = np.random.default_rng(seed)
    own, incidence = rng.normal(size=n + 1).cumsum(), Incidence(np.array([degree]))
    for t in range(1, n + 1):
        far = np.exp(3 * rng.normal(size=(4, degree, 1)))
        rows = far * rng.normal(size=(4, degree, size))
        theta, centre = rng.normal(size=(2, 1, size))
        primal, dual = np.exp(4 * rng.normal(size=(2, 1)))
        probes, more = own[t] + rng.normal(size=degree), np.exp(rng.normal(size=1))
        every = np.append(own[t], probes)
        yield Observation(
            t=t, incidence=incidence, objective=own[t : t + 1],
            previous=own[t - 1 : t] if t > 1 else np.array([math.inf]), probes=probes,
            f_min=every.min(keepdims=True), f_max=every.max(keepdims=True),
            primal=primal * 1e3 ** (1 - 2 * (seed % 2)), dual=dual, theta=theta,
            centre=centre, weight=more, sent=np.tile(theta, (degree, 1)),
            received=rows[0], anchors=rows[1], drift=rows[2], multipliers=rows[3],
            eta=np.exp(rng.normal(size=degree)),
            global_residuals=(1.0 + t % 7, 30.0 / t) if t > 1 else None,
        )  # fmt: skip


def arrays(record):
    fields = record if isinstance(record, dict) else vars(record)
    return [field for field in fields.values() if isinstance(field, np.ndarray)]


def update(scheme, state, obs):
    """Update a copy of the state, whose arrays a scheme may overwrite."""
    return scheme.update({name: array.copy() for name, array in state.items()}, obs)


@pytest.mark.parametrize("seed", range(2))
def test_a_scheme_depends_on_state_and_observation_only_and_is_bounded(scheme, seed):
    """It keeps no array of the observation; eta of `snap` is within 64 bits."""
    name, observations = dadmm.penalty.name_of(scheme), list(wander(seed))
    most = 2.0**64 if name == "snap" else 1e6
    start = scheme.init(observations[0].incidence, np.full(3, scheme.eta0))
    state, reached = scheme.start(start, start["eta"], *np.zeros((2, 3, 4))), 1.0
    for obs in observations:
        kept = [array.copy() for array in arrays(obs)]

        state, again = update(scheme, state, obs), update(scheme, state, obs)

        for array, before in zip(arrays(obs), kept, strict=True):
            assert_array_equal(array, before)
        for one, other in zip(arrays(state), arrays(again), strict=True):
            assert_array_equal(one, other)
            assert (len(one), one.dtype) == (3, np.float64)
            assert np.isfinite(one).all()
            assert not any(np.shares_memory(one, theirs) for theirs in arrays(obs))
        reached = max(reached, *(state["eta"] / 10.0), *(10.0 / state["eta"]))
    assert reached <= most * (1 + 1e-12)
    if name in ("vp", "vp_ap"):  # doubled, or halved
        assert_allclose(reached, most)


@pytest.mark.parametrize(
    "answer", [None, {}, {"eta": np.ones(1)}, {"eta": ONES, "sum": 3.0}, {"eta": -ONES}]
)
def test_a_scheme_that_returns_no_penalties_is_refused(answer):
    class Own(dadmm.penalty.Scheme):
        def update(self, state, obs):
            return answer

    with pytest.raises(dadmm.ConfigError, match="Own"):
        solve(quadratics(3), Topology.ring(3), scheme=Own())


@pytest.mark.parametrize("scale", [0.0, 1.0, -1.0, 1e-300, -1e300])
def test_objectives_that_are_equal_to_rounding_have_a_tau_of_zero(scale):
    probes = scale * np.array([1.0, 1 + 8 * EPS, 1 - 64 * EPS, 1 + 1e-13])
    both = (probes.min(keepdims=True), probes.max(keepdims=True))

    found = equations.tau(np.array([scale]), probes, *both, Incidence(np.array([4])))

    assert_array_equal(found, np.zeros(4))


def test_balance_doubles_or_halves_beyond_the_ratio():
    """Both comparisons are strict, so nothing moves at the ratio or when all is 0."""
    primal = np.array([10.1, 10.0, 1.0, 1.0, 1.0, 1e-300, 0.0, 0.0])
    dual = np.array([1.0, 1.0, 1.0, 10.0, 10.1, 0.0, 1e-300, 0.0])

    factors = equations.balance(primal, dual, 10.0)

    assert_array_equal(factors, [2.0, 1.0, 1.0, 1.0, 0.5, 2.0, 0.5, 1.0])


GRAPHS = [
    Topology.from_edges(1, []), Topology.chain(2), Topology.complete(9),
    Topology.star(8), Topology.ring(10), Topology.cluster(10),
    random_graph(np.random.default_rng(3), 30),
]  # fmt: skip
LARGE = [random_graph(np.random.default_rng(5), 520), Topology.cluster(502)]


@pytest.mark.parametrize("dense", [measures.MOST_DENSE, 0])
@pytest.mark.parametrize("chunk", [measures.CHUNK, 7])
def test_common_neighbours_are_those_of_networkx(chunk, dense, monkeypatch):
    monkeypatch.setattr(measures, "MOST_DENSE", dense)
    monkeypatch.setattr(measures, "CHUNK", chunk)
    for topology in GRAPHS:
        graph, ends = topology.to_graph(), topology.edges.tolist()
        want = np.array([len(list(nx.common_neighbors(graph, *e))) for e in ends])
        every = np.arange(len(ends))
        for rows in (every, every[1::3][::-1]):  # of all, and of a rank in its order
            found = measures.common_neighbours(topology, rows)
            assert_array_equal(found, want[rows])


def test_of_too_many_edges_they_are_those_that_a_random_graph_has(monkeypatch):
    monkeypatch.setattr(measures, "MOST_DENSE", 0)
    monkeypatch.setattr(measures, "MOST_PATHS", 0)
    found = measures.common_neighbours(Topology.complete(40), np.arange(9))
    assert_allclose(found, 38, rtol=1e-3)


def by_eigenvalues(topology):
    walk = nx.to_numpy_array(topology.to_graph(), nodelist=range(len(topology)))
    second = np.sort(np.linalg.eigvals(walk / walk.sum(1, keepdims=True)).real)[-2]
    return 1 / math.sqrt(1 - max(second, 0.0) ** 2)


@pytest.mark.parametrize("graph", GRAPHS[2:] + LARGE)
def test_slowness_is_that_of_the_second_eigenvalue(graph):
    rtol = 0.01 if graph in LARGE else 1e-9
    assert_allclose(measures.slowness(graph), by_eigenvalues(graph), rtol=rtol)


def test_of_more_than_5000_nodes_it_is_by_the_diameter():
    def by_diameter(diameter):
        return math.sqrt(1.0 + (diameter / 3.2) ** 2)

    for make in (Topology.ring, Topology.chain):
        large, small = make(6000), make(301)
        assert measures.slowness(large) == by_diameter(large.diameter_bound)
        near = by_diameter(small.diameter_bound)
        assert_allclose(near, by_eigenvalues(small), rtol=0.2)
    assert measures.slowness(Topology.star(5001)) == by_diameter(2)


def first(problems, topology, **settings):
    """Return the penalties of iteration 1, (E,), and which of them are guesses."""
    run = run_of(problems, topology, max_iter=1, tolerance=0, **settings)
    names = ("eta0", "guessed")
    eta0, guessed = (run.by_edge(run.state.penalty[name]) for name in names)
    means = np.bincount(topology.sources, eta0) / topology.degrees
    assert_allclose(run.by_node(run.work.eta_mean), means)  # those that were used
    return eta0, guessed


def test_an_edge_is_a_guess_only_if_both_ends_know_no_curvature():
    """Nodes 0 and 1 of a chain start where they are optimal."""
    problems, topology = quadratics(4), Topology.chain(4)
    theta0 = np.array([problem.b for problem in problems])
    theta0[2:] += 1.0

    eta0, guessed = first(problems, topology, init=theta0)

    is_first = np.array([{0, 1} == set(edge) for edge in topology.edges.tolist()])
    assert_array_equal(guessed.astype(bool), is_first)
    assert_array_equal(eta0 == 10.0, is_first)


ROWS = np.random.default_rng(0).standard_normal((5, 12, 3))
PPCAS = [PPCA(X + X[:, :1], 1) for X in ROWS]
LINEAR = [LeastSquares(X, X[:, 0] ** 2) for X in ROWS]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    ("problems", "coordinates", "init"),
    [(PPCAS, "raw", "shared"), (PPCAS, "units", "merged"), (LINEAR, "metric", None)],
)
def test_eta0_is_the_users_if_given_and_else_that_of_the_coordinates(
    scheme, problems, coordinates, init
):
    """In chosen coordinates of the graph and curvature, in raw ones the paper's 10."""
    given = {"scheme": scheme, "coordinates": coordinates, "init": init}
    ring = Topology.ring(5)

    assert_array_equal(first(problems, ring, eta0=0.7, **given)[0], np.full(10, 0.7))
    eta0, _ = first(problems, ring, **given)
    measured, guessed = first(problems, ring, **given, eta0="auto")
    assert not guessed.any()
    papers = coordinates == "raw" and scheme != "snap"
    assert_array_equal(eta0, np.full(10, 10.0) if papers else measured)
    if coordinates == "metric":  # the mean curvature is one
        assert_allclose(eta0, np.full(10, 0.25 * measures.slowness(ring)), rtol=1e-12)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_relaxation_is_that_of_the_coordinates_unless_told(scheme):
    seen, raw = [], 1.6 if scheme == "snap" else 1.0
    options = {
        "init": "shared", "stopping": dadmm.Stopping(tolerance=0, max_iter=1),
        "callbacks": [lambda t, run: seen.append(run.edges.alpha)],
    }  # fmt: skip
    for given in ({}, {"relaxation": 1.2}):
        own, ring = dadmm.penalty.build(scheme, **given), Topology.ring(5)
        for coordinates in ("units", "raw"):
            dadmm.solve(PPCAS, ring, scheme=own, coordinates=coordinates, **options)
    assert seen == [1.6, raw, 1.2, 1.2]


# snap: its equations, its bound, and what both ends of an edge agree on

KEYS = ("eta", "spent", "budget", "raised", "used_up")


def sequences(seed, n_edges=20, n=40, size=3):
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
    z, y = scale * sequences(seed)
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


@pytest.mark.parametrize("name", SCHEMES)
def test_only_schemes_that_couple_read_the_penalty_of_a_message(name, poison):
    poison()
    given = {"scheme": name, "max_iter": 5, "tolerance": 0}
    if SCHEMES[name]().couples:
        with pytest.raises(ProblemError):
            solve(quadratics(6), Topology.ring(6), **given)
        given["coupling"] = "own"
    solve(quadratics(6), Topology.ring(6), **given)
