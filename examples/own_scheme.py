"""
A penalty scheme of your own
============================

Write a rule that adapts the penalties of edges, and compare it with others.

The penalty of an edge says how strongly its two ends are pulled together. The graph
here is two clusters joined by one edge, a bridge, and the clusters have different data.
The rule below finds the bridge by itself, and raises the penalties there.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm

import dadmm
from dadmm.show.panels import places
from dadmm.show.style import CYCLE, SCHEME_STYLE, STYLE
from dadmm.show.to_matplotlib import STRENGTH

plt.rcParams.update(STYLE)

# %%
# The scheme
# ----------
# A scheme is a subclass of ``dadmm.penalty.Scheme`` with a method ``update``. Arrays
# have a row for each directed edge, or for each node. ``obs`` is what the nodes of this
# process know after an iteration, and ``state["eta"]`` is the penalty that this end of
# an edge proposes.
#
# This scheme compares the distance across each edge with the mean over the node's
# edges. Sums over the edges of a node go through ``obs.incidence``, so that the same
# code runs in one process and over MPI. After ``t_max`` the penalties stay as they are:
# ADMM converges if they settle.


class RaiseWideEdges(dadmm.penalty.Scheme):
    uses = ("eta0", "t_max")  # the settings that have an effect

    def update(self, state, obs):
        if obs.t >= self.t_max:
            return state
        gap = np.linalg.norm(obs.sent - obs.received, axis=1)  # by edge
        total = obs.incidence.reduce(np.add, gap, np.zeros(len(obs.theta)))  # by node
        mean = obs.incidence.spread(total / obs.incidence.count)  # by edge again
        return state | {"eta": state["eta"] * np.where(gap > 2 * mean, 1.2, 1.0)}


# %%
# The problem
# -----------
# Least squares on twelve nodes. The first coefficient of the two clusters differs, so
# that much has to pass over the bridge before all agree on the pooled solution.

n_nodes, n_rows, size = 12, 20, 5
rng = np.random.default_rng(0)
X = rng.normal(size=(n_nodes, n_rows, size))
coef = np.tile(rng.normal(size=size), (n_nodes, 1))
coef[:, 0] += np.where(np.arange(n_nodes) < n_nodes // 2, 1.0, -1.0)
y = np.einsum("nri,ni->nr", X, coef) + 0.5 * rng.normal(size=(n_nodes, n_rows))
problems = [
    dadmm.problems.LeastSquares(X[i], y[i], fit_intercept=False) for i in range(n_nodes)
]
pooled = np.linalg.lstsq(X.reshape(-1, size), y.ravel())[0]
graph = dadmm.Topology.cluster(n_nodes)

# %%
# The comparison
# --------------
# With ``tolerance=0`` a run does exactly ``max_iter`` iterations. A callback measures
# the distance of the worst node from the pooled solution. ``coordinates="raw"`` keeps
# the coordinates of the data, so that the penalties decide. (``snap`` also
# over-relaxes.)

schemes = {
    "fixed": dadmm.penalty.Fixed(eta0=1.0),
    "RaiseWideEdges": RaiseWideEdges(eta0=1.0),
    "snap": "snap",
}
errors, results = {}, {}
for name, scheme in schemes.items():
    curve = errors[name] = []

    def measure(t, run, curve=curve):
        curve.append(np.linalg.norm(run.theta - pooled, axis=1).max())

    results[name] = dadmm.solve(
        problems,
        graph,
        scheme=scheme,
        coordinates="raw",
        callbacks=[measure],
        stopping=dadmm.Stopping(tolerance=0, max_iter=100),
    )
    print(f"{name}: {curve[-1]:.0e} from the pooled solution")

# %%
# ``result.eta`` has what each end of an edge proposes, in the order of ``graph.edges``.
# An edge uses the mean of its two ends. We keep each edge once.

eta = results["RaiseWideEdges"].eta
eta = 0.5 * (eta + eta[graph.reverse])
once = graph.edges[:, 0] < graph.edges[:, 1]
edges, eta = graph.edges[once], eta[once]
bridge = edges[eta.argmax()]
print(f"largest penalty: {eta.max():.1f}, of the edge {bridge.tolist()}")

# %%
# The rule of this page helps much where one edge is the bottleneck. ``snap``, the
# default, needs no first penalty and is still faster.

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.5), layout="constrained")
for name, curve in errors.items():
    style = SCHEME_STYLE.get(name, CYCLE[0])
    left.semilogy(range(1, 101), curve, label=name, markevery=15, **style)
left.set(xlabel="iteration", ylabel="distance of the worst node", ylim=(1e-10, 3))
left.set_title("Distance from the pooled solution")
left.legend()
left.grid()

where = places(graph)
colours = ScalarMappable(LogNorm(1, eta.max()), STRENGTH)
for k in eta.argsort():  # the strong ones on top
    width = 1 + 4 * np.log(eta[k]) / np.log(eta.max())
    right.plot(*where[edges[k]].T, color=colours.to_rgba(eta[k]), linewidth=width)
right.plot(*where.T, "o", color="white", markeredgecolor="black", markersize=13)
for node, place in enumerate(where):
    right.annotate(str(node), place, ha="center", va="center", fontsize=8)
right.set(aspect="equal", title="Penalties that RaiseWideEdges ends with")
right.margins(0.1)
right.axis("off")
bar = figure.colorbar(colours, ax=right, location="bottom", label="penalty of the edge")
bar.set_ticks([1, 2, 5, 10, 20], labels=["1", "2", "5", "10", "20"])
bar.minorticks_off()
figure.savefig("own_scheme.png")
