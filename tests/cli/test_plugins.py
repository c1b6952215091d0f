"""Problems of one's own on the command line: found, given their settings, and run."""

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
from tests.support.runs import arrays_of, refused, run_job, summary_of

SMALL = ("--nodes", 3, "--tolerance", 1e-8)
MEAN = ("--problem", "mypackage.module:Mean")


@pytest.fixture(autouse=True)
def package(home, monkeypatch):
    inner = home / "site" / "mypackage"
    inner.mkdir(parents=True)
    (inner / "__init__.py").write_text("")
    (inner / "module.py").write_text(MODULE)
    (inner / "sick.py").write_text("import no_such_library\n")
    (home / "work").mkdir()
    monkeypatch.chdir(home / "work")
    monkeypatch.syspath_prepend(home / "site")
    yield home / "site"
    forget()


def forget():
    """Forget the modules of the package; return whether there were any."""
    mine = [name for name in sys.modules if name.partition(".")[0] == "mypackage"]
    for name in mine:
        del sys.modules[name]
    return bool(mine)


def test_a_class_is_named_by_its_module_and_gets_its_settings():
    assert main([*map(str, (*MEAN, *SMALL)), "--dimension", "4", "--quiet"]) == 0
    (folder,) = Path("runs").iterdir()
    assert folder.name.startswith("Mean-")
    samples = datasets.synthetic(500, 4)[0]
    found = arrays_of(folder)["mean"]
    assert_allclose(found, np.tile(samples.mean(axis=0), (3, 1)), atol=1e-6)

    np.save("rows.npy", np.vstack([np.ones((6, 2)), [[1, np.nan]]]))
    Path("run.toml").write_text("[problem_settings]\nweight = 2\noffset = [1.0, 3.0]\n")
    words = (*MEAN, *SMALL, "--data", "rows.npy")
    given = ("--problem-settings", '{"weight": 2, "offset": [1.0, 3.0]}')
    flag = arrays_of(run_job(*words, *given, out="flag"))["mean"]
    assert_allclose(flag, [[2.0, 4.0]] * 3, atol=1e-7)
    run_job(*words, "--config", "run.toml", out="table")
    run_job("--config", "table/config.toml", "--trust", out="again")
    for other in ("table", "again"):
        assert_array_equal(arrays_of(other)["mean"], flag)
    assert builder.find("mypackage.module:Group.Inner").__name__ == "Mean"


@pytest.mark.mpi
def test_ranks_find_what_one_process_finds(package):
    info = package / "mypackage-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mypackage\nVersion: 1")
    points = "[dadmm.problems]\nmean = mypackage.module:Mean\n"
    (info / "entry_points.txt").write_text(points)
    np.save("rows.npy", np.random.default_rng(0).normal(size=(14, 3)))
    words = ("--problem", "mean", "--data", "rows.npy", "--quiet")
    job = ("-m", "dadmm.run", *words, "--out", "mpi")
    ended = mpiexec(3, *job, cwd=Path.cwd(), PYTHONPATH=f"{package}:{ROOT}")

    assert ended.code == 0, ended.err
    alone = arrays_of(run_job(*words, "--nodes", 3))
    assert_array_equal(arrays_of("mpi")["mean"], alone["mean"])
    with pytest.raises(ConfigError, match="mean"):
        RunConfig(problem="maen")


def test_a_plugin_keeps_its_own_defaults():
    rows = Rows(np.ones((4, 2)))
    plain = RunConfig(problem=MEAN[1]).problem_flags(3)
    told = RunConfig(problem=MEAN[1], alpha=3.0, n_components=7).problem_flags(3)

    assert plain == {}
    problem = builder.build(MEAN[1], rows, told, {})
    assert (problem.alpha, problem.n_components) == (1.0, 7)
    assert builder.build(MEAN[1], rows, plain, {}).n_components == 2


def test_only_a_module_that_is_named_may_lie_in_the_current_folder(monkeypatch):
    for name in ("beside", "theirs"):
        Path(f"{name}.py").write_text(MODULE)
    here = ("", ".", str(Path.cwd()))
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in here])
    monkeypatch.setattr(builder, "_from_packages", lambda: {"mean": "theirs:Mean"})

    assert RunConfig(problem="mean").is_plugin
    with pytest.raises(ConfigError, match="theirs"):
        builder.find("mean")
    assert "theirs" not in sys.modules
    assert builder.find("beside:Mean").__module__ == "beside"
    del sys.modules["beside"]


def test_a_class_need_not_keep_its_arguments(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    problem = "examples.own_problem:RidgeWithIntercept"

    assert "alpha" not in summary_of(run_job("--problem", problem, "--nodes", 3))


def test_a_dry_run_imports_nothing(capsys):
    assert main(["--problem", "mypackage.sick:Mean", "--dry-run"]) == 0
    assert 'problem = "mypackage.sick:Mean"\n' in capsys.readouterr().out


def test_a_file_does_not_name_code(capsys):
    Path("theirs.toml").write_text(f'problem = "{MEAN[1]}"\nmax_iter = 3\n')
    for words in ((), ("--dry-run",)):
        said = refused(capsys, "--config", "theirs.toml", *words)
        assert f"--problem {MEAN[1]}" in said
        assert "--trust" in said
    assert [path.name for path in Path().iterdir()] == ["theirs.toml"]
    assert not forget()
    given = ("--config", "theirs.toml", "--nodes", 3, "--tolerance", 0)
    named, trusted = run_job(*given, *MEAN), run_job(*given, "--trust", out="trusted")
    assert_array_equal(arrays_of(trusted)["mean"], arrays_of(named)["mean"])
    assert "trust" not in (trusted / "config.toml").read_text()
    assert forget()
    resume = ("--resume", "run", "--max-iter")
    assert MEAN[1] in refused(capsys, *resume, 6)
    assert not forget()
    for words in ((6, *MEAN), (7, "--trust")):
        assert main([*map(str, (*resume, *words)), "--quiet"]) == 0
