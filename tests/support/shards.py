"""PPCA over five unlike nodes, its pooled solution, and sums over a graph."""

import numpy as np

from dadmm import Topology
from dadmm.comm.tree import TreeReduction
from dadmm.data.patterns import remove_entries
from dadmm.problems import PPCA, metrics

D, M, NODES = 6, 2, 5
GRAPH = Topology.ring(NODES)


def shards(seed=0, width=D, rows=12, decay=2.0):
    rng = np.random.default_rng(seed)
    scale = decay ** -np.arange(width)
    shift = rng.standard_normal((NODES, 1, width))
    return 3.0 * scale * (rng.standard_normal((NODES, rows, width)) + 0.3 * shift) + 1.0


def built(blocks, n_components=M, **settings):
    return [PPCA(own, n_components, **settings) for own in blocks]


def errors(result, W):
    """Return the largest angle to W, and relative error of W W', of any node."""
    found, want = result.layout.views(result.theta).W, W @ W.T
    off = np.linalg.norm(found @ found.mT - want, axis=(1, 2)).max()
    return metrics.subspace_angle(found, W).max(), off / np.linalg.norm(want)


def right(result, blocks):
    """Return these errors from the pooled solution of complete rows."""
    return errors(result, metrics.ppca_reference(np.vstack(list(blocks)), M).W)


def total_of(graph):
    """Return a sum over the nodes of a graph in one process, and its tree."""
    tree = TreeReduction(graph)

    def total(rows, merge=np.add, finish=None):
        return tree.reduce(dict(enumerate(rows)), merge, finish)

    return total, tree


WIDE = np.vstack(list(shards(width=30, decay=1.2)))
RAW = {"init": "shared", "coordinates": "raw", "max_iter": 3000}
PPCAS = {  # runs of each kind: the rows of all nodes, and settings
    "raw": (shards(rows=40), RAW),
    "units": (shards(width=10, rows=40), {"init": "shared"}),
    "merged": (shards(width=30, rows=8, decay=1.2), {}),
    "gaps": (np.array_split(remove_entries(WIDE, 0.1, 0), NODES), {}),
}
