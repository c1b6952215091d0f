"""What a node does by itself, and what it measures at its edges."""

from contextlib import nullcontext
from unittest.mock import MagicMock

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dadmm import Layout, ProblemError, Topology
from dadmm.admm.local import Local, curvatures
from dadmm.graphs.incidence import Incidence
from dadmm.problems import PPCA
from tests.support.problems import Quadratic, Varying, quadratics, random_graph, samples
from tests.support.runs import run_of
from tests.support.solving import solve


class Alone(PPCA):
    """PPCA with a step of its own: stacking would call the methods of the parent."""

    steps = 0

    def prox(self, *given):
        self.steps += 1
        return super().prox(*given)


@pytest.mark.parametrize("scheme", ["fixed", "nap"])
def test_a_run_does_not_show_which_problems_were_stacked(scheme):
    shards = [samples(n, 4, seed) for seed, n in enumerate((9, 9, 9, 3, 3, 8))]
    settings = {"scheme": scheme, "max_iter": 30, "tolerance": 0, "record_edges": True}
    settings |= {"init": "independent", "coordinates": "raw", "eta0": 10.0}
    problems = [[kind(x, 2) for x in shards] for kind in (PPCA, Alone)]
    together, alone = (solve(p, Topology.cluster(6), **settings) for p in problems)

    assert_array_equal(together.theta, alone.theta)
    assert_array_equal(together.history["dual"], alone.history["dual"])
    assert_array_equal(together.history.edges.rows, alone.history.edges.rows)
    assert [problem.steps for problem in problems[1]] == [30] * 6


class Returning(Quadratic):
    """A quadratic whose step depends on theta, and which changes what it returns."""

    def __init__(self, returned):
        super().__init__(np.diag([1.0, 3.0]), np.array([1.0, -2.0]))
        self.returned, self.buffer = returned, np.zeros(2)

    def init(self, rng):
        return self.returned(self, super().init(rng))

    def expect(self, theta):
        return theta, theta.copy()  # a problem may keep the arrays that it has seen

    def objectives(self, thetas, stats):
        assert_array_equal(*stats)
        return super().objectives(thetas, None)

    def prox(self, theta, stats, centre, weight):
        kept = self.returned(self, 0.5 * theta)
        exact = super().prox(theta, stats, centre, weight)
        return self.returned(self, 0.5 * exact + kept)


def in_buffer(problem, found):
    problem.buffer[...] = found
    return problem.buffer


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("returned", [lambda _, found: found.tolist(), in_buffer])
def test_a_problem_may_return_lists_or_an_array_that_it_uses_again(returned, n):
    """One node is a block of its own, as on each rank over MPI."""
    expected, found = (
        solve([Returning(how) for _ in range(n)], Topology.complete(n))
        for how in (lambda _, x: x, returned)
    )

    assert_array_equal(found.theta, expected.theta)
    assert found.iterations == expected.iterations


def singular(found):
    raise np.linalg.LinAlgError("singular")


SHAPES = [np.ones(1), np.ones((2, 1)), 1.0, None, "x"]
WRONG = [lambda own: own + 0.5j, *(lambda own, x=x: x for x in SHAPES)]


@pytest.mark.parametrize(
    ("method", "change", "culprit"),
    [(method, singular, "node 1 ") for method in ("expect", "prox", "objectives")]
    + [(method, wrong, method) for method in ("prox", "objectives") for wrong in WRONG],
)
def test_a_problem_that_breaks_down_or_returns_other_numbers_is_refused(
    method, change, culprit
):
    """Numpy would repeat one number for all parameters, and cut imaginary parts."""
    problems = quadratics(3)
    own = getattr(problems[1], method)
    setattr(problems[1], method, lambda *given: change(own(*given)))

    with pytest.raises(ProblemError, match=culprit):
        solve(problems, Topology.ring(3), scheme="nap", eta0=1.0)


N, D, ROWS = 6, 3, 12
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, ROWS, D)) + RNG.standard_normal((N, 1, D))
Y = X @ RNG.standard_normal(D) + 5 * RNG.standard_normal((N, 1))
Y += RNG.standard_normal((N, ROWS))
ROUND = Topology.ring(N)


@pytest.mark.parametrize("scheme", ["snap", "nap", "fixed"])
def test_private_parts_are_never_sent_and_become_optimal(scheme):
    """They are those of one regression with a dummy variable per node."""
    wide = np.hstack([X.reshape(-1, D), np.kron(np.eye(N), np.ones((ROWS, 1)))])
    best = np.linalg.lstsq(wide, Y.ravel(), rcond=None)[0]

    def watch(t, run):
        shared = np.repeat(run.theta[:, :D], 2, 0)
        assert_array_equal(run.exchange.outbox.numbers, shared)

    settings = {"tolerance": 0, "max_iter": 300, "callbacks": [watch]}
    result = solve(list(map(Varying, X, Y)), ROUND, scheme=scheme, **settings)

    assert_allclose(result.theta[:, :D], np.tile(best[:D], (N, 1)), atol=1e-7)
    assert_allclose(result.theta[:, D], best[D:], atol=1e-7)
    each = 8 * (D + 1 + (scheme == "nap"))  # header, slopes, and perhaps eta
    assert result.traffic.bytes == 2 * N * (8 * (D + 2) + 300 * each)


@pytest.mark.parametrize(
    ("private", "scales"),
    [("a", {}), ("c", {}), ("b", {"b": 2.0}), ("", {"c": 2.0}), ("", {"b": 0.0})],
)
def test_bad_layouts_are_refused(private, scales):
    with pytest.raises(ProblemError, match=private or next(iter(scales))):
        Layout({"a": (2,), "b": ()}, tuple(private), scales)


@pytest.mark.parametrize("scale", 10.0 ** np.arange(-18, 19, 6))
def test_a_ball_has_its_own_curvature(scale):
    """1/2 h |x - b|^2 bends by h everywhere, in any units; at its optimum unknown."""
    for size in (1, 3, 40):
        rng = np.random.default_rng(size)
        h, (b, theta) = scale * rng.uniform(0.4, 2.5), rng.standard_normal((2, size))
        ball = Quadratic(h * np.eye(size), b)
        assert_allclose(curvatures(ball, theta), h, rtol=1e-3)
        assert_allclose(curvatures(ball, b), np.nan)


@pytest.mark.parametrize("error", [np.linalg.LinAlgError, ZeroDivisionError])
@pytest.mark.parametrize("after", [0, 1, 4, 5])
def test_a_problem_that_breaks_down_has_no_curvature(error, after):
    """It takes five proximal steps."""
    (problem,), steps = quadratics(1), []
    prox = problem.prox

    def step(*given):
        steps.append(given)
        if len(steps) > after:
            raise error("singular")
        return prox(*given)

    problem.prox = step
    with pytest.raises(error) if after < 5 else nullcontext():
        assert np.isfinite(curvatures(problem, np.ones(2)))
    assert len(steps) == min(after + 1, 5)


class Brittle(Quadratic):
    """A quadratic that breaks down if its floor is 1, and with it any stack."""

    kind = ()

    def prox(self, *given):
        return singular(given) if self.floor else super().prox(*given)

    @classmethod
    def stack(cls, problems):
        return cls(np.eye(2), np.zeros(2), floor=1.0)


def test_a_problem_that_breaks_down_in_a_stack_leaves_the_others_their_curvature():
    pair = [Brittle(3.0 * np.eye(2), np.zeros(2), floor) for floor in (1.0, 0.0)]
    nodes = MagicMock(incidence=Incidence(np.zeros(2, dtype=np.int64)))
    nodes.state.theta = np.ones((2, 2))

    local = Local(nodes, pair, "")
    assert len(local.blocks) == 1
    assert_allclose(local.curvatures(), [np.nan, 3.0])


def test_a_neighbour_that_sends_nan_is_named_and_not_who_breaks_down(monkeypatch):
    def broken(*given):
        raise np.linalg.LinAlgError("SVD did not converge")

    run = run_of(quadratics(3), Topology.chain(3), max_iter=2)
    monkeypatch.setattr(type(run.local.blocks[0].problem), "prox", broken)
    with pytest.raises(ProblemError, match=r"of node 0.* broke down"):
        run.local.solve()
    run.state.received[np.argsort(run.arcs)[0]] = np.nan  # of node 0

    with pytest.raises(ProblemError, match="node 1 has sent"):
        run.local.solve()


# what nodes measure at their edges

GRAPHS = {
    "pair": Topology.chain(2), "star": Topology.star(6),
    "random": random_graph(np.random.default_rng(3), 9),
}  # fmt: skip


def lengths(rows):
    return np.sqrt((rows**2).sum(axis=-1))


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("payload", ["float64", "float32"])
def test_what_a_node_can_know_of_its_edges(graph, payload):
    """After iterations with unlike penalties; neighbours may have rounded numbers."""
    topology = GRAPHS[graph]
    problems = quadratics(len(topology), 3)
    run = run_of(problems, topology, payload=payload, tolerance=0, max_iter=4)
    state, work, influence = run.state, run.work, run.edges.influence()

    both = run.by_edge(influence)
    assert_array_equal(both, both[topology.reverse])
    for row, theta in enumerate(state.theta):
        own = run.incidence.edges_of(row)
        sent, received, drift = state.sent[own], state.received[own], work.drift[own]
        behind, eta = theta - sent, state.eta[own]
        slope = 2 * (eta[:, None] * (drift + behind)).sum(axis=0)
        assert_allclose(work.stationarity[row], slope, rtol=1e-11, atol=1e-12)
        assert_allclose(work.residual[row], lengths(slope), rtol=1e-11)
        apart = np.sqrt(((theta - received) ** 2).mean(axis=0))
        lag = np.sqrt((behind**2).mean(axis=0))
        assert_allclose(work.disagreement[row], lengths(apart), rtol=1e-13)
        assert_allclose(work.lag[row], lengths(lag), rtol=1e-13)
        assert_allclose(work.difference[row], apart + lag, rtol=1e-13)
        assert (work.lag[row] > 0.0) == (payload == "float32")
        between = lengths(sent - received) / 2
        assert_allclose(influence[own], eta * (lengths(drift) + between), rtol=1e-13)


def test_residuals_of_edges_that_may_lose_payloads_sum_to_minus_the_gradient():
    """As long as none is lost; the terms of an edge's two ends cancel."""
    problems = quadratics(6)
    given = {"scheme": "fixed", "eta0": 3.0, "drop_probability": 1e-12}
    run = run_of(problems, Topology.cluster(6), max_iter=4, tolerance=0, **given)

    slopes = [p.A @ (x - p.b) for p, x in zip(problems, run.theta, strict=True)]
    assert_allclose(run.work.stationarity.sum(axis=0), -np.sum(slopes, axis=0))
    assert_allclose(run.work.residual, lengths(run.work.stationarity))
