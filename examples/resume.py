"""
Checkpoints, a crash, and resuming
==================================

Save the state of a run, and continue after a crash as if nothing had happened.

All nodes save after the same iteration, in one file for each node. A resumed run gives
the same numbers as one that was never stopped, to the last bit.
"""

import tempfile

import matplotlib.pyplot as plt
import numpy as np

import dadmm
from dadmm.show.style import BLUE, GREY, ORANGE, STYLE, VERMILLION

plt.rcParams.update(STYLE)

# %%
# The run that is never stopped, to compare: D-PPCA on a ring from a shared random
# start.

samples, _ = dadmm.datasets.synthetic()
graph = dadmm.Topology.ring(8)
problems = [dadmm.problems.PPCA(x, 5) for x in dadmm.shard.split(samples, 8)]
whole = dadmm.solve(problems, graph, init="shared")
print("never stopped:", whole.status, "after", whole.iterations, "iterations")

# %%
# A run that crashes
# ------------------
# ``Checkpoints`` says where to save, and here after every 10 iterations; by default it
# is once a minute. Over MPI all ranks must see the folder. A callback is called after
# each iteration, and here it simulates the crash.

crash_at = 27
disagreement = []


def measure(t, run):
    disagreement.append(run.by_node(run.work.primal).max())
    if t == crash_at:
        raise RuntimeError(f"power failure in iteration {t}")


folder = tempfile.TemporaryDirectory()  # removed when this program ends
saved = dadmm.Checkpoints(folder.name, every=10)
try:
    dadmm.solve(problems, graph, init="shared", checkpoints=saved, callbacks=[measure])
except RuntimeError as error:
    print("the run ended:", error)

# %%
# Resuming
# --------
# ``resume=True`` continues from the newest complete checkpoint. Settings that decide
# the numbers must be the same; ``max_iter`` and ``every`` may change. The history of a
# resumed run starts at the resume.

again = dadmm.Checkpoints(folder.name, every=10, resume=True)
result = dadmm.solve(problems, graph, init="shared", checkpoints=again)
print("resumed after iteration", again.start)
print("resumed:", result.status, "after", result.iterations, "iterations")
same = np.array_equal(result.theta, whole.theta)
print("the same parameters, to the last bit:", same)

# %%
# On the command line a run saves by itself: ``dadmm run --resume RUN`` continues the
# run in the folder ``RUN``. :doc:`/docs/running` has the details.

figure, axis = plt.subplots(figsize=(7.5, 3.6), layout="constrained")
t = np.arange(1, whole.iterations + 1)
axis.semilogy(
    t,
    whole.history["primal"].max(axis=1),
    color=GREY,
    linewidth=6,
    alpha=0.5,
    label="never stopped",
)
axis.semilogy(t[:crash_at], disagreement, color=BLUE, label="until the crash")
axis.semilogy(
    t[again.start :],
    result.history["primal"].max(axis=1),
    color=VERMILLION,
    linestyle="--",
    label="resumed",
)
axis.plot(crash_at, disagreement[-1], "X", color=BLUE, markersize=10, label="crash")
for save in range(10, whole.iterations, 10):
    axis.axvline(save, color=ORANGE, linewidth=0.8, linestyle=":")
axis.plot([], [], color=ORANGE, linestyle=":", label="checkpoints")
axis.set(xlabel="iteration", ylabel="largest primal residual of a node")
axis.set_title("The resumed run repeats the lost iterations exactly")
axis.legend()
figure.savefig("resume.png")
