"""
Fewer bytes to the same accuracy
================================

Choose how parameters are encoded in messages, and count what it saves.

Ten nodes on a ring fit a logistic regression. A message has the parameters in double
precision, or their change since the last message in fewer bits. What rounding leaves
out is in the next change, so all encodings reach the same solution.
"""

import matplotlib.pyplot as plt
import numpy as np

import dadmm
from dadmm.show.style import CYCLE, STYLE

plt.rcParams.update(STYLE)

# %%
# The problem
# -----------
# The argument ``alpha`` of a problem is the penalty of one node. The nodes together
# have the penalty 1, and so has the reference: one node with all rows.

n_nodes, alpha = 10, 1.0
X, y, _ = dadmm.datasets.classification(n_samples=400, dimension=30)
problems = [
    dadmm.problems.LogisticRegression(X[i::n_nodes], y[i::n_nodes], alpha / n_nodes)
    for i in range(n_nodes)
]
pooled = dadmm.solve(
    [dadmm.problems.LogisticRegression(X, y, alpha)],
    dadmm.Topology.chain(1),
    stopping=dadmm.Stopping(tolerance=1e-10),
).solution

# %%
# The runs
# --------
# ``Sending`` has the settings of messages. ``observe`` adds a column to the history:
# the distance of each node from the reference, in each iteration. ``result.traffic``
# counts every message between neighbours with its header. We stop at a tight tolerance,
# so that the curves are long enough to compare.

sendings = {
    "float64": dadmm.Sending("float64"),
    "float32": dadmm.Sending("float32"),
    "float16": dadmm.Sending("float16"),
    "8 bits": dadmm.Sending("quantised:8"),
    "4 bits": dadmm.Sending("quantised:4"),
    "2 bits": dadmm.Sending("quantised:2"),
}
distance = {"distance": lambda theta: np.abs(theta - pooled).max()}
results = {}
for name, sending in sendings.items():
    result = results[name] = dadmm.solve(
        problems,
        dadmm.Topology.ring(n_nodes),
        sending=sending,
        stopping=dadmm.Stopping(tolerance=1e-7),
        record=dadmm.Record(observe=distance),
    )
    print(
        f"{name}: {result.status} after {result.iterations} iterations, "
        f"{result.traffic.bytes / 1e3:.0f} kB"
    )

# %%
# All are certified: sums over the network at the end bound the error, whatever was
# rounded on the way. Few bits cost some iterations and save bytes all the same, until
# the header of 8 bytes is a large part of a message. Fewer bytes save time only where
# the network is slow; :doc:`/docs/communication` says how to predict that.

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained")
for (name, result), style in zip(results.items(), CYCLE, strict=False):
    error = result.history["distance"].max(axis=1)
    sent = np.cumsum(result.history["bytes"].sum(axis=1)) / 1e3
    left.loglog(sent, error, label=name, markevery=0.2, **style)
left.set(xlabel="sent by all nodes (kB)", ylabel="largest error of a coefficient")
left.set_title("Error of the worst node against bytes")
left.set_xticks([1, 10, 100, 1000], labels=["1", "10", "100", "1000"])
left.legend(ncols=2)
left.grid()

kilobytes = [result.traffic.bytes / 1e3 for result in results.values()]
bars = right.barh(
    list(results), kilobytes, color=[style["color"] for style in CYCLE[: len(results)]]
)
counts = [
    f"{kb:.0f} kB, {r.iterations} iterations"
    for kb, r in zip(kilobytes, results.values(), strict=True)
]
right.bar_label(bars, counts, padding=3, fontsize=8)
right.set(xlim=(0, 1.7 * max(kilobytes)), xlabel="sent by all nodes (kB)")
right.set_title("Bytes until the result is certified")
right.invert_yaxis()
figure.savefig("compressed_messages.png")
