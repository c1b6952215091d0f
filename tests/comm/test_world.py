"""Collectives: sums over a tree, checked steps, waits, which ranks belong together."""

import io
import os
import re
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from dadmm import Schedule, Sending, Topology
from dadmm.comm import identity, mpi
from dadmm.comm.launch_link import doing, wait_until_read
from dadmm.comm.tree import TreeReduction, spanning_tree
from dadmm.comm.world import Checks, World, collectively
from dadmm.core.errors import ConfigError, DadmmError, ProblemError, TopologyError
from tests.support.processes import FAULTY, ROOT, mpi_groups, mpiexec, planned
from tests.support.runs import arrays_of, summary_of


def fail(error):
    raise error


@pytest.mark.parametrize("part", ["wait_until_read", "traceback.format_exception"])
def test_all_ranks_are_ended_whatever_fails_on_the_way(part, monkeypatch):
    """There may be no memory to print the error, nor to wait until it is read."""
    world, codes = World(), []
    world._all = SimpleNamespace(Abort=codes.append)
    monkeypatch.setattr(f"dadmm.comm.world.{part}", lambda *_: fail(MemoryError()))

    with pytest.raises(MemoryError):
        world.abort(ValueError())
    assert codes == [1]


@pytest.mark.parametrize("late", [0, 3])
def test_a_rank_may_learn_late_which_rank_failed(late, monkeypatch):
    """It then waits, and does not report the failure as its own."""
    answers = [[]] * late + [[2]]
    known = SimpleNamespace(Get_failed=lambda: answers.pop(0), Iprobe=lambda: False)
    monkeypatch.setattr(mpi, "is_fault_tolerant", lambda: True)
    monkeypatch.setattr(mpi, "ranks_in", lambda group, comm: group)

    assert mpi.failed_ranks(known, mpi.MPI.Exception(mpi.MPI.ERR_PROC_FAILED)) == [2]
    assert mpi.failed_ranks(known, ValueError()) == []


@pytest.mark.parametrize("error", [ConfigError("no"), MemoryError()])
def test_after_a_failure_further_steps_are_left_out(error):
    """Too little memory is an error of the input; other exceptions are raised."""
    checks, done = Checks(World()), []
    checks.run(lambda: fail(error))
    checks.run(lambda: done.append(1))

    with pytest.raises(DadmmError):
        checks.gather(lambda: done.append(2))
    assert not done
    with pytest.raises(ZeroDivisionError):
        Checks(World()).run(lambda: 1 / 0)


@pytest.mark.mpi
@pytest.mark.parametrize("interval", [0.0, mpi.POLL_INTERVAL])
def test_a_long_wait_sleeps(interval, monkeypatch):
    """Else a rank that is stopped would keep the cores of all others busy."""
    answers, slept, now = iter([False] * 40 + [True]), [], iter(range(1000))
    monkeypatch.setattr(mpi, "_test_all", lambda requests: next(answers))
    monkeypatch.setattr(mpi, "monotonic", lambda: 0.1 * next(now))
    monkeypatch.setattr(mpi.time, "sleep", slept.append)
    mpi.poll([], interval)

    assert {*slept} == {mpi.LONG_INTERVAL, interval} - {0.0}
    assert slept[-1] == mpi.LONG_INTERVAL


@pytest.mark.timeout(60)
def test_last_words_are_waited_for_until_the_launcher_has_read_them(tmp_path):
    reader, writer = os.pipe()
    with open(reader, "rb") as outlet, open(writer, "w") as inlet:
        inlet.write("last words")
        inlet.flush()
        wait_until_read(inlet, 0.01)  # nobody reads it
        waiting = threading.Thread(target=wait_until_read, args=(inlet, 1e6))
        waiting.start()
        for count in (4, 100):
            waiting.join(0.05)
            assert waiting.is_alive()
            os.read(outlet.fileno(), count)
        waiting.join(30)
        assert not waiting.is_alive()
    with open(tmp_path / "file", "w") as file:
        file.write("words")
        for stream in (file, None, io.StringIO("words")):
            wait_until_read(stream, 1e6)


KITE = Topology.from_edges(6, [(0, 4), (0, 2), (2, 5), (4, 5), (2, 1), (5, 3)])
PARENTS = [-1, 2, 0, 5, 0, 2]


def test_the_parent_is_the_lowest_neighbour_that_is_nearer_to_the_root():
    parents, depth = spanning_tree(KITE)
    names = {i: str(i) for i in range(6)}
    whole = TreeReduction(KITE).reduce(names, lambda mine, other: f"({mine} {other})")

    assert parents.tolist() == PARENTS
    assert depth.tolist() == [0, 2, 1, 3, 1, 2]
    assert whole == "((0 ((2 1) (5 3))) 4)"


def test_traffic_is_one_message_up_and_one_down_each_edge_of_the_tree():
    """The root has the order of the result that others receive."""
    tree, alone = TreeReduction(KITE), TreeReduction(Topology.ring(1))
    for _ in range(3):
        found = tree.reduce({i: np.eye(2, 3) for i in range(6)}, finish=np.transpose)

    used = [PARENTS[i] == j or PARENTS[j] == i for i, j in KITE.edges.tolist()]
    expected = np.outer(used, [3, 3 * (8 + 2 * 8 + 6 * 8)])
    assert tree.sent.tolist() == expected.tolist()
    assert found.shape == (3, 2)
    assert found.flags.c_contiguous
    assert alone.reduce({0: 5}, max) == 5
    assert alone.sent.shape == (0, 2)


def test_a_step_that_ranks_do_together_is_work_and_not_a_wait():
    """The launch command names a rank that computes, also within `collectively`."""
    assert not collectively(World(), lambda: doing(sys._getframe()))["waits"]
    inside = []
    Checks(World()).run(lambda: inside.append(doing(sys._getframe(1))))
    assert inside[0]["waits"]
    assert inside[0]["at"].startswith("run (world.py:")


RING = Topology.ring(6)
GIVEN = {"eta0": 10.0, "seed": 3, "sending": Sending()}
SAME = {"seed": np.int64(3), "sending": Sending(), "eta0": 10}


def test_an_identity_repeats_and_shows_what_differs():
    mine = identity.identity(GIVEN, RING)
    assert list(mine) == ["version", "configuration", "graph"]
    for names, given, *graph in (
        ([], SAME, Topology.from_edges(6, RING.edges[::-1])),
        (["configuration"], GIVEN | {"eta0": 10.000000000000002}, RING),
        (["configuration"], GIVEN | {"t_max": None}, RING),
        (["configuration"], GIVEN | {"sending": Sending("quantised:9")}, RING),
        (["graph"], GIVEN, Topology.star(6)),
        (["graph"], GIVEN, RING, Schedule.matchings(RING)),
    ):
        theirs = identity.identity(given, *graph)
        assert [key for key in mine if mine[key] != theirs[key]] == names


def test_data_are_told_apart_by_shape_type_and_bytes():
    rows = np.arange(12.0).reshape(3, 4)
    others = [
        [rows.T], [rows.reshape(4, 3)], [rows.astype(np.float32)], [rows, rows],
        [np.nextafter(rows, 99)], [rows.view(np.int64)], [],
    ]  # fmt: skip
    codes = [identity.of_data(blocks) for blocks in [[rows], *others]]

    assert len(set(codes)) == len(codes)
    assert identity.of_data([np.asfortranarray(rows)]) == codes[0]


@pytest.mark.parametrize(
    ("name", "kind"),
    [("graph", TopologyError), ("layout", ProblemError), ("eta0", ConfigError)],
)
def test_the_fact_and_the_ranks_are_named(name, kind):
    many = "ranks 1, 2, 3, 4"
    for others, who in ((1, "rank 1 "), (4, f"{many} "), (999, f"{many} and 995 ")):
        with pytest.raises(kind, match=f"{who}.*{name}"):
            identity.raise_difference([{name: "x"}] + [{name: "y"}] * others)
    identity.raise_difference([{name: "x"}] * 3)


RUN = ("--topology", "ring", "--max-iter", 9, "--out", "run")
OTHER_RING = {"what": "renumber", "at": "dadmm.cli.job:Job.run"}
RARE = {"marks": pytest.mark.slow}


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("theirs", "culprit"),
    [
        ({"words": ["--scheme", "nap"]}, "rank 2 has scheme"),
        ({"act": OTHER_RING}, "rank 2 has graph"),
        ({"versions": {"dadmm.core.version": "0"}}, "rank 2 has"),
        pytest.param({"words": ["--scheme", "npa"]}, "rank 2: .*npa", **RARE),
        pytest.param({"words": ["--version"]}, "rank 2 has --help", **RARE),
    ],
)
def test_a_rank_with_other_settings_version_or_graph_is_named(
    tmp_path, theirs, culprit
):
    ended = mpiexec(5, FAULTY, *RUN, cwd=tmp_path, **planned({"2": theirs}))

    (sentence,) = ended.said
    assert re.search(culprit, sentence)
    assert (ended.code, ended.out, "Traceback" in ended.err) == (2, "", False), ended
    assert not (tmp_path / "run").exists()


@pytest.mark.mpi
def test_ranks_alike_run_although_written_otherwise(tmp_path):
    """Flags or file, in any order; each rank may be quiet; rank 0 reads the graph."""
    toml = 'scheme = "vp"\nmax_iter = 9\ntopology = "path.edges"\nout = "../run"\n'
    start = "import os, sys; os.chdir(%r); from dadmm.run import main; sys.exit(main())"
    flags = "--max-iter 9 --topology path.edges --out ../run --scheme vp --eta0 10"
    groups = []
    for name, edges, words in (
        ("a", "0 1\n1 2\n2 3\n", flags),
        ("b", "0 1\n0 2\n0 3\n", "--eta0=1e1 --config a.toml --quiet"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "path.edges").write_text(edges)
        (tmp_path / name / "a.toml").write_text(toml)
        groups.append((2, "-c", start % str(tmp_path / name), *words.split()))
    ended = mpi_groups(*groups, cwd=ROOT).end()

    assert (ended.code, ended.said) == (0, []), ended.err
    summary = summary_of(tmp_path / "run")
    assert (summary["n_nodes"], summary["iterations"]) == (4, 9)
    chain = Topology.chain(4).edges.tolist()
    assert arrays_of(tmp_path / "run")["edges"].tolist() == chain
