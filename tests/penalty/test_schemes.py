"""What all schemes promise, the equations at their borders, and their settings."""

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

BY_EDGE = ("probes", "sent", "received", "anchors", "drift", "multipliers", "eta")


def build(name, **settings):
    """Return a scheme with a number as its first penalty."""
    return dadmm.penalty.build(name, **{"eta0": 10.0} | settings)


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


def arrays(record):
    """Return all arrays of a state or an observation."""
    fields = record if isinstance(record, dict) else vars(record)
    return [field for field in fields.values() if isinstance(field, np.ndarray)]


def update(scheme, state, obs):
    """Update a copy of the state, whose arrays a scheme may overwrite."""
    return scheme.update({name: array.copy() for name, array in state.items()}, obs)


def follow(scheme, observations, *degrees):
    """Return the states of a scheme, the first before iteration 1."""
    incidence = Incidence(np.array(degrees or (3,)))
    n_edges = int(incidence.degrees.sum())
    state = scheme.init(incidence, np.full(n_edges, scheme.eta0))
    anchors = np.ones((n_edges, 4))
    states = [scheme.start(state, state["eta"], anchors, 0.0 * anchors)]
    for obs in observations:
        states.append(update(scheme, states[-1], obs))
    return states


@pytest.mark.parametrize("seed", range(2))
def test_a_scheme_depends_on_state_and_observation_only_and_is_bounded(scheme, seed):
    """It keeps no array of the observation; eta of `snap` is within 64 bits."""
    most = 2.0**64 if dadmm.penalty.name_of(scheme) == "snap" else 1e6
    observations = list(together(wander(seed)))
    states = follow(scheme, observations)
    for state, obs, after in zip(states, observations, states[1:], strict=False):
        kept = [array.copy() for array in arrays(obs)]

        again = update(scheme, state, obs)

        for array, before in zip(arrays(obs), kept, strict=True):
            assert_array_equal(array, before)
        for one, other in zip(arrays(after), arrays(again), strict=True):
            assert_array_equal(one, other)
            assert (len(one), one.dtype) == (3, np.float64)
            assert np.isfinite(one).all()
            assert not any(np.shares_memory(one, theirs) for theirs in arrays(obs))
        assert np.all(np.abs(np.log(after["eta"] / scheme.eta0)) <= math.log(most))


def test_nodes_together_have_the_bits_of_each_alone(scheme):
    """Of several degrees, up to where numpy adds in pairs; one has flat objectives."""
    degrees = (1, 1, 2, 5, 5, 11, 40)
    nodes = [list(wander(k, degree, 20)) for k, degree in enumerate(degrees)]
    nodes[3] = [n | {"probes": np.full(5, n["objective"])} for n in nodes[3]]

    states = follow(scheme, together(*nodes), *degrees)
    each = zip(nodes, degrees, strict=True)
    alone = [follow(scheme, together(node), degree) for node, degree in each]

    for t, state in enumerate(states):
        for name, array in state.items():
            rows = np.concatenate([node[t][name] for node in alone])
            assert_array_equal(array, rows, err_msg=name)


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

    with pytest.raises(dadmm.ConfigError, match="Own"):
        dadmm.solve(quadratics(3), dadmm.Topology.ring(3), scheme=Own())


@pytest.mark.parametrize("scale", [0.0, 1.0, -1.0, 1e-300, -1e300])
def test_objectives_that_are_equal_to_rounding_have_a_tau_of_zero(scale):
    """Neither the paper's 0/0 nor a few last bits become a penalty."""
    probes = scale * np.array([1.0, 1 + 8 * EPS, 1 - 64 * EPS, 1 + 1e-13])
    both = (probes.min(keepdims=True), probes.max(keepdims=True))

    found = equations.tau(np.array([scale]), probes, *both, Incidence(np.array([4])))

    assert_array_equal(found, np.zeros(4))


def test_balance_doubles_or_halves_beyond_the_ratio():
    """Both comparisons are strict, so nothing moves at the ratio or when all is 0."""
    primal = np.array([10.1, 10.0, 1.0, 1.0, 1.0, 1e-300, 0.0, 0.0])
    dual = np.array([1.0, 1.0, 1.0, 10.0, 10.1, 0.0, 1e-300, 0.0])

    factors = equations.balance(primal, dual, 10.0)

    assert_array_equal(factors, [2.0, 1.0, 1.0, 1.0, 0.5, 2.0, 0.5, 1.0])


@pytest.mark.parametrize(
    ("setting", "values"),
    [
        ("eta0", (0.0, -1.0, math.inf, math.nan, "10", "best", True)),
        ("t_max", (-1, 2.5)),
        ("residual_ratio", (1.0, 0.1, math.nan)),
        ("budget0", (-0.5, math.nan)),
        ("budget_decay", (1.0, -0.1, math.nan)),
        ("budget_trigger", (-0.1, math.nan)),
        ("relaxation", (0.0, 2.0, -1.0, math.nan)),
        ("probe", ("middle",)),
        ("coupling", ("both",)),
    ],
)
def test_a_setting_out_of_range_is_refused(setting, values):
    for value in values:
        with pytest.raises(dadmm.ConfigError, match=setting):
            build("vp_nap", **{setting: value})
    with pytest.raises(dadmm.ConfigError, match="npa"):
        build("npa")
