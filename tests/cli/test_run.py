"""The main job in one process: what it reads, writes, says and returns."""

from __future__ import annotations

import csv
import os
import re
import signal
import sys
from pathlib import Path
from socket import AF_UNIX, socket
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import dadmm
from dadmm.cli import progress
from dadmm.cli.progress import Progress, Signals
from dadmm.comm import launch_link, world
from dadmm.data import shard
from dadmm.problems import PPCA
from dadmm.run import main
from tests.support.processes import Job, python, variables
from tests.support.runs import (
    arrays_of,
    assert_same_arrays,
    contents,
    history_of,
    refused,
    summary_of,
)
from tests.support.solving import solve

SMALL = ("--nodes", 4, "--n-samples", 60, "--dimension", 6, "--n-components", 2)
SHORT = (*SMALL, "--max-iter", 12, "--init", "shared")


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """Every run starts in an empty folder, and no launcher is about."""
    monkeypatch.chdir(tmp_path)
    for name in {name for pair in launch_link.LAUNCHERS for name in pair}:
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def run(*words: object, out: str = "run") -> Path:
    """Run the main job in silence and return its folder."""
    assert main([*map(str, words), "--out", out, "--quiet"]) == 0
    return Path(out)


def table_of(path: Path) -> dict[str, np.ndarray]:
    with path.open() as file:
        header, *rows = csv.reader(file)
    return dict(zip(header, np.array(rows, dtype=float).T, strict=True))


def assert_same(first: Path, second: Path) -> None:
    """Assert that two runs found the same, to the last bit."""
    assert_same_arrays(first / "result.npz", second / "result.npz")
    assert history_of(first) == history_of(second)
    mine, other = summary_of(first), summary_of(second)
    for name in mine.keys() - {"seconds"}:
        assert mine[name] == other[name]


def test_a_configuration_fed_back_repeats_the_run():
    words = ("--scheme", "vp_nap", "--topology", "star,ring", "--budget-trigger", "inf")
    words += ("--coupling", "own", "--eta0", 0.1, "--noise-variance", 1e-3, "--strict")
    words += ("--bits", 4)
    main([str(word) for word in (*SHORT, *words, "--out", "first", "--overwrite")])
    for out in (["--out", "second"], []):
        assert main(["--config", "first/config.toml", *out]) == 3
    second, (third,) = Path("second"), Path("runs").iterdir()

    assert_same(Path("first"), second)
    assert_same(Path("first"), third)
    for name in ("config.toml", "edges.csv"):
        (text,) = {Path(run, name).read_text() for run in ("first", second, third)}
        assert "bits" not in text  # a setting that does not apply


def assert_found(folder: Path, result: dadmm.Result) -> None:
    found = arrays_of(folder)
    for name, part in result.layout.views(result.theta)._asdict().items():
        assert_array_equal(found[name], part, err_msg=name)
    assert_array_equal(found["eta"], result.eta)
    history = table_of(folder / "history.csv")
    for name in ("objective", "primal", "dual", "eta", "quiet"):
        assert_array_equal(history[name], result.history[name].ravel(), err_msg=name)


def test_tables_and_arrays_are_as_documented():
    """J = 4 nodes, D = 6 dimensions, M = 2, E = 6 edges; rows sorted by iteration."""
    words = ("--topology", "chain", "--record-angle")
    folder = run(*SHORT, *words)
    history, edges = (table_of(folder / f"{k}.csv") for k in ("history", "edges"))
    found = arrays_of(folder)

    assert {name: array.shape for name, array in found.items()} == {
        "W": (4, 6, 2), "mu": (4, 6), "a": (4,),
        "edges": (6, 2), "eta": (6,), "edge_messages": (6,), "edge_bytes": (6,),
        "edge_silent": (6,), "edge_lost": (6,),
    }  # fmt: skip
    assert_array_equal(found["edges"], dadmm.Topology.chain(4).edges)
    assert list(history) == [
        "iteration", "node", "objective", "primal", "dual", "disagreement", "residual",
        "objective_over_limit", "disagreement_over_limit", "residual_over_limit",
        "eta", "quiet", "messages", "bytes", "solve_seconds", "exchange_seconds",
        "update_seconds", "observe_seconds", "angle_to_truth", "angle_to_centralised",
    ]  # fmt: skip
    assert_array_equal(history["iteration"], np.repeat(np.arange(1, 13), 4))
    assert_array_equal(history["node"], np.tile(np.arange(4), 12))
    for name in ("angle_to_truth", "angle_to_centralised"):
        last = summary_of(folder)["metrics"][f"{name}_degrees"]
        assert history[name][-4:].max() == last
    assert list(edges) == [
        "iteration", "i", "j", "eta", "spent", "budget", "raised", "used_up", "bytes"
    ]  # fmt: skip
    assert_array_equal(edges["iteration"], np.repeat(np.arange(1, 13), 6))
    ends = np.column_stack([edges["i"], edges["j"]])
    assert_array_equal(ends, np.tile(found["edges"], (12, 1)))
    assert_array_equal(edges["eta"][-6:], found["eta"])
    without = run(*SHORT, "--no-record-edges", out="without")
    assert not (without / "edges.csv").exists()


def test_the_summary_says_what_happened():
    folder = run(*SHORT, "--topology", "ring", "--tolerance", 0)
    summary = summary_of(folder)

    assert set(summary) == {
        "converged", "reason", "iterations", "n_nodes", "messages", "bytes",
        "collectives", "collective_bytes", "seconds", "metrics", "seeds", "versions",
        "mpi_library", "hosts", "node_hosts", "silent_messages", "lost_payloads",
        "edges_between_hosts", "bytes_between_hosts", "lost_nodes", "resumed_after",
        "outside_calls", "outside_bytes",
        "stopping", "waited_for", "advice",
        "status", "why", "coordinates", "penalties", "tree_bytes", "objective",
        "certificate", "consensus", "start", "subspace", "scores", "standard_errors",
        "rows_by_node",
    }  # fmt: skip
    assert (summary["converged"], summary["reason"]) == (False, "max_iter")
    assert summary["status"] == "max_iter"
    assert (summary["iterations"], summary["n_nodes"]) == (12, 4)
    assert set(summary["penalties"]) == {
        "edges", "eta0", "eta", "guessed", "changed", "spent", "raised", "used_up"
    }  # fmt: skip
    assert summary["messages"] == 8 * 13  # one swap carries the starting parameters
    assert summary["messages"] == arrays_of(folder)["edge_messages"].sum()
    size = 6 * 2 + 6 + 1
    assert summary["bytes"] == 8 * (8 * (2 + size) + 12 * 8 * (1 + size))
    phases = {"solve", "exchange", "update", "observe"}
    assert set(summary["seconds"]) == {"total", *phases, "curvature", "of_all_sessions"}
    assert set(summary["metrics"]) == {
        "angle_to_truth_degrees", "angle_to_centralised_degrees", "consensus_error",
        "disagreement", "residual", "log_likelihood", "log_likelihood_gap",
    }  # fmt: skip
    assert summary["metrics"]["log_likelihood_gap"] > 0
    assert summary["versions"]["dadmm"] == dadmm.__version__
    assert summary["versions"]["numpy"] == np.__version__
    assert summary["mpi_library"] == "none (one process)"
    assert list(summary["hosts"].values()) == [1]
    assert summary["node_hosts"] == 4 * list(summary["hosts"])
    assert summary["edges_between_hosts"] == summary["bytes_between_hosts"] == 0


def test_data_without_noise_are_no_reason_to_lose_the_results():
    """Their likelihood has no maximum, so none is told."""
    np.save("flat.npy", np.full((20, 5), 3.0))
    words = ("--n-components", 2, "--max-iter", 5, "--no-summaries")
    folder = run("--data", "flat.npy", *SMALL[:2], *words)

    assert "log_likelihood" not in summary_of(folder)["metrics"]
    assert "NaN" not in (folder / "summary.json").read_text()


def test_results_are_overwritten_on_request():
    run(*SHORT)
    words = ("--scheme", "vp", "--seed", 9, "--no-record-edges")
    folder = run(*SHORT, *words, "--overwrite")

    assert_same(folder, run(*SHORT, *words, out="fresh"))
    names = {"checkpoints", "config.toml", "history.csv", "manifest.json", "result.npz"}
    assert set(os.listdir(folder)) == {".lock", *names, "model.json", "summary.json"}


def test_without_a_name_results_go_to_a_new_folder(capsys):
    for _ in range(2):
        assert main([str(word) for word in (*SHORT, "--topology", "ring")]) == 0
    folders = sorted(str(path) for path in Path("runs").iterdir())

    assert len(folders) == 2
    assert all(re.match(r"runs/ppca-ring-snap-\d{8}-\d{6}", name) for name in folders)
    said = capsys.readouterr().out.splitlines()
    assert sorted(line for line in said if "results in" in line) == [
        f"results in {name}" for name in folders
    ]


PRESET = """problem = "ppca"
n_samples = 500
topology = "cluster"
scheme = "snap"
budget0 = 32.0
init = "independent"
bound_angle = false
record_edges = true
"""


@pytest.mark.parametrize(
    ("word", "said"),
    [("--dry-run", PRESET), ("--help", "usage: "),
     ("--version", f"dadmm {dadmm.__version__}\n")],
)  # fmt: skip
def test_looking_leaves_nothing_behind(word, said, capsys):
    try:
        code = main([word])
    except SystemExit as leaving:
        code = leaving.code
    out, err = capsys.readouterr()

    assert (code, err) == (0, "")
    assert all(line in out for line in said.splitlines(keepends=True))
    assert os.listdir() == []


@pytest.mark.parametrize("words", [("--dry-run",), ("--help",), ("--max-iter", 3)])
@pytest.mark.parametrize("streams", ["", "2>&1"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_closed_pipe_is_no_error(words, streams, unbuffered, tmp_path):
    """As after ``| head -2``: the run ends as usual, and its results are written."""
    command = [sys.executable, "-m", "dadmm.run", *map(str, words), "--out", "run"]
    # the shell waits until the pipe has no reader
    script = f'{{ sleep 0.2; "$@" {streams}; echo $? >code; }} | true'
    env = variables(PYTHONUNBUFFERED=unbuffered, DADMM_PROGRESS="live")
    ended = Job(["bash", "-c", script, "bash", *command], tmp_path, env).end()

    lines = re.split(r"[\r\n]", ended.err)  # a slow run shows its progress
    assert all(not line.strip() or "% in " in line for line in lines), ended.err
    assert Path("code").read_text() == "0\n"
    assert Path("run/summary.json").exists() == ("--max-iter" in words)


def make_sources(folder: Path) -> np.ndarray:
    """Write the same samples in several ways, and return them."""
    samples = np.random.default_rng(7).standard_normal((30, 5))
    text = {"delimiter": ",", "fmt": "%.17g"}
    np.save(folder / "all.npy", samples)
    np.savez(folder / "two.npz", x=samples, y=np.zeros(3))
    np.savetxt(folder / "head.csv", samples, header="a,b,c,d,e", comments="", **text)
    for i, own in enumerate(np.array_split(samples, 3)):
        np.save(folder / f"part-{i}.npy", own)
    with socket(AF_UNIX) as plug:
        plug.bind("socket.npy")  # a short path: the folder is the current one
    for i in range(2):
        np.save(folder / f"columns-{i}.npy", samples[:, : 3 + i])
    labels = labels_of(len(samples))
    np.savetxt(folder / "labels.csv", labels, fmt="%d")
    np.savetxt(folder / "labelled.csv", np.column_stack([samples, labels]), **text)
    return samples


def labels_of(n: int) -> np.ndarray:
    return np.arange(n) * 7 % 11 % 3


@pytest.mark.parametrize(
    ("source", "labels"),
    [
        ("all.npy", None), ("two.npz::x", None), ("head.csv", None),
        ("part-{rank}.npy", None), ("all.npy", "labels.csv"), ("labelled.csv", -1),
    ],
)  # fmt: skip
def test_a_source_gives_the_same_as_the_shards(source, labels, tmp_path):
    """To the last bit, against `dadmm.solve` with samples from memory."""
    samples = make_sources(tmp_path)
    chosen = () if labels is None else ("--labels", labels)
    words = ("--nodes", 3, "--n-components", 2, "--max-iter", 8, "--topology", "chain")
    folder = run("--data", source, *chosen, *words, "--scheme", "vp", "--eta0", 2)

    which = None if labels is None else labels_of(len(samples))
    problems = [PPCA(own, 2) for own in shard.split(samples, 3, which)]
    settings = {"scheme": "vp", "eta0": 2.0, "max_iter": 8}
    assert_found(folder, solve(problems, dadmm.Topology.chain(3), **settings))
    assert "angle_to_truth_degrees" not in summary_of(folder)["metrics"]


def test_a_graph_file_decides_how_many_nodes_there_are():
    """Without mpiexec, and unless --nodes contradicts it; the configuration says it."""
    Path("path.edges").write_text("0 1\n1 2\n")
    folder = run("--topology", "path.edges", "--max-iter", 2)
    other = run("--max-iter", 2, "--topology", "ring", out="other")

    assert summary_of(folder)["n_nodes"] == 3
    assert "nodes = 3\n" in (folder / "config.toml").read_text()
    assert "nodes = 20\n" in (other / "config.toml").read_text()
    assert main(["--topology", "path.edges", "--nodes", "4"]) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--data", "none.npy"], "cannot read none.npy: No such file or directory"),
        (["--data", "socket.npy"], "cannot read socket.npy: it is a socket, not a"),
        (["--data", "samples.doc"], "samples.doc is not a data file; use one of .csv"),
        (["--labels", "0", "--data", "part-{rank}.npy"], "labels go neither with"),
        (["--labels", "9", "--data", "all.npy"], "'9' for the labels"),
        (["--nodes", "31", "--data", "all.npy"], "30 samples are too few for 31 nodes"),
        (["--n-components", "5", "--data", "all.npy"], "less than the 5 dimensions"),
        (["--topology", "ring.edges"], "cannot read the graph ring.edges: No such"),
        (["--topology", "doughnut"], "unknown graph 'doughnut'; choose one of"),
        (["--config", "none.toml"], "'none.toml' is neither a file in this folder nor"),
        (["--eta0", "0"], "eta0 must be positive and finite, or "),
        (["--out", "all.npy"], "all.npy is not a folder; choose another --out"),
        (["--data", "columns-{rank}.npy", "--nodes", "2", "--n-components", "2"],
         "node 1 has 4 columns but node 0 has 3; all nodes must have the same columns"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence_and_code_2(words, said, capsys, tmp_path):
    make_sources(tmp_path)
    files = sorted(os.listdir())

    assert said in refused(capsys, *words)
    assert sorted(os.listdir()) == files


def test_a_run_that_met_its_rule_says_so(capsys):
    words = (*SMALL, "--tolerance", 0.05, "--out", "run", "--strict", "--bound-angle")
    assert main([str(word) for word in words]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    found = summary_of(Path("run"))

    for start in (
        "ppca by snap in units on cluster, 4 nodes; MPI: none",
        f"stationary (rule optimality, tolerance 0.05) after {found['iterations']} ",
        "criterion met last: the ",
        f"{found['penalties']['edges']} edge ends: eta ",
        f"{found['messages']:,} messages between neighbours, {found['bytes']:,} bytes",
        "besides parameters, a node sent to its neighbours sums for the units: ",
        "nodes agree to ",
        "largest angle to the true subspace: ",
        "largest angle to the centralised solution: ",
        "every node's subspace is within ",
        "objective ",
        "60 rows (15 at each node)",
        "on these rows: explained fraction of the variance 0.",
        "results in run",
        "a page for your browser: python -m dadmm.report run",
    ):
        assert lines.pop(0).startswith(start)
    assert lines == []
    assert "converged" not in out
    assert err == ""
    assert found["subspace"]["why_not"] == ""
    said = re.search(r"subspace is within (\S+) degrees", out)
    bound = found["subspace"]["within_degrees"]
    assert bound <= float(said[1]) < 1.1 * bound


def test_a_run_from_merged_axes_says_so_first(capsys):
    words = [*map(str, SMALL), "--init", "merged", "--out", "run", "--overwrite"]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    summary = summary_of(Path("run"))
    found = summary["start"]

    assert found["init"] == "merged"
    assert lines[0].startswith("set-up merged summaries of rows over a tree")
    assert f"{summary['iterations']} iteration" in lines[0]
    angle = found["angle_to_result_degrees"]
    assert f"the merged axes are {angle:.2g} degrees from the result" in lines
    assert 0.0 < found["strictness"] <= 1.0
    determined = "components 2 and 3 differ by"
    assert any(determined in line for line in lines) == (found["gap"] < 0.1)
    for more in ("--no-summaries", "--coordinates=raw"):
        assert "init merged" in refused(capsys, *words, more)


def test_with_tolerance_0_a_run_is_done_as_asked_and_can_be_resumed(capsys):
    """Code 0 even if strict; the checkpoint is kept; two halves are the whole."""
    words = [*map(str, SMALL), "--tolerance", "0", "--strict", "--out"]
    assert main([*words, "half", "--max-iter", "6"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert summary_of("half")["status"] == "max_iter"
    assert "resume with: python -m dadmm.run --resume half --max-iter N" in said
    assert main(["--resume", "half", "--max-iter", "12"]) == 0
    assert main([*words, "whole", "--max-iter", "12"]) == 0

    assert summary_of("half")["resumed_after"] == 6
    assert_same_arrays("half/result.npz", "whole/result.npz")


@pytest.mark.parametrize(
    "words",
    [("--stopping", "objective"), ("--scheme", "nap", "--coupling", "own")],
)
def test_a_rule_that_proves_nothing_gives_stopped(words):
    """A plateau is not a solution, and directed penalties change the optimum."""
    found = summary_of(run(*SMALL, "--tolerance", 0.1, *words))

    assert (found["status"], found["converged"]) == ("stopped", True)
    assert found["why"]


@pytest.mark.parametrize(("strict", "code"), [([], 0), (["--strict"], 3)])
def test_not_converging_is_said_plainly(strict, code, capsys, monkeypatch):
    """With the command to go on: that of this run, or of its launcher."""
    words = [str(word) for word in (*SHORT, "--tolerance", 1e-9, "--out", "my run")]
    again = "python -m dadmm.run --resume"
    if strict:
        again = "./launch/local -n 4 --resume"
        monkeypatch.setenv("DADMM_RESUME_COMMAND", again)

    assert main([*words, *strict]) == code
    said = capsys.readouterr().out
    rule = "(rule optimality, tolerance 1e-09)"
    assert f"NOT converged {rule}: max_iter reached after 12 iterations" in said
    assert f"resume with: {again} 'my run' --max-iter N" in said.splitlines()
    assert summary_of("my run")["status"] == "not converged"


def test_a_time_limit_stops_a_run_with_results(capsys):
    words = (*SMALL, "--topology", "chain", "--tolerance", 0, "--max-seconds", 1e-9)
    assert main([*map(str, words), "--out", "run"]) == 0

    assert "tolerance 0): max_seconds reached after 6" in capsys.readouterr().out
    assert summary_of(Path("run"))["reason"] == "max_seconds"


def test_quiet_is_quiet_and_results_are_never_overwritten(capsys):
    """Only errors are told; every byte stays as it was."""
    folder = run(*SHORT)
    assert capsys.readouterr() == ("", "")
    before = contents(folder)
    said = refused(capsys, *SHORT, "--quiet", "--out", "run")
    assert said.startswith("dadmm: error: run is not empty; choose another --out, or -")
    assert contents(folder) == before


def test_what_should_not_happen_is_not_hidden(monkeypatch):

    def fail(self, *arguments):
        raise RuntimeError("a bug")

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(PPCA, "prox", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        main([*map(str, SHORT), "--coordinates", "raw", "--out", "run"])
    assert signal.getsignal(signal.SIGINT) is before


RUN = SimpleNamespace(
    work=SimpleNamespace(primal=[0.5], dual=[0.25], objective=[123.0]),
    by_node=lambda rows: rows,
)


@pytest.fixture
def clock(monkeypatch):
    """A clock that each look advances by a number of seconds."""
    now = [0.0, 1.0]

    def look() -> float:
        now[0] += now[1]
        return now[0]

    monkeypatch.setattr(progress, "monotonic", look)
    return now


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (6, "20%"),
        (20, "[##           ] 20%"),
        (60, "[##         ] 200/1000 20% in 0:04, 50/s, at most 0:16 left"),
        (
            80,
            "200/1000 20% in 0:04, 50/s, at most 0:16 left, primal 5.0e-01 dual "
            "2.5e-01",
        ),
        (
            120,
            "[####                ] 200/1000 20% in 0:04, 50/s, at most 0:16 left, "
            "primal 5.0e-01 dual 2.5e-01, f 123",
        ),
    ],
)
def test_the_progress_line_is_rewritten_on_a_terminal(
    columns, said, clock, capsys, monkeypatch
):
    """As many numbers as fit, and a bar if there is room; at the end it is cleared."""
    monkeypatch.setenv("DADMM_PROGRESS", "live")
    monkeypatch.setenv("COLUMNS", str(columns))
    line = Progress(max_iter=1000)
    for t in (1, 200):
        line(t, RUN)
    line.close()
    _, last, wiped, end = capsys.readouterr().err.split("\r")

    assert last.rstrip() == said
    assert len(last) < columns
    assert (wiped.strip(), end) == ("", "")
    assert len(wiped) >= len(last.rstrip())


def test_progress_elsewhere_is_a_line_a_minute(clock, capsys, monkeypatch):
    monkeypatch.delenv("DADMM_PROGRESS", raising=False)
    clock[1] = 20.0
    line = Progress(max_iter=1000)
    for t in range(101, 108):  # resumed after iteration 100
        line(t, RUN)
    line.close()
    lines = capsys.readouterr().err.splitlines()

    assert lines[0] == (
        "iteration 103/1000 10% in 1:20, 26.7 s each, at most 6:38:40 left, "
        "primal 5.0e-01 dual 2.5e-01, f 123"
    )
    assert len(lines) == 3


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0:00"), (59, "0:59"), (61, "1:01"), (7300, "2:01:40")],
)
def test_durations_are_read_by_people(seconds, words):
    assert progress.duration(seconds) == words


INT, TERM, USR1 = signal.SIGINT, signal.SIGTERM, signal.SIGUSR1


@pytest.mark.parametrize(
    ("ranked", "arrivals", "last"),
    [
        (False, [(0.0, INT), (0.1, INT), (5.0, USR1)], (5.1, INT)),
        (False, [(0.0, INT)], (0.4, INT)),
        (False, [(0.0, INT), (0.1, INT)], (0.2, INT)),
        (False, [(0.0, USR1), (0.1, USR1)], (0.1, INT)),
        (True, [(0.0, INT), (0.6, INT)], (0.7, INT)),
        (True, [(0.0, INT)], (1.1, INT)),
        (True, [(0.0, USR1)], (0.4, TERM)),
    ],
)
def test_a_second_interrupt_ends_at_once(ranked, arrivals, last, monkeypatch):
    """But not one that may be the same request, nor any USR1.

    A rank may get one Ctrl-C from the terminal and, later, from mpiexec.
    """
    now, ended = [0.0], []
    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    monkeypatch.setattr(os, "_exit", ended.append)
    if ranked:
        monkeypatch.setenv("PMI_RANK", "0")
        monkeypatch.setenv("PMI_SIZE", "2")
    signals = Signals()
    try:
        for now[0], number in arrivals:
            os.kill(os.getpid(), number)
        assert ended == []
        now[0], number = last
        os.kill(os.getpid(), number)
    finally:
        signals.close()

    assert ended == [128 + number]


def test_a_rank_that_has_finished_ignores_a_late_usr1(monkeypatch):
    """mpiexec passes it on to every rank, and it must not kill the quick ones."""
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setenv("PMI_SIZE", "2")
    before = signal.getsignal(signal.SIGTERM)
    signals = Signals()
    signals.close()

    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_IGN
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize("number", Signals.CAUGHT, ids=lambda number: number.name)
def test_a_signal_stops_a_run_with_results(number, tmp_path):
    """Code 0: to stop is not to fail."""
    words = (*SMALL, "--tolerance", 0, "--max-iter", 10**8, "--out", "run")
    job = python("-m", "dadmm.run", *words, cwd=tmp_path)
    job.wait_until((tmp_path / "run" / "parts" / "history-00000.csv").exists)
    job.signal(number)
    ended = job.end()

    assert ended.code == 0
    assert "tolerance 0): stopped by a signal after" in ended.out
    summary = summary_of(tmp_path / "run")
    assert summary["reason"] == "signal"
    history = table_of(tmp_path / "run" / "history.csv")
    assert len(history["node"]) == 4 * summary["iterations"]


def test_output_that_cannot_grow_ends_the_run(tmp_path):
    words = " ".join(map(str, SMALL))
    endless = "--tolerance 0 --max-iter 100000000 --record-edges"
    script = f'ulimit -f 16; exec "$0" -m dadmm.run {words} {endless} --out run'
    ended = Job(["sh", "-c", script, sys.executable], tmp_path, variables()).end()

    assert ended.code == 2
    sentence = "dadmm: error: cannot write to run: File too large; choose another --out"
    assert ended.err.splitlines()[-1] == sentence
    assert len(ended.said) == 1
    assert not (tmp_path / "run" / "summary.json").exists()


def test_without_a_launcher_there_is_one_process(monkeypatch):
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setenv("PMIX_SIZE", "many")

    assert launch_link.rank_and_size() is None
    assert isinstance(world.connect(), world.World)


@pytest.mark.parametrize(("rank", "size"), launch_link.LAUNCHERS)
def test_launchers_are_recognised_by_what_they_say(rank, size, monkeypatch):
    monkeypatch.setenv(rank, "2")
    monkeypatch.setenv(size, "20")

    assert launch_link.rank_and_size() == (2, 20)
