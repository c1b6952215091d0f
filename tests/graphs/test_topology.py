"""Graphs: their shape and files, sums over edges, and graphs that take turns."""

from functools import partial
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from dadmm.core.errors import TopologyError
from dadmm.graphs import topology as topologies
from dadmm.graphs.incidence import Incidence
from dadmm.graphs.measures import diameter, distances
from dadmm.graphs.schedule import NAMED as NAMES
from dadmm.graphs.schedule import Schedule
from dadmm.graphs.topology import GRAPHS, Topology, build
from tests.support.problems import random_graph

FILES = Path(__file__).parents[2] / "topologies"
SIZES = [1, 2, 3, 4, 5, 7, 12, 20, 23, 99]


def two_cliques(n):
    graph = nx.disjoint_union(nx.complete_graph(n // 2), nx.complete_graph(n - n // 2))
    graph.add_edges_from([(n // 2 - 1, n // 2)] if n > 1 else [])
    return graph


GRIDS = {20: (5, 4), 12: (4, 3), 99: (11, 9)}  # rows and columns
REFERENCES = {
    "complete": nx.complete_graph,
    "ring": lambda n: nx.cycle_graph(n) if n > 2 else nx.path_graph(n),
    "cluster": two_cliques,
    "star": lambda n: nx.star_graph(n - 1),
    "chain": nx.path_graph,
    "grid": lambda n: nx.convert_node_labels_to_integers(nx.grid_2d_graph(*GRIDS[n])),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_named_graphs_and_their_arrays_are_those_of_networkx(name):
    sizes = () if name not in REFERENCES else GRIDS if name == "grid" else SIZES
    for n in SIZES:
        topology = build(name, n, seed=3)
        graph, edges = topology.to_graph(), topology.edges
        assert n not in sizes or nx.utils.graphs_equal(graph, REFERENCES[name](n))
        assert topology.n_nodes == len(topology) == len(graph) == n
        assert edges.shape == (2 * graph.number_of_edges(), 2)
        assert [tuple(edge) for edge in edges] == sorted(nx.DiGraph(graph).edges)
        assert_array_equal(topology.degrees, [graph.degree[i] for i in range(n)])
        assert_array_equal(edges.T, [topology.sources, topology.indices])
        assert_array_equal(edges[topology.reverse], edges[:, ::-1])
        assert topology.neighbours == tuple(tuple(sorted(graph[i])) for i in range(n))
        found = distances(topology.indptr, topology.indices, n - 1)
        paths = nx.single_source_shortest_path_length(graph, n - 1)
        assert_array_equal(found, [paths[i] for i in range(n)])
        exact = nx.diameter(graph)
        assert topology.diameter == topology.diameter_bound == exact
    for file in FILES.glob(f"{name}[0-9]*.edges"):  # of the paper
        assert Topology.read(file) == build(name, int(file.stem.removeprefix(name)))


@pytest.mark.parametrize("words", [1, 2**22])
def test_the_bound_is_between_the_diameter_and_twice_of_it(words, monkeypatch):
    """Without a limit of work it is the diameter, in one piece or in many."""
    monkeypatch.setattr("dadmm.graphs.measures.WORDS", words)
    seeds = [(0, n) for n in (2, 9, 40, 65, 94, 115, 178)] + [(142, 87)]
    for seed, n in seeds:  # of the last two, searches must go on
        topology = random_graph(np.random.default_rng([seed, n]), n)
        exact = nx.diameter(topology.to_graph())
        assert topology.diameter == topology.diameter_bound == exact
        for most in (0, 5e3, 1e5):
            assert exact <= diameter(topology, most) <= 2 * exact


def test_of_trees_rings_and_grids_the_bound_is_exact_without_work():
    ends = np.random.default_rng(0).random((2, 150)) * np.arange(150)
    graphs = [Topology.from_edges(150, [(int(i), k) for k, i in enumerate(own) if k])
              for own in ends]  # fmt: skip
    graphs += [build(name, n) for name in ("ring", "grid", "star") for n in (100, 111)]
    for topology in graphs:
        assert diameter(topology, 0) == nx.diameter(topology.to_graph())


@pytest.mark.parametrize("n", [2, 30, 300])
def test_points_near_by_are_the_same_from_a_tree(n, monkeypatch):
    def either(radius):
        try:
            return Topology.random_geometric(n, radius, seed=4)
        except TopologyError as error:
            return str(error)

    levels = (None, 2.0, 0.4, 0.01, 0.0, -1.0, np.nan, np.inf)
    whole = [either(radius) for radius in levels]
    monkeypatch.setattr(topologies, "FEW_POINTS", 1)
    assert [either(radius) for radius in levels] == whole


@pytest.mark.parametrize("builder", [Topology.random_geometric, Topology.erdos_renyi])
def test_random_graphs_follow_their_seed_and_level(builder):
    """Of one that is too sparse, the error names the least level that connects it."""
    graphs = [builder(20, seed=seed) for seed in range(50)]
    few, many = (builder(30, level, seed=1) for level in (0.5, 0.7))

    assert graphs == [builder(20, seed=seed) for seed in range(50)]
    assert len(set(graphs)) == 50
    assert set(map(tuple, few.edges)) < set(map(tuple, many.edges))
    assert builder(30, 1.5) == Topology.complete(30)
    with pytest.raises(TopologyError, match="seed=7") as caught:
        builder(20, 0.01, seed=7)
    enough = float(str(caught.value).split("at least ")[1].split()[0])
    assert len(builder(20, enough, seed=7)) == 20
    with pytest.raises(TopologyError):
        builder(20, enough - 2e-4, seed=7)


@pytest.mark.parametrize("kind", [nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph])
def test_a_topology_is_a_value(kind):
    """Directions and parallel edges are merged."""
    once = Topology.from_edges(3, [(0, 1), (1, 2)])
    messy = Topology.from_edges(3, np.array([[2, 1], [1, 0], [0, 1], [1, 2]]))
    graph = kind([(0, 1), (1, 0), (1, 2), (2, 0)])

    assert once == messy == Topology([0, 1, 3, 4], [1, 0, 2, 1])
    assert hash(once) == hash(messy)
    assert once != Topology.complete(3) == Topology.from_graph(graph)
    for name in ("indptr", "indices", "degrees", "sources", "edges", "reverse"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(once, name)[0] = 1


def placed(position):
    graph = nx.path_graph(3)
    nx.set_node_attributes(graph, {0: position, 1: (0, 1), 2: (1, 1)}, "pos")
    return graph


EDGES = [
    (3, [(0, 1), (1, 2), (2, 2)], "node 2"), (3, [(0, 1)], "node 2"), (2, [], "node 1"),
    (4, [(0, 1), (2, 3)], "node 2"), (3, [(1, 2), (2, 3)], r"\(2, 3\)"),
    (2, [(0, -1)], r"\(0, -1\)"), (0, [], "0"), (2.5, [], "2.5"),
    (2, [(0.0, 1.0)], "float64"), (2, [("a", "b")], "U1"),
    (2, [(0, 1, 5)], r"\(1, 3\)"), (3, [(0, 1), (1, 2, 3)], "unequal"),
]  # fmt: skip
ARRAYS = [  # not sorted, out of range, or not in both directions
    ([0, 1, 1], [1]), ([0, 2, 4], [1, 1, 0, 0]), ([0, 2, 3, 4], [2, 1, 0, 0]),
    ([0, 1, 2], [1, 2]), ([0, 1, 2], [1, -2]), ([0, 1, 3], [1, 0]),
    ([0, 3, 2], [1, 0]), ([1, 1, 2], [1, 0]),
]  # fmt: skip
REFUSED = [(partial(Topology.from_edges, n, edges), what) for n, edges, what in EDGES]
REFUSED += [(partial(Topology, *arrays), "from_edges") for arrays in ARRAYS]
REFUSED += [(partial(Topology.from_edges, 2, [(0, 1)], ("a", "a")), "name")]
REFUSED += [
    (partial(Topology.from_graph, placed(at)), "pos") for at in ("a", (0, 1, 2))
]
REFUSED += [(partial(build, g, n), "nodes") for g in GRAPHS for n in (0, -1, 10**9)]
REFUSED += [
    (partial(Topology.random_geometric, 100_000, 0.5), "2416"),  # millions of edges
    (partial(build, str(FILES / "ring20.edges"), 3), "-n 20"),
    (partial(build, "rnig", 5), "'rnig'"),
    (partial(build, str(FILES), 5), FILES.name),
    (partial(build, "ring"), "--nodes"),
    (partial(Topology.ring(3).write, "g.graphml"), r"g\.graphml"),
    *((partial(Topology.from_edges(1, [], [name]).write, "g.txt"), "blanks")
      for name in ("a b", "a\tb", "a#b")),
]  # fmt: skip


def test_a_graph_is_read_from_every_format(tmp_path):
    for topology in (build(name, n) for name in GRAPHS for n in (1, 2, 20)):
        for suffix in (".edges", ".edgelist", ".txt"):
            topology.write(tmp_path / f"graph{suffix}")
            assert Topology.read(tmp_path / f"graph{suffix}") == topology
    nx.write_graphml(nx.cycle_graph(12), tmp_path / "ring.graphml")
    assert Topology.read(tmp_path / "ring.graphml") == Topology.ring(12)
    for dtype in (bool, np.int8, np.float64):
        np.save(tmp_path / "a.npy", nx.to_numpy_array(nx.star_graph(4)).astype(dtype))
        assert Topology.read(tmp_path / "a.npy") == Topology.star(5)


NODES = {  # nodes.csv, beside links.csv
    "'c'": "a,0,0\nb,1,1\n",
    "'a'": "a,0,0\nb,1,1\nc,2,2\na,3,3\n",
    "one": "a,0,0\nb,1,one\nc,2,2\n",
    "finite": "a,0,0\nb,1,inf\nc,2,2\n",
    "node d": "a,0,0\nb,1,1\nc,2,2\nd,3,3\n",
}
BAD_FILES = {
    "negative.edges": ("0 1\n1 -2\n", "'-2'"),
    "far.edges": ("a b\nc d\n", "node c"),
    "short.csv": ("source,target\na,b\nc\n", "line 3"),
    "bell.csv": ("source,target\na,b\nb,\a\n", "07"),
    "from-one.edges": ("1 2\n2 3\n3 1\n", "(2, 3)"),
    "alone.edges": ("0 1\n2\n", "node 2"),
    "nothing.edges": ("# nothing\n", "0"),
    "wide.npy": (np.zeros((2, 3)), "(2, 3)"),
    "flat.npy": (np.zeros(4), "(4,)"),
    "weights.npy": (np.array([[0, 0.5], [0.5, 0]]), "0 and 1"),
    "one-way.npy": (np.array([[0, 1], [0, 0]]), "symmetric"),
    "loops.npy": (np.ones((2, 2)), "node 0"),
    "pickled.npy": (np.array([[None]]), "npy"),
    "entities.graphml": ("<!ENTITY a 'b'>", "ENTITY"),
} | {
    f"{name}.{suffix}": (data, suffix)
    for suffix in ("edges", "graphml", "npy")
    for name, data in {"empty": "", "noise": "\xff\0\n<a>" * 9, "none": None}.items()
}


def test_bad_files_are_named_in_one_sentence(tmp_path):
    for name, (content, culprit) in BAD_FILES.items():
        if isinstance(content, np.ndarray):
            np.save(tmp_path / name, content)
        elif content is not None:
            (tmp_path / name).write_bytes(content.encode("latin-1"))
        with pytest.raises(TopologyError, match=name) as caught:
            build(str(tmp_path / name))
        message = str(caught.value)
        assert culprit in message, name
        assert "\n" not in message
        assert "Errno" not in message
    (tmp_path / "links.csv").write_text("source,target\na,b\nb,c\n")
    for culprit, rows in NODES.items():
        (tmp_path / "nodes.csv").write_text(f"id,x,y\n{rows}")
        with pytest.raises(TopologyError, match=culprit):
            Topology.read(tmp_path / "links.csv")


def test_nodes_may_have_names_and_positions(tmp_path):
    """Edge lists keep the order of first appearance, nodes.csv its own order."""
    towns, positions = ("Ulm", "Bonn", "Kiel"), [[2, 1], [4, 3], [6.5, 5]]
    (tmp_path / "a.edges").write_text("Ulm Bonn 3.5 road  # far\nBonn Kiel 2 rail\n")
    links = "target;weight;source\nKiel;1;Bonn\nUlm;2;Bonn\n"
    (tmp_path / "my-links.csv").write_text(links)
    (tmp_path / "bare.csv").write_text(links)
    (tmp_path / "my-nodes.csv").write_text("id,y,x\nUlm,1,2\nBonn,3,4\nKiel,5,6.5\n")
    named = nx.path_graph(towns)
    for town, (x, y) in zip(towns, positions, strict=True):
        named.nodes[town].update(x=x, y=y)
    nx.write_graphml(named, tmp_path / "a.graphml")
    nx.write_gml(named, tmp_path / "a.gml")
    files = [path for path in tmp_path.iterdir() if "nodes" not in path.name]
    found = {path.name: Topology.read(path) for path in files}
    found["networkx"] = Topology.from_graph(named)

    assert found.pop("bare.csv").names == ("Bonn", "Kiel", "Ulm")
    for name, graph in found.items():
        assert (graph.names, graph.degrees.tolist()) == (towns, [1, 2, 1]), name
        assert name == "a.edges" or graph.positions.tolist() == positions, name
    found["a.edges"].write(tmp_path / "b.edges")
    assert Topology.read(tmp_path / "b.edges").names == towns


DEGREES = st.lists(st.integers(0, 40), min_size=1, max_size=9).map(sorted)


@given(DEGREES, st.sampled_from([0, 1, 2, 7]))  # 0 is a number for each edge
@example([*range(41)], 3)  # from 8 on numpy adds in pairs
@example([3] * 6, 2)
@example([0], 1)
def test_sums_over_edges_have_the_bits_of_one_node_alone(degrees, m):
    """Also of rows that have changed since; those of nodes without edges stay.

    What spreads gives each edge the row of its node.
    """
    degrees, shape = np.array(degrees), (m,) if m else ()
    rng, n_edges = np.random.default_rng(m), degrees.sum()
    weights, edges = np.zeros(n_edges), np.zeros((n_edges, *shape))
    ends, incidence = np.cumsum(degrees), Incidence(degrees)
    ufuncs = (np.add, np.minimum, np.maximum)
    outs = np.full((5, len(degrees), *shape), 7.0)
    calls = [ufunc.reduce for ufunc in ufuncs]
    planned = [incidence.reducer(ufuncs[k], edges, outs[k]) for k in range(3)]
    if m:
        planned.append(incidence.reducer(weights, edges, outs[3]))
        calls.append(lambda rows, axis: weights[own] @ rows)
    weights[...] = rng.normal(size=n_edges)
    edges[...] = rng.normal(size=edges.shape) * 10.0 ** rng.integers(-5, 5, edges.shape)
    for call in planned:
        call()

    assert_array_equal(incidence.reduce(np.add, edges, outs[4]), outs[0])
    spread, want = np.empty_like(edges), np.repeat(outs[0], degrees, axis=0)
    incidence.spread_into(outs[0], spread)
    assert_array_equal(spread, want)
    assert_array_equal(np.broadcast_to(incidence.spread(outs[0]), want.shape), want)
    assert_array_equal(incidence.count, np.maximum(degrees, 1))
    for node, (degree, end) in enumerate(zip(degrees, ends, strict=True)):
        own = slice(end - degree, end)
        assert incidence.edges_of(node) == own
        assert (incidence.node[own] == node).all()
        for call, out in zip(calls, outs, strict=False):
            want = call(edges[own], axis=0) if degree else np.full(shape, 7.0)
            assert_array_equal(out[node], want)


# schedules

RING = Topology.ring(5)
NAMED = Topology.from_edges(3, [(0, 1), (1, 2)], ("a", "b", "c"))


@pytest.mark.parametrize("seed", range(10))
def test_matchings_are_matchings_and_cover_every_edge_once(seed):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, int(rng.integers(2, 12)))
    schedule = Schedule.matchings(graph)

    for edges in schedule.rounds:
        ends = [i for i, _ in edges]
        assert len(set(ends)) == len(ends)
        assert {(j, i) for i, j in edges} == set(edges)
    together = sorted(edge for edges in schedule.rounds for edge in edges)
    assert together == [tuple(edge) for edge in graph.edges.tolist()]
    assert schedule.union == graph
    assert schedule.period < 2 * max(graph.degrees)  # greedy needs few


def test_schedules_have_names():
    good = ("static", "matchings", "random:0.3", "random:1", "random:.5", "random:1e-3")
    assert all(map(NAMES.holds, (*good, "times.csv")))
    assert not any(
        map(NAMES.holds, ("random", "random:", "random:x", "odd", "a.csv.txt"))
    )
    named = Schedule.named(RING, "random:.5", seed=2)
    assert named.rounds == Schedule.random(RING, 0.5, seed=2).rounds
    assert Schedule.named(RING, "matchings").rounds == Schedule.matchings(RING).rounds


def test_random_schedules_have_each_edge_with_its_probability():
    graph = Topology.complete(6)
    schedule = Schedule.random(graph, 0.3, seed=2)
    up = schedule.active_edges(graph)

    assert abs(up.mean() - 0.3) < 0.02
    assert (up == up[:, graph.reverse]).all()
    assert schedule.union is graph
    windows = [np.roll(up, -k, axis=0)[: schedule.span] for k in range(len(up))]
    assert all(window.any(axis=0).all() for window in windows)
    assert not all(window[1:].any(axis=0).all() for window in windows)


TURNS = {
    "parts.edges": "0 1\n2 3\n",
    "bridge.edges": "1 2\n",
    "named.edges": "x y\n",
    "more.edges": "z y\n",
    "times.csv": "source,target,t\na,b,1\nb,c,4\nc,b,2\na,b,4\n",
} | {
    f"{k}.csv": f"t,source,target\n{row}\n"
    for k, row in enumerate(("1,a,b", "1,a,c", "0,a,b", "1,a,d"))
}


@pytest.fixture
def files(tmp_path):
    for name, text in TURNS.items():
        (tmp_path / name).write_text(text)


@pytest.mark.usefixtures("files")
def test_graphs_of_names_and_files_take_turns():
    """A file need neither be connected nor name all nodes."""
    schedule = Schedule.build(["parts.edges", "bridge.edges"], 4)
    assert schedule.union == Topology.chain(4)
    assert [len(edges) for edges in schedule.rounds] == [4, 2]
    assert Schedule.build(["ring", "parts.edges"], 4).union == Topology.ring(4)
    random = Schedule.build(["erdos-renyi", "star"], 9, seed=3)
    drawn = Topology.erdos_renyi(9, seed=3).edges.tolist()
    assert random.rounds[0] == set(map(tuple, drawn))
    named = Schedule.build(["named.edges", "more.edges"])
    assert named.union.names == ("x", "y", "z")
    assert named.rounds == ({(0, 1), (1, 0)}, {(1, 2), (2, 1)})
    timed = Schedule.from_times(NAMED, "times.csv")
    assert (timed.period, timed.span) == (4, 3)
    assert timed.rounds[1:3] == ({(1, 2), (2, 1)}, frozenset())


REFUSED += [
    (partial(Schedule, 4, [[(0, 1)], [(2, 3)]]), "node 2"),  # the union is connected
    (partial(Schedule, 4, [[(0, 1)], [(1, 2)]]), "node 3"),
    (partial(Schedule, 4, []), "none"),
    (partial(Schedule, 4, [[(0, 4)]]), r"\(0, 4\)"),
    (partial(Schedule, 4, [[(0, 1)], [(0, 2)]], RING), r"\(0, 2\)"),
    (partial(Schedule.build, ["ring", "no.edges"], 4), r"no\.edges"),
    (partial(Schedule.build, ["named.edges", "bridge.edges"]), r"bridge\.edges"),
    (partial(Schedule.matchings(RING).active_edges, Topology.chain(5)), "union"),
    (partial(Schedule.random, RING, 0.0), "probability"),
    (partial(Schedule.random, RING, 1e-5), "0 to 1"),
    (partial(Schedule.from_times, NAMED, "0.csv"), "b to c"),
    (partial(Schedule.from_times, NAMED, "1.csv"), "1, a, c"),
    (partial(Schedule.from_times, NAMED, "2.csv"), "0, a, b"),
    (partial(Schedule.from_times, NAMED, "3.csv"), "1, a, d"),
]


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(("make", "culprit"), REFUSED)
def test_what_is_no_graph_or_schedule_is_refused(make, culprit):
    with pytest.raises(TopologyError, match=culprit) as caught:
        make()
    assert "\n" not in str(caught.value)
