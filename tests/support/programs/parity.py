"""Schemes, rules and coordinates whose runs are compared to the last bit."""

from __future__ import annotations

from itertools import product

from numpy.testing import assert_array_equal

import dadmm
from dadmm.admm.rule import RULES
from dadmm.admm.stopping import AGREEMENTS
from dadmm.data import shard
from dadmm.penalty import SCHEMES
from dadmm.penalty.schemes import COUPLINGS

# Short budgets and an early reset, so that each scheme goes through all its phases
SHORT = {"tolerance": 0.0, "max_iter": 16, "t_max": 9, "budget0": 0.6}
EDGES = {"record_edges": True, **SHORT}
EVERY = [
    ("even", {"scheme": scheme, "coupling": coupling, "coordinates": "raw", **EDGES})
    for scheme, coupling in product(SCHEMES, COUPLINGS)
    # a symmetric scheme makes the same run with both couplings
    if coupling == "symmetric" or not SCHEMES[scheme].is_symmetric
]
for chosen in ("snap", "vp_nap"):
    EVERY += [("even", {"scheme": chosen, "init": "independent", **EDGES})]  # units
    EVERY += [("logistic", {"scheme": chosen, **EDGES, "max_iter": 30})]  # metric
EVERY += [("uneven", EDGES)]  # merged
# So loose that the rules stop the runs
LOOSE = {"optimality": 50.0, "residuals": 0.3, "objective": 0.3}
OTHERS = [
    *(
        {"scheme": scheme, "stopping": stopping, "agreement": agreement,
         "tolerance": LOOSE[stopping], "max_iter": 60}
        for scheme, stopping, agreement in (
            *product(["nap"], RULES, AGREEMENTS),
            ("global_balance", "optimality", "global"),
        )
    ),
    {"scheme": "snap", "init": "independent", **SHORT, "coordinates": "auto"},
    {"scheme": "snap", "init": "independent", **SHORT},
    {"scheme": "vp_nap", "relaxation": 1.6, **SHORT},
    {"scheme": "nap", "probe": "neighbour", "init": "independent", "seed": 3, **SHORT},
    {"wait": "block", "scheme": "vp_nap", **SHORT, "max_iter": 6},
    {"wait": "poll", "scheme": "vp_nap", **SHORT, "max_iter": 6},
]  # fmt: skip


RULED = [
    ("uneven", {"init": "shared", "coordinates": "raw"} | chosen) for chosen in OTHERS
]


def logistic(n_nodes: int) -> list[dadmm.problems.LogisticRegression]:
    """Return classifications whose metric changes during a run."""
    samples, _ = dadmm.datasets.synthetic(20 * n_nodes, 4, 2, seed=5)
    kind = dadmm.problems.LogisticRegression
    shards = shard.split(samples, n_nodes)
    return [kind(own[:, 1:], own[:, 0] > 1.0, 0.1) for own in shards]


def build(n_nodes: int, uneven: bool = True) -> list[dadmm.problems.PPCA]:
    """Return shards of 15 samples in 7 dimensions, or of 4 to 15."""
    samples, _ = dadmm.datasets.synthetic(15 * n_nodes, 7, 2, seed=5)
    shards = shard.split(samples, n_nodes)
    if uneven:
        shards = [own[: 4 + i % 12] for i, own in enumerate(shards)]
    return [dadmm.problems.PPCA(own, 2) for own in shards]


def compare(ours: dadmm.Result, alone: dadmm.Result, since: int = 0) -> None:
    """Assert that two results are the same, but for seconds.

    The first has rows since this iteration.
    """
    assert (ours.iterations, ours.reason) == (alone.iterations, alone.reason)
    assert (ours.status, ours.coordinates) == (alone.status, alone.coordinates)
    assert (ours.penalties is None) == (alone.penalties is None)
    for mine, other in zip(ours.penalties or (), alone.penalties or (), strict=True):
        assert_array_equal(mine, other)
    assert len(ours.history) == ours.iterations - since
    for name in ("theta", "eta", "objectives"):
        assert_array_equal(getattr(ours, name), getattr(alone, name), err_msg=name)
    theirs = alone.traffic._asdict()
    for name, mine in ours.traffic._asdict().items():
        if name == "wire":  # of the ranks
            continue
        if not since or not name.startswith("tree_"):  # set-up is of the first session
            assert_array_equal(mine, theirs[name], err_msg=name)
    assert_array_equal(ours.ending.trail, alone.ending.trail)
    assert ours.ending.summary() == alone.ending.summary()
    for mine, other in (
        (ours.history, alone.history),
        (ours.history.edges, alone.history.edges),
    ):
        assert (mine is None) == (other is None)
        for column in () if mine is None else mine.columns:
            if not column.endswith("seconds"):
                assert_array_equal(mine[column], other[column][since:], err_msg=column)
