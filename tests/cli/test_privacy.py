"""What leaves a node, and what does not: docs/privacy.md states what is tested here."""

import json
import os
import stat
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from dadmm.cli import privacy
from dadmm.comm.world import World
from dadmm.core import documents
from dadmm.data.encoding import Rows
from dadmm.graphs.topology import Topology
from dadmm.problems import PROBLEMS
from dadmm.runs.config import RunConfig
from dadmm.solver.plan import Kind
from tests.support.processes import mpiexec, program
from tests.support.runs import run_job, summary_of

RANKS = 4
NOTHING: list = [[]] * RANKS
GATHERED = "Igatherv to rank 0"
# the tree of a ring of 4 has the edges 0-1, 0-3 and 1-2: nodes 2 and 3 are leaves
LEAVES = [[], [], ["Isend to rank 1"], ["Isend to rank 0"]]


@pytest.fixture(scope="module")
def sent(tmp_path_factory):
    """By case, what each rank sent of what it holds; other lines; the folder."""
    folder = tmp_path_factory.mktemp("recorded")
    ended = mpiexec(RANKS, *program("privacy.py"), cwd=folder, timeout=280)
    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    found = [json.loads(line) for line in lines if line.startswith("{")]
    other = [line for line in lines if not line.startswith("{")]
    return {f["case"]: f["ranks"] for f in found}, other, folder


def of(ranks, kind):
    """Return where something of this kind was found, by rank."""
    return [rank[kind] for rank in ranks]


@pytest.mark.mpi
def test_no_entry_of_the_data_is_sent(sent):
    """By any problem or estimator; planted leaks are found.

    A few numbers in single precision are alike by chance: fewer than a row's.
    """
    cases = {name: ranks for name, ranks in sent[0].items() if name != "planted"}
    known = {name.split()[1] for name in cases if name.startswith("run ")}
    assert known == set(PROBLEMS) - {"sfm"}
    for name in cases:
        assert of(cases[name], "entries") == NOTHING, name
        assert max(of(cases[name], "single")) < 4, name
    planted = sent[0]["planted"]
    assert of(planted, "entries") == [[], [GATHERED], [], ["Send_init to rank 0"]]
    assert of(planted, "single") == [4, 4, 0, 0]


@pytest.mark.mpi
def test_a_run_sends_no_summary_unless_asked(sent):
    """Neither sums nor scatter nor its factor; where asked, to rank 0 alone.

    But PPCA without missing entries sends sums along the tree, and linear problems a
    triangular factor, or the mean of y for scores: those of a leaf are the leaf's own.
    """
    cases, other, _ = sent
    factors = ["least_squares", "lasso", "ridge", "elastic_net", "huber"]
    factors += ["ppca", *(f"ppca {how}" for how in ("wide", "float32", "global"))]
    shown = {f"run {name}" for name in factors} | {"sklearn PPCA", "sklearn Lasso"}
    for name, ranks in cases.items():
        expected = LEAVES if name in shown else NOTHING
        if name == "run ppca asked":
            expected = [[GATHERED, *leaf] for leaf in LEAVES]
        assert of(ranks, "summaries") == expected, name
    assert len([line for line in other if line.startswith("--compare-centr")]) == 1


@pytest.mark.mpi
def test_the_frame_from_which_a_camera_starts_is_sent(sent):
    """Moved by 0.1, in the opening message; random and merged starts send none."""
    assert all(len(found) == 2 for found in of(sent[0]["sfm frame"], "shifted"))
    for name in ("sfm random", "sfm merged", "sfm lost tracks merged"):
        assert of(sent[0][name], "shifted") == NOTHING


@pytest.mark.mpi
def test_all_bytes_are_counted(sent):
    """But for the count itself, two numbers of each rank, and two checks after it."""
    cases, _, folder = sent
    runs = [*folder.glob("run-*")]
    assert len(runs) > 15
    for run in runs:
        summary, name = summary_of(run), run.name.replace("-", " ")
        counted = ("bytes", "collective_bytes", "outside_bytes")
        assert min(summary["outside_bytes"], summary["outside_calls"]) > 0
        recorded = sum(of(cases[name], "bytes"))
        after = (2 * 8 + 2 * 64) * RANKS
        assert sum(summary[k] for k in counted) + after == recorded, name


def test_a_node_with_as_many_rows_as_parameters_is_counted(capsys):
    rows = {i: Rows(np.eye(n)[:, :2], np.ones(n)) for i, n in enumerate((3, 4))}
    problems = {i: PROBLEMS["ridge"](own.X, own.y) for i, own in rows.items()}
    job = SimpleNamespace(
        plan=SimpleNamespace(kind=Kind.METRIC), config=RunConfig(problem="ridge"),
        world=World(), graph=Topology.chain(2), problems=problems,
        data=SimpleNamespace(rows=rows),
    )  # fmt: skip
    privacy.warn(job)

    assert capsys.readouterr().out.startswith("1 of 2 nodes")


def test_files_with_rows_are_for_their_owner_alone(monkeypatch):
    """From the start, whatever the umask, and the draft of a run that was killed."""
    rows = np.random.default_rng(0).standard_normal((40, 5))
    np.save("holed.npy", np.where(np.abs(rows) > 2.0, np.nan, rows))
    before = os.umask(0)
    try:
        words = "--data holed.npy --nodes 4 --n-components 2 --max-iter 3"
        files = [*run_job(*words.split()).glob("imputed-*.npz"), Path("rows.npz")]
        draft, modes, save = Path(".rows.npz.draft"), [], np.savez
        draft.touch(0o666)

        def watched(file, **arrays):
            modes.append(stat.S_IMODE(draft.stat().st_mode))
            save(file, **arrays)

        monkeypatch.setattr(np, "savez", watched)
        documents.write_arrays(Path("rows.npz"), {}, private=True)
    finally:
        os.umask(before)

    modes += [stat.S_IMODE(file.stat().st_mode) for file in files]
    assert modes == [0o600] * 6
