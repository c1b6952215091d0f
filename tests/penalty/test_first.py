"""The first penalty of an edge: numbers of the graph, curvature, and agreement."""

from __future__ import annotations

import math

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dadmm import Topology
from dadmm.admm.first import curvature
from dadmm.graphs import measures as gap
from dadmm.penalty import SCHEMES, build
from dadmm.problems import PPCA, LeastSquares
from tests.support.problems import quadratics, random_graph
from tests.support.reference_snap import first_penalties
from tests.support.solving import solve

GRAPHS = {
    "one": Topology.from_edges(1, []),
    "pair": Topology.chain(2),
    "complete": Topology.complete(9),
    "star": Topology.star(8),
    "chain": Topology.chain(12),
    "ring": Topology.ring(11),
    "even ring": Topology.ring(10),
    "cluster": Topology.cluster(10),
    "random": random_graph(np.random.default_rng(3), 30),
}
ALL = {name: np.arange(len(graph.edges)) for name, graph in GRAPHS.items()}


def shared(topology):
    """Return the common neighbours of the ends of each edge, by networkx."""
    graph = topology.to_graph()
    ends = topology.edges.tolist()
    return [len(list(nx.common_neighbors(graph, i, j))) for i, j in ends]


@pytest.mark.parametrize("dense", [gap.MOST_DENSE, 0])
@pytest.mark.parametrize("chunk", [gap.CHUNK, 7])
@pytest.mark.parametrize("name", GRAPHS)
def test_common_neighbours_are_those_of_networkx(name, chunk, dense, monkeypatch):
    monkeypatch.setattr(gap, "MOST_DENSE", dense)
    monkeypatch.setattr(gap, "CHUNK", chunk)
    topology, want = GRAPHS[name], np.array(shared(GRAPHS[name]), dtype=float)

    assert_array_equal(gap.common_neighbours(topology, ALL[name]), want)
    some = ALL[name][1::3][::-1]  # those of a rank, in its own order
    assert_array_equal(gap.common_neighbours(topology, some), want[some])


def by_diameter(diameter):
    """Return the estimate of large graphs."""
    return np.sqrt(1.0 + (diameter / 3.2) ** 2)


def by_eigenvalues(topology):
    """Return the slowness from all eigenvalues of the random walk."""
    graph = topology.to_graph()
    walk = nx.to_numpy_array(graph, nodelist=range(len(topology)))
    second = np.sort(np.linalg.eigvals(walk / walk.sum(1, keepdims=True)).real)[-2]
    return 1 / math.sqrt(1 - max(second, 0.0) ** 2)


LARGE = {  # by Lanczos' method
    "random 520": random_graph(np.random.default_rng(5), 520),
    "cluster 502": Topology.cluster(502),
}


@pytest.mark.parametrize("name", [*list(GRAPHS)[2:], *LARGE])
def test_slowness_is_that_of_the_second_eigenvalue(name):
    graph, rtol = (GRAPHS | LARGE)[name], 0.01 if name in LARGE else 1e-9

    assert_allclose(gap.slowness(graph), by_eigenvalues(graph), rtol=rtol)


def test_of_more_than_5000_nodes_it_is_by_the_diameter():
    """Within a fifth of the exact value on rings and chains, and 1 at one edge."""
    for make, n in ((Topology.ring, 6000), (Topology.chain, 6000)):
        topology = make(n)
        found = gap.slowness(topology)
        assert found == by_diameter(topology.diameter_bound)
        small = make(301)
        exact = by_eigenvalues(small)
        assert_allclose(by_diameter(small.diameter_bound), exact, rtol=0.2)
    assert gap.slowness(Topology.star(5001)) == by_diameter(2)


def first(problems, topology, **settings):
    """Return the penalties of iteration 1, (E,), and the state of the scheme."""
    kept = {}

    def watch(t, run):
        names = ("eta0", "guessed")
        kept.update({name: run.by_edge(run.state.penalty[name]) for name in names})

    given = {"max_iter": 1, "tolerance": 0, "callbacks": [watch]}
    result = solve(problems, topology, **given | settings)
    means = np.bincount(topology.sources, kept["eta0"]) / topology.degrees
    assert_allclose(result.history["eta"][0], means)  # those that were used
    return kept["eta0"], kept["guessed"]


@pytest.mark.parametrize("graph", ["star", "cluster", "complete"])
def test_the_first_penalties_are_those_of_the_plain_reference(graph):
    """The curvature of an end, times a number of the graph."""
    problems, topology = quadratics(6), getattr(Topology, graph)(6)
    theta0 = np.random.default_rng(0).standard_normal((6, 2))
    bends = [curvature(p, x) for p, x in zip(problems, theta0, strict=True)]
    around = [list(topology.neighbours[i]) for i in range(6)]
    want = first_penalties(around, bends)

    eta0, guessed = first(problems, topology, init=theta0)

    assert_allclose(eta0, [want[i, j] for i, j in topology.edges.tolist()], rtol=1e-12)
    assert not guessed.any()


def test_an_edge_is_a_guess_only_if_both_ends_know_no_curvature():
    """Nodes 0 and 1 of a chain start where they are optimal."""
    problems, topology = quadratics(4), Topology.chain(4)
    theta0 = np.array([problem.b for problem in problems])
    theta0[2:] += 1.0

    eta0, guessed = first(problems, topology, init=theta0)

    is_first = np.array([{0, 1} == set(edge) for edge in topology.edges.tolist()])
    assert_array_equal(guessed.astype(bool), is_first)
    assert_array_equal(eta0[is_first], [10.0, 10.0])
    assert np.all(eta0[~is_first] != 10.0)


ROWS = np.random.default_rng(0).standard_normal((5, 12, 3))
PPCAS = [PPCA(X + X[:, :1], 1) for X in ROWS]
LINEAR = [LeastSquares(X, X[:, 0] ** 2) for X in ROWS]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    ("problems", "coordinates", "init"),
    [
        (PPCAS, "raw", "shared"),
        (PPCAS, "units", "shared"),
        (PPCAS, "units", "merged"),
        (LINEAR, "raw", None),
        (LINEAR, "metric", None),
    ],
)
def test_eta0_is_the_users_if_given_and_else_that_of_the_coordinates(
    scheme, problems, coordinates, init
):
    """In chosen coordinates of the graph and curvature, in raw ones the paper's 10."""
    given = {"scheme": scheme, "coordinates": coordinates, "init": init}
    ring = Topology.ring(5)

    eta0, guessed = first(problems, ring, eta0=0.7, **given)
    assert_array_equal(eta0, np.full(10, 0.7))
    assert not guessed.any()
    eta0, _ = first(problems, ring, **given)
    measured, guessed = first(problems, ring, **given, eta0="auto")
    assert not guessed.any()
    if coordinates == "raw" and scheme != "snap":
        assert_array_equal(eta0, np.full(10, 10.0))
    else:
        assert_array_equal(eta0, measured)
    if coordinates == "metric":  # the mean curvature is one
        want = 0.25 * gap.slowness(ring)
        assert_allclose(eta0, np.full(10, want), rtol=1e-12)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_relaxation_is_that_of_the_coordinates_unless_told(scheme):
    plain, own = build(scheme), build(scheme, relaxation=1.2)
    raw = 1.6 if scheme == "snap" else 1.0

    assert plain.alpha == raw
    assert (plain.settled(True).alpha, plain.settled(False).alpha) == (1.6, raw)
    assert (own.settled(True).alpha, own.settled(False).alpha) == (1.2, 1.2)
