"""The library against the plain reference, and against the authors' program."""

import os
from dataclasses import asdict, fields, replace
from functools import lru_cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.linalg import subspace_angles

import dadmm
from dadmm.admm.local import curvatures
from dadmm.penalty import Scheme, build
from tests.support import reference
from tests.support.reference import SCHEMES, Settings, Theta
from tests.support.solving import solve as run_solve

D, M = 4, 2
GRAPHS = {
    "ring": ((1, 5), (0, 2), (1, 3), (2, 4), (3, 5), (0, 4)),
    "cluster": ((1, 2), (0, 2), (0, 1, 3), (2, 4, 5), (3, 5), (3, 4)),
    "star": ((1, 2, 3, 4), (0,), (0,), (0,), (0,)),
    "pair": ((1,), (0,)),
    "alone": ((),),
}
T_MAX, LAST = 6, 15
BUSY = Settings(
    eta0=3.0, t_max=T_MAX, residual_ratio=2.0, budget0=1.2, budget_decay=0.8,
    budget_trigger=0.5,
)  # fmt: skip
EDGES = ("eta", "spent", "budget", "raised", "used_up")


@lru_cache
def make_case(graph, sizes=(6, 7, 8, 9, 10, 6), offset=0.0, start=0.0, noise=0.2):
    """Return samples, neighbours and starts; nodes have one subspace, and own means.

    ``offset`` moves all samples, ``start`` all initial means.
    """
    rng = np.random.default_rng(1)
    neighbours = GRAPHS[graph]
    W = rng.normal(size=(D, M))
    shards, theta0 = [], []
    for size in sizes[: len(neighbours)]:
        clean = rng.normal(size=(size, M)) @ W.T + 0.3 * rng.normal(size=D)
        shards.append(clean + np.sqrt(noise) * rng.normal(size=(size, D)) + offset)
        W0 = np.linalg.qr(rng.normal(size=(D, M)))[0]
        theta0.append(Theta(W0, np.full(D, start), 1.0))
    return shards, neighbours, theta0


def solve(case, scheme, settings, callback):
    shards, neighbours, theta0 = case
    keywords = asdict(settings)
    zero_mean, _ = keywords.pop("zero_mean"), keywords.pop("curvature")
    own = {field.name: keywords.pop(field.name) for field in fields(Scheme)}
    own["eta0"] = "auto" if scheme == "snap" else own["eta0"]
    edges = [(i, j) for i, around in enumerate(neighbours) for j in around]
    return run_solve(
        [dadmm.problems.PPCA(x, M, zero_mean=zero_mean) for x in shards],
        dadmm.Topology.from_edges(len(shards), edges), scheme=build(scheme, **own),
        init=np.array(list(map(reference.stack, theta0))), tolerance=0, max_iter=LAST,
        coordinates="raw", record_edges=True, callbacks=[callback], **keywords,
    )  # fmt: skip


def near(got, want, scale=np.abs, err_msg=""):
    """Assert equality to 1e-9 of the largest number of an iteration, on a scale."""
    for t, (mine, theirs) in enumerate(zip(got, want, strict=True), 1):
        theirs = np.reshape(theirs, np.shape(mine))  # a node alone has no edges
        atol = 1e-9 * np.abs(scale(theirs)).max(initial=0.0)
        message = f"{err_msg} after iteration {t}"
        assert_allclose(mine, theirs, rtol=0, atol=atol, err_msg=message)


def budgets(*values):
    names = ("budget0", "budget_decay", "budget_trigger")
    return dict(zip(names, values, strict=True))


MANY, FEW = (8, 7, 9, 10, 6, 6), (3, 2, 1, 3, 3, 2)
# arguments of `make_case` and changes of the settings
CORNERS = [
    (("cluster", (1, 3, 12, 1, 2, 5)), {}),
    (("cluster", (1, 3, 12, 1, 2, 5)), {"coupling": "own"}),
    (("ring", (3, 7, 8, 1, 6, 6), 0.5), {"zero_mean": True}),
    (("ring", MANY, 1e4, 1e4 + 1, 1e-2), {}),  # far from zero
    (("ring", MANY, 100.0, 0.0, 1e-2), {}),  # far from the start
    (("ring", FEW, 1e4, 1e4 + 1, 1e-2), {}),
    (("ring", FEW, 100.0, 0.0, 1e-2), {}),
    # there is no objective before the first, so no change that could raise a budget
    (("cluster",), budgets(0.4, 0.95, 0.0)),
    (("pair",), {}),
    (("alone",), {}),
]
BEYOND = [
    ("snap", {"relaxation": 1.6, **budgets(0.3, 0.8, 0.3)}),
    ("snap", {"relaxation": 0.8, **budgets(32.0, 0.5, 0.01)}),
    ("snap", {"relaxation": 1.0, **budgets(0.0, 0.5, 0.0)}),
    ("global_balance", {}),
    ("fixed", {"relaxation": 1.6}),
    ("vp_nap", {"relaxation": 0.8}),
]
CASES = [
    ((graph,), scheme, {"coupling": coupling, "probe": probe})
    for graph, scheme in product(("ring", "cluster", "star"), SCHEMES)
    for coupling, probe in product(("symmetric", "own"), ("midpoint", "neighbour"))
    if scheme not in ("fixed", "vp") or probe == "midpoint"  # these two do not probe
]
CASES += [(case, scheme, more) for case, more in CORNERS for scheme in SCHEMES
          if len(case) < 4 or scheme in ("fixed", "vp_nap")]  # fmt: skip
CASES += [((graph,), *beyond) for graph in GRAPHS for beyond in BEYOND]


@pytest.mark.parametrize(("given", "scheme", "changes"), CASES)
def test_library_follows_the_reference(given, scheme, changes):
    """In every iteration: parameters, multipliers, history, and every edge.

    Each part is compared on its own scale; that of mu is its spread, so that data far
    from zero buy no indulgence.
    """
    case, thetas, multipliers = make_case(*given), [], []
    settings = replace(BUSY, **changes)
    if scheme == "snap":
        problems = [dadmm.problems.PPCA(x, M) for x in case[0]]
        bends = map(curvatures, problems, map(reference.stack, case[2]))
        settings = replace(settings, curvature=tuple(np.concatenate([*bends])))

    def keep(t, run):
        thetas.append(run.theta)
        multipliers.append(run.by_edge(run.state.multipliers))

    run = reference.run(*case, scheme, settings, LAST)
    result = solve(case, scheme, settings, keep)

    parts, history = result.layout.views(np.array(thetas)), result.history
    near(parts.W, run["W"], err_msg="W")
    near(parts.mu, run["mu"], lambda mu: mu - mu.mean(), err_msg="mu")
    near(parts.a, run["a"], err_msg="a")
    if any(given[2:]):  # data far from zero: the other numbers have fewer digits
        return
    near(multipliers, run["multipliers"], err_msg="multipliers")
    near(history["objective"], run["f"], err_msg="objective")
    for name in ("primal", "dual"):
        near(history[name], run[name], err_msg=name)
    for name in EDGES if "budget0" in build(scheme).uses else EDGES[:1]:
        near(history.edges[name], run[name], err_msg=name)


SHARED = Path(os.environ.get("DADMM_SHARED", Path(__file__).parents[3] / "shared"))
ORACLE = SHARED / "oracle"
NAMES = [f"{graph}_{scheme}" for graph in ("ring20", "complete12")
         for scheme in ("fixed", "ap", "nap")]  # fmt: skip
SETTINGS = ("eta0", "t_max", "budget0", "budget_decay", "budget_trigger")


def assert_met(actual, desired):
    """Assert equality to the precision that the oracle's README calls fair."""
    assert_allclose(actual, desired, rtol=1e-10, atol=1e-10)


@pytest.mark.skipif(not ORACLE.is_dir(), reason=f"set DADMM_SHARED; no {ORACLE}")
@pytest.mark.parametrize("name", NAMES)
def test_library_meets_the_program(name):
    """In parts and penalties of its first iterations, then in a and the angle.

    Objectives agree but for a constant of each node: the program has -D/2 log(2 pi a)
    where -D/2 log(a / 2 pi) is meant, and leaves out M/2 log(2 pi) of the prior of z;
    both once per sample.
    """
    with np.load(ORACLE / f"{name}.npz", allow_pickle=False) as arrays:
        want = dict(arrays)
    n, D, M = want["W0"].shape
    rows = [want["samples"][want["node"] == i] for i in range(n)]
    about = {"n_components": M, "zero_mean": bool(want["zero_mean"])}
    problems = [dadmm.problems.PPCA(x, **about) for x in rows]
    constant = np.array([len(x) for x in rows]) * (D + M / 2) * np.log(2 * np.pi)
    layout, last, seen = problems[0].layout, len(want["a"]), []

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
    run_solve(
        problems, dadmm.Topology.from_edges(n, want["edges"]), tolerance=0,
        init=np.array([layout.pack(W=W, mu=mu, a=a) for W, mu, a in start]),
        scheme=str(want["scheme"]), coupling="own", probe="neighbour", max_iter=last,
        callbacks=[look], **{key: want[key].item() for key in SETTINGS},
    )  # fmt: skip

    assert len(seen) == last > 5
