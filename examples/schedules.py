"""
Graphs that change from iteration to iteration
==============================================

Let each node talk to one neighbour at a time, or let different graphs take turns.

A ``Schedule`` has the edges of each round, and repeats after the last. Only the union
of the rounds must be connected. An edge that is absent carries no message, and keeps
its multiplier and its penalty until its next turn.
"""

import matplotlib.pyplot as plt
import numpy as np

import dadmm
from dadmm.show.panels import places
from dadmm.show.style import CYCLE, GREY, STYLE

plt.rcParams.update(STYLE)

# %%
# The schedules
# -------------
# ``matchings`` divides the edges of a graph into rounds in which every node has at most
# one neighbour, as radios with one partner at a time need it. The other schedule uses
# the columns of the grid in one round and its rows in the next: no round is connected,
# but the union is.

side = 4
grid = dadmm.Topology.grid(side * side)
columns = [(i, j) for i, j in grid.edges if j == i + side]
rows = [(i, j) for i, j in grid.edges if j == i + 1]
schedules = {
    "all edges": None,
    "columns, then rows": dadmm.Schedule(side * side, [columns, rows]),
    "matchings": dadmm.Schedule.matchings(grid),
}
print("matchings have", schedules["matchings"].period, "rounds")

# %%
# The runs
# --------
# The graph that ``solve`` takes is the union, ``schedule.union``, which is the grid
# here. Nodes agree on the end as usual; it takes a little longer, because information
# needs more iterations to cross the network.

n_nodes, size = side * side, 6
rng = np.random.default_rng(0)
X = rng.normal(size=(n_nodes, 15, size))
y = X @ rng.normal(size=size) + rng.normal(size=(n_nodes, 15))
problems = [
    dadmm.problems.LeastSquares(X[i], y[i], fit_intercept=False) for i in range(n_nodes)
]
pooled = np.linalg.lstsq(X.reshape(-1, size), y.ravel())[0]
distance = {"distance": lambda theta: np.linalg.norm(theta - pooled)}
results = {}
for name, schedule in schedules.items():
    result = results[name] = dadmm.solve(
        problems,
        grid,
        schedule=schedule,
        record=dadmm.Record(observe=distance),
        stopping=dadmm.Stopping(tolerance=1e-6),
    )
    print(
        f"{name}: {result.status} after {result.iterations} iterations, "
        f"{result.traffic.messages} messages"
    )

# %%
# With fewer edges in each iteration a run takes more iterations, and here fewer
# messages.

figure = plt.figure(figsize=(8, 5.2), layout="constrained")
upper, lower = figure.subfigures(2, 1, height_ratios=(1, 1.7))
upper.suptitle("The rounds: columns, rows, and the matchings", fontsize=9)
rounds = [*schedules["columns, then rows"].rounds, *schedules["matchings"].rounds]
names = ["columns", "rows"]
names += [f"matching {k + 1}" for k in range(len(rounds) - 2)]
where = places(grid)
for axis, name, edges in zip(
    upper.subplots(1, len(rounds)), names, rounds, strict=True
):
    for i, j in grid.edges:
        axis.plot(*where[[i, j]].T, color="0.88", zorder=1)
    for i, j in edges:
        axis.plot(*where[[i, j]].T, color=CYCLE[0]["color"], linewidth=2.5, zorder=2)
    axis.plot(*where.T, "o", color=GREY, zorder=3)
    axis.set(title=name, aspect="equal")
    axis.axis("off")

by_time, by_messages = lower.subplots(1, 2, sharey=True)
for (name, result), style in zip(results.items(), CYCLE, strict=False):
    error = result.history["distance"].max(axis=1)
    messages = np.cumsum(result.history["messages"].mean(axis=1))
    by_time.semilogy(error, label=name, markevery=0.15, **style)
    by_messages.semilogy(messages, error, markevery=0.15, **style)
by_time.set(xlabel="iteration", ylabel="distance of the worst node\nfrom the solution")
by_messages.set_xlabel("messages that a node has sent, on average")
by_time.legend()
for axis in (by_time, by_messages):
    axis.grid()
figure.savefig("schedules.png")
