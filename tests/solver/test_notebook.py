"""A result in a notebook: frames, figures, a folder that the commands read, replays."""

import json
import sys

import networkx as nx
import numpy as np
import pytest

import dadmm
from dadmm.__main__ import main
from dadmm.core.errors import ConfigError, OutputError
from dadmm.runs.stored import StoredRun

TOWNS = nx.Graph([("Ulm", "Bonn"), ("Bonn", "Kiel"), ("Kiel", "Ulm"), ("Kiel", "Jena")])


class Halved(dadmm.penalty.Scheme):
    """A scheme of one's own, which reports must read without its code."""

    def update(self, state, obs):
        return state | {"eta": state["eta"] / 2} if obs.t == 5 else state


@pytest.fixture(scope="module")
def result():
    X, y, _ = dadmm.datasets.regression(80, 3)
    parts = [dadmm.problems.LeastSquares(X[i::4], y[i::4]) for i in range(4)]
    record = dadmm.Record(edges=True, observe={"length": np.linalg.norm})
    return dadmm.solve(parts, TOWNS, record=record, scheme=Halved(eta0=3.0))


def test_a_saved_result_is_the_folder_of_a_run(result, tmp_path, capsys):
    """Names and rows are kept; report, replay and predict read the folder."""
    folder = result.save(tmp_path / "a")
    run = StoredRun.read(folder)

    assert run.topology == result.topology
    assert run.topology.names == ("Ulm", "Bonn", "Kiel", "Jena")
    assert np.array_equal(run.column("length"), result.history["length"])
    assert np.array_equal(run.eta, result.history.edges["eta"])
    assert run.summary["bytes"] == result.traffic.bytes
    error = run.summary["consensus"]["error"]
    assert run.summary["metrics"] == {"consensus_error": error}
    assert run.summary["coefficients"].keys() == {"x0", "x1", "x2", "intercept"}
    assert "n_samples" not in run.config.applied()  # the data were not drawn
    new, out, model = tmp_path / "new.csv", tmp_path / "out", folder / "model.json"
    new.write_text("x0,x1,x2\n1,2,3\n")
    for words in (
        ["report", folder],
        ["predict", model, new, "--out", tmp_path / "b.csv"],
        ["replay", folder, "--network", "wan", "--out", out],
    ):
        assert main(list(map(str, words))) == 0, capsys.readouterr().err
    assert "Kiel" in (folder / "report.html").read_text()
    assert result.replay("wan").seconds == json.loads(out.read_text())[0]["seconds"]
    with pytest.raises(OutputError):
        result.save(folder)
    result.save(folder, overwrite=True)


def test_figures_are_drawn_and_reprs_are_short(result):
    pytest.importorskip("matplotlib")
    for kind in ((), ("network",)):
        assert result.plot(*kind).axes
    with pytest.raises(ConfigError, match="kind"):
        result.plot("nothing")
    encoding, parts = dadmm.encode([{"a": [1.0, 2.0]}] * 4, TOWNS)
    model = dadmm.Model.of(result, "least_squares")
    shown = [result, result.history, result.traffic, model, encoding, parts[0]]
    assert max(len(repr(value)) for value in shown) < 400
    assert "certified" in result._repr_html_()


def test_frames_have_a_row_for_each_number(result, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pandas", None)
        with pytest.raises(ConfigError, match="pandas"):
            result.to_frame()
    pytest.importorskip("pandas")
    history, edges, traffic = map(result.to_frame, ("history", "edges", "traffic"))

    lengths = history.loc[history.node == "Kiel", "length"].tolist()
    assert lengths == result.history["length"][:, 2].tolist()
    assert (len(history), len(edges)) == (4 * result.iterations, 8 * result.iterations)
    assert traffic.bytes.sum() == result.traffic.bytes
    assert set(zip(traffic.i, traffic.j, strict=True)) >= {("Jena", "Kiel")}
