"""When a run ends, why, and where; a run with missing entries."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import dadmm
from dadmm import Topology
from dadmm.admm.rule import RULES
from dadmm.admm.stopping import PATIENCE
from dadmm.data.patterns import remove_entries
from dadmm.penalty import SCHEMES
from dadmm.problems import PPCA, metrics
from dadmm.run import main
from tests.support.problems import Quadratic, distance, optimum, quadratics
from tests.support.runs import arrays_of, refused, summary_of
from tests.support.solving import solve

CHAIN = Topology.chain(4)  # its diameter is 3


@pytest.mark.parametrize("agreement", ["neighbours", "global"])
@pytest.mark.parametrize("stopping", RULES)
def test_a_run_ends_when_all_are_satisfied(stopping, agreement):
    problems, ring = quadratics(5), Topology.ring(5)
    settings = {"scheme": "fixed", "stopping": stopping, "agreement": agreement}
    loose, tight = (
        solve(problems, ring, tolerance=x, **settings) for x in (1e-3, 1e-8)
    )

    assert loose.reason == tight.reason == "converged"
    assert loose.iterations < tight.iterations < 300
    assert distance(tight.theta, optimum(problems)) < 1e-5


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


@pytest.mark.parametrize("scheme", ["fixed", "snap"])
def test_an_optimum_at_zero_ends_the_run(scheme):
    """By the absolute tolerance: relative to |theta| nothing is small there."""
    centres = np.random.default_rng(0).standard_normal((4, 2))
    problems = [Quadratic(5 * np.eye(2), b) for b in centres - centres.mean(axis=0)]

    result = solve(problems, CHAIN, scheme=scheme, max_iter=200)
    never = solve(problems, CHAIN, scheme=scheme, absolute_tolerance=0, max_iter=300)

    assert (result.converged, never.converged) == (True, False)
    assert np.abs(result.theta).max() < 1e-4


class Heavier(PPCA):
    """A problem with another objective, so PPCA's likelihood is not its own."""

    def objectives(self, thetas, stats):
        return 2.0 * super().objectives(thetas, stats)


@pytest.mark.parametrize(("kind", "gaps"), [(PPCA, 0), (PPCA, 1), (Heavier, 0)])
def test_the_rule_objective_judges_equation_14_where_a_problem_knows_it(kind, gaps):
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
    small = np.abs(np.diff(values)) < 1e-2 * np.abs(values[1:])
    in_a_row = np.lib.stride_tricks.sliding_window_view(small, PATIENCE).all(axis=1)
    assert result.iterations == np.argmax(in_a_row) + PATIENCE + 2
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

        assert metrics.consensus_error(theta) < 1e-10
        assert distance(theta, optimum(problems)) > 1e-4


SMALL = ("--nodes", "4", "--n-samples", "60", "--dimension", "6", "--n-components", "2")


def test_a_run_fills_in_what_is_missing(tmp_path):
    assert main([*SMALL, "--missing-fraction", "0.2", "--out", str(tmp_path)]) == 0

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


@pytest.mark.parametrize(
    ("spoil", "culprit"), [(np.s_[:, 3], "column 3"), (np.s_[15:30], "node 1")]
)
def test_what_nobody_knows_is_refused(spoil, culprit, capsys, tmp_path):
    samples, _ = dadmm.datasets.synthetic(60, 6, 2)
    samples[spoil] = np.nan
    np.save(tmp_path / "x.npy", samples)

    assert culprit in refused(capsys, *SMALL, "--data", str(tmp_path / "x.npy"))
