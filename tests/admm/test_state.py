"""Rows of the state: chosen, joined, named and taken over."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dadmm import Sending, Topology
from dadmm.admm.loop import iterate
from dadmm.admm.state import State
from dadmm.penalty import build as scheme
from tests.support.engine import build
from tests.support.problems import quadratics

STAR = Topology.star(5)
KINDS = {
    "snap": ("snap", Sending()),
    "nap": ("nap", Sending()),
    "global": ("global_balance", Sending()),
    "sleep": ("vp", Sending(edge_sleep=0.5, payload="float32")),
    "loss": ("fixed", Sending(drop_probability=0.2)),
}


def run_of(kind, n_iterations=0):
    """Return a run of the star after some iterations."""
    name, sending = KINDS[kind]
    agreement = "global" if kind == "global" else "neighbours"
    run = build(quadratics(5), STAR, scheme(name), sending, agreement=agreement)
    with np.errstate(all="ignore"):
        iterate(run, n_iterations)
    return run


def assert_same(one, other):
    """Assert that two states have the same arrays, bit for bit."""
    mine, theirs = one.flatten(), other.flatten()
    assert mine.keys() == theirs.keys()
    for name, array in mine.items():
        assert_array_equal(theirs[name], array, err_msg=name)
        assert theirs[name].dtype == array.dtype


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


def test_a_state_of_chosen_nodes_joins_to_the_whole(kind):
    """One node at a time, as in the files of a checkpoint; names survive as well."""
    run = run_of(kind, 11)
    whole = run.snapshot()

    each = [
        whole.choose([row], run.incidence.edges_of(row))
        for row in range(len(run.nodes))
    ]

    assert all(len(state.theta) == 1 for state in each)
    assert [len(state.eta) for state in each] == run.incidence.degrees.tolist()
    named = [State.from_arrays(state.flatten()) for state in each]
    assert_same(State.join(named), whole)
    assert_same(State.join(named[:1]), each[0])


def test_a_restored_run_continues_with_the_same_bits(kind):
    whole = run_of(kind, 14)
    part, fresh = run_of(kind, 6), run_of(kind)

    fresh.restore(part.snapshot())
    assert_same(without_seconds(fresh.snapshot()), without_seconds(part.snapshot()))
    with np.errstate(all="ignore"):
        iterate(fresh, 14, start=6)

    assert_same(without_seconds(fresh.snapshot()), without_seconds(whole.snapshot()))


def without_seconds(state):
    """Return a state without what depends on the clock."""
    state.seconds[...] = 0.0
    return state
