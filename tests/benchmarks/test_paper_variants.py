"""Rules that the paper rejects."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from numpy.testing import assert_allclose

from benchmarks.shared.rejected import VPTau
from dadmm.graphs.incidence import Incidence


def test_vp_tau_is_equation_4_with_tau_of_the_edge():
    """One node with two edges: f_i is 4, and 3 and 6 at the probes."""
    kappas = np.array([1.0, 2.0])  # of 3 and 6; that of 4 is 4/3
    tau = (4.0 / 3.0) / kappas - 1.0
    state = {"eta": np.array([5.0, 20.0]), "eta0": np.array([10.0, 10.0])}
    scheme = VPTau(t_max=50)
    seen = {
        "incidence": Incidence(np.array([2])), "objective": np.array([4.0]),
        "probes": np.array([3.0, 6.0]), "f_min": np.array([3.0]),
        "f_max": np.array([6.0]),
    }  # fmt: skip

    def updated(t, primal, dual):
        obs = SimpleNamespace(
            t=t, primal=np.array([primal]), dual=np.array([dual]), **seen
        )
        return scheme.update(state, obs)["eta"]

    assert_allclose(updated(1, 11.0, 1.0), state["eta"] * (1.0 + tau))
    assert_allclose(updated(1, 1.0, 11.0), state["eta"] / (1.0 + tau))
    assert_allclose(updated(1, 9.0, 1.0), state["eta"])
    assert_allclose(updated(50, 11.0, 1.0), state["eta0"])
