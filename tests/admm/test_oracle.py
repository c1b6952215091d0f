"""Trajectories of the authors' program, met by the library."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.linalg import subspace_angles

import dadmm
from tests.support.solving import solve as run_solve

SHARED = Path(os.environ.get("DADMM_SHARED", Path(__file__).parents[3] / "shared"))
ORACLE = SHARED / "oracle"
NAMES = [
    f"{graph}_{scheme}"
    for graph in ("ring20", "complete12")
    for scheme in ("fixed", "ap", "nap")
]

pytestmark = pytest.mark.skipif(
    not ORACLE.is_dir(), reason=f"no oracle in {ORACLE}; set DADMM_SHARED"
)


@lru_cache
def oracle(name):
    """Return the arrays of one oracle file."""
    with np.load(ORACLE / f"{name}.npz", allow_pickle=False) as arrays:
        return dict(arrays)


def penalty_settings(want):
    """Return the settings of one oracle file, as keywords."""
    names = ("eta0", "t_max", "budget0", "budget_decay", "budget_trigger")
    settings = {name: want[name].item() for name in names}
    return settings | {"coupling": "own", "probe": "neighbour"}


def largest_angle(Ws, to):
    """Return the largest subspace angle over the nodes, in degrees."""
    return max(np.degrees(subspace_angles(W, to).max()) for W in Ws)


def objective_constant(want):
    """Return, per node, f_i minus the program's objective.

    The program has -D/2 log(2 pi a) where -D/2 log(a / 2 pi) is meant, and leaves out
    M/2 log(2 pi) of the prior of z; both once per sample.
    """
    D, M = want["W0"].shape[1:]
    n_samples = np.bincount(want["node"], minlength=len(want["a0"]))
    return n_samples * (D + M / 2) * np.log(2 * np.pi)


def assert_met(actual, desired):
    """Assert equality to the precision that the oracle's README calls fair."""
    assert_allclose(actual, desired, rtol=1e-10, atol=1e-10)


@lru_cache
def library_problems(name):
    """Return one D-PPCA problem per node of an oracle file."""
    want = oracle(name)
    settings = int(want["n_components"]), bool(want["zero_mean"])
    nodes = [want["samples"][want["node"] == i] for i in range(len(want["a0"]))]
    return [dadmm.problems.PPCA(x, settings[0], zero_mean=settings[1]) for x in nodes]


def flat(W, mu, a):
    """Return one row per node: W by rows, mu, a."""
    n_nodes = len(a)
    return np.hstack([W.reshape(n_nodes, -1), mu, np.reshape(a, (n_nodes, 1))])


def solve(name, n_iterations):
    """Run the library on one oracle file."""
    want = oracle(name)
    return run_solve(
        library_problems(name),
        dadmm.Topology.from_edges(len(want["a0"]), want["edges"]),
        scheme=str(want["scheme"]),
        init=flat(want["W0"], want["mu0"], want["a0"]),
        tolerance=0,
        max_iter=n_iterations,
        **penalty_settings(want),
    )


def parts(result, name):
    """Return one part of all nodes, stacked."""
    return np.array([getattr(result.parts(i), name) for i in range(len(result.theta))])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("t", [1, 2, 3, 4, 5, "last"])
def test_library_meets_the_program(name, t):
    want = oracle(name)
    t = len(want["a"]) if t == "last" else t
    result = solve(name, t)

    assert result.iterations == t
    assert_met(parts(result, "a"), want["a"][t - 1])
    if t <= len(want["W"]):
        assert_met(parts(result, "W"), want["W"][t - 1])
        assert_met(parts(result, "mu"), want["mu"][t - 1])
    if t <= len(want.get("eta_next", ())):
        assert_met(result.eta, want["eta_next"][t - 1])
    angle = largest_angle(parts(result, "W"), want["reference"])
    assert_met(angle, want["angle_deg"][t - 1])


@pytest.mark.parametrize("name", NAMES)
def test_library_meets_the_program_in_its_objectives(name):
    want = oracle(name)
    before = flat(want["W0"], want["mu0"], want["a0"])
    for t in range(len(want["W"])):
        after = flat(want["W"][t], want["mu"][t], want["a"][t])
        nodes = zip(library_problems(name), before, after, strict=True)
        got = [p.objectives(new[None], p.expect(old))[0] for p, old, new in nodes]
        assert_met(np.array(got) - objective_constant(want), want["objective"][t])
        before = after
