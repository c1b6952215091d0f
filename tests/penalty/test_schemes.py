"""What all schemes promise, the equations at their borders, and their settings."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import dadmm
from dadmm.core.linalg import EPS
from dadmm.graphs.incidence import Incidence
from dadmm.penalty import SCHEMES, equations
from dadmm.penalty.schemes import Observation
from tests.support.problems import quadratics

ETA0 = 10.0
BY_EDGE = (
    "probes", "sent", "received", "anchors", "drift", "multipliers", "eta",
)  # fmt: skip


def build(name, **settings):
    """Return a scheme with a number as its first penalty."""
    return dadmm.penalty.build(name, **{"eta0": ETA0} | settings)


@pytest.fixture(params=SCHEMES)
def scheme(request):
    """Return each scheme with its default settings."""
    return build(request.param)


def observe(nodes, global_residuals=None):
    """Return what nodes know together; each is a dict of its own numbers and rows."""
    every = [np.append(node["objective"], node["probes"]) for node in nodes]
    found = {"f_min": [f.min() for f in every], "f_max": [f.max() for f in every]}
    for name in nodes[0].keys() - {"t"}:
        join = np.concatenate if name in BY_EDGE else np.array
        found[name] = join([node[name] for node in nodes])
    return Observation(
        t=nodes[0]["t"],
        incidence=Incidence(np.array([len(node["probes"]) for node in nodes])),
        **{name: np.array(rows, dtype=float) for name, rows in found.items()},
        global_residuals=global_residuals,
    )


def wander(seed, degree=3, n=80, size=4):
    """Return random numbers of one node in order, by as much as a factor of 1e6."""
    rng = np.random.default_rng(seed)
    own = rng.normal(size=n + 1).cumsum()
    for t in range(1, n + 1):
        far = np.exp(3 * rng.normal(size=(4, degree, 1)))
        rows = far * rng.normal(size=(4, degree, size))
        theta, centre = rng.normal(size=(2, size))
        primal, dual = np.exp(4 * rng.normal(size=2))
        yield {
            "t": t, "objective": own[t], "previous": own[t - 1] if t > 1 else math.inf,
            "probes": own[t] + rng.normal(size=degree), "primal": primal, "dual": dual,
            "theta": theta, "centre": centre, "weight": np.exp(rng.normal()),
            "sent": np.tile(theta, (degree, 1)), "received": rows[0],
            "anchors": rows[1], "drift": rows[2], "multipliers": rows[3],
            "eta": np.exp(rng.normal(size=degree)),
        }  # fmt: skip


def together(*nodes):
    """Return the observations of several nodes that `wander`, in order."""
    for t, each in enumerate(zip(*nodes, strict=True), start=1):
        yield observe(each, (1.0 + t % 7, 30.0 / t) if t > 1 else None)


def begin(scheme, *degrees):
    """Return the state before iteration 1; the neighbours propose the same."""
    incidence = Incidence(np.array(degrees))
    state = scheme.init(incidence, np.full(sum(degrees), scheme.eta0))
    anchors = np.ones((sum(degrees), 4))
    return scheme.start(state, state["eta"], anchors, np.zeros_like(anchors))


def arrays(record):
    """Return all arrays of a state or an observation."""
    fields = record if isinstance(record, dict) else vars(record)
    return [field for field in fields.values() if isinstance(field, np.ndarray)]


def copied(state):
    """Return a state whose arrays a scheme may overwrite."""
    return {name: array.copy() for name, array in state.items()}


def follow(scheme, observations, *degrees):
    """Return the states of a scheme, the first before iteration 1."""
    states = [begin(scheme, *(degrees or (3,)))]
    for obs in observations:
        states.append(scheme.update(copied(states[-1]), obs))
    return states


@pytest.mark.parametrize("seed", range(3))
def test_penalties_stay_positive_finite_and_bounded(scheme, seed):
    """Whatever a node sees, within 1e-6 to 1e6 times eta0, in float64 rows.

    Those of `snap` within 64 bits of it.
    """
    most = 2.0**64 if dadmm.penalty.name_of(scheme) == "snap" else 1e6
    for state in follow(scheme, together(wander(seed))):
        for field in arrays(state):
            assert len(field) == 3
            assert field.dtype == np.float64
            assert np.isfinite(field).all()
        assert np.all(state["eta"] >= scheme.eta0 / most)
        assert np.all(state["eta"] <= scheme.eta0 * most)


def test_a_scheme_depends_on_state_and_observation_only(scheme):
    """And keeps nothing of the observation, whose arrays change later."""
    observations = list(together(wander(0)))
    for state, obs in zip(follow(scheme, observations), observations, strict=False):
        kept = [array.copy() for array in arrays(obs)]

        first, again = (
            scheme.update(copied(state), obs),
            scheme.update(copied(state), obs),
        )

        for array, before in zip(arrays(obs), kept, strict=True):
            assert_array_equal(array, before)
        for one, other in zip(arrays(first), arrays(again), strict=True):
            assert_array_equal(one, other)
        for mine in arrays(first):
            assert not any(np.shares_memory(mine, theirs) for theirs in arrays(obs))


def test_nodes_together_have_the_bits_of_each_alone(scheme):
    """Of several degrees, up to where numpy adds in pairs."""
    degrees = (1, 1, 2, 5, 5, 11, 40)
    nodes = [list(wander(k, degree, 20)) for k, degree in enumerate(degrees)]

    states = follow(scheme, together(*nodes), *degrees)
    alone = [
        follow(scheme, together(node), degree)
        for node, degree in zip(nodes, degrees, strict=True)
    ]

    for t, state in enumerate(states):
        for name, array in state.items():
            each = np.concatenate([node[t][name] for node in alone])
            assert_array_equal(array, each, err_msg=name)


def test_edges_may_come_in_any_order(scheme):
    order, nodes = np.array([2, 0, 1]), list(wander(1))
    turned = [node | {name: node[name][order] for name in BY_EDGE} for node in nodes]
    states, others = follow(scheme, together(nodes)), follow(scheme, together(turned))

    for state, other in zip(states, others, strict=True):
        for name in state:
            assert_array_equal(other[name], state[name][order], err_msg=name)


@pytest.mark.parametrize("name", ["vp", "vp_ap", "vp_nap"])
@pytest.mark.parametrize(("primal", "end"), [(1.0, 1e7), (0.0, 1e-5)])
def test_doubling_and_halving_end_at_the_clamp(name, primal, end):
    more = {"primal": primal, "dual": 1.0 - primal}
    nodes = [n | more | {"probes": np.full(3, n["objective"])} for n in wander(0)]

    states = follow(build(name, t_max=1000), together(nodes))

    assert_array_equal(states[-1]["eta"], np.full(3, end))


@pytest.mark.parametrize(
    "answer",
    [
        lambda state: None,
        lambda state: {},
        lambda state: {"eta": np.ones(1)},
        lambda state: state | {"sum": 3.0},
        lambda state: {"eta": -state["eta"]},
    ],
)
def test_a_scheme_that_returns_no_penalties_is_refused(answer):
    class Own(dadmm.penalty.Scheme):
        def update(self, state, obs):
            return answer(state)

    problems, ring = quadratics(3), dadmm.Topology.ring(3)
    with pytest.raises(dadmm.ConfigError, match="Own"):
        dadmm.solve(problems, ring, scheme=Own())


def tau(*nodes):
    """Return tau of each edge of nodes with (f_i, f_i at its probes), flat."""
    nodes = sorted(nodes, key=lambda node: len(node[1]))
    every = [np.append(own, probes) for own, probes in nodes]
    return equations.tau(
        np.array([own for own, _ in nodes], dtype=float),
        np.concatenate([np.asarray(probes, dtype=float) for _, probes in nodes]),
        np.array([f.min() for f in every]),
        np.array([f.max() for f in every]),
        Incidence(np.array([len(probes) for _, probes in nodes])),
    )


@pytest.mark.parametrize("value", [0.0, 2.0, -1e300, 1e-300])
def test_tau_is_zero_when_all_objectives_agree(value):
    """The paper's 0/0 means that no neighbour is better."""
    assert_array_equal(tau((value, [value] * 3)), np.zeros(3))


@pytest.mark.parametrize("scale", [1.0, -1.0, 1e-200, 3e150, -7e9])
def test_rounding_noise_is_no_difference(scale):
    """A few last bits must not become a penalty, whatever the scale and sign of f."""
    f_probe = scale * np.array([1.0, 1 + 8 * EPS, 1 - 64 * EPS, 1 + 1e-13])

    assert_array_equal(tau((scale, f_probe)), np.zeros(4))


def test_balance_doubles_or_halves_beyond_the_ratio():
    """Both comparisons are strict, so nothing moves at the ratio or when all is 0."""
    primal = np.array([10.1, 10.0, 1.0, 1.0, 1.0, 1e-300, 0.0, 0.0])
    dual = np.array([1.0, 1.0, 1.0, 10.0, 10.1, 0.0, 1e-300, 0.0])

    factors = equations.balance(primal, dual, 10.0)

    assert_array_equal(factors, [2.0, 1.0, 1.0, 1.0, 0.5, 2.0, 0.5, 1.0])


REFUSED = {
    "eta0": (0.0, -1.0, math.inf, math.nan, "10", "best", True),
    "t_max": (-1, 2.5),
    "residual_ratio": (1.0, 0.1, math.nan),
    "budget0": (-0.5, math.nan),
    "budget_decay": (1.0, -0.1, math.nan),
    "budget_trigger": (-0.1, math.nan),
    "relaxation": (0.0, 2.0, -1.0, math.nan),
    "probe": ("middle",),
    "coupling": ("both",),
}


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("setting", REFUSED)
def test_a_setting_out_of_range_is_refused(name, setting):
    for value in REFUSED[setting]:
        with pytest.raises(dadmm.ConfigError, match=setting):
            dadmm.penalty.build(name, **{setting: value})
    for value in ("auto", None, 3.0):
        assert dadmm.penalty.build(name, eta0=value).eta0 == value
    with pytest.raises(dadmm.ConfigError, match="npa"):
        build("npa")


def test_tau_of_a_node_does_not_depend_on_other_nodes():
    """Bit for bit, also where another node's objectives are all equal."""
    rng = np.random.default_rng(0)
    nodes = [(rng.normal(), rng.normal(size=d)) for d in (0, 1, 1, 3, 3, 9)]
    nodes.insert(3, (2.0, np.full(3, 2.0)))

    assert_array_equal(tau(*nodes), np.concatenate([tau(node) for node in nodes]))
