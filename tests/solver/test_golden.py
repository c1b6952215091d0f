"""Results of small runs, compared with stored ones.

They guard against changes that no other test sees. After a change that is meant to
alter results, record them anew and say so in the changelog. Those that still agree
are kept to the last bit::

    python -m tests.solver.test_golden
"""

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dadmm import Sending, Topology, problems
from tests.support.solving import solve

FILE = Path(__file__).with_name("golden.npz")
STORED = dict(np.load(FILE))
SCHEMES = ("fixed", "vp", "ap", "nap", "vp_ap", "vp_nap", "global_balance", "snap")
RAW = {"coordinates": "raw"}  # as the paper has it
SENDING = {
    "float32": Sending(payload="float32"),
    "4 bits": Sending(payload="quantised:4"),
    "censored": Sending(censor=0.1),
    "every third": Sending(send_every=3),
    "sleeping": Sending(edge_sleep=0.3),
}
DROPPED = {"scheme": "fixed", "relaxation": 1.6}
DROPPED["sending"] = Sending(drop_probability=0.2)
COLUMNS = ("objective", "primal", "dual", "eta")
GRAPHS = {
    "ring": Topology.ring(5),
    "complete": Topology.complete(4),
    "grid": Topology.from_edges(4, [(0, 1), (2, 3), (0, 2), (1, 3)]),
}


def problem(kind, i):
    """Return the problem of node ``i``."""
    rows, rng = np.random.default_rng([7, i]), np.random.default_rng([8, i])
    X = rows.standard_normal((15, 4)) * np.linspace(0.5, 2.0, 4) + 0.5
    if kind == "ppca":
        return problems.PPCA(X, n_components=2)
    if kind == "gaps":
        X[rng.random(X.shape) < 0.15] = np.nan
        return problems.IncompletePPCA(X, n_components=2)
    y = X @ np.linspace(-1.0, 1.0, 4) + 0.3 * rng.standard_normal(15)
    if kind == "lasso":
        return problems.Lasso(X, y, 0.5, fit_intercept=False)
    if kind == "logistic":
        return problems.LogisticRegression(X, (y > 0).astype(float), 0.1)
    return problems.LeastSquares(X, y, fit_intercept=False)


CASES = {
    **{f"{name}, ppca": ("ppca", "ring", {"scheme": name} | RAW) for name in SCHEMES},
    **{f"{name}, units": ("ppca", "ring", {"scheme": name}) for name in SCHEMES},
    **{f"{name}, metric": ("logistic", "ring", {"scheme": name}) for name in SCHEMES},
    "complete": ("ppca", "complete", {}),
    "merged": ("ppca", "ring", {"init": "merged"}),
    "grid": ("least_squares", "grid", RAW),
    "gaps": ("gaps", "ring", {}),
    "lasso": ("lasso", "ring", RAW),
    "logistic": ("logistic", "ring", {"scheme": "nap"} | RAW),
    **{name: ("ppca", "complete", {"sending": how}) for name, how in SENDING.items()},
    "dropped": ("least_squares", "ring", DROPPED | RAW),
    "as printed": (
        "ppca", "complete",
        {"scheme": "nap", "coupling": "own", "probe": "neighbour",
         "init": "independent", "stopping": "objective", "agreement": "global"} | RAW,
    ),
}  # fmt: skip


def arrays(name):
    """Return what a case finds."""
    kind, graph, settings = CASES[name]
    nodes = [problem(kind, i) for i in range(GRAPHS[graph].n_nodes)]
    settings = {"max_iter": 30, "seed": 3, "init": "shared", **settings}
    result = solve(nodes, GRAPHS[graph], **settings)
    found = {"theta": result.theta, "eta": result.eta}
    found["sent"] = result.traffic.edge_bytes
    found |= {column: np.asarray(result.history[column][-1]) for column in COLUMNS}
    if name == "merged":  # it starts at its end, where rounding decides about eta
        del found["eta"]
    return {f"{name}: {key}": values for key, values in found.items()}


def compare(key, values):
    """Assert that an array agrees to 1e-9 of its largest value: a BLAS may round.

    Differences below 1e-14 of the largest parameter are rounding, too: a residual of a
    run that has converged can be nothing else.
    """
    rounding = 1e-14 * np.abs(STORED[f"{key.rsplit(':', 1)[0]}: theta"]).max()
    atol = max(1e-9 * np.nanmax(np.abs(STORED[key]), initial=0.0), rounding)
    assert_allclose(values, STORED[key], 1e-9, atol, err_msg=key)


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_that_were_recorded(name):
    for key, values in arrays(name).items():
        compare(key, values)


if __name__ == "__main__":
    found = {k: v for name in CASES for k, v in arrays(name).items()}
    for key in found:
        try:
            compare(key, found[key])
            found[key] = STORED[key]
        except (AssertionError, KeyError):
            print("recorded", key)
    np.savez_compressed(FILE, **found)
