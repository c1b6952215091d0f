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
from tests.support.solving import solve

SHARED = Path(os.environ.get("DADMM_SHARED", Path(__file__).parents[3] / "shared"))
ORACLE = SHARED / "oracle"
NAMES = [f"{graph}_{scheme}" for graph in ("ring20", "complete12")
         for scheme in ("fixed", "ap", "nap")]  # fmt: skip
SETTINGS = ("eta0", "t_max", "budget0", "budget_decay", "budget_trigger")

pytestmark = pytest.mark.skipif(
    not ORACLE.is_dir(), reason=f"no oracle in {ORACLE}; set DADMM_SHARED"
)


@lru_cache
def oracle(name):
    """Return the arrays of one oracle file, and one D-PPCA problem per node."""
    with np.load(ORACLE / f"{name}.npz", allow_pickle=False) as arrays:
        want = dict(arrays)
    nodes = [want["samples"][want["node"] == i] for i in range(len(want["a0"]))]
    settings = int(want["n_components"]), bool(want["zero_mean"])
    problems = [
        dadmm.problems.PPCA(x, settings[0], zero_mean=settings[1]) for x in nodes
    ]
    return want, problems


def flat(W, mu, a):
    """Return one row per node: W by rows, mu, a."""
    return np.hstack([W.reshape(len(a), -1), mu, np.reshape(a, (-1, 1))])


def assert_met(actual, desired):
    """Assert equality to the precision that the oracle's README calls fair."""
    assert_allclose(actual, desired, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_library_meets_the_program(name):
    """In all parts and penalties of its first iterations, and in a and the angle."""
    want, problems = oracle(name)
    seen = {}

    def look(t, run):
        if t <= len(want["W"]) or t == len(want["a"]):
            eta = run.by_edge(run.state.penalty["eta"]).copy()
            seen[t] = run.layout.views(run.theta.copy()), eta

    solve(
        problems, dadmm.Topology.from_edges(len(want["a0"]), want["edges"]),
        scheme=str(want["scheme"]), init=flat(want["W0"], want["mu0"], want["a0"]),
        tolerance=0, max_iter=len(want["a"]), coupling="own", probe="neighbour",
        callbacks=[look], **{key: want[key].item() for key in SETTINGS},
    )  # fmt: skip

    assert len(seen) > 5
    for t, (parts, eta) in seen.items():
        assert_met(parts.a, want["a"][t - 1])
        if t <= len(want["W"]):
            assert_met(parts.W, want["W"][t - 1])
            assert_met(parts.mu, want["mu"][t - 1])
        if t <= len(want.get("eta_next", ())):
            assert_met(eta, want["eta_next"][t - 1])
        angles = [subspace_angles(W, want["reference"]).max() for W in parts.W]
        assert_met(np.degrees(max(angles)), want["angle_deg"][t - 1])


@pytest.mark.parametrize("name", NAMES)
def test_library_meets_the_program_in_its_objectives(name):
    """But for a constant of each node.

    The program has -D/2 log(2 pi a) where -D/2 log(a / 2 pi) is meant, and leaves out
    M/2 log(2 pi) of the prior of z; both once per sample.
    """
    want, problems = oracle(name)
    D, M = want["W0"].shape[1:]
    n_samples = np.bincount(want["node"], minlength=len(want["a0"]))
    constant = n_samples * (D + M / 2) * np.log(2 * np.pi)
    before = flat(want["W0"], want["mu0"], want["a0"])
    for t in range(len(want["W"])):
        after = flat(want["W"][t], want["mu"][t], want["a"][t])
        nodes = zip(problems, before, after, strict=True)
        got = [p.objectives(new[None], p.expect(old))[0] for p, old, new in nodes]
        assert_met(np.array(got) - constant, want["objective"][t])
        before = after
