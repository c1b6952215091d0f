"""Who belongs together: hashes of all that decides a run, compared at its start."""

import re

import numpy as np
import pytest

from dadmm import Schedule, Sending, Topology
from dadmm.comm import identity
from dadmm.core.errors import ConfigError, ProblemError, TopologyError
from tests.support.processes import PROGRAMS, ROOT, mpi_groups
from tests.support.runs import arrays_of, summary_of

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
    for others, who in ((1, "rank 1 "), (4, "ranks 1, 2, 3 and 4 "), (999, "996 ")):
        with pytest.raises(kind, match=f"{who}.*{name}"):
            identity.raise_difference([{name: "x"}] + [{name: "y"}] * others)
    identity.raise_difference([{name: "x"}] * 3)


STRANGER = PROGRAMS / "mismatched_rank.py"
RUN = ("--topology", "ring", "--max-iter", 9, "--out", "run")
RARE = {"marks": pytest.mark.slow}


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("theirs", "culprit"),
    [
        (("none", *RUN, "--scheme", "nap"), "rank 2 has scheme"),
        (("graph", *RUN), "rank 2 has graph"),  # a ring in either numbering
        pytest.param(("dadmm", *RUN), "rank 2 has", **RARE),
        pytest.param(("none", *RUN, "--scheme", "npa"), "rank 2: .*npa", **RARE),
        pytest.param(("none", *RUN, "--version"), "rank 2 has --help", **RARE),
    ],
)
def test_a_rank_with_other_settings_version_or_graph_is_named(
    tmp_path, theirs, culprit
):
    """By the one sentence with which all ranks end."""
    ours = (2, STRANGER, "none", *RUN)
    ended = mpi_groups(ours, (1, STRANGER, *theirs), ours, cwd=tmp_path).end()

    assert (ended.code, ended.out) == (2, ""), ended
    assert "Traceback" not in ended.err
    assert not (tmp_path / "run").exists()
    (sentence,) = ended.said
    assert re.search(culprit, sentence)


@pytest.mark.mpi
def test_ranks_alike_run_although_written_otherwise(tmp_path):
    """Flags or file, in any order; each rank may be quiet; rank 0 reads the graph."""
    toml = 'scheme = "vp"\nmax_iter = 9\ntopology = "path.edges"\nout = "../run"\n'
    for name, edges in (("a", "0 1\n1 2\n2 3\n"), ("b", "0 1\n0 2\n0 3\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "path.edges").write_text(edges)
        (tmp_path / name / "a.toml").write_text(toml)
    words = {"b": ("--eta0=1e1", "--config", "a.toml", "--quiet")}
    words["a"] = ("--max-iter", 9, "--topology", "path.edges", "--out", "../run")
    words["a"] += ("--scheme", "vp", "--eta0", 10)
    start = "import os, sys; os.chdir(%r); from dadmm.run import main; sys.exit(main())"
    groups = [(2, "-c", start % str(tmp_path / k), *words[k]) for k in "ab"]
    ended = mpi_groups(*groups, cwd=ROOT).end()

    assert (ended.code, ended.said) == (0, []), ended.err
    summary = summary_of(tmp_path / "run")
    assert (summary["n_nodes"], summary["iterations"]) == (4, 9)
    chain = Topology.chain(4).edges.tolist()
    assert arrays_of(tmp_path / "run")["edges"].tolist() == chain
