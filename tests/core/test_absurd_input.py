"""Absurd values and inputs: one sentence, exit code 2, no hang."""

from __future__ import annotations

import os

import numpy as np
import pytest

from dadmm import Topology, calibrate, plot, predict, replay, run, waiting
from dadmm.comm.sending import Sending
from dadmm.core.errors import DadmmError
from dadmm.graphs.topology import GRAPHS as GRAPHS_BY_NAME
from dadmm.problems import PPCA
from tests.support.runs import refused
from tests.support.solving import solve

SMALL = ["--nodes", "4", "--n-samples", "40", "--dimension", "4", "--n-components", "2"]
SMALL += ["--max-iter", "5", "--quiet", "--no-checkpoint"]
BIG, DIGITS = "99999999999999999999", "9" * 5000
X = np.random.default_rng(0).standard_normal((40, 4))


VALUES = {
    f"--nodes={BIG}": "nodes must be from 1 to 1000000000",
    "--nodes=1000000": "at most 200000 nodes",
    "--nodes=10000": "edges, and at most 4000000 are allowed",
    "--nodes=2.5": "must be an integer",
    f"--max-iter={BIG}": "max_iter must be from 1 to",
    f"--max-iter={DIGITS}": "must be an integer",
    f"--seed={BIG}": "seed must be from 0 to",
    "--n-samples=900000000": "GiB",
    f"--n-components={BIG}": "n_components must be from 1",
    "--checkpoint-seconds=nan": "checkpoint_seconds must be at least 0",
    '--problem-settings={"n_components": "x"}': "n_components must be an integer",
    '--problem-settings={"n_components": 2.5}': "n_components must be an integer",
    '--problem-settings={"zero_mean": "no"}': "zero_mean must be true or false",
    f'--problem-settings={{"n_components": 1{"0" * 5000}}}': "must be a JSON object",
    f"--problem-settings={'[' * 10**5}": "must be a JSON object",
    "--problem-settings=": None,  # the same as none
}


@pytest.mark.parametrize("flag", VALUES)
def test_values_are_refused(flag, tmp_path, capfd):
    words = [*SMALL, flag, "--out", str(tmp_path / "out")]
    if VALUES[flag] is None:
        assert run.main(words) == 0
        return
    line = refused(capfd, *words)
    assert VALUES[flag] in line
    assert len(line) < 400


FILES = {
    "empty": (lambda f: f.write_bytes(b""), "not a valid"),
    "a folder": (lambda f: f.mkdir(), "it is a folder"),
    "a named pipe": (os.mkfifo, "it is a named pipe"),
    "a device": (lambda f: f.symlink_to("/dev/zero"), "it is a device"),
    "bytes": (lambda f: f.write_bytes(b"\0" * 999), "not a valid"),
}
MATRICES = {
    "infinite": (X * np.inf, "node 0: row 0, column 0 is"),
    "1e307": (X * 1e307, "node 0: row 0, column 0 is 1.25"),
    "one large row": (np.vstack([X[:39], X[:1] * 1e200]), "node 3: row 9, column 0 is"),
    "largest": (np.full((40, 4), np.finfo(float).max), "rescale the column"),
}


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".txt", ".mat"])
@pytest.mark.parametrize("kind", FILES)
def test_data_that_are_no_data(kind, suffix, tmp_path, capfd):
    make, words = FILES[kind]
    file = tmp_path / f"data{suffix}"
    make(file)
    line = refused(capfd, *SMALL, "--data", file, "--out", tmp_path / "out")
    assert words in line or (kind in ("empty", "bytes") and file.name in line)


@pytest.mark.parametrize("problem", ["ppca", "least_squares"])
@pytest.mark.parametrize("kind", MATRICES)
def test_numbers_that_are_none(kind, problem, tmp_path, capfd):
    array, words = MATRICES[kind]
    np.save(tmp_path / "data.npy", array)
    given = [*SMALL, "--problem", problem, "--out", tmp_path / "out"]
    assert words in refused(capfd, *given, "--data", tmp_path / "data.npy")


GRAPHML = '<?xml version="1.0"?>{}<graphml><graph>{}</graph></graphml>'
ENTITIES = '<!DOCTYPE g [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;">]>'
GRAPHS = {
    ".edges": f"0 {BIG}\n",
    ".txt": "\n".join(f"{i} {i + 1}" for i in range(200_000)),
    ".graphml": GRAPHML.format(ENTITIES, '<node id="&b;"/>'),
}


@pytest.mark.parametrize("suffix", GRAPHS)
def test_graphs_that_are_too_much(suffix, tmp_path, capfd):
    file = tmp_path / f"graph{suffix}"
    file.write_text(GRAPHS[suffix])
    assert file.name in refused(capfd, "--topology", file)
    file.unlink()
    os.mkfifo(file)
    assert "it is a named pipe" in refused(capfd, "--topology", file)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-be"])
def test_graphml_declares_no_entities_in_any_encoding(encoding, tmp_path, capfd):
    file = tmp_path / "graph.graphml"
    file.write_text(GRAPHS[".graphml"], encoding)
    assert "remove <!ENTITY" in refused(capfd, "--topology", file)


@pytest.mark.parametrize("name", GRAPHS_BY_NAME)
def test_graphs_of_very_many_nodes(name, capfd):
    line = refused(capfd, "--topology", name, "--nodes", 10**8, "--quiet")
    assert "at most 200000 nodes" in line


TABLES = {
    "infinite": ("eta0 = 1" + "0" * 400 + "\n", "eta0 must be positive and finite"),
    "digits": (f"eta0 = {DIGITS}\n", "not valid TOML"),
    "deep": ("a = " + "[" * 10**5, "nested too deeply"),
    "a key of many parts": ("a." * 10**5 + "b = 1\n", "too many parts"),
    "large": ("#" * 2**25, "at most 16777216 are allowed"),
}


@pytest.mark.parametrize("kind", TABLES)
def test_settings_that_are_none(kind, tmp_path, capfd):
    text, words = TABLES[kind]
    (tmp_path / "my.toml").write_text(text)
    assert words in refused(capfd, *SMALL[:-4], "--config", tmp_path / "my.toml")
    if kind == "infinite":
        return
    given = (tmp_path, "--network", tmp_path / "my.toml")
    assert words in refused(capfd, *given, main=replay.main)


ROWS = "class,bytes,seconds\n"
MEASURED = {
    "a word": ROWS + "host,x,1\n",
    "NaN": ROWS + "host,nan,1\nhost,2,1\n",
    "infinite": ROWS + "host,1,inf\nhost,2,inf\n",
    "short": ROWS + "host\n",
    "tiny": ROWS + "host,1,1e-320\nhost,2,1e-320\n",
    "negative": ROWS + "host,-1,1\nhost,2,1\n",
    "other bytes": ROWS.encode() + b"host,1,\xe9\n",
}


@pytest.mark.parametrize("kind", MEASURED)
def test_measurements_that_are_none(kind, tmp_path, capfd):
    text = MEASURED[kind]
    file = tmp_path / "rows.csv"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert "rows.csv" in refused(capfd, file, main=calibrate.main)


@pytest.mark.parametrize("main", [plot, predict, replay, run, waiting])
@pytest.mark.parametrize("name", ["a" * 9000, "a\nb", "\x1b[2J", "\ud800"])
def test_a_name_that_no_file_has_gets_one_line(name, main, tmp_path, capfd):
    words = {
        predict: [name, name, "--out", tmp_path / "out.csv"],
        replay: [tmp_path, "--network", name],
        run: ["--config", name],
    }
    line = refused(capfd, *words.get(main, [name]), main=main.main)
    assert len(line) < 1100
    assert line.strip().isprintable() or name == "\ud800"


def test_two_dashes_are_no_value(tmp_path, capfd):
    line = refused(capfd, tmp_path, "--network=--", main=replay.main)
    assert "argument --network: expected one argument" in line


def test_a_graph_file_prints_no_warning(tmp_path, capfd):
    shape = "(4294967296, 4294967296)"
    head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".encode()
    head = b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head
    (tmp_path / "graph.npy").write_bytes(head)
    words = [*SMALL, "--topology", tmp_path / "graph.npy", "--out", tmp_path / "out"]
    assert "cannot read the graph" in refused(capfd, *words)


def test_the_library_says_the_same():
    for make, words in (
        (lambda: PPCA(X, "x"), "n_components must be an integer, got 'x'"),
        (lambda: Topology.ring(10**30), "at most 200000 nodes"),
        (lambda: Sending(bits="x"), "bits must be an integer"),
        (lambda: Sending(send_every=10**5000), "a number of very many digits"),
    ):
        with pytest.raises(DadmmError, match=words):
            make()


def test_overflow_names_the_node_and_the_remedy():
    problems = [PPCA(X[:20], 2), PPCA(X[20:] * 1e155, 2)]
    with pytest.raises(DadmmError, match=r"node 1: the objective is .* rescale"):
        solve(problems, Topology.complete(2), scheme="fixed", coordinates="raw")
    with pytest.raises(DadmmError, match="overflow"):
        solve(problems, Topology.complete(2))
