"""
A program for MPI
=================

Start one process for each node, on one machine or on many, with the same program that
also runs in a single process.

Save this file, and start it with five processes::

    mpiexec -n 5 python -m mpi4py mpi_program.py

Without ``mpiexec`` it runs all nodes in one process. The numbers are the same to the
last bit. With ``python -m mpi4py``, an exception on one rank ends all ranks; without it
the others may wait forever.
"""

import hashlib

import numpy as np
from mpi4py import MPI

import dadmm

# %%
# Each rank has its own rows
# --------------------------
# A real program would read the file of its rank here, such as ``f"site-{node}.npy"``.
# These rows are drawn, with one random stream for each node.

n_nodes, size = 5, 4
comm = MPI.COMM_WORLD


def problem_of(node):
    """Return the problem of one node, from its own rows."""
    rng = np.random.default_rng([0, node])
    X = rng.normal(size=(30, size))
    y = X @ np.arange(1.0, size + 1) + rng.normal(size=30)
    return dadmm.problems.LeastSquares(X, y)


# %%
# The run
# -------
# Over MPI each rank passes its own problem, and ``comm``. In one process ``solve``
# takes the problems of all nodes. Every rank ends with the same result.

graph = dadmm.Topology.ring(n_nodes)
stopping = dadmm.Stopping(tolerance=1e-6)
if comm.size == 1:
    problems = [problem_of(node) for node in range(n_nodes)]
    result = dadmm.solve(problems, graph, stopping=stopping)
else:
    result = dadmm.solve(problem_of(comm.rank), graph, stopping=stopping, comm=comm)

# %%
# Only rank 0 prints. The last line is a fingerprint of all bits of the result.

if comm.rank == 0:
    print("number of processes:", comm.size)
    print(f"{result.status} after {result.iterations} iterations")
    print("coefficients:", result.parts(0).coef.round(3))
    bits = hashlib.sha256(result.theta.tobytes()).hexdigest()[:12]
    print("bits:", bits)

# %%
# Results of all nodes are on every rank, unless ``gather`` says otherwise. Rank 0
# draws.

if comm.rank == 0:
    import matplotlib.pyplot as plt

    from dadmm.show.style import CYCLE, STYLE

    plt.rcParams.update(STYLE)
    figure, axis = plt.subplots(figsize=(7, 3.4), layout="constrained")
    for node, curve in enumerate(result.history["disagreement"].T):
        axis.semilogy(curve, label=f"rank {node}", markevery=0.2, **CYCLE[node])
    axis.set(xlabel="iteration", ylabel="distance from the neighbours")
    axis.set_title("Five nodes on a ring agree")
    axis.legend()
    axis.grid()
    figure.savefig("mpi_program.png")

# %%
# The program ends here. This page also starts it again with five processes, if there is
# an ``mpiexec``, and compares the bits.

if comm.size == 1:
    import os
    import shutil
    import subprocess
    import sys
    from pathlib import Path

    beside = Path(sys.executable).parent  # where pip installs mpiexec
    mpiexec = shutil.which("mpiexec", path=f"{beside}{os.pathsep}{os.environ['PATH']}")
    if mpiexec:
        ended = subprocess.run(
            [mpiexec, "-n", "5", sys.executable, "-m", "mpi4py", sys.argv[0]],
            env=dict(os.environ),  # without what MPI has set in this process
            capture_output=True,
            text=True,
            timeout=200,
        )
        print(ended.stdout or ended.stderr)
        print("the same bits:", f"bits: {bits}" in ended.stdout)
