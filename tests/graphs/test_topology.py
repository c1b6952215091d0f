"""Graphs: their shape, their files, and what is said about bad ones."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dadmm.core.errors import TopologyError
from dadmm.graphs import topology as topologies
from dadmm.graphs.measures import diameter_range, distances
from dadmm.graphs.topology import GRAPHS, Topology, build

FILES = Path(__file__).parents[2] / "topologies"
SIZES = [1, 2, 3, 4, 5, 7, 12, 20, 23]


def two_cliques(n):
    """Return the paper's cluster, made by networkx."""
    graph = nx.disjoint_union(nx.complete_graph(n // 2), nx.complete_graph(n - n // 2))
    graph.add_edges_from([(n // 2 - 1, n // 2)] if n > 1 else [])
    return graph


REFERENCES = {
    "complete": nx.complete_graph,
    "ring": lambda n: nx.cycle_graph(n) if n > 2 else nx.path_graph(n),
    "cluster": two_cliques,
    "star": lambda n: nx.star_graph(n - 1),
    "chain": nx.path_graph,
}


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", REFERENCES)
def test_named_graphs_are_those_of_networkx(name, n):
    assert nx.utils.graphs_equal(build(name, n).to_graph(), REFERENCES[name](n))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", GRAPHS)
def test_arrays_describe_the_same_graph(name, n):
    topology = build(name, n, seed=3)
    graph = topology.to_graph()
    edges = topology.edges

    assert topology.n_nodes == len(topology) == n
    assert topology.diameter == nx.diameter(graph)
    assert edges.shape == (2 * graph.number_of_edges(), 2)
    assert edges.dtype == np.int64
    assert_array_equal(topology.degrees, [graph.degree[i] for i in range(n)])
    assert [tuple(edge) for edge in edges] == sorted(nx.DiGraph(graph).edges)
    assert_array_equal(edges[topology.reverse], edges[:, ::-1])
    for i in range(n):
        own = edges[topology.indptr[i] : topology.indptr[i + 1]]
        assert_array_equal(own[:, 1], topology.neighbours[i])
        assert (own[:, 0] == i).all()


def connected_graphs(number, most_nodes):
    """Yield connected random networkx graphs, sparse ones and dense ones."""
    rng = np.random.default_rng(1)
    while number:
        n = int(rng.integers(2, most_nodes))
        share = rng.uniform(0.5, 5) / n
        graph = nx.gnp_random_graph(n, share, seed=int(rng.integers(1 << 30)))
        largest = graph.subgraph(max(nx.connected_components(graph), key=len))
        if len(largest) > 1:
            yield nx.convert_node_labels_to_integers(largest)
            number -= 1


def test_arrays_of_random_graphs_are_those_of_networkx():
    for graph in connected_graphs(30, 90):
        topology = Topology.from_graph(graph)
        matrix = nx.to_scipy_sparse_array(graph, nodelist=range(len(graph)))
        matrix.sort_indices()

        assert_array_equal(topology.indptr, matrix.indptr)
        assert_array_equal(topology.indices, matrix.indices)
        assert_array_equal(topology.edges[:, 0], topology.sources)
        assert_array_equal(topology.sources[topology.reverse], topology.indices)
        assert_array_equal(topology.reverse[topology.reverse], range(len(matrix.data)))
        found = distances(topology.indptr, topology.indices, 1)
        paths = nx.single_source_shortest_path_length(graph, 1)
        assert_array_equal(found, [paths[i] for i in range(len(graph))])


@pytest.mark.parametrize("words", [1, 2**22])
def test_the_bound_is_between_the_diameter_and_twice_of_it(words, monkeypatch):
    """Without a limit of work it is the diameter, in one piece or in many."""
    monkeypatch.setattr("dadmm.graphs.measures.WORDS", words)
    for graph in connected_graphs(40, 300):
        topology, exact = Topology.from_graph(graph), nx.diameter(graph)
        assert topology.diameter == topology.diameter_bound == exact
        for most in (0, 5e3, 1e5, np.inf):
            low, high = diameter_range(topology.indptr, topology.indices, most)
            assert low <= exact <= high <= 2 * exact
        assert low == high


@pytest.mark.parametrize("name", ["complete", "ring", "star", "chain", "grid"])
def test_closed_forms_are_the_diameter(name):
    for n in [*range(2, 70), 90, 91, 99, 100, 101, 120]:
        topology = build(name, n)
        assert topology.diameter == topology.diameter_bound
        searched = diameter_range(topology.indptr, topology.indices, np.inf)
        assert searched == (topology.diameter, topology.diameter)


def test_large_graphs_have_a_bound():
    ring, grid = Topology.ring(100_000), Topology.grid(100_000)
    spread = Topology.random_geometric(20_000, seed=1)
    numbers = np.random.default_rng(0).permutation(100_000)
    path = Topology.from_edges(100_000, np.column_stack([numbers[1:], numbers[:-1]]))

    assert (ring.diameter_bound, grid.diameter_bound) == (50_000, 631)
    assert path.diameter == 99_999
    low, high = diameter_range(spread.indptr, spread.indices, 0)
    assert low <= spread.diameter == spread.diameter_bound <= high < 1.1 * low


@pytest.mark.parametrize("n", [2, 30, 300])
@pytest.mark.parametrize("radius", [None, 2.0, 0.4, 0.01, 0.0, -1.0, np.nan, np.inf])
def test_points_near_by_are_the_same_from_a_tree(n, radius, monkeypatch):
    def either():
        try:
            return Topology.random_geometric(n, radius, seed=4)
        except TopologyError as error:
            return str(error)

    whole = either()
    monkeypatch.setattr(topologies, "FEW_POINTS", 1)
    assert either() == whole


def test_too_many_near_points_are_refused():
    with pytest.raises(TopologyError, match=r"about 2416[0-9]{6} edges, and at most"):
        Topology.random_geometric(100_000, 0.5)


def test_neighbours_are_a_sequence_of_tuples():
    star = Topology.star(4)

    assert list(star.neighbours) == [(1, 2, 3), (0,), (0,), (0,)]
    assert star.neighbours[-1] == (0,)
    assert star.neighbours[:2] == ((1, 2, 3), (0,))
    assert repr(star.neighbours) == "((1, 2, 3), (0,), (0,), (0,))"
    assert star.neighbours == Topology.star(4).neighbours != Topology.ring(4).neighbours
    assert star.neighbours != 1
    with pytest.raises(IndexError):
        star.neighbours[4]


def test_random_graphs_agree_with_networkx_on_connection_and_diameter():
    rng = np.random.default_rng(0)
    taken = 0
    for _ in range(200):
        n = int(rng.integers(2, 12))
        graph = nx.gnp_random_graph(n, 0.35, seed=int(rng.integers(1 << 30)))
        if nx.is_connected(graph):
            topology = Topology.from_graph(graph)
            assert topology.diameter == nx.diameter(graph)
            taken += 1
        else:
            with pytest.raises(TopologyError, match=r"no neighbours|not connected"):
                Topology.from_graph(graph)
    assert 50 < taken < 150


def test_equal_graphs_are_equal_and_hash_alike():
    once = Topology.from_edges(3, [(0, 1), (1, 2)])
    messy = Topology.from_edges(3, np.array([[2, 1], [1, 0], [0, 1], [1, 2]]))

    assert once == messy == Topology([0, 1, 3, 4], [1, 0, 2, 1])
    assert hash(once) == hash(messy)
    assert once != Topology.complete(3)
    assert repr(once) == "<Topology of 3 nodes, 2 edges>"


def test_a_topology_cannot_be_changed():
    topology = Topology.ring(4)

    with pytest.raises(AttributeError):
        topology.neighbours = ()
    for name in ("indptr", "indices", "degrees", "sources", "edges", "reverse"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(topology, name)[0] = 1


@pytest.mark.parametrize(("n", "rows", "columns"), [(20, 5, 4), (12, 4, 3), (9, 3, 3)])
def test_grids_are_as_square_as_can_be(n, rows, columns):
    """A number with near equal factors is a full rectangle."""
    rectangle = nx.convert_node_labels_to_integers(nx.grid_2d_graph(rows, columns))

    assert nx.utils.graphs_equal(Topology.grid(n).to_graph(), rectangle)


@pytest.mark.parametrize("builder", [Topology.random_geometric, Topology.erdos_renyi])
def test_random_graphs_follow_their_seed(builder):
    graphs = [builder(20, seed=seed) for seed in range(50)]

    assert graphs == [builder(20, seed=seed) for seed in range(50)]
    assert len(set(graphs)) == 50


def test_a_wider_radius_only_adds_edges():
    few, many = (Topology.random_geometric(30, r, seed=1) for r in (0.5, 0.7))

    assert set(map(tuple, few.edges)) < set(map(tuple, many.edges))
    assert Topology.random_geometric(30, 1.5) == Topology.complete(30)


@pytest.mark.parametrize("builder", [Topology.random_geometric, Topology.erdos_renyi])
def test_too_sparse_a_random_graph_is_told_what_would_do(builder):
    """The level in the sentence connects the graph, a little less does not."""
    with pytest.raises(TopologyError, match="seed=7 leaves the graph of 20") as caught:
        builder(20, 0.01, seed=7)
    enough = float(str(caught.value).split("at least ")[1].split()[0])

    assert len(builder(20, enough, seed=7)) == 20
    with pytest.raises(TopologyError, match="disconnected"):
        builder(20, enough - 2e-4, seed=7)


@pytest.mark.parametrize(
    ("n", "edges", "sentence"),
    [
        (3, [(0, 1), (1, 2), (2, 2)], r"node 2 is its own .* self loop \(2, 2\)"),
        (3, [(0, 1)], "node 2 has no neighbours"),
        (2, [], "node 0 has no neighbours"),
        (4, [(0, 1), (2, 3)], "not connected: no path .* node 0 to node 2"),
        (3, [(1, 2), (2, 3)], r"edge \(2, 3\) leaves the nodes 0..2; number the 3"),
        (2, [(0, -1)], r"edge \(0, -1\) leaves the nodes 0..1"),
        (0, [], "at least one node, got 0"),
        (2, [(0.0, 1.0)], r"pairs of integers, got shape \(1, 2\) and type float64"),
        (2, [("a", "b")], "pairs of integers"),
        (2, [(0, 1, 5)], r"pairs of integers, got shape \(1, 3\)"),
        (3, [(0, 1), (1, 2, 3)], "rows of unequal length"),
    ],
)
def test_bad_edges_get_one_sentence(n, edges, sentence):
    with pytest.raises(TopologyError, match=sentence) as caught:
        Topology.from_edges(n, edges)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("indptr", "indices"),
    [
        ([0, 1, 1], [1]),
        ([0, 2, 4], [1, 1, 0, 0]),
        ([0, 2, 3, 4], [2, 1, 0, 0]),
        ([0, 1, 2], [1, 2]),
        ([0, 1, 2], [1, -2]),
        ([0, 1, 3], [1, 0]),
        ([0, 3, 2], [1, 0]),
        ([1, 1, 2], [1, 0]),
    ],
)
def test_arrays_must_be_sorted_and_hold_edges_in_both_directions(indptr, indices):
    with pytest.raises(TopologyError, match=r"directions; use Topology.from_edges"):
        Topology(indptr, indices)


@pytest.mark.parametrize("kind", [nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph])
def test_directions_and_parallel_edges_are_merged(kind):
    graph = kind([(0, 1), (1, 0), (1, 2), (2, 0)])

    assert Topology.from_graph(graph) == Topology.complete(3)


@pytest.mark.parametrize("label", ["a", 7, (0, 1), -1])
def test_other_labels_are_sent_to_networkx(label):
    graph = nx.Graph([(0, 1), (1, label)])

    with pytest.raises(TopologyError, match="convert_node_labels_to_integers"):
        Topology.from_graph(graph)
    assert Topology.from_graph(nx.convert_node_labels_to_integers(graph)).diameter == 2


@pytest.mark.parametrize("suffix", [".edges", ".edgelist", ".txt"])
@pytest.mark.parametrize("name", GRAPHS)
def test_a_written_graph_is_read_back(tmp_path, name, suffix):
    for n in (1, 2, 20):
        topology = build(name, n)
        topology.write(tmp_path / f"graph{suffix}")
        assert Topology.read(tmp_path / f"graph{suffix}") == topology


@pytest.mark.parametrize("dtype", [bool, np.int8, np.float64])
def test_adjacency_matrices_are_read(tmp_path, dtype):
    np.save(tmp_path / "a.npy", nx.to_numpy_array(nx.star_graph(4)).astype(dtype))

    assert Topology.read(tmp_path / "a.npy") == Topology.star(5)


def test_graphml_is_read(tmp_path):
    """Node labels that are no numbers are named."""
    nx.write_graphml(nx.cycle_graph(12), tmp_path / "ring.graphml")
    nx.write_graphml(nx.Graph([("n0", "n1")]), tmp_path / "g.graphml")

    assert Topology.read(tmp_path / "ring.graphml") == Topology.ring(12)
    with pytest.raises(TopologyError, match=r"g\.graphml: node label 'n0'"):
        Topology.read(tmp_path / "g.graphml")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("0 1 0.5\n", "line 1 is '0 1 0.5', .* no weights"),
        ("# fine\n\n0 one\n", "line 3 is '0 one', not two node numbers"),
        ("0 1\n1 -2\n", "line 2 is '1 -2'"),
        ("1 2\n2 3\n3 1\n", r"edge \(2, 3\) leaves the nodes 0..2"),
        ("0 1\n2\n", "node 2 has no neighbours"),
        ("# nothing\n", "at least one node, got 0"),
    ],
)
def test_bad_edge_lists_get_one_sentence(tmp_path, text, sentence):
    file = tmp_path / "bad.edges"
    file.write_text(text)

    with pytest.raises(TopologyError, match=rf"bad\.edges: .*{sentence}"):
        Topology.read(file)


@pytest.mark.parametrize(
    ("matrix", "sentence"),
    [
        (np.zeros((2, 3)), r"square, .* shape \(2, 3\)"),
        (np.zeros(4), r"square, .* shape \(4,\)"),
        (np.array([[0, 0.5], [0.5, 0]]), "0 and 1 only, and no weights"),
        (np.array([[0, 1], [0, 0]]), r"symmetric, but entry \(0, 1\) differs"),
        (np.ones((2, 2)), "node 0 is its own neighbour"),
        (np.array([[None]]), "not valid .npy"),
    ],
)
def test_bad_matrices_get_one_sentence(tmp_path, matrix, sentence):
    """Pickled ones included, which are not opened."""
    np.save(tmp_path / "bad.npy", matrix)

    with pytest.raises(TopologyError, match=rf"bad\.npy: .*{sentence}"):
        Topology.read(tmp_path / "bad.npy")


@pytest.mark.parametrize("suffix", ["edges", "graphml", "npy"])
def test_broken_files_get_one_sentence(tmp_path, suffix):
    (tmp_path / "empty").with_suffix(f".{suffix}").touch()
    (tmp_path / "noise").with_suffix(f".{suffix}").write_bytes(b"\xff\x00\n<a>" * 9)
    (tmp_path / "folder").with_suffix(f".{suffix}").mkdir()

    for name in ("empty", "noise", "folder", "missing"):
        with pytest.raises(TopologyError, match=rf"{name}\.{suffix}: ") as caught:
            build(str(tmp_path / f"{name}.{suffix}"))
        assert "\n" not in str(caught.value)
        assert "Errno" not in str(caught.value)


def test_a_file_must_fit_the_run():
    ring = str(FILES / "ring20.edges")

    assert build(ring) == build(ring, 20) == build("ring", 20)
    with pytest.raises(TopologyError, match=r"20 nodes but the run has 3; use -n 20 "):
        build(ring, 3)


def test_unknown_graphs_and_missing_numbers_are_refused(tmp_path):
    with pytest.raises(TopologyError, match=r"'rnig'; choose .* ring, .* path of a"):
        build("rnig", 5)
    with pytest.raises(TopologyError, match=r"is not a graph file; use one of \.edges"):
        build(str(tmp_path), 5)
    with pytest.raises(TopologyError, match="needs a number of nodes; give --nodes"):
        build("ring")


@pytest.mark.parametrize("file", sorted(FILES.glob("*.edges")), ids=lambda f: f.stem)
def test_files_of_the_paper_are_the_named_graphs(file):
    name = file.stem.rstrip("0123456789")

    assert Topology.read(file) == build(name, int(file.stem.removeprefix(name)))


@pytest.mark.parametrize("name", GRAPHS)
def test_no_graph_has_no_nodes(name):
    for n in (0, -1):
        with pytest.raises(TopologyError, match=f"at least one node, got {n}"):
            build(name, n)


def test_only_edge_lists_are_written(tmp_path):
    with pytest.raises(TopologyError, match=r"\.edges or \.txt, not .*g\.graphml"):
        Topology.ring(3).write(tmp_path / "g.graphml")
