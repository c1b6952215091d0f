"""Stored rows of benchmarks: pages have them, they are true, and can be had again."""

import json
import os
import shutil
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import dadmm
from benchmarks import bench_real, draw_dynamic, paper_claims, paper_tracks
from benchmarks.bench_real import Case
from benchmarks.bench_scaling import measure
from benchmarks.paper_synthetic import outcome
from benchmarks.peers import authors, compare, dadmm_ring, problem, rows, tuning
from benchmarks.shared import experiment, pooled, tables
from dadmm.graphs.topology import GRAPHS
from dadmm.runs.stored import StoredRun
from dadmm.timing.network import Network
from tests.support.processes import ROOT, find_mpiexec, mpiexec, python
from tests.support.runs import run_job

BENCHMARKS = ROOT / "benchmarks"
PEERS = (BENCHMARKS / "peers" / "README.md").read_text("utf-8")
SHARED = Path(os.environ.get("DADMM_SHARED", ROOT.parent / "shared")) / "data"
CHECKOUT = os.environ.get("DADMM_AUTHORS", "")
TRANSPORTS = ("dadmm", "persistent", "nonblocking", "Ineighbor_alltoallv")
CELL = {"setting": "printed", "graph": "complete", "n_nodes": 12, "start": 0}


def stored(name: str) -> list[dict[str, str]]:
    return experiment.read_rows(BENCHMARKS / "results" / f"{name}.csv")


@pytest.mark.parametrize(
    ("name", "count"),
    [("real", 600), ("real-fresh", 300), ("real-ppca", 600), ("real-ppca-fresh", 300)],
)
def test_nothing_was_false_on_public_tables(name, count, capsys):
    found = stored(name)
    page = (BENCHMARKS / "README.md").read_text("utf-8").splitlines()

    cases = {tuple(row[word] for word in bench_real.Case._fields) for row in found}
    assert len(cases) == len(found) == count
    assert not any(row["false"] for row in found)
    assert all(tables.role(row["table"]) == row["role"] for row in found)
    known = [row for row in found if row["status"] != "no reference"]
    bench_real.by_group("problem", known)
    lines = capsys.readouterr().out.splitlines()[1:]
    if "fresh" in name:
        lines = [lines[-1].replace("| all |", "| fresh tables |")]
    assert [line for line in lines if line not in page] == []


def test_the_tables_of_the_paper(capsys):
    page = (BENCHMARKS / "PAPER.md").read_text("utf-8").splitlines()

    paper_claims.print_page(paper_claims.read_all())

    lines = capsys.readouterr().out.splitlines()
    found = [line for line in lines if line.startswith("|")]
    assert len(found) > 90
    assert [line for line in found if line not in page] == []


def test_rows_of_peers_are_medians_and_dadmm_sends_less():
    found, more = stored("peers"), stored("peers_busy")

    assert tuple(found[0]) == tuple(more[0])
    methods = {row["method"] for row in found + more}
    assert methods >= {entry.method for entry in compare.ENTRIES} - {"snap"}
    for row in found + more:
        times = rows.numbers(row["all_ms"])
        assert float(row["ms_per_iteration"]) == pytest.approx(np.median(times), 1e-3)
    for name in ("bytes_per_iteration", "wire_bytes_per_iteration", "bytes_to_1e-06"):
        of = {r["method"]: float(r[name]) for r in found if "20 ranks" in r["where"]}
        assert of["fixed"] < min(of["admm"], of["tracking"]), name


def test_dadmm_agrees_with_the_program_of_the_authors():
    """Parameters to rounding; every scheme on every graph, from both programs."""
    found = stored("peers_authors")

    assert tuple(found[0]) == authors.COLUMNS
    timed = [row for row in found if row["scheme"] in authors.NAMES]
    assert len(timed) == 2 * len(authors.NAMES) * len(authors.NETWORKS)
    assert max(float(row["apart"]) for row in timed) < 1e-10
    assert all(int(row["stop"]) > 0 for row in found)


COLUMNS = stored("real")[0].keys()


def table():
    """Return columns (80, 4) and a target."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 4)) + rng.standard_normal((80, 1))
    return X, X @ [2.0, -1.0, 0.1, 0.0] + 3.0 + 0.5 * rng.standard_normal(80)


@pytest.mark.parametrize("units", tables.UNITS)
@pytest.mark.parametrize("problem", bench_real.PROBLEMS)
def test_a_case_is_measured_and_reported(problem, units, monkeypatch, capsys):
    """A certified run agrees with the pooled solution, which another solver finds."""
    monkeypatch.setattr(tables, "load", lambda name: table())
    row = bench_real.measure(Case("iris", problem, "ring-6", units, "shuffled"), "abc")
    bench_real.print_report([row])

    assert row["right"] == row["near"] == 1
    assert (row["false"], row["determined"]) == ("", 5)
    has_sums = problem not in ("logistic", "huber")
    assert row["once_bytes"] == (2 * 5 * 8 * (15 + 5) if has_sums else "")
    assert row.keys() == COLUMNS
    assert f"| {problem} | 1 | 1 (100 %) | 0 |" in capsys.readouterr().out


@pytest.mark.parametrize("units", ["raw", "far", "mixed"])
def test_ppca_is_judged_by_angle_and_length(units, monkeypatch):
    monkeypatch.setattr(tables, "load", lambda name: table())
    case = Case("iris", "ppca-2", "ring-6", units, "sorted")
    row = bench_real.measure(case, "here")

    assert (row["near"], row["right"], row["false"]) == (1, 1, "")
    assert row.keys() <= COLUMNS
    X, _ = bench_real.data_of(case)
    best = bench_real.pooled_ppca(X, 2)
    layout = dadmm.problems.PPCA(X, 2).layout
    theta = np.array([layout.pack(W=1.02 * best.W, mu=best.mu, a=best.a)])
    said = SimpleNamespace(theta=theta, layout=layout, converged=True)
    found = bench_real.judge_ppca(said, best)
    assert (found["near"], found["false"]) == (0, "answer")
    assert found["fit_error"] < 1e-6
    with pytest.raises(pooled.NotProved):
        bench_real.pooled_ppca(np.vstack([np.eye(4), -np.eye(4)]), 2)


@pytest.mark.parametrize(
    ("off", "gap", "bound", "status", "above", "expected"),
    [
        (0.0, 0.0, 0.0, "certified", 0.0, ""),
        (0.1, 0.0, 0.0, "certified", 0.0, "gap+coefficient+answer"),
        (0.1, 1e9, 1e9, "certified", 0.0, "answer"),
        (1e-4, 0.0, 0.0, "certified", 0.0, "gap+coefficient"),
        (1e-4, 1e9, 1.0, "certified", 0.0, ""),
        (0.1, 1e9, 1e9, "not converged", 0.0, ""),
        (0.0, 0.0, 0.0, "certified", 1e-6, "objective"),
    ],
)
def test_false_statements_are_found(off, gap, bound, status, above, expected):
    """All entries are off by a part of their scale; the nodes agree."""
    X, y = table()
    model, best = bench_real.pooled_solution("ridge", X, y)
    value = model.over(X, y).objective
    there, certified = best.theta + off * best.scale, status == "certified"
    bounds = {"gap": gap, "coefficients": bound * best.scale, "holds": certified}
    result = SimpleNamespace(
        status=status, theta=np.tile(there, (6, 1)), solution=there,
        objective=value(there) * (1 + above), converged=certified,
        certificate=SimpleNamespace(**bounds),
    )  # fmt: skip

    errors = bench_real.errors_of(X, best, result.theta)
    found, *_ = bench_real.false_statements(result, errors, best, value)

    assert found == expected
    assert errors.near() == (off <= 1e-2)


def row_of(name: str, **wanted: object) -> dict[str, str]:
    """Return the one stored row that has these values."""
    (row,) = [
        row for row in stored(name) if all(row[k] == str(v) for k, v in wanted.items())
    ]
    return row


def entry(program: str, method: str) -> compare.Entry:
    return next(e for e in compare.ENTRIES if e[:2] == (program, method))


def assert_same(row: dict[str, str], again: dict) -> None:
    """Compare a stored row with a new outcome; another BLAS may round otherwise."""
    for column in ("iterations", "both_rules"):
        assert abs(int(row[column]) - again[column]) <= 1, column
    for column in row:
        if column.startswith("angle_") and column.endswith("ised"):
            assert float(row[column]) == pytest.approx(again[column], rel=0.02), column


@pytest.mark.parametrize("setting", experiment.SETTINGS)
@pytest.mark.parametrize("scheme", ["fixed", "vp", "nap"])
def test_synthetic_rows_can_be_had_again(setting, scheme):
    row = row_of("synthetic", **CELL | {"setting": setting, "scheme": scheme})

    assert_same(row, outcome(experiment.case_of(row)))
    assert experiment.consensus_error(np.array([[0, 5], [0, 4], [0, 6]])) == 0.2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["caltech", "hopkins"])
@pytest.mark.parametrize("scheme", ["fixed", "vp_ap"])
def test_rows_of_real_tracks_can_be_had_again(name, scheme):
    folder = SHARED / name
    if not folder.is_dir():
        pytest.skip(f"no {folder}; set DADMM_SHARED to the folder that holds data/")
    wanted = {"data": "004", "setting": "printed", "graph": "complete", "t_max": 50}
    row = row_of(name, **wanted, scheme=scheme, start=0)

    case, patient = experiment.case_of(row), name == "caltech"
    assert_same(row, paper_tracks.outcome(case, folder, 300, patient))


@pytest.mark.slow
@pytest.mark.mpi
def test_tiny_runs_of_the_exchange_and_of_an_iteration(tmp_path):
    """Every transport with either wait; rows, and the network that they give."""
    if find_mpiexec() is None:
        pytest.skip("no mpiexec beside this Python, and no DADMM_MPIEXEC")
    words = "--rounds 2 --ranks 3 --graphs ring --sizes 64 4096 --csv rows.csv"
    bench = ("-m", "benchmarks.bench_exchange", "--network", "net.toml")
    ended = python(*bench, *words.split(), cwd=tmp_path).end()
    assert ended.code == 0, ended.err
    swaps = [row for row in experiment.read_rows(tmp_path / "rows.csv") if row["graph"]]
    both = {(name, wait) for name in TRANSPORTS for wait in ("block", "poll")}
    assert {(row["transport"], row["wait"]) for row in swaps} >= both
    assert all(row["degree"] == "2" and float(row["dadmm_over"]) > 0 for row in swaps)
    assert list(Network.read(tmp_path / "net.toml").links) == ["host"]

    job = ("-m", "benchmarks.bench_iteration", "--on-ranks", "--quick")
    ended = mpiexec(3, *job, cwd=ROOT)
    assert ended.code == 0, ended.err
    assert {"bare block, us", "bare poll, us"} <= json.loads(ended.out)[0].keys()


def test_a_case_of_a_large_network_can_be_measured():
    assert measure("grid", 30, None)["iterations"] == 50


@pytest.mark.slow
def test_the_picture_of_a_network_whose_penalties_change(tmp_path, monkeypatch):
    """NAP's penalty is eta0 exactly if the budget is spent, or if tau is zero."""
    pytest.importorskip("matplotlib")
    words = "--config as-printed --topology ring --nodes 5 --record-edges --max-iter 40"
    folder = run_job(*words.split(), out=tmp_path / "run")
    told = draw_dynamic.story(StoredRun.read(folder))
    words = ["x", "--run", str(folder), "--out", str(tmp_path)]
    monkeypatch.setattr("sys.argv", words)
    draw_dynamic.main()

    assert told.used_up.any()
    assert_array_equal(told.eta == 10.0, told.used_up)
    for name in ("network.gif", "network.png"):
        assert (tmp_path / name).stat().st_size > 10_000


@pytest.mark.parametrize(("scheme", "column"), [("fixed", 3), ("snap", 4)])
def test_dadmm_solves_the_ring_as_the_page_says(scheme, column):
    """With the stored number of iterations, and every one of them counted."""
    row = dadmm_ring.run(scheme, entry("dadmm", scheme).setting, 150, count=True)

    assert row["iterations"] == len(row["errors"]) == 150
    lines = [x for x in PEERS.splitlines() if x.startswith("| to an error of 1e-6")]
    told = int(lines[0].split(" | ")[column].strip(" |"))
    assert abs(rows.first(row["errors"], 1e-6) - told) <= 1
    assert row["bytes"] > row["messages"] * 8 * problem.UNKNOWNS
    block = {"seconds": 1.0, "iterations": 150, "others_share": 0.0}
    assert rows.row_of("here", [block], row, None).keys() == stored("peers")[0].keys()


@pytest.mark.parametrize(
    ("program", "method", "model"),
    [
        ("disropt", "admm", tuning.admm),
        ("disropt", "tracking", tuning.tracking),
        ("mpi-sppy", "ph", tuning.hedging),
    ],
)
def test_peers_have_their_best_settings(program, method, model):
    """In a model that has the stored errors of the program itself."""
    best = entry(program, method).setting
    found = [tuning.iterations(model, best * factor) for factor in (0.5, 1.0, 2.0)]
    assert all(n is None or n > found[1] for n in (found[0], found[2]))

    both = [*stored("peers"), *stored("peers_busy")]
    row = next(r for r in both if r["method"] == method and "20" in r["where"])
    assert found[1] == int(row["iterations_to_1e-06"])
    *_, last = islice(model(float(row["setting"])), rows.ITERATIONS)
    error = float(row[f"error_after_{rows.ITERATIONS}_iterations"])
    off = problem.error(last, problem.optimum())
    assert_allclose(off, error, rtol=1e-3, atol=1e-12)


@pytest.mark.slow
def test_stored_rows_of_snap_beside_the_authors_can_be_had_again():
    """And they are those of the page; another BLAS may round otherwise."""
    known = {(row["graph"], row["scheme"]): row for row in stored("peers_authors")}
    told, work = {}, authors.Work()
    for row in [
        row for name in authors.NETWORKS for row in authors.snap_rows(work, name)
    ]:
        old = known[row["graph"], row["scheme"]]
        assert abs(row["stop"] - int(old["stop"])) <= 0.02 * row["stop"]
        words = f"{old['stop']} ({float(old['stop_angle']):.1g})"
        told.setdefault(row["scheme"], []).append(words)

    for cells in told.values():
        assert f" | {' | '.join(cells)} |\n" in PEERS


@pytest.mark.skipif(
    shutil.which("octave-cli") is None or not CHECKOUT,
    reason="needs octave-cli, and DADMM_AUTHORS: a checkout of the authors' program",
)
@pytest.mark.parametrize("scheme", authors.NAMES)
def test_the_program_of_the_authors_itself_agrees(scheme):
    ring, folder = GRAPHS["ring"](authors.NODES, 0), authors.checked(Path(CHECKOUT))
    assert authors.block(folder, authors.Work(), ring, scheme)["apart"] < 1e-10
