#!/bin/sh
# TEMPLATE, NOT RUN: written from PBS's manual, since there was no PBS to try it on.
# Run dadmm as a PBS job, one rank per node of the graph; edit the lines with #PBS:
#     DADMM_ARGS="--topology ring --out runs/x" qsub -V launch/pbs.sh
# With -V the job has all your variables, of which qsub hands on none by itself. (-v with
# values would cut them at commas; -v DADMM_ARGS,DADMM_HOME takes those you have.)
# With an --out, the same command goes on after a time limit. docs/clusters.md has more;
# the variables are those of launch/slurm.sbatch, less DADMM_LAUNCHER and DADMM_REQUEUE.
#PBS -N dadmm
#PBS -j oe
#PBS -l select=2:ncpus=10:mpiprocs=10
#PBS -l walltime=01:00:00

# PBS gives no warning before the time limit, so a clock of our own does: this many
# seconds after the start, a minute or more before the walltime above.
seconds=3480

cd "${PBS_O_WORKDIR:-.}" || exit 2
project=${DADMM_HOME:-$PWD}
if ! test -x "$project/launch/with-python"; then
    echo "dadmm: cannot find the project in '$project';" \
        "submit from its folder, or name it with DADMM_HOME=/path/to/dadmm" >&2
    exit 2
fi
# A compute node may have no new Python but that of an environment: yours, if it is no
# container, from which there is no way to start ranks, or the project's.
own=${DADMM_ENVIRONMENT:+"$DADMM_ENVIRONMENT/bin/python"}
test -z "$DADMM_IMAGE" || own=
for python in ${own:+"$own"} "$project"/.venv*/bin/python; do
    test -x "$python" && export DADMM_PYTHON="${DADMM_PYTHON:-$python}"
done
exec timeout --foreground --preserve-status --signal=USR1 "$seconds" \
    "$project/launch/with-python" launch pbs "$@"
