"""Small problems and graphs that several tests share."""

import networkx as nx
import numpy as np

from dadmm import Layout, Topology


class Convex:
    def init(self, rng):
        return rng.standard_normal(self.layout.size)

    def expect(self, theta):
        return None


class Quadratic(Convex):
    """f(x) = 1/2 (x - b)' A (x - b) + floor, whose proximal step is exact."""

    def __init__(self, A, b, floor=0.0):
        self.layout = Layout.of(x=np.shape(b))
        self.A, self.b, self.floor = A, b, floor
        self._curvature, self._axes = np.linalg.eigh(A)
        self._pull = self._curvature * (b @ self._axes)

    def prox(self, theta, stats, centre, weight):
        pull = self._pull + weight * (centre @ self._axes)
        return self._axes @ (pull / (self._curvature + weight))

    def objectives(self, thetas, stats):
        off = thetas - self.b
        return 0.5 * np.vecdot(off @ self.A, off) + self.floor


class Varying(Convex):
    """1/2 |X slope + offset - y|^2: the slope is everybody's, the offset one's own."""

    def __init__(self, X, y, scales=None):
        shapes = {"slope": (X.shape[1],), "offset": ()}
        self.layout = Layout(shapes, private=("offset",), scales=scales)
        self.design, self.y = np.column_stack([X, np.ones(len(X))]), y

    def prox(self, theta, stats, centre, weight):
        pull = weight * self.layout.pull
        gram = self.design.T @ self.design + np.diag(pull)
        return np.linalg.solve(gram, self.design.T @ self.y + pull * centre)

    def objectives(self, thetas, stats):
        return 0.5 * ((thetas @ self.design.T - self.y) ** 2).sum(axis=1)


def quadratics(n, size=2, curvature=(5.0, 20.0), seed=0, floor=0.0):
    """Return n random quadratics, each with axes, curvatures and centre of its own."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(n):
        axes = np.linalg.qr(rng.standard_normal((size, size)))[0]
        A = (axes * np.exp(rng.uniform(*np.log(curvature), size))) @ axes.T
        found.append(Quadratic(A, 1.0 + rng.standard_normal(size), floor))
    return found


def blocks(n, gaps=False):
    """Return rows of n nodes, of unlike number; with gaps, not all are complete."""
    rng = np.random.default_rng(4)
    scale, shift = 1e3 * 2.0 ** -np.arange(20), rng.standard_normal((n, 20))
    found = [scale * (rng.standard_normal((6 + 2 * i, 20)) + own) + 50.0
             for i, own in enumerate(shift)]  # fmt: skip
    if gaps:
        found[-1][0, 0] = found[1][:, 3] = found[2][::2, 1:4] = np.nan
    return found


def samples(n, dimension, seed=0):
    rng = np.random.default_rng([seed, n, dimension])
    return rng.normal(size=(n, dimension)) * np.arange(1, dimension + 1)


def optimum(problems):
    rhs = sum(problem.A @ problem.b for problem in problems)
    return np.linalg.solve(sum(problem.A for problem in problems), rhs)


def distance(theta, best):
    """Return how far the worst node is from the best point, relative to its length."""
    return np.linalg.norm(theta - best, axis=1).max() / np.linalg.norm(best)


def random_graph(rng, n):
    """Return a random tree over n nodes with a few more edges."""
    edges = [(int(rng.integers(i)), i) for i in range(1, n)]
    extra = rng.integers(n, size=(int(rng.integers(n + 1)), 2))
    return Topology.from_edges(n, edges + [(i, j) for i, j in extra.tolist() if i != j])


def distances(topology):
    """Return the number of edges between any two nodes, (n_nodes, n_nodes)."""
    paths = dict(nx.all_pairs_shortest_path_length(topology.to_graph()))
    nodes = range(len(topology))
    return np.array([[paths[i][j] for j in nodes] for i in nodes])


def differences(value, theta, step=1e-5):
    """Return the gradient of a function by central differences."""
    ends = [
        value(theta + own) - value(theta - own) for own in step * np.eye(len(theta))
    ]
    return np.array(ends) / (2 * step)
