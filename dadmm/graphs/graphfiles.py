"""Readers of graph files; nodes are numbers 0..J-1, or have names."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dadmm.core.documents import reading
from dadmm.core.errors import TopologyError, shown
from dadmm.core.layout import Matrix

NetworkxGraph = Any  # networkx is slow to import
LONGEST = 100  # characters of a name
ENDS = ("source", "target")


class Graph(NamedTuple):
    """Nodes and edges; the nodes may have names and positions (n_nodes, 2)."""

    n_nodes: int
    edges: Iterable[Sequence[int]]
    names: tuple[str, ...] = ()
    positions: Matrix | None = None


def read(file: Path) -> Graph:
    """Return the graph in a file; call it within `documents.reading`."""
    if file.suffix not in READERS:
        raise TopologyError(f"not a graph file; use one of {', '.join(READERS)}")
    return READERS[file.suffix](file)


def numbered(
    pairs: Sequence[Sequence[str]], nodes: Iterable[str], places: Matrix | None = None
) -> Graph:
    """Return the graph of edges between labels, whose order is that of ``nodes``.

    Labels that are all numbers are the numbers of nodes, unless nodes have places.
    """
    labels = list(nodes)
    if places is None and all(map(str.isdecimal, labels)):
        return Graph(len(labels), [[int(word) for word in pair] for pair in pairs])
    number = {label: k for k, label in enumerate(labels)}
    for k, label in enumerate(labels):
        signed = not label.isdecimal() and label.lstrip("+-").replace(".", "").isdigit()
        if not label.isprintable() or not 0 < len(label) <= LONGEST or signed:
            raise TopologyError(
                f"{shown(label)} is not a node: it needs a number from 0, or a name of "
                f"1 to {LONGEST} characters that can be printed"
            )
        if number[label] != k:
            raise TopologyError(f"node {shown(label)} is there twice; rename one")
    for end in (end for pair in pairs for end in pair if end not in number):
        raise TopologyError(
            f"an edge leads to {shown(end)}, which is not one of the nodes; add it to "
            "them, or remove the edge"
        )
    edges = [[number[end] for end in pair] for pair in pairs]
    return Graph(len(labels), edges, tuple(labels), places)


def from_networkx(graph: NetworkxGraph) -> Graph:
    """Return the nodes and edges of a networkx graph.

    Nodes that are the integers 0..J-1 keep their numbers; others get names. Positions
    are the attributes ``pos``, or ``x`` and ``y``, if all nodes have them.
    """
    facts = dict(graph.nodes(data=True))
    n, places = len(facts), None
    for keys in (("pos",), ("x", "y")):
        if all(set(keys) <= own.keys() for own in facts.values()):
            found = [np.ravel([own[k] for k in keys]) for own in facts.values()]
            try:
                places = np.array(found, dtype=float).reshape(-1, 2)
            except ValueError:
                raise TopologyError(
                    f"{' and '.join(keys)} of a node must be two numbers, its position"
                ) from None
    if all(type(label) is int and 0 <= label < n for label in facts):
        order = np.argsort(np.array(list(facts), dtype=int))
        return Graph(n, graph.edges(), (), None if places is None else places[order])
    pairs = [(str(a), str(b)) for a, b in graph.edges()]
    return numbered(pairs, map(str, facts), places)


def read_edge_list(file: Path) -> Graph:
    """Read two nodes a line, and columns that are ignored; one node may be alone."""
    text = file.read_text(encoding="utf-8")
    rows = [line.split("#")[0].split()[:2] for line in text.splitlines()]
    nodes = dict.fromkeys(node for row in rows for node in row)
    return numbered([row for row in rows if len(row) == 2], nodes)


def read_table(file: Path, columns: Sequence[str]) -> list[list[str]]:
    """Return cells of a CSV file with a header: these columns, else the first ones."""
    with open(file, encoding="utf-8-sig", newline="") as opened:
        separator = max(",;\t", key=opened.readline().count)
        opened.seek(0)
        rows = [row for row in csv.reader(opened, delimiter=separator) if row]
    header = [word.strip().lower() for word in rows[0]] if rows else []
    places = list(range(len(columns)))
    if set(columns) <= set(header):
        places = [header.index(name) for name in columns]
    for number, row in enumerate(rows, 1):
        if len(row) <= max(places):
            raise TopologyError(
                f"line {number} has {len(row)} columns, not {', '.join(columns)}"
            )
    return [[row[k].strip() for k in places] for row in rows[1:]]


def read_links(file: Path) -> Graph:
    """Read links.csv, two nodes a line, and nodes.csv (id, x, y) if it is beside it."""
    pairs = read_table(file, ENDS)
    beside = file.with_name(file.name.replace("links", "nodes"))
    if beside == file or not beside.exists():
        return numbered(pairs, dict.fromkeys(end for pair in pairs for end in pair))
    with reading(beside, TopologyError):
        nodes = read_table(beside, ("id", "x", "y"))
        places = np.array([row[1:] for row in nodes], dtype=float).reshape(-1, 2)
    return numbered(pairs, [row[0] for row in nodes], places)


def read_by_networkx(file: Path) -> Graph:
    """Read GraphML or GML; nodes are called by their label, name or id."""
    import networkx as nx

    if file.suffix == ".gml":
        graph = nx.read_gml(file, label="id")
    else:
        text = file.read_bytes().replace(b"\0", b"")  # UTF-16 has one in each letter
        if b"<!ENTITY" in text:  # entities can expand to very long texts
            raise TopologyError("GraphML must not declare entities; remove <!ENTITY")
        graph = nx.read_graphml(file)
    for key in ("label", "name"):
        names = {node: own.get(key) for node, own in graph.nodes(data=True)}
        if None not in names.values() and len(set(names.values())) == len(names):
            graph = nx.relabel_nodes(graph, names)
            break
    if all(str(label).isdecimal() for label in graph):
        graph = nx.relabel_nodes(graph, lambda label: int(str(label)))
    return from_networkx(graph)


def read_adjacency(file: Path) -> Graph:
    matrix = np.lib.format.open_memmap(file, mode="r")  # never unpickles
    square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1]
    if not square or not np.isin(matrix, (0, 1)).all() or (matrix != matrix.T).any():
        raise TopologyError(
            "an adjacency matrix is square and symmetric and holds 0 and 1 only, but "
            f"this one of shape {matrix.shape} is not"
        )
    return Graph(len(matrix), np.argwhere(matrix))


READERS: dict[str, Callable[[Path], Graph]] = {
    **dict.fromkeys((".edges", ".edgelist", ".txt"), read_edge_list),
    ".csv": read_links,
    **dict.fromkeys((".graphml", ".gml"), read_by_networkx),
    ".npy": read_adjacency,
}
