#!/bin/sh
# TEMPLATE, NOT TESTED: written from the manual of PBS.
# Run dadmm as a PBS job, one rank per node of the graph; edit the lines with #PBS:
#     DADMM_ARGS="--topology ring --out runs/x" qsub -V launch/pbs.sh
# With -V the job gets all your variables; without it, none. (-v with values would cut
# them at commas; -v DADMM_ARGS,DADMM_HOME passes the values that you have.)
# With --out, the same command resumes the run after a time limit. The variables are
# those of launch/slurm.sbatch, except DADMM_LAUNCHER and DADMM_REQUEUE. See
# docs/clusters.md.
#PBS -N dadmm
#PBS -j oe
#PBS -l select=2:ncpus=10:mpiprocs=10
#PBS -l walltime=01:00:00

# PBS gives no warning before the time limit, so that timeout(1) does: this many seconds
# after the start, at least a minute before the walltime above.
seconds=3480

cd "${PBS_O_WORKDIR:-.}" || exit 2
project=${DADMM_HOME:-$PWD}
if ! test -x "$project/launch/with-python"; then
    echo "dadmm: cannot find the project in '$project';" \
        "submit from its folder, or name it with DADMM_HOME=/path/to/dadmm" >&2
    exit 2
fi
exec timeout --foreground --preserve-status --signal=USR1 "$seconds" \
    "$project/launch/with-python" launch pbs "$@"
