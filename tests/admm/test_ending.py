"""When a run ends, why, and where; a run with missing entries."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import dadmm
from dadmm import Schedule, Topology
from dadmm.admm.rule import RULES
from dadmm.admm.stopping import AGREEMENTS, PATIENCE
from dadmm.comm.wire import HEADER
from dadmm.data.patterns import remove_entries
from dadmm.penalty import SCHEMES
from dadmm.problems import PPCA, metrics
from tests.support.problems import distance, optimum, quadratics
from tests.support.runs import arrays_of, run_job, run_of, summary_of
from tests.support.solving import solve

CHAIN = Topology.chain(4)  # its diameter is 3
TURNS = Schedule(6, [[(i, i + 1)] for i in (4, 3, 2, 1, 0)])  # delays headers most


@pytest.mark.parametrize("schedule", [None, TURNS])
@pytest.mark.parametrize("agreement", AGREEMENTS)
@pytest.mark.parametrize("rule", RULES)
def test_all_nodes_end_together_and_near_the_optimum(rule, agreement, schedule):
    """A node whose edges were not used has not changed, and is not satisfied yet."""
    problems, ends = quadratics(6, curvature=(2.0, 8.0)), []

    def watch(t, run):
        ends.append(run.state.header.view(HEADER)["stop_at"] <= t)

    result = solve(
        problems, TURNS.union, schedule=schedule, send_every=3, stopping=rule,
        agreement=agreement, tolerance=1e-4, max_iter=5000, callbacks=[watch],
    )  # fmt: skip

    assert result.converged
    assert all(done.any() == done.all() for done in ends)
    if agreement == "neighbours" or rule != "objective":
        assert np.abs(result.theta - optimum(problems)).max() < 0.02


def test_a_callback_or_a_time_limit_ends_the_run_two_rounds_of_a_diameter_later():
    seen = []

    def watch(t, run):
        seen.append((t, run.due))
        return "signal" if t == 7 else None

    result = solve(quadratics(4), CHAIN, tolerance=0, callbacks=[watch])
    limited = solve(quadratics(4), CHAIN, tolerance=0, max_seconds=1e-9)

    assert (result.reason, result.status) == ("signal", "not converged")
    assert seen == [(t, "") for t in range(1, 12)] + [(12, "signal")]
    assert (limited.reason, limited.iterations) == ("max_seconds", 6)


def test_a_run_that_goes_on_does_nothing_that_was_requested_before():
    run = run_of(quadratics(4), CHAIN, tolerance=0, max_iter=5)
    run.stopping.request(5, "stop")
    run.restore(run.snapshot())

    assert [run.stopping.due_request(t) for t in range(6, 16)] == [""] * 10


def test_votes_of_before_do_not_count_at_a_tighter_tolerance():
    run = run_of(quadratics(4), CHAIN, agreement="global", tolerance=0, max_iter=5)
    assert run.state.posted.keys() == {"stopping"}
    run.stopping.reopen(1e-9)
    assert run.state.posted == {}


class Heavier(PPCA):
    """A problem with another objective, so PPCA's likelihood is not its own."""

    def objectives(self, thetas, stats):
        return 2.0 * super().objectives(thetas, stats)


@pytest.mark.parametrize(("kind", "gaps"), [(PPCA, 0), (PPCA, 1), (Heavier, 0)])
def test_the_rule_objective_judges_equation_14_where_a_problem_knows_it(kind, gaps):
    """Of the sum over all nodes, if they agree by a collective."""
    shards = dadmm.shard.split(dadmm.datasets.synthetic(72, 7, 2, seed=5)[0], 6)
    if gaps:
        shards[0][0, 1] = shards[2][3, 2] = np.nan
    problems, judged, objectives = [kind(own, 2) for own in shards], [], []

    def watch(t, run):
        each = zip(problems, run.theta, strict=True)
        objectives.append(run.objective.copy())
        judged.append(sum(p.neg_log_likelihood(theta) for p, theta in each))

    result = solve(
        problems, Topology.ring(6), scheme="nap", init="independent", tolerance=1e-2,
        stopping="objective", agreement="global", max_iter=300, callbacks=[watch],
    )  # fmt: skip

    values = np.array(judged if kind is PPCA else np.sum(objectives, axis=1))
    changes, ending = np.abs(np.diff(values) / values[1:]) / 1e-2, result.ending
    assert changes[ending.iteration - 2] == pytest.approx(ending.factor)
    small = np.lib.stride_tricks.sliding_window_view(changes < 1, PATIENCE).all(axis=1)
    assert ending.iteration == np.argmax(small) + 1
    assert result.iterations == ending.iteration + PATIENCE + 1
    assert (ending.node, ending.part, ending.delay) == (None, None, 1)
    assert_array_equal(result.history["objective"], objectives)  # those stay f_i


# Schemes that give the ends of an edge unlike penalties
DIRECTED = [name for name, kind in SCHEMES.items() if not kind.is_symmetric]
ENDLESS = {"tolerance": 0, "record": False}


def test_vp_nap_converges_from_a_small_penalty():
    """It pays |tau| only, and would double and halve forever if it had no last time."""
    problems = quadratics(8, curvature=(0.03, 1.0), seed=1)
    given = {"scheme": "vp_nap", "eta0": 0.1, "max_iter": 1500}
    result = solve(problems, Topology.ring(8), **given, **ENDLESS)

    assert distance(result.theta, optimum(problems)) < 1e-8


@pytest.mark.parametrize("scheme", DIRECTED)
def test_penalties_of_its_own_lead_each_scheme_to_a_wrong_point(scheme):
    """coupling="own", the paper as printed: perfect consensus, on something else."""
    problems = quadratics(5)
    for graph in (Topology.ring(5), Topology.complete(5), Topology.cluster(5)):
        given = {"scheme": scheme, "coupling": "own", "max_iter": 250}
        theta = solve(problems, graph, **given, **ENDLESS).theta

        assert_allclose(theta - theta[0], 0, atol=1e-10 * np.linalg.norm(theta[0]))
        assert distance(theta, optimum(problems)) > 1e-4


def test_a_run_fills_in_what_is_missing(tmp_path):
    words = "--nodes 4 --n-samples 60 --dimension 6 --n-components 2"
    run_job(*words.split(), "--missing-fraction", 0.2, out=tmp_path)

    found, arrays = summary_of(tmp_path)["metrics"], arrays_of(tmp_path)
    holed = remove_entries(dadmm.datasets.synthetic(60, 6, 2)[0], 0.2, seed=0)
    parts = {name: arrays[name] for name in ("W", "mu", "a")}
    means = [part.mean(axis=0) for part in parts.values()]
    expected = metrics.ppca_log_likelihood(holed, *means)
    assert_allclose(found["log_likelihood"], expected, rtol=1e-12)
    assert found["missing"] == np.isnan(holed).mean()
    assert "angle_to_centralised_degrees" not in found
    for i, rows in enumerate(dadmm.shard.split(holed, 4)):
        own = PPCA(rows, 2)
        theta = own.layout.pack(**{name: part[i] for name, part in parts.items()})
        with np.load(tmp_path / f"imputed-{i:05d}.npz") as imputed:
            both = (imputed["samples"], imputed["variances"])
            for array, want in zip(both, own.impute(theta, rows), strict=True):
                assert_array_equal(array, want)
            assert imputed["latent"].shape == (15, 2)
