"""Which coordinates and which start a run has: a table of cases."""

from __future__ import annotations

import numpy as np
import pytest

import dadmm
from dadmm import ConfigError, Topology, penalty, problems
from dadmm.solver.plan import Kind, all_abilities, make_plan
from tests.support.problems import quadratics

ROWS = np.random.default_rng(0).standard_normal((3, 8, 4))
HOLES = np.where(np.random.default_rng(1).random(ROWS.shape) < 0.2, np.nan, ROWS)


class Own(problems.PPCA):
    """A step of its own, which nothing is known about."""

    def prox(self, *given):
        return super().prox(*given)


class OwnLasso(problems.Lasso):
    """A step of its own, but the coordinates of its parent."""

    def prox(self, *given):
        return super().prox(*given)


def wide():
    X = np.random.default_rng(2).standard_normal((3, 5, 400))
    return [problems.Ridge(x, x[:, 0], 1.0) for x in X]


NODES = {
    "ppca": [problems.PPCA(x, 2) for x in ROWS],
    "gaps": [problems.IncompletePPCA(x, 2) for x in HOLES],
    "one gap": [problems.PPCA(ROWS[0], 2), problems.IncompletePPCA(HOLES[1], 2)],
    "sfm": [problems.StructureFromMotion(x.T) for x in ROWS],
    "lasso": [problems.Lasso(x, x[:, 0], 0.1) for x in ROWS],
    "wide": wide(),
    "own step": [Own(x, 2) for x in ROWS],
    "own lasso": [OwnLasso(x, x[:, 0], 0.1) for x in ROWS],
    "own": quadratics(3),
}
RAW, METRIC, UNITS, MERGED = Kind
ARRAY = np.zeros((3, 5))
NO = None  # not possible
# coordinates: kind and start, or NO; by problem, init and whether penalties change
TABLE = [
    ("ppca", None, "adaptive", "auto", MERGED, "merged"),
    ("ppca", None, "adaptive", "units", MERGED, "merged"),
    ("ppca", None, "adaptive", "raw", RAW, "shared"),
    ("ppca", None, "adaptive", "metric", NO, None),
    ("ppca", None, "constant", "auto", UNITS, "shared"),
    ("ppca", None, "constant", "units", UNITS, "shared"),
    ("ppca", None, "warm", "auto", UNITS, "shared"),
    ("ppca", "merged", "constant", "auto", MERGED, "merged"),
    ("ppca", "merged", "adaptive", "raw", NO, None),
    ("ppca", "merged", "adaptive", "metric", NO, None),
    ("ppca", "shared", "adaptive", "auto", UNITS, "shared"),
    ("ppca", "independent", "adaptive", "auto", UNITS, "independent"),
    ("ppca", "independent", "constant", "raw", RAW, "independent"),
    ("ppca", ARRAY, "adaptive", "auto", RAW, "given"),
    ("ppca", ARRAY, "adaptive", "raw", RAW, "given"),
    ("ppca", ARRAY, "adaptive", "units", NO, None),
    ("gaps", None, "adaptive", "auto", MERGED, "merged"),
    ("gaps", None, "constant", "auto", RAW, "shared"),
    ("gaps", None, "constant", "units", NO, None),
    ("gaps", None, "warm", "auto", RAW, "shared"),
    ("gaps", "shared", "adaptive", "auto", RAW, "shared"),
    ("gaps", "independent", "adaptive", "units", NO, None),
    ("gaps", "merged", "constant", "units", MERGED, "merged"),
    ("one gap", None, "adaptive", "auto", MERGED, "merged"),
    ("one gap", "shared", "adaptive", "auto", RAW, "shared"),
    ("sfm", None, "adaptive", "auto", RAW, "independent"),
    ("sfm", None, "adaptive", "raw", RAW, "independent"),
    ("sfm", "merged", "adaptive", "auto", MERGED, "merged"),
    ("sfm", None, "adaptive", "units", NO, None),
    ("lasso", None, "adaptive", "auto", METRIC, "shared"),
    ("lasso", None, "constant", "metric", METRIC, "shared"),
    ("lasso", "independent", "warm", "auto", METRIC, "independent"),
    ("lasso", ARRAY, "adaptive", "auto", METRIC, "given"),
    ("lasso", ARRAY, "adaptive", "raw", RAW, "given"),
    ("lasso", None, "adaptive", "units", NO, None),
    ("lasso", "merged", "adaptive", "auto", NO, None),
    ("wide", None, "adaptive", "auto", RAW, "shared"),
    ("wide", None, "adaptive", "metric", METRIC, "shared"),
    ("own step", None, "adaptive", "auto", RAW, "shared"),
    ("own step", "merged", "adaptive", "auto", NO, None),
    ("own lasso", None, "adaptive", "auto", RAW, "shared"),
    ("own lasso", None, "adaptive", "metric", NO, None),
    ("own", None, "adaptive", "auto", RAW, "shared"),
    ("own", ARRAY, "constant", "auto", RAW, "given"),
    ("own", None, "adaptive", "metric", NO, None),
    ("own", None, "adaptive", "units", NO, None),
    ("own", "merged", "adaptive", "auto", NO, None),
]


@pytest.mark.parametrize(
    ("nodes", "init", "how", "coordinates", "kind", "start"), TABLE
)
def test_the_kind_of_a_run(nodes, init, how, coordinates, kind, start):
    able = all_abilities(NODES[nodes])
    given = able, init, coordinates, how == "constant", how == "warm"
    if kind is NO:
        with pytest.raises(ConfigError):
            make_plan(*given)
        return

    plan = make_plan(*given)

    assert plan.kind is kind
    assert start == ("given" if plan.init is ARRAY else plan.init)
    assert plan.is_chosen == (kind is not RAW)
    assert plan.name == kind.value.split()[-1]
    assert bool(plan.why) == (kind is RAW)
    assert plan.asked == (coordinates == "raw")


@pytest.mark.parametrize("scheme", penalty.SCHEMES)
@pytest.mark.parametrize("coupling", ["symmetric", "own"])
@pytest.mark.parametrize("nodes", ["ppca", "gaps", "lasso", "own"])
def test_the_coordinates_do_not_depend_on_the_scheme(nodes, coupling, scheme):
    """But only `fixed` never starts from merged axes unless it is asked to."""
    able = all_abilities(NODES[nodes])
    constant = scheme == "fixed"
    rule = dadmm.Stopping(tolerance=0.0, max_iter=1)
    result = dadmm.solve(
        NODES[nodes], Topology.ring(3), stopping=rule,
        scheme=penalty.build(scheme, coupling=coupling),
    )  # fmt: skip

    plan = make_plan(able, None, "auto", constant)
    assert (result.coordinates, result.ending.init) == (plan.name, plan.init)
    assert result.status == "max_iter"
    if nodes in ("ppca", "lasso"):
        assert plan.is_chosen
