"""The first penalty of an edge, also beside `admm/test_reference.py`."""

import math

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dadmm import Topology
from dadmm.graphs import measures
from dadmm.penalty import SCHEMES, build
from dadmm.problems import PPCA, LeastSquares
from tests.support.problems import quadratics, random_graph
from tests.support.solving import solve

GRAPHS = [
    Topology.from_edges(1, []),
    Topology.chain(2),
    Topology.complete(9),
    Topology.star(8),
    Topology.ring(10),
    Topology.cluster(10),
    random_graph(np.random.default_rng(3), 30),
]
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


def by_eigenvalues(topology):
    """Return the slowness from all eigenvalues of the random walk."""
    walk = nx.to_numpy_array(topology.to_graph(), nodelist=range(len(topology)))
    second = np.sort(np.linalg.eigvals(walk / walk.sum(1, keepdims=True)).real)[-2]
    return 1 / math.sqrt(1 - max(second, 0.0) ** 2)


@pytest.mark.parametrize("graph", GRAPHS[2:] + LARGE)
def test_slowness_is_that_of_the_second_eigenvalue(graph):
    """Of large graphs nearly, by Lanczos' method."""
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
    kept = {}

    def watch(t, run):
        names = ("eta0", "guessed")
        kept.update({name: run.by_edge(run.state.penalty[name]) for name in names})

    given = {"max_iter": 1, "tolerance": 0, "callbacks": [watch]}
    result = solve(problems, topology, **given | settings)
    means = np.bincount(topology.sources, kept["eta0"]) / topology.degrees
    assert_allclose(result.history["eta"][0], means)  # those that were used
    return kept["eta0"], kept["guessed"]


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
    raw = 1.6 if scheme == "snap" else 1.0
    for given, want in (({}, (raw, 1.6, raw)), ({"relaxation": 1.2}, (1.2,) * 3)):
        own = build(scheme, **given)
        assert (own.alpha, own.settled(True).alpha, own.settled(False).alpha) == want
