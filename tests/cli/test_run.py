"""The main job: what it writes, what it shows, and how it ends."""

import json
import os
import re
import shutil
import signal
import sys
import time
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import dadmm
from dadmm.__main__ import main as start
from dadmm.cli import progress, setup
from dadmm.cli.progress import Bar, Progress, Signals, laid_out
from dadmm.comm import world
from dadmm.core import ranks
from dadmm.core.errors import ConfigError
from dadmm.run import main
from dadmm.runs import folder as run_folder
from dadmm.runs.stored import ENTRIES, StoredRun
from tests.support import runs
from tests.support.processes import Job, mpiexec, program, variables
from tests.support.runs import arrays_of, history_of, refused, run_job, summary_of

SMALL = ("--nodes", 4, "--n-samples", 60, "--dimension", 6, "--n-components", 2)
SHORT = (*SMALL, "--max-iter", 12, "--init", "shared")


def table_of(path: Path) -> np.ndarray:
    return np.genfromtxt(path, delimiter=",", names=True)


def test_the_bare_command_is_the_experiment_of_the_paper(home, capsys):
    """Penalties and budgets of every edge change, and it ends with a true answer."""
    assert main(["--nodes", "20"]) == 0
    (folder,) = Path("runs").iterdir()
    summary, edges = summary_of(folder), dadmm.Topology.cluster(20).edges
    column = table_of(folder / "edges.csv").reshape(-1, len(edges))

    assert str(folder) in capsys.readouterr().out.splitlines()[-1]
    assert summary["status"] == "stationary"
    assert summary["metrics"]["angle_to_centralised_degrees"] < 0.5
    assert len(column) == summary["iterations"] < 300
    assert_array_equal([column["i"][0], column["j"][0]], edges.T)
    eta, spent = column["eta"], column["spent"]
    assert (eta != eta[0]).any(axis=0).all()
    assert (spent[-1] > 0.0).all()
    assert (spent <= column["budget"]).all()
    assert summary["penalties"]["eta0"] == [eta[0].min(), eta[0].max()]


def test_a_configuration_fed_back_repeats_the_run():
    """To the last bit, and with the code of --strict."""
    words = ("--scheme", "vp_nap", "--topology", "star,ring", "--budget-trigger", "inf")
    words += ("--coupling", "own", "--eta0", 0.1, "--noise-variance", 1e-3, "--strict")
    main([*map(str, (*SHORT, *words)), "--out", "first", "--overwrite"])
    for out in (["--out", "second"], []):
        assert main(["--config", "first/config.toml", *out]) == 3
    (third,) = Path("runs").iterdir()  # without a name, a new folder

    assert re.fullmatch(r"ppca-star-ring-vp_nap-\d{8}-\d{6}", third.name)
    for again in (Path("second"), third):
        runs.assert_same_arrays("first/result.npz", again / "result.npz")
        assert history_of("first") == history_of(again)
        assert summary_of("first") | {"seconds": 0} == summary_of(again) | {
            "seconds": 0
        }
        for name in ("config.toml", "edges.csv"):
            assert Path("first", name).read_text() == (again / name).read_text()
    assert "drop_seed" not in Path("first/config.toml").read_text()  # not applied


def test_files_of_a_run_are_as_documented(monkeypatch):
    """J = 4 nodes, D = 6 dimensions, M = 2, E = 6 edges; rows sorted by iteration."""
    load = setup.load_data
    monkeypatch.setattr(setup, "load_data", lambda job: time.sleep(0.2) or load(job))
    folder = run_job(*SHORT, "--topology", "chain", "--record-angle", "--tolerance", 0)
    history, edges = (table_of(folder / f"{k}.csv") for k in ("history", "edges"))
    found, summary = arrays_of(folder), summary_of(folder)

    counts = ("messages", "bytes", "silent", "lost")
    assert {name: array.shape for name, array in found.items()} == {
        "W": (4, 6, 2), "mu": (4, 6), "a": (4,), "edges": (6, 2), "eta": (6,),
        **{f"edge_{name}": (6,) for name in counts},
        "tree_messages": (6,), "tree_bytes": (6,),
    }  # fmt: skip
    assert_array_equal(found["edges"], dadmm.Topology.chain(4).edges)
    assert list(history.dtype.names) == [
        "iteration", "node", "objective", "primal", "dual", "disagreement", "residual",
        "objective_over_limit", "disagreement_over_limit", "residual_over_limit",
        "eta", "quiet", "messages", "bytes", "solve_seconds", "exchange_seconds",
        "update_seconds", "observe_seconds", "angle_to_truth", "angle_to_centralised",
    ]  # fmt: skip
    assert_array_equal(history["iteration"], np.repeat(np.arange(1, 13), 4))
    assert list(edges.dtype.names) == [
        "iteration", "i", "j", "eta", "spent", "budget", "raised", "used_up", "bytes"
    ]  # fmt: skip
    assert_array_equal([edges["i"], edges["j"]], np.tile(found["edges"].T, 12))
    assert_array_equal(edges["eta"][-6:], found["eta"])

    known = {name.partition(".")[0] for _, names in ENTRIES for name in names.split()}
    assert set(summary) <= known  # all are checked when they are read
    for name in ("angle_to_truth", "angle_to_centralised"):
        assert history[name][-4:].max() == summary["metrics"][f"{name}_degrees"]
    assert summary["metrics"]["log_likelihood_gap"] > 0
    size = 6 * 2 + 6 + 1
    facts = {
        "converged": False, "reason": "max_iter", "iterations": 12, "n_nodes": 4,
        "messages": 6 * 13,  # one swap carries the starting parameters
        "bytes": 8 * (6 * (2 + size) + 12 * 6 * (1 + size)),
        "edges_between_hosts": 0, "bytes_between_hosts": 0,
        "node_hosts": 4 * list(summary["hosts"]),
    }  # fmt: skip
    assert summary | facts == summary
    assert summary["versions"]["dadmm"] == dadmm.__version__
    assert summary["messages"] == found["edge_messages"].sum()
    assert 0.2 < summary["seconds"]["set_up"] < summary["seconds"]["total"]
    without = run_job(*SHORT, "--no-record-edges", out="without")
    assert not (without / "edges.csv").exists()


def test_a_summary_states_what_the_result_of_the_library_states():
    """Columns differ in scale, so that a bound fits one coefficient only."""
    X, y, _ = dadmm.datasets.regression(80, 3)
    X *= [1.0, 10.0, 100.0]
    np.savez("rows.npz", X=X, y=y)
    words = "--problem ridge --alpha 4 --data rows.npz --nodes 4 --topology ring"
    told = summary_of(run_job(*words.split()))
    parts = zip(dadmm.shard.split(X, 4), dadmm.shard.split(y, 4), strict=True)
    own = [dadmm.problems.Ridge(*part, alpha=1.0) for part in parts]
    result = dadmm.solve(own, dadmm.Topology.ring(4))

    names = ("status", "converged", "objective", "iterations")
    assert told | {name: getattr(result, name) for name in names} == told
    assert [*told["coefficients"].values()] == result.solution.tolist()
    stated, known = told["certificate"], result.certificate
    assert [*stated["coefficients"].values()] == known.coefficients.tolist()
    assert (stated["gap"], stated["radius"]) == (known.gap, known.radius)


@pytest.mark.parametrize("words", ["--help", "--max-iter 3"])
def test_a_closed_pipe_is_no_error(words, home):
    command = f"'{sys.executable}' -um dadmm.run {words} --out run 2>&1"
    # the shell waits until the pipe has no reader
    script = f"{{ sleep 0.2; {command}; echo $? >code; }} | true"
    env = variables(DADMM_PROGRESS="live")
    ended = Job(["bash", "-c", script], home, env).end()

    assert ended.err == ""
    assert Path("code").read_text() == "0\n"
    assert Path("run/summary.json").exists() == (words != "--help")


def test_a_run_that_has_lost_nodes_is_not_resumed(capsys):
    file = run_job(*SHORT) / "summary.json"
    file.write_text(json.dumps(summary_of("run") | {"lost_nodes": [1]}))

    assert "lost nodes" in refused(capsys, "--resume", "run", "--max-iter", 99)


def test_a_checkpoint_of_another_run_with_equal_settings_is_refused(capsys):
    file = Path("checkpoints", "00000012", "node-00002.npz")
    run, other = (run_job(*SHORT, out=name) for name in ("run", "other"))
    shutil.copy(other / file, run / file)

    assert "another run" in refused(capsys, "--resume", "run", "--max-iter", 20)


def test_a_launcher_names_its_own_commands(capsys, monkeypatch):
    monkeypatch.setenv("DADMM_RESUME_COMMAND", "./launch/local -n 4 --resume")
    monkeypatch.setenv("DADMM_REPORT_COMMAND", "")  # it makes the page
    main([*map(str, SHORT), "--tolerance", "1e-9", "--out", "my run"])
    out = capsys.readouterr().out

    assert "./launch/local -n 4 --resume 'my run' --max-iter N" in out
    assert "browser" not in out


def going(worst: float, tolerance: float = 1e-3) -> SimpleNamespace:
    rows = [np.array([0.5 * worst, worst]), np.array([np.nan, worst]), np.zeros(2)]
    rule = SimpleNamespace(tolerance=tolerance)
    stopping = SimpleNamespace(verdict=lambda numbers: rows, rule=rule)
    return SimpleNamespace(stopping=stopping, work=SimpleNamespace(numbers=None))


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (6, "50%"),
        (30, "[######       ] iteration 200"),
        (120, "[##########          ] iteration 200, 10 times the limit, about 0:04 "
         "left, in 0:04, 50/s"),
    ],
)  # fmt: skip
def test_the_progress_line_is_rewritten_on_a_terminal(
    columns, said, capsys, monkeypatch
):
    monkeypatch.setattr(progress, "monotonic", count().__next__)
    monkeypatch.setenv("DADMM_PROGRESS", "live")
    monkeypatch.setenv("COLUMNS", str(columns))
    line = Progress(Bar(1000, "iteration"))
    for t, worst in ((1, 100.0), (200, 10.0)):
        line(t, going(worst))
    line.close()
    _, last, wiped, end = capsys.readouterr().err.split("\r")

    assert last.rstrip() == said
    assert len(last) < columns
    assert (wiped.strip(), end) == ("", "")
    assert len(wiped) >= len(last.rstrip())


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ((1e7,), ", 1.0e+07 times the limit, at most 6:38:40 left"),
        ((0.5,), ", criteria met, until all nodes know it"),
        ((np.inf,), " of 1000, at most 6:38:40 left"),  # a criterion without a limit
        ((1e303, 0.0), " of 1000, at most 6:38:40 left"),  # tolerance 0
    ],
)
def test_progress_elsewhere_is_a_line_a_minute(run, said, capsys, monkeypatch):
    monkeypatch.delenv("DADMM_PROGRESS", raising=False)
    for quiet in (False, True):
        monkeypatch.setattr(progress, "monotonic", count(step=20).__next__)
        line = Progress(None if quiet else Bar(1000, "iteration"))
        for t in range(101, 108):  # resumed after iteration 100
            line(t, going(*run))
    lines = capsys.readouterr().err.splitlines()

    assert len(lines) == 3
    assert lines[0] == f"iteration 103{said}, in 1:20, 26.7 s each"


@pytest.mark.parametrize("plain", [False, True])
def test_a_terminal_gets_whole_words_and_one_colour(plain, monkeypatch):
    text = "certified after 3 iterations\n  penalties   " + "eta 0.5 " * 20
    assert laid_out(text) == text
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    with monkeypatch.context() as rank:  # of Open MPI, which has a terminal of its own
        rank.setenv("OMPI_COMM_WORLD_RANK", "0")
        rank.setenv("OMPI_COMM_WORLD_SIZE", "4")
        assert laid_out(text) == text
    assert laid_out(text) != text
    monkeypatch.setenv("DADMM_OUTPUT", "live")
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1" if plain else "")
    shown = laid_out(text)

    assert ("\x1b[1;32mcertified\x1b[0m after" in shown) != plain
    assert shown.count("\x1b") == (0 if plain else 2)
    assert shown.split()[1:] == text.split()[1:]
    assert all(len(line) <= 40 for line in shown.splitlines()[1:])


@pytest.mark.mpi
def test_any_number_of_ranks_leaves_the_same_files(home):
    step = 1 if os.environ.get("DADMM_ALL") else 6
    ended = mpiexec(4, *program("placed.py"), home, step, timeout=1800 / step)

    assert ended.code == 0, ended.err
    found = re.fullmatch(r"(\d+) runs agree, (\d+) resumed\n", ended.out)
    assert found, ended.out
    assert int(found[1]) >= 24 // step
    assert int(found[2]) >= 20 // step


INT, TERM, USR1 = signal.SIGINT, signal.SIGTERM, signal.SIGUSR1


@pytest.mark.parametrize(
    ("ranked", "arrivals", "last"),
    [
        (False, [(0.0, INT), (0.1, INT), (5.0, USR1)], (5.1, INT)),
        (False, [(0.0, INT)], (0.4, INT)),
        (False, [(0.0, USR1), (0.1, USR1)], (0.1, INT)),
        (True, [(0.0, INT), (0.6, INT)], (0.7, INT)),
        (True, [(0.0, INT)], (1.1, INT)),
        (True, [(0.0, USR1)], (0.4, TERM)),
    ],
)
def test_a_second_interrupt_ends_at_once(ranked, arrivals, last, monkeypatch):
    """But not one that may be the same request, nor any USR1, also after the end."""
    now, ended, before = [0.0], [], signal.getsignal(TERM)
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
        late = signal.signal(USR1, signal.SIG_DFL)

    assert ended == [128 + number]
    assert signal.getsignal(TERM) == before
    assert (late == signal.SIG_IGN) == ranked


def test_launchers_are_recognised_by_what_they_say(monkeypatch):
    """Tasks of Slurm that no MPI connects would each be a run, in one folder."""
    for rank, size in ranks.LAUNCHERS:
        with monkeypatch.context() as patch:
            patch.setenv(rank, "2")
            patch.setenv(size, "many")
            assert ranks.rank_and_size() is None
            assert isinstance(world.connect(), world.World)
            patch.setenv(size, "20")
            assert ranks.rank_and_size() == (2, 20)
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    for task, error in (("0", ConfigError), ("2", SystemExit)):
        monkeypatch.setenv("SLURM_PROCID", task)
        with pytest.raises(error):
            world.connect()
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "1")
    assert world.connect().size == 1


def test_a_rank_without_an_mpi_library_says_what_to_install(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "dadmm.comm.mpi", None)
    monkeypatch.setenv("PMI_SIZE", "2")
    monkeypatch.setenv("PMI_RANK", "0")
    assert "pip install mpich" in refused(capsys, "run", main=start)
    monkeypatch.setenv("PMI_RANK", "1")
    with pytest.raises(SystemExit, match="2"):
        start(["run"])
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("how", ["renamed", "gone"])
def test_results_of_a_run_whose_folder_is_gone_are_rescued(how, monkeypatch, capsys):
    def finish(self, *words, real=run_folder.RunFolder.finish):
        Path("run").rename("moved") if how == "renamed" else shutil.rmtree("run")
        return real(self, *words)

    monkeypatch.setattr(run_folder.RunFolder, "finish", finish)
    said = refused(capsys, *SHORT, "--quiet", "--out", "run")
    (place,) = re.findall(r"the results are in (\S+)", said)
    assert np.load(Path(place, "result.npz"))["W"].shape == (4, 6, 2)
    assert StoredRun.read(place).entry("n_nodes") == 4
