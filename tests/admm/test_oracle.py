"""Trajectories of the authors' program, met by the library."""

import os
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


def assert_met(actual, desired):
    """Assert equality to the precision that the oracle's README calls fair."""
    assert_allclose(actual, desired, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_library_meets_the_program(name):
    """In parts and penalties of its first iterations, then in a and the angle.

    Objectives agree but for a constant of each node: the program has -D/2 log(2 pi a)
    where -D/2 log(a / 2 pi) is meant, and leaves out M/2 log(2 pi) of the prior of z;
    both once per sample.
    """
    with np.load(ORACLE / f"{name}.npz", allow_pickle=False) as arrays:
        want = dict(arrays)
    nodes, (D, M) = range(len(want["a0"])), want["W0"].shape[1:]
    rows, given = [want["samples"][want["node"] == i] for i in nodes], {}
    given["zero_mean"] = bool(want["zero_mean"])
    problems = [
        dadmm.problems.PPCA(x, int(want["n_components"]), **given) for x in rows
    ]
    constant = np.array([len(x) for x in rows]) * (D + M / 2) * np.log(2 * np.pi)
    layout, last = problems[0].layout, len(want["a"])
    seen = []

    def look(t, run):
        parts = layout.views(run.theta)
        assert_met(parts.a, want["a"][t - 1])
        if t <= len(want["W"]):
            assert_met(parts.W, want["W"][t - 1])
            assert_met(parts.mu, want["mu"][t - 1])
            assert_met(run.objective - constant, want["objective"][t - 1])
        if t <= len(want.get("eta_next", ())):
            assert_met(run.by_edge(run.state.penalty["eta"]), want["eta_next"][t - 1])
        if t <= len(want["W"]) or t == last:
            angles = [subspace_angles(W, want["reference"]).max() for W in parts.W]
            assert_met(np.degrees(max(angles)), want["angle_deg"][t - 1])
        seen.append(t)

    start = zip(want["W0"], want["mu0"], want["a0"], strict=True)
    solve(
        problems, dadmm.Topology.from_edges(len(nodes), want["edges"]), tolerance=0,
        init=np.array([layout.pack(W=W, mu=mu, a=a) for W, mu, a in start]),
        scheme=str(want["scheme"]), coupling="own", probe="neighbour", max_iter=last,
        callbacks=[look], **{key: want[key].item() for key in SETTINGS},
    )  # fmt: skip

    assert len(seen) == last > 5
