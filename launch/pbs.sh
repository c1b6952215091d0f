#!/bin/sh
# TEMPLATE, NOT RUN: written from PBS's manual, since there was no PBS to try it on.
# Run dadmm as a PBS job, one rank per node of the graph; edit the lines with #PBS:
#     qsub -v DADMM_ARGS="--topology ring --out runs/x" launch/pbs.sh
# Submit the same command again to go on after a time limit. docs/clusters.md has more;
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
# A compute node may have no new Python but that of the project's environment.
for python in "$project"/.venv*/bin/python; do
    test -x "$python" && export DADMM_PYTHON="${DADMM_PYTHON:-$python}"
done
# DADMM_ARGS is split at its blanks: qsub hands a script no arguments of its own
# shellcheck disable=SC2086
exec timeout --foreground --preserve-status --signal=USR1 "$seconds" \
    "$project/launch/with-python" batch.py pbs $DADMM_ARGS "$@"
