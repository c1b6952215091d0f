"""Readers of graph files; each returns a number of nodes and a list of edges."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dadmm.core.documents import check_regular
from dadmm.core.errors import TopologyError

Graph = tuple[int, Iterable[Sequence[int]]]  # number of nodes, and edges


def read(file: Path) -> Graph:
    """Return the graph in a file; `topologies/README.md` has the formats."""
    if file.suffix not in READERS:
        known = ", ".join(READERS)
        raise TopologyError(f"{file} is not a graph file; use one of {known}")
    try:
        check_regular(file)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an error follows, or nothing is wrong
            return READERS[file.suffix](file)
    except TopologyError as error:
        raise TopologyError(f"{file}: {error}") from None
    except OSError as error:
        reason = f"{error.strerror}; check the path"
    except Exception as error:  # parsers raise many types on a broken file
        reason = f"not valid {file.suffix} ({str(error).partition(chr(10))[0]})"
    raise TopologyError(f"cannot read the graph {file}: {reason}")


def from_networkx(graph: Any) -> Graph:
    """Return the nodes and edges of a networkx graph whose nodes are 0..J-1."""
    nodes = range(len(graph))
    strange = [label for label in graph if label not in nodes]
    if strange:
        raise TopologyError(
            f"node label {strange[0]!r} is not an integer in 0..{nodes[-1]}; "
            "use networkx.convert_node_labels_to_integers"
        )
    return len(graph), graph.edges()


def read_edge_list(file: Path) -> Graph:
    """Read an edge list; a line with one number is a node without edges."""
    lines = [
        line.split("#")[0].split()
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
    for number, words in enumerate(lines, 1):
        if len(words) > 2 or not all(word.isdecimal() for word in words):
            raise TopologyError(
                f"line {number} is {' '.join(words)!r}, not two node numbers; "
                "edges carry no weights"
            )
    rows = [[int(word) for word in words] for words in lines if words]
    nodes = {node for row in rows for node in row}
    return len(nodes), [row for row in rows if len(row) == 2]


def read_graphml(file: Path) -> Graph:
    """Read GraphML; node labels must be numbers."""
    import networkx as nx

    text = file.read_bytes().replace(b"\0", b"")  # UTF-16 has one in each letter
    if b"<!ENTITY" in text:  # entities can expand to very long texts
        raise TopologyError("GraphML must not declare entities here; remove <!ENTITY")
    graph = nx.read_graphml(file)
    numbered = all(label.isdecimal() for label in graph)
    return from_networkx(nx.relabel_nodes(graph, int) if numbered else graph)


def read_adjacency(file: Path) -> Graph:
    """Read an adjacency matrix: symmetric, of zeros and ones."""
    matrix = np.lib.format.open_memmap(file, mode="r")  # never unpickles
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise TopologyError(
            f"an adjacency matrix is square, but this has shape {matrix.shape}"
        )
    if not np.isin(matrix, (0, 1)).all():
        raise TopologyError("an adjacency matrix holds 0 and 1 only, and no weights")
    if (matrix != matrix.T).any():
        i, j = np.argwhere(matrix != matrix.T)[0]
        raise TopologyError(
            f"an adjacency matrix is symmetric, but entry ({i}, {j}) differs from its "
            "mirror"
        )
    return len(matrix), np.argwhere(matrix)


READERS: dict[str, Callable[[Path], Graph]] = {
    ".edges": read_edge_list,
    ".edgelist": read_edge_list,
    ".txt": read_edge_list,
    ".graphml": read_graphml,
    ".npy": read_adjacency,
}
