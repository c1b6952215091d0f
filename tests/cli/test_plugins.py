"""Problems of one's own on the command line: found, given their settings, and run."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dadmm.core.errors import ConfigError
from dadmm.data import datasets
from dadmm.data.encoding import Rows
from dadmm.problems import builder
from dadmm.run import main
from dadmm.runs.config import RunConfig
from tests.cli.test_sessions import MODULE
from tests.support.processes import ROOT, mpiexec
from tests.support.runs import arrays_of, refused


@pytest.fixture(autouse=True)
def package(tmp_path, monkeypatch):
    """A package in a folder of its own, and a working folder beside it."""
    inner = tmp_path / "site" / "mypackage"
    inner.mkdir(parents=True)
    (inner / "__init__.py").write_text("")
    (inner / "module.py").write_text(MODULE)
    (inner / "sick.py").write_text("import no_such_library\n")
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.syspath_prepend(tmp_path / "site")
    yield tmp_path / "site"
    forget()


def offer(site, **points):
    info = site / "mypackage-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mypackage\nVersion: 1")
    lines = [f"{name} = {place}\n" for name, place in points.items()]
    (info / "entry_points.txt").write_text("[dadmm.problems]\n" + "".join(lines))


def run(*words, out="run"):
    assert main([*map(str, words), "--out", out, "--quiet"]) == 0
    return arrays_of(out)


SMALL = ("--nodes", 3, "--tolerance", 1e-8)
MEAN = ("--problem", "mypackage.module:Mean")


@pytest.mark.parametrize("source", ["rows with gaps", "none"])
def test_a_class_is_named_by_its_module(source):
    """And solved, here for the mean: gaps are its own, and samples may be synthetic."""
    samples, words = datasets.synthetic(30, 4)[0], ("--data", "rows.npy")
    if source == "none":
        words = ("--n-samples", 30, "--dimension", 4)
    else:
        np.save("rows.npy", np.vstack([samples[:29], [[1, np.nan, 1, 1]]]))
        samples = samples[:29]
    assert main([*map(str, (*MEAN, *SMALL, *words)), "--quiet"]) == 0
    (folder,) = Path("runs").iterdir()

    assert folder.name.startswith("Mean-")
    found = arrays_of(folder)["mean"]
    assert_allclose(found, np.tile(samples.mean(axis=0), (3, 1)), atol=1e-6)
    assert builder.find("mypackage.module:Group.Inner").__name__ == "Mean"


@pytest.mark.mpi
def test_ranks_find_what_one_process_finds(package):
    """Here by a name that an installed package offers."""
    for i in range(3):
        np.save(f"part-{i}.npy", np.random.default_rng(i).normal(size=(4 + i, 3)))
    offer(package, mean="mypackage.module:Mean")
    words = ("--problem", "mean", "--data", "part-{rank}.npy", "--quiet")
    words += ("--problem-settings", '{"offset": [1, 2, 3]}')
    path = {"PYTHONPATH": f"{package}:{ROOT}"}
    job = ("-m", "dadmm.run", *words, "--out", "mpi")
    ended = mpiexec(3, *job, cwd=Path.cwd(), **path)

    assert ended.code == 0, ended.err
    assert_array_equal(arrays_of("mpi")["mean"], run(*words, "--nodes", 3)["mean"])
    with pytest.raises(ConfigError, match="mean"):
        RunConfig(problem="maen")


def test_settings_reach_the_constructor():
    np.save("rows.npy", np.ones((6, 2)))
    given = json.dumps({"weight": 2, "offset": [1.0, 3.0]})
    Path("run.toml").write_text("[problem_settings]\nweight = 2\noffset = [1.0, 3.0]\n")
    words = (*MEAN, *SMALL, "--data", "rows.npy")
    flag = run(*words, "--problem-settings", given)
    table = run(*words, "--config", "run.toml", out="table")
    again = run("--config", "table/config.toml", "--trust", out="again")

    assert_allclose(flag["mean"], [[2.0, 4.0]] * 3, atol=1e-7)
    for other in (table, again):
        assert_array_equal(other["mean"], flag["mean"])


def test_a_plugin_keeps_its_own_defaults():
    rows = Rows(np.ones((4, 2)))
    plain = RunConfig(problem=MEAN[1])
    told = RunConfig(problem=MEAN[1], alpha=3.0, n_components=7)

    assert plain.problem_flags(3) == {}
    assert plain.n_components is None
    problem = builder.build(MEAN[1], rows, told.problem_flags(3), {})
    assert (problem.alpha, problem.n_components) == (1.0, 7)
    assert builder.build(MEAN[1], rows, plain.problem_flags(3), {}).n_components == 2


def test_a_module_may_lie_in_the_current_folder(monkeypatch):
    (Path.cwd() / "beside.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", ".")])

    assert builder.find("beside:Mean").__module__ == "beside"
    del sys.modules["beside"]


def test_a_class_need_not_keep_its_arguments(monkeypatch, tmp_path):
    """The command of docs/problems.md; its class has no attribute alpha."""
    monkeypatch.syspath_prepend(str(ROOT))
    problem = ["--problem", "examples.own_problem:RidgeWithIntercept"]

    assert main([*problem, "--nodes", "3", "--out", str(tmp_path / "run")]) == 0
    assert "alpha" not in json.loads((tmp_path / "run" / "summary.json").read_text())


def test_a_dry_run_imports_nothing(capsys):
    assert main(["--problem", "mypackage.sick:Mean", "--dry-run"]) == 0
    assert 'problem = "mypackage.sick:Mean"\n' in capsys.readouterr().out


def forget():
    """Forget the modules that were imported; return whether there were any."""
    mine = [name for name in sys.modules if name.partition(".")[0] == "mypackage"]
    for name in mine:
        del sys.modules[name]
    return bool(mine)


def test_a_file_does_not_name_code(capsys):
    """Nothing is imported, and nothing made; a command line may, by name or trust."""
    Path("theirs.toml").write_text(f'problem = "{MEAN[1]}"\nmax_iter = 3\n')
    for words in ((), ("--dry-run",)):
        said = refused(capsys, "--config", "theirs.toml", *words)
        assert f"--problem {MEAN[1]}" in said
        assert "--trust" in said
    assert [path.name for path in Path().iterdir()] == ["theirs.toml"]
    assert not forget()
    given = ("--config", "theirs.toml", "--nodes", 3, "--tolerance", 0)
    named = run(*given, *MEAN, out="named")["mean"]
    assert_array_equal(run(*given, "--trust", out="trusted")["mean"], named)
    assert "trust" not in Path("trusted/config.toml").read_text()
    assert forget()
    resume = ("--resume", "named", "--max-iter")
    assert MEAN[1] in refused(capsys, *resume, 6)
    assert not forget()
    for words in ((6, *MEAN), (7, "--trust")):
        assert main([*map(str, (*resume, *words)), "--quiet"]) == 0


def test_a_registered_name_does_not_come_from_the_current_folder(monkeypatch):
    Path("theirs.py").write_text(MODULE)
    here = str(Path.cwd())
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", ".", here)])
    monkeypatch.setattr(builder, "_from_packages", lambda: {"mean": "theirs:Mean"})

    assert RunConfig(problem="mean").is_plugin
    with pytest.raises(ConfigError, match="theirs"):
        builder.find("mean")
    assert "theirs" not in sys.modules
