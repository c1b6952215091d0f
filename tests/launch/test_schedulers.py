"""What Slurm and PBS give a job, and how it starts ranks."""

from pathlib import Path

import pytest

from launch.base.messages import UsageError
from launch.batch import batch_job, schedulers
from launch.batch.schedulers import Allocation
from launch.mpi.runtime import Runtime
from tests.support.processes import ROOT


@pytest.mark.parametrize(("text", "here"), [("12,8", 12), ("4", 4), ("10(x2),3", 10)])
def test_the_variables_of_slurm_are_read(text, here):
    variables = {
        "SLURM_JOB_ID": "17", "SLURM_NTASKS": "20", "SLURM_CPUS_ON_NODE": "16",
        "SLURM_ARRAY_JOB_ID": "15", "SLURM_ARRAY_TASK_ID": "2",
        "SLURM_TASKS_PER_NODE": text,
    }  # fmt: skip

    assert schedulers.slurm(variables) == ("slurm", "15_2", 20, 16, here, "")


def test_the_node_file_of_pbs_is_read(tmp_path):
    file = tmp_path / "hosts"
    file.write_text("a\na\nb\n")
    variables = {"PBS_NODEFILE": str(file), "PBS_JOBID": "12.server", "NCPUS": "2"}

    assert schedulers.pbs(variables) == ("pbs", "12", 3, 2, 2, str(file))


@pytest.mark.parametrize(
    ("system", "variables", "sentence"),
    [
        ("slurm", {}, "not inside a Slurm job; submit: sbatch -n 20"),
        ("slurm", {"SLURM_JOB_ID": "1"}, "the job has no number of ranks"),
        ("pbs", {}, "not inside a PBS job"),
    ],
)
def test_outside_of_a_job_there_is_an_error(system, variables, sentence):
    with pytest.raises(UsageError, match=sentence):
        schedulers.SYSTEMS[system](variables)


@pytest.mark.parametrize(
    ("cores", "ranks_here", "allowed", "choice", "pin"),
    [
        (16, 16, 16, "auto", True),  # the job may use only its own cores
        (16, 20, 16, "auto", False),  # more ranks than cores
        (16, 16, 64, "auto", False),  # it may use the cores of other jobs
        (None, 4, 64, "auto", False),  # its cores are unknown
        (16, 16, 64, "yes", True),
        (16, 16, 16, "no", False),
    ],
)
def test_ranks_are_pinned_to_cores_of_their_job(
    cores, ranks_here, allowed, choice, pin
):
    """Two jobs must not pin ranks to the same cores."""
    allocation = Allocation("slurm", "1", 20, cores, ranks_here)

    assert schedulers.is_pinned(allocation, allowed, choice) is pin


@pytest.fixture
def runtime(tmp_path):
    """A runtime whose mpiexec claims to be that of MPICH."""
    mpiexec = tmp_path / "mpiexec"
    mpiexec.write_text("#!/bin/sh\necho HYDRA build details:\n")
    mpiexec.chmod(0o755)
    return Runtime("python", str(mpiexec), {})


@pytest.mark.parametrize(
    ("version", "pin", "options", "file"),
    [
        ("HYDRA build", True, "-bind-to core -machinefile FILE", "b:2\na:1\n"),
        ("HYDRA build", False, "-machinefile FILE", "b:2\na:1\n"),
        ("(Open MPI) 5.0.11", True, "--bind-to core --hostfile FILE", "b\nb\na\n"),
        ("(Open MPI) 5.0.11", False, "--bind-to none --hostfile FILE", "b\nb\na\n"),
        ("Intel(R) MPI Library", True, "-machinefile FILE", "b:2\na:1\n"),
    ],
)
def test_mpiexec_gets_the_hosts_of_pbs(runtime, tmp_path, version, pin, options, file):
    """Each host once, although it has two chunks; Open MPI needs variables' names."""
    Path(runtime.mpiexec).write_text(f"#!/bin/sh\necho '{version}'\n")
    (tmp_path / "hosts").write_text("b\na\nb\n")
    allocation = Allocation("pbs", "1", 3, 2, 2, str(tmp_path / "hosts"))
    runtime = runtime._replace(variables={"PYTHONPATH": "x"})
    with schedulers.start(allocation, runtime, pin, ["job"]) as (command, variables):
        name = command[len(options.split())]
        rest = "--map-by seq -x PYTHONPATH" if "Open" in version else ""
        words = f"{options.replace('FILE', name)} {rest} -n 3 job"

        assert command == [runtime.mpiexec, *words.split()]
        assert Path(name).read_text() == file
        assert variables.get("I_MPI_PIN") == ("1" if "Intel" in version else None)


def test_srun_uses_the_pmi_of_mpich(runtime):
    allocation = Allocation("slurm", "1", 3, None, 2)
    runtime = runtime._replace(variables={"DADMM_LAUNCHER": "srun"})
    with schedulers.start(allocation, runtime, True, ["job"]) as (command, variables):
        assert command[:3] == ["srun", "-n", "3"]
        assert command[-2:] == ["--cpu-bind=cores", "job"]
        assert variables["SLURM_MPI_TYPE"] == "pmi2"


@pytest.mark.parametrize(("system", "name"), [("pbs", "srun"), ("slurm", "prun")])
def test_an_unknown_launcher_is_an_error(runtime, system, name):
    allocation = Allocation(system, "1", 3, None, 2)
    runtime = runtime._replace(variables={"DADMM_LAUNCHER": name})

    started = schedulers.start(allocation, runtime, False, ["job"])
    with pytest.raises(UsageError, match="DADMM_LAUNCHER must be mpiexec, or srun"):
        started.__enter__()


@pytest.mark.parametrize(("image", "found"), [("", "mpiexec"), ("dadmm.sif", "")])
def test_an_image_does_not_use_the_mpi_of_the_host(
    runtime, tmp_path, monkeypatch, image, found
):
    """Its library may not load there."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("DADMM_IMAGE", image)
    monkeypatch.setenv("DADMM_MPIEXEC", "")
    chosen = batch_job.user_runtime(ROOT / "launch" / "container")

    assert Path(chosen.mpiexec).name == found


def test_under_pbs_a_run_is_resumed_by_a_variable(monkeypatch):
    """With the MPI of the run, as qsub passes no arguments."""
    monkeypatch.chdir(ROOT)
    allocation = Allocation("pbs", "7", 4, None, 4)
    folder = batch_job.default_folder(allocation)
    wanted = {"overwrite": False, "problem": "ppca"}

    assert batch_job.resume_instruction(wanted, folder, allocation, "impi") == (
        "run DADMM_ARGS='--mpi impi --resume runs/pbs-7' qsub -V ./launch/pbs.sh"
    )
