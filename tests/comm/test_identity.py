"""Who belongs together: hashes of all that decides a run, compared at its start."""

from __future__ import annotations

import json

import numpy as np
import pytest

from dadmm import Schedule, Sending, Topology
from dadmm.comm import identity
from dadmm.core.errors import ConfigError, DadmmError, ProblemError, TopologyError
from tests.support.processes import PROGRAMS, ROOT, mpi_groups

pytestmark = pytest.mark.mpi

GIVEN = {"eta0": 10.0, "sending": Sending()}
RING, STAR = Topology.ring(6), Topology.star(6)


def test_an_identity_repeats():
    mine = identity.identity({"eta0": 10.0, "seed": 3, "sending": Sending()}, RING)
    again = identity.identity(
        {"seed": np.int64(3), "sending": Sending(), "eta0": 10},
        Topology.from_edges(6, RING.edges[::-1]),
    )

    assert mine == again
    assert list(mine) == ["version", "configuration", "graph"]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("configuration", {"given": GIVEN | {"eta0": 10.000000000000002}}),
        ("configuration", {"given": GIVEN | {"t_max": None}}),
        ("configuration", {"given": GIVEN | {"sending": Sending("quantised:9")}}),
        ("graph", {"topology": STAR}),
        ("graph", {"schedule": Schedule.matchings(RING)}),
    ],
)
def test_the_first_difference_is_named(name, change):
    usual = {"given": GIVEN, "topology": RING}
    mine, theirs = identity.identity(**usual), identity.identity(**(usual | change))

    assert [key for key in mine if mine[key] != theirs[key]] == [name]


def test_data_are_told_apart_by_shape_type_and_bytes():
    rows = np.arange(12.0).reshape(3, 4)
    others = [
        [rows.T], [rows.reshape(4, 3)], [rows.astype(np.float32)], [rows, rows],
        [np.nextafter(rows, 99)], [],
    ]  # fmt: skip

    codes = [identity.of_data(blocks) for blocks in [[rows], *others]]

    assert len(set(codes)) == len(codes)
    assert identity.of_data([np.asfortranarray(rows)]) == codes[0]


@pytest.mark.parametrize(
    ("name", "kind"),
    [("dadmm", ConfigError), ("numpy", ConfigError), ("graph", TopologyError),
     ("layout", ProblemError), ("eta0", ConfigError)],
)  # fmt: skip
def test_the_fact_and_the_ranks_are_named(name, kind):
    for others, who in ((1, "rank 1 "), (4, "ranks 1, 2, 3 and 4 "), (999, "996 ")):
        with pytest.raises(DadmmError, match=who) as raised:
            identity.raise_difference([{name: "x"}] + [{name: "y"}] * others)
        assert type(raised.value) is kind
    identity.raise_difference([{name: "x"}] * 3)


RUN = ("-m", "dadmm.run", "--max-iter", 9, "--out", "run")
STRANGER = PROGRAMS / "mismatched_rank.py"


def refused(*groups, cwd) -> str:
    """Return the one sentence with which a job of several programs ends."""
    ended = mpi_groups(*groups, cwd=cwd).end()

    assert ended.code == 2, ended
    assert ended.out == ""
    assert "Traceback" not in ended.err
    assert not (cwd / "run").exists()
    (sentence,) = ended.said
    return sentence.removeprefix("dadmm: error: ")


@pytest.mark.parametrize(
    ("theirs", "culprit"),
    [
        (("--scheme", "nap"), "ranks 2 and 3 have scheme"),
        (("--config", "a.toml"), "ranks 2 and 3 have eta0"),
        (("--scheme", "npa"), "rank 2: unknown scheme 'npa'"),
        (("--dry-run",), "ranks 2 and 3 have --dry-run"),
        (("--version",), "ranks 2 and 3 have --help or --version"),
    ],
)
def test_other_settings_of_some_ranks_are_named(tmp_path, theirs, culprit):
    (tmp_path / "a.toml").write_text("eta0 = 2.5\n")

    assert culprit in refused((2, *RUN), (2, *RUN, *theirs), cwd=tmp_path)


@pytest.mark.parametrize("what", ["dadmm", "graph"])
def test_another_version_or_graph_of_one_rank_is_named(tmp_path, what):
    """Settings alike; a graph of five nodes, which is a ring in either numbering."""
    arguments = ("--topology", "ring", *RUN[2:])
    ours, theirs = (STRANGER, "none", *arguments), (STRANGER, what, *arguments)
    said = refused((2, *ours), (1, *theirs), (2, *ours), cwd=tmp_path)

    assert "rank 2 " in said
    assert what in said


def test_ranks_alike_run_although_written_otherwise(tmp_path):
    """Flags or file, in any order; and each rank may be quiet by itself."""
    (tmp_path / "a.toml").write_text('scheme = "vp"\nmax_iter = 9\nout = "run"\n')
    ours = (*RUN, "--scheme", "vp", "--eta0", 10)
    theirs = ("-m", "dadmm.run", "--eta0=1e1", "--config", "a.toml", "--quiet")
    ended = mpi_groups((2, *ours), (2, *theirs), cwd=tmp_path).end()

    assert (ended.code, ended.said) == (0, []), ended.err
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["n_nodes"], summary["iterations"]) == (4, 9)


def test_a_graph_file_is_read_by_rank_0_for_all(tmp_path):
    for name, text in (("a", "0 1\n1 2\n2 3\n"), ("b", "0 1\n0 2\n0 3\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "path.edges").write_text(text)
    step = f"import os; os.chdir({str(tmp_path)!r} + '/%s'); "
    start = "import sys; from dadmm.run import main; sys.exit(main())"
    out = tmp_path / "run"
    words = ("--topology", "path.edges", "--max-iter", 9, "--quiet", "--out", out)
    groups = [(2, "-c", step % name + start, *words) for name in "ab"]
    ended = mpi_groups(*groups, cwd=ROOT).end()

    assert (ended.code, ended.said) == (0, []), ended.err
    with np.load(out / "result.npz") as found:
        expected = [[0, 1], [1, 0], [1, 2], [2, 1], [2, 3], [3, 2]]
        assert found["edges"].tolist() == expected
