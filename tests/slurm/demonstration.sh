#!/bin/sh
# Compare a job of 20 ranks that is stopped by its time limit and resumed with one that
# is not stopped: are the results equal, bit for bit?
#     PYTHON tests/slurm/cluster.py tests/slurm/demonstration.sh PYTHON
# where PYTHON is that of an environment with dadmm and mpiexec, as .venv/bin/python.
python=$1
DADMM_ENVIRONMENT=$(dirname "$(dirname "$python")")
export DADMM_ENVIRONMENT
project=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd -P) || exit 1
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" && ln -s "$project/launch" launch || exit 1
settings="--topology ring --dimension 100 --n-samples 2000 --tolerance 1e-7 --max-iter 5000"

show() {
    echo "\$ $*"
    "$@"
}

submit() { # submit a job, wait for it, ten minutes at most, and show its output
    show sbatch "$@" | tee submitted || exit 1
    job=$(sed -n 's/^Submitted batch job //p' submitted)
    for _ in $(seq 1200); do
        test "$(squeue -h -j "$job" 2>/dev/null)" || break
        sleep 0.5
    done
    show cat "dadmm-$job.out"
}

# shellcheck disable=SC2086
{
    submit -n 20 -N 2 --time=1 launch/slurm.sbatch $settings --out runs/limited
    submit -n 20 -N 2 launch/slurm.sbatch $settings --out runs/limited
    submit -n 20 -N 2 launch/slurm.sbatch $settings --out runs/whole
}
"$python" - <<'END'
import numpy as np

one, other = np.load("runs/limited/result.npz"), np.load("runs/whole/result.npz")
assert one.files == other.files
same = [one[name].tobytes() == other[name].tobytes() for name in one.files]
print("result.npz:", ", ".join(one.files))
print("bitwise equal" if all(same) else "DIFFERENT")
raise SystemExit(not all(same))
END
