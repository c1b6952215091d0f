"""Other algorithms are their published recursions, and reach the pooled optimum."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import dadmm
from dadmm import Schedule, Topology, baselines
from dadmm.baselines import ALGORITHMS
from dadmm.problems import PPCA
from tests.support.linear import Case
from tests.support.problems import Quadratic

GRAPH = Topology.from_edges(6, [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (3, 4), (4, 5)])
ROUNDS = Schedule(6, [[(0, 1), (2, 3), (4, 5)], [(1, 2), (3, 4), (5, 0)]])
N, P = 6, 4
PLAIN = ("extra", "nids", "allreduce", "diging")


def rows(i):
    rng = np.random.default_rng([3, i])
    X = rng.standard_normal((12, P)) * np.linspace(0.5, 2.0, P)
    return X, X @ np.array([1.0, -2.0, 0.0, 0.5]) + 0.3 * rng.standard_normal(12)


def case(kind, i):
    """Return the problem of a node beside its formula."""
    X, y = rows(i)
    return Case(kind, X, (y > 0).astype(float) if kind == "logistic" else y, 0.1)


KINDS = ("least_squares", "lasso", "logistic")
MAKE = {kind: lambda i, kind=kind: case(kind, i).problem for kind in KINDS}
squares, lasso, logistic = MAKE.values()


def metropolis(edges):
    """Return W (n, n)."""
    joined = np.zeros((N, N))
    joined[tuple(np.transpose(edges))] = 1.0
    joined = np.maximum(joined, joined.T)
    degree = joined.sum(axis=0)
    W = joined / (1.0 + np.maximum.outer(degree, degree))
    return W + np.diag(1.0 - W.sum(axis=1))


def soft(x, by):
    return np.where(x > by, x - by, np.where(x < -by, x + by, 0.0))


def published(name, kind, step, n_iterations, mixing):
    """Yield x after each iteration; written from the papers, with dense matrices."""
    cases = [case(kind, i) for i in range(N)]
    a = step / max(np.linalg.eigvalsh(own.hessian(np.zeros(P)))[-1] for own in cases)
    W, eye, by = mixing[0], np.eye(N), a * cases[0].l1.astype(float)

    def g(x):
        own = zip(cases, x, strict=True)
        return np.array([c.X.T @ c.forces(c.X @ z) + c.l2 * z for c, z in own], float)

    half, x = (eye + W) / 2, np.zeros((N, P))
    if name == "extra":  # PG-EXTRA, (3a) and (3b), if there are absolute values
        z = W @ x - a * g(x)
        before, x = x, soft(z, by)
        yield x
        for _ in range(n_iterations - 1):
            z = z + W @ x - half @ before - a * (g(x) - g(before))
            before, x = x, soft(z, by)
            yield x
    elif name == "nids":  # Algorithm 1 with c = 1 / (2 alpha)
        z = x - a * g(x)
        before, x = x, soft(z, by)
        for _ in range(n_iterations):
            z = z - x + half @ (2 * x - before + a * g(before) - a * g(x))
            before, x = x, soft(z, by)
            yield x
    elif name == "diging":
        y = g(x)
        for k in range(n_iterations):
            W = mixing[k % len(mixing)]
            new = W @ x - a * y
            y = W @ y + g(new) - g(x)
            x = new
            yield x
    else:
        for _ in range(n_iterations):
            x = soft(x - a * g(x).mean(axis=0), by)
            yield x


def history(kind, name, n_iterations=100, graph=GRAPH, **more):
    """Return theta (iterations, nodes, P) of a run, and the run."""
    seen = []
    run = baselines.solve(
        [kind(i) for i in range(N)], graph, name, max_iter=n_iterations,
        callbacks=[lambda t, run: seen.append(run.theta)], **more
    )  # fmt: skip
    return np.array(seen), run


@pytest.mark.parametrize(
    ("name", "kind", "schedule"),
    [(name, kind, None) for name in PLAIN for kind in ("least_squares", "logistic")]
    + [(name, "lasso", None) for name in PLAIN if name != "diging"]
    + [("diging", "least_squares", ROUNDS)],
)
def test_iterates_are_those_of_the_published_recursion(name, kind, schedule):
    """DIGing tracks gradients also on edges that come and go."""
    graph = schedule.union if schedule else GRAPH
    found, run = history(MAKE[kind], name, graph=graph, schedule=schedule)
    turns = [graph.edges[k] for k in (schedule.rows if schedule else [slice(None)])]
    mixing = list(map(metropolis, turns))

    want = published(name, kind, ALGORITHMS[name]().step, 100, mixing)
    assert_allclose(found, list(want), rtol=0, atol=1e-9)
    assert run.t == 100


@pytest.mark.parametrize(
    ("name", "more"),
    [(name, {"coordinates": way}) for name in ALGORITHMS for way in ("raw", "metric")]
    + [(name, {"sending": "quantised:4"}) for name in ("extra", "nids", "diging")],
)
def test_the_optimum_is_that_of_all_rows(name, more):
    """Also if messages are rounded: what rounding leaves out comes later."""
    X, y = (np.concatenate(part) for part in zip(*map(rows, range(N)), strict=True))
    best = np.linalg.lstsq(X, y)[0]
    steps = 2500 if name == "diging" else 1200
    found, _ = history(squares, name, steps, **more)

    assert_allclose(found[-1], np.tile(best, (N, 1)), atol=1e-9)


def test_messages_are_counted():
    """8 bytes of header and 8 for each number, to each neighbour; sums by the tree."""
    short = {"sending": "quantised:4"}  # two ranges, and a brief header
    cases = [("extra", 8 * P, {}), ("nids", 8 * P, {}), ("diging", 16 * P, {})]
    for name, width, more in (*cases, ("diging", 4 + P - 6, short), ("one_sum", 0, {})):
        _, run = history(squares, name, 10, **more)
        sent = [10, 10 * (8 + width)] if width else [0, 0]
        assert_array_equal(run.exchange.sent, [sent] * len(GRAPH.edges))
        assert run.tree.sent[:, 0].sum() == 2 * (N - 1)  # the largest curvature


def unknown(i):
    """Return a convex problem without gradient."""
    problem = Quadratic(np.eye(P), np.zeros(P))
    problem.convex, problem.rows = True, None
    problem.within = problem.equations = None
    return problem


@pytest.mark.parametrize(
    ("culprit", "name", "make", "more"),
    [
        ("PPCA", "extra", lambda i: PPCA(rows(i)[0], 2), {}),
        ("gradient", "nids", unknown, {}),
        ("DIGing", "diging", lambda i: (lasso if i == 1 else squares)(i), {}),
        ("raw", "nids", lasso, {"coordinates": "metric"}),
        ("OneSum", "one_sum", logistic, {}),
        ("EXTRA", "extra", squares, {"schedule": ROUNDS}),
        ("EXTRA", "extra", squares, {"sending": dadmm.Sending(censor=0.1)}),
        ("AllReduce", "allreduce", squares, {"sending": "quantised:4"}),
        ("newton", "newton", squares, {}),
    ],
)
def test_what_an_algorithm_cannot_have_is_refused(culprit, name, make, more):
    graph = ROUNDS.union if "schedule" in more else GRAPH
    with pytest.raises(dadmm.ConfigError, match=culprit):
        baselines.solve([make(i) for i in range(N)], graph, name, **more)
