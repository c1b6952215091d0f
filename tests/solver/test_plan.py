"""Which coordinates and which start a run has: a table of cases."""

import numpy as np
import pytest

from dadmm import ConfigError, Topology, penalty, problems
from dadmm.solver.plan import COORDINATES, Kind, abilities, make_plan
from tests.support.problems import quadratics
from tests.support.solving import solve

ROWS = np.random.default_rng(0).standard_normal((3, 8, 4))
HOLES = np.where(np.random.default_rng(1).random(ROWS.shape) < 0.2, np.nan, ROWS)


def with_own(method, kind=problems.PPCA):
    """Return a class with a method of its own, about which nothing is known."""
    return type("Own", (kind,), {method: lambda *given: getattr(kind, method)(*given)})


NODES = {
    "ppca": [problems.PPCA(x, 2) for x in ROWS],
    "gaps": [problems.IncompletePPCA(x, 2) for x in HOLES],
    "one_gap": [problems.PPCA(ROWS[0], 2), problems.IncompletePPCA(HOLES[1], 2)],
    "sfm": [problems.StructureFromMotion(x.T) for x in ROWS],
    "lasso": [problems.Lasso(x, x[:, 0], 0.1) for x in ROWS],
    "wide": [problems.Ridge(np.ones((1, 400)), [1.0], 1.0)] * 3,
    "own_step": [with_own("prox")(x, 2) for x in ROWS],
    "own_init": [with_own("init")(x, 2) for x in ROWS],
    "own_rows": [with_own("prox", problems.Lasso)(x, x[:, 0]) for x in ROWS],
    "own": quadratics(3),
}
ARRAY = np.zeros((3, 5))
# The kind of run by problem, start and kind of penalties (or a warm start), with the
# coordinates auto, metric, units and raw; "-" is not possible
TABLE = """
    ppca      default      adaptive  merged  -       merged  raw
    ppca      default      constant  units   -       units   raw
    ppca      default      warm      units   -       units   raw
    ppca      merged       constant  merged  -       merged  -
    ppca      shared       adaptive  units   -       units   raw
    ppca      given        adaptive  raw     -       -       raw
    gaps      default      adaptive  merged  -       merged  raw
    gaps      default      constant  raw     -       -       raw
    gaps      merged       constant  merged  -       merged  -
    one_gap   default      adaptive  merged  -       merged  raw
    one_gap   shared       adaptive  raw     -       -       raw
    sfm       default      adaptive  raw     -       -       raw
    sfm       merged       adaptive  merged  -       merged  -
    lasso     default      adaptive  metric  metric  -       raw
    lasso     independent  warm      metric  metric  -       raw
    lasso     given        adaptive  metric  metric  -       raw
    lasso     merged       adaptive  -       -       -       -
    wide      default      adaptive  raw     metric  -       raw
    own_step  default      adaptive  raw     -       -       raw
    own_step  merged       adaptive  -       -       -       -
    own_init  default      adaptive  raw     -       -       raw
    own_rows  default      adaptive  raw     -       -       raw
    own       default      adaptive  raw     -       -       raw
    own       merged       adaptive  -       -       -       -
"""


@pytest.mark.parametrize("row", TABLE.strip().splitlines())
def test_the_kind_of_a_run(row):
    nodes, init, how, *kinds = row.split()
    able = abilities(NODES[nodes])
    start = {"default": None, "given": ARRAY}.get(init, init)
    for coordinates, kind in zip(COORDINATES, kinds, strict=True):
        given = able, start, coordinates, how == "constant", how == "warm"
        if kind == "-":
            with pytest.raises(ConfigError):
                make_plan(*given)
            continue

        plan = make_plan(*given)

        assert plan.kind is Kind[kind.upper()]
        usual = "independent" if nodes == "sfm" else "shared"
        usual = "merged" if kind == "merged" else usual
        assert plan.init is (usual if start is None else start)
        assert plan.name == ("units" if kind == "merged" else kind)
        assert bool(plan.why) == (kind == "raw")
        assert plan.asked == (coordinates == "raw")


@pytest.mark.parametrize("scheme", penalty.SCHEMES)
@pytest.mark.parametrize("nodes", ["ppca", "gaps", "lasso", "own"])
def test_the_coordinates_do_not_depend_on_the_scheme(nodes, scheme):
    """But only `fixed` never starts from merged axes unless it is asked to."""
    settings = {"scheme": scheme, "coupling": "own", "tolerance": 0.0, "max_iter": 1}
    result = solve(NODES[nodes], Topology.ring(3), **settings)

    plan = make_plan(abilities(NODES[nodes]), None, "auto", scheme == "fixed")
    assert (result.coordinates, result.ending.init) == (plan.name, plan.init)
    assert result.status == "max_iter"
